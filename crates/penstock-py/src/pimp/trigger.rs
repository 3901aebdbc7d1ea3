//! The trigger server for Python; `penstock.pimp.TriggerServer` wraps it.

use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use penstock_io::{Addresses, DriverError as _};
use penstock_pimp_net::{Error, PendingReply, Result, TriggerServer};
use pyo3::prelude::*;

use super::options::TriggerOptions;
use super::{closed, raised, wait};
use crate::pipestream::waiting::Timeout;

/// A server that listens for triggers.
#[pyclass(frozen, name = "PimpTriggerServer", module = "penstock._core")]
pub(crate) struct PimpTriggerServer {
    server: Arc<TriggerServer>,
}

/// A request that waits for its answer.
#[pyclass(frozen, name = "PimpAsked", module = "penstock._core")]
pub(crate) struct PimpAsked {
    request: Mutex<Option<PendingReply>>,
}

#[pymethods]
impl PimpTriggerServer {
    #[new]
    fn new(py: Python<'_>, listen: &str, options: TriggerOptions) -> PyResult<Self> {
        py.detach(|| Self::bind(listen, &options)).map_err(|error| raised(&error))
    }

    fn address(&self) -> String {
        self.server.address().to_string()
    }

    /// Return the fingerprint of the certificate; `None` without TLS.
    fn fingerprint(&self) -> Option<String> {
        self.server.fingerprint().map(|fingerprint| fingerprint.to_string())
    }

    /// Return `None`: a trigger serves no metrics.
    #[expect(clippy::unused_self, reason = "all listeners have this method")]
    const fn metrics_address(&self) -> Option<String> {
        None
    }

    /// Return the next request; `None` once the server is closed.
    fn next_request(&self, py: Python<'_>) -> PyResult<Option<PimpAsked>> {
        let next = wait(py, Timeout::NEVER, async { Ok(self.server.next().await) })?;
        Ok(next.map(|request| PimpAsked { request: Mutex::new(Some(request)) }))
    }

    /// Stop accepting connections, and wait for running requests for up to `grace` seconds.
    fn close(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        let server = Arc::clone(&self.server);
        wait(py, Timeout::NEVER, closed(grace, move |grace| server.close(grace)))
    }
}

impl PimpTriggerServer {
    fn bind(listen: &str, options: &TriggerOptions) -> Result<Self> {
        let server =
            TriggerServer::bind(Addresses::resolve(listen)?, options.server_tls()?.as_ref(), options.max_body)?;
        Ok(Self { server: Arc::new(server) })
    }
}

#[pymethods]
impl PimpAsked {
    /// Return the method, the body, its content type, and the authorization.
    fn request(&self) -> PyResult<(String, Vec<u8>, String, String)> {
        let request = lock(&self.request);
        let PendingReply { method, body, content_type, authorization, .. } = request.as_ref().ok_or_else(answered)?;
        Ok((method.clone(), body.clone(), content_type.clone(), authorization.clone()))
    }

    /// Answer the request, once.
    fn answer(&self, status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> PyResult<()> {
        let request = lock(&self.request).take();
        request.ok_or_else(answered)?.answer(status, headers, body);
        Ok(())
    }
}

fn answered() -> PyErr {
    raised(&Error::misuse("the request is answered already".into()))
}
