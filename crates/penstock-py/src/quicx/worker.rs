//! A worker for Python; `penstock.quicx.Worker` wraps it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_quicx_net::{self as net, Error, Result, Task, TaskId, WorkerOptions};
use pyo3::prelude::*;

use super::options::ReachOptions;
use super::{wait, wait_at_most};
use crate::pipestream::waiting::Timeout;

/// A task: ID, type, payload.
pub(crate) type TaskTuple = (u32, String, Vec<u8>);

/// A worker's connection.
#[pyclass(frozen, name = "QuicxWorker", module = "penstock._core")]
pub(crate) struct QuicxWorker {
    worker: Mutex<Option<Arc<net::Worker>>>,
}

#[pymethods]
impl QuicxWorker {
    #[new]
    fn new(py: Python<'_>, options: ReachOptions, types: Vec<String>, prefetch: u16, heartbeat: f64) -> PyResult<Self> {
        wait(py, Timeout::NEVER, Self::connect(&options, types, prefetch, heartbeat))
    }

    /// Return the next task; `None` after the timeout.
    fn next_task(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<TaskTuple>> {
        wait_at_most(py, timeout, self.next())
    }

    fn done(&self, py: Python<'_>, id: u32, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.verdict(id, None))
    }

    fn failed(&self, py: Python<'_>, id: u32, reason: Vec<u8>, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.verdict(id, Some(reason)))
    }

    /// Report these tasks as done; those that are not held are ignored.
    fn done_all(&self, py: Python<'_>, ids: Vec<u32>, timeout: Timeout) -> PyResult<()> {
        let ids = ids.into_iter().map(TaskId).collect();
        wait(py, timeout, async { self.open()?.done_all(ids).await })
    }

    /// Wait until all tasks have arrived that the daemon has for this worker now.
    fn settle(&self, py: Python<'_>, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, async { self.open()?.settle().await })
    }

    /// Request no more tasks; those that have already arrived are still returned.
    fn rest(&self, py: Python<'_>, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.pause())
    }

    /// Close the connection; the daemon gives its tasks to other workers.
    fn close(&self) {
        drop(self.slot().take());
    }
}

impl QuicxWorker {
    pub(crate) async fn connect(
        options: &ReachOptions,
        types: Vec<String>,
        prefetch: u16,
        heartbeat: f64,
    ) -> Result<Self> {
        let heartbeat = Duration::try_from_secs_f64(heartbeat).ok().filter(|beat| !beat.is_zero());
        let heartbeat = heartbeat.ok_or_else(|| Error::misuse("heartbeat is a number of seconds above 0".into()))?;
        let options = WorkerOptions { types, prefetch, heartbeat, ..WorkerOptions::new(options.net()?) };
        Ok(Self { worker: Mutex::new(Some(Arc::new(net::Worker::connect(options).await?))) })
    }

    pub(crate) async fn next(&self) -> Result<TaskTuple> {
        let Task { id, kind, payload } = self.open()?.next().await?;
        Ok((id.0, kind, payload))
    }

    pub(crate) async fn verdict(&self, id: u32, failure: Option<Vec<u8>>) -> Result<()> {
        let worker = self.open()?;
        match failure {
            None => worker.done(TaskId(id)).await,
            Some(reason) => worker.failed(TaskId(id), reason).await,
        }
    }

    pub(crate) async fn pause(&self) -> Result<()> {
        self.open()?.rest().await
    }

    fn open(&self) -> Result<Arc<net::Worker>> {
        self.slot().clone().ok_or_else(|| Error::misuse("the worker is closed".into()))
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<net::Worker>>> {
        lock(&self.worker)
    }
}
