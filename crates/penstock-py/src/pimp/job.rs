//! A job at a buffer; `penstock.pimp.Job` wraps it.

use std::sync::Arc;

use penstock_pimp_net::{self as net, JobClient, Result, StatusBody, Trigger, check_url};
use pyo3::prelude::*;

use super::options::ReachOptions;
use super::{raised, wait};
use crate::pipestream::waiting::Timeout;

/// Whether the job is new, and its ETag.
pub(crate) type CreatedTuple = (bool, Option<String>);

/// A job's status, in the fields of the dataclass.
#[derive(IntoPyObject)]
pub(crate) struct StatusFields {
    state: &'static str,
    chunks: u32,
    bytes: u64,
    next_index: u64,
    created_at: u64,
    expires_at: u64,
    cancelled: bool,
    sha256: Option<String>,
    etag: Option<String>,
}

impl StatusFields {
    fn new((status, etag): (StatusBody, Option<String>)) -> Self {
        Self {
            state: status.state.name(),
            chunks: status.chunks,
            bytes: status.bytes,
            next_index: status.next_index,
            created_at: status.created_at,
            expires_at: status.expires_at,
            cancelled: status.cancelled,
            sha256: status.sha256.map(|digest| digest.to_string()),
            etag,
        }
    }
}

/// The client for one job.
#[pyclass(frozen, name = "PimpJob", module = "penstock._core")]
pub(crate) struct PimpJob {
    pub(crate) client: Arc<JobClient>,
}

#[pymethods]
impl PimpJob {
    #[new]
    fn new(py: Python<'_>, url: &str, options: ReachOptions) -> PyResult<Self> {
        py.detach(|| Self::open(url, &options)).map_err(|error| raised(&error))
    }

    fn url(&self) -> &str {
        self.client.url()
    }

    fn id(&self) -> String {
        self.client.id().to_string()
    }

    #[pyo3(signature = (key, ttl, read_key, timeout))]
    fn create(
        &self,
        py: Python<'_>,
        key: &str,
        ttl: Option<u64>,
        read_key: Option<&str>,
        timeout: Timeout,
    ) -> PyResult<CreatedTuple> {
        wait(py, timeout, self.created(key, ttl, read_key))
    }

    fn take_over(
        &self,
        py: Python<'_>,
        etag: &str,
        key: &str,
        new_key: &str,
        timeout: Timeout,
    ) -> PyResult<CreatedTuple> {
        wait(py, timeout, self.taken_over(etag, key, new_key))
    }

    #[pyo3(signature = (key, timeout))]
    fn status(&self, py: Python<'_>, key: Option<&str>, timeout: Timeout) -> PyResult<StatusFields> {
        wait(py, timeout, self.known(key))
    }

    fn cancel(&self, py: Python<'_>, key: &str, timeout: Timeout) -> PyResult<bool> {
        wait(py, timeout, self.client.cancel(key))
    }

    fn delete(&self, py: Python<'_>, key: &str, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.client.delete(key))
    }

    /// Write chunks by their indices, unchanged; return whether the consumer has cancelled the job.
    #[pyo3(signature = (key, chunks, done, failure, timeout))]
    fn write_chunks(
        &self,
        py: Python<'_>,
        key: &str,
        chunks: Vec<(u32, String)>,
        done: bool,
        failure: Option<&str>,
        timeout: Timeout,
    ) -> PyResult<bool> {
        wait(py, timeout, self.client.write_chunks(key, &chunks, done, failure))
    }
}

impl PimpJob {
    /// Make a client from a job's URL. This blocks on files.
    pub(crate) fn open(url: &str, options: &ReachOptions) -> Result<Self> {
        Ok(Self { client: Arc::new(JobClient::new(url, &options.net(url)?)?) })
    }

    pub(crate) async fn created(&self, key: &str, ttl: Option<u64>, read_key: Option<&str>) -> Result<CreatedTuple> {
        let created = self.client.create(key, ttl, read_key).await?;
        Ok((created.new, created.etag))
    }

    pub(crate) async fn taken_over(&self, etag: &str, key: &str, new_key: &str) -> Result<CreatedTuple> {
        let created = self.client.take_over(etag, key, new_key).await?;
        Ok((created.new, created.etag))
    }

    pub(crate) async fn known(&self, key: Option<&str>) -> Result<StatusFields> {
        self.client.status(key).await.map(StatusFields::new)
    }
}

/// Read a trigger request, and check the destination of its chunks. Return the jobId, the writeUrl, the writeKey, and
/// the payload in JSON.
#[pyfunction]
pub(crate) fn pimp_trigger(body: &[u8], allowed_hosts: Vec<String>) -> PyResult<(String, String, String, String)> {
    let trigger = Trigger::decode(body).map_err(|error| raised(&error.into()))?;
    check_url(&trigger.write_url, Some(&allowed_hosts)).map_err(|error| raised(&error))?;
    Ok((trigger.job_id, trigger.write_url, trigger.write_key, trigger.payload.get().to_owned()))
}

/// Ask a sender for a job.
#[pyfunction]
#[pyo3(signature = (url, options, token, body, timeout))]
pub(crate) fn pimp_ask(
    py: Python<'_>,
    url: &str,
    options: ReachOptions,
    token: Option<&str>,
    body: Vec<u8>,
    timeout: Timeout,
) -> PyResult<()> {
    let options = options.net(url).map_err(|error| raised(&error))?;
    wait(py, timeout, net::trigger(url, &options, token, body))
}
