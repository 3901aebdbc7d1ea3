//! A producer for Python; `penstock.quicx.Producer` wraps it.

use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_io::duration::interval;
use penstock_quicx_net::{self as net, Batch, Error, Outcome, ProducerOptions, Result, Submitted, TaskId, Watch};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::options::ReachOptions;
use super::{StatsTuple, raised, stats_tuple, wait, wait_at_most};
use crate::pipestream::waiting::Timeout;

/// The answer to many submits: the IDs, 0 for a refused submit, and the refusals with index, code
/// and message.
pub(crate) type Answers = (Vec<u32>, Vec<(usize, u8, String)>);
/// A dead task: ID, type, attempts, reason.
pub(crate) type DeadTuple = (u32, String, u16, Vec<u8>);
/// An outcome for Python: the ID, the reason of a failure, and the exception if the outcome is
/// unknown.
pub(crate) type OutcomeTuple = (u32, Option<Vec<u8>>, Option<PyErr>);
/// The key that identifies a unique task.
pub(crate) type Key = [u8; 16];

/// A producer, which can also monitor.
#[pyclass(frozen, name = "QuicxProducer", module = "penstock._core")]
pub(crate) struct QuicxProducer {
    pub(crate) producer: Arc<net::Producer>,
    watch: Watch,
}

#[pymethods]
impl QuicxProducer {
    #[new]
    fn new(py: Python<'_>, options: ReachOptions, heartbeat: f64) -> PyResult<Self> {
        wait(py, Timeout::NEVER, Self::connect(&options, heartbeat))
    }

    #[pyo3(signature = (kind, payload, key, timeout))]
    fn submit(
        &self,
        py: Python<'_>,
        kind: &str,
        payload: PyBackedBytes,
        key: Option<Key>,
        timeout: Timeout,
    ) -> PyResult<u32> {
        let batch = batch(kind, &[payload], key.map(|key| vec![key])).map_err(|error| raised(&error))?;
        wait(py, timeout, async { one(self.producer.submit(batch).await?) })
    }

    #[pyo3(signature = (kind, payloads, keys, timeout))]
    fn submit_many(
        &self,
        py: Python<'_>,
        kind: &str,
        payloads: Vec<PyBackedBytes>,
        keys: Option<Vec<Key>>,
        timeout: Timeout,
    ) -> PyResult<Answers> {
        let batch = batch(kind, &payloads, keys).map_err(|error| raised(&error))?;
        wait(py, timeout, async { Ok(answers(self.producer.submit(batch).await?)) })
    }

    /// Wait for an outcome: return why the task failed, or `None`.
    fn observe(&self, py: Python<'_>, id: u32, timeout: Timeout) -> PyResult<Option<Vec<u8>>> {
        wait(py, timeout, async { self.producer.observe(TaskId(id)).await.map(Outcome::err) })
    }

    /// Watch a task, so that `next_outcome` returns its outcome. Waits while too many are watched.
    fn watch(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.watch.add(TaskId(id)))
    }

    /// Return the next watched outcome; `None` after the timeout.
    fn next_outcome(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<OutcomeTuple>> {
        let found = wait_at_most(py, timeout, async { Ok(self.watch.next().await) })?;
        Ok(found.map(|(id, outcome)| match outcome {
            Ok(outcome) => (id.0, outcome.err(), None),
            Err(error) => (id.0, None, Some(raised(&error))),
        }))
    }

    fn stats(&self, py: Python<'_>, timeout: Timeout) -> PyResult<StatsTuple> {
        wait(py, timeout, self.producer.stats()).map(stats_tuple)
    }

    /// Return which of these tasks are done, or ended so long ago that they are no longer known.
    fn done_before(&self, py: Python<'_>, ids: Vec<u32>, timeout: Timeout) -> PyResult<Vec<bool>> {
        let ids: Vec<TaskId> = ids.into_iter().map(TaskId).collect();
        wait(py, timeout, self.producer.done_before(&ids))
    }

    fn dead_list(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Vec<DeadTuple>> {
        wait(py, timeout, self.list())
    }

    fn dead_requeue(&self, py: Python<'_>, id: u32, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.producer.dead_requeue(TaskId(id)))
    }

    fn dead_drop(&self, py: Python<'_>, id: u32, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.producer.dead_drop(TaskId(id)))
    }

    /// Close the connection, even if other calls still wait for results.
    fn close(&self) {
        self.watch.close();
    }

    /// Ask the daemon to stop.
    fn stop(&self, py: Python<'_>, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, self.producer.stop())
    }
}

impl QuicxProducer {
    /// Connect a producer. `heartbeat` is in seconds; 0 means none.
    pub(crate) async fn connect(options: &ReachOptions, heartbeat: f64) -> Result<Self> {
        let options = ProducerOptions { connect: options.net()?, heartbeat: interval("heartbeat", heartbeat)? };
        let producer = Arc::new(net::Producer::connect(options).await?);
        Ok(Self { watch: Watch::new(Arc::clone(&producer)), producer })
    }

    pub(crate) async fn list(&self) -> Result<Vec<DeadTuple>> {
        let dead = self.producer.dead_list().await?;
        let tuple = |task: net::DeadEntry| {
            (task.id.0, String::from_utf8_lossy(&task.kind).into_owned(), task.attempts, task.reason)
        };
        Ok(dead.into_iter().map(tuple).collect())
    }
}

/// Make a batch of tasks of one type, with their keys if there are any.
pub(crate) fn batch(kind: &str, payloads: &[PyBackedBytes], keys: Option<Vec<Key>>) -> Result<Batch> {
    let mut batch = Batch::default();
    let Some(keys) = keys else {
        for payload in payloads {
            batch.push(kind.as_bytes(), payload)?;
        }
        return Ok(batch);
    };
    if keys.len() != payloads.len() {
        return Err(Error::misuse(format!("{} payloads and {} keys", payloads.len(), keys.len())));
    }
    for (payload, key) in payloads.iter().zip(keys) {
        batch.push_once(key, kind.as_bytes(), payload)?;
    }
    Ok(batch)
}

pub(crate) fn one(answers: Vec<Submitted>) -> Result<u32> {
    let missing = || Error::internal("the answers to one submit", "there is none");
    answers.into_iter().next().ok_or_else(missing)?.map(|id| id.0).map_err(Error::Refused)
}

pub(crate) fn answers(answers: Vec<Submitted>) -> Answers {
    let mut refused = Vec::new();
    let ids = answers.into_iter().enumerate().map(|(index, answer)| match answer {
        Ok(id) => id.0,
        Err(error) => {
            refused.push((index, error.code.byte(), error.message));
            0
        }
    });
    (ids.collect(), refused)
}
