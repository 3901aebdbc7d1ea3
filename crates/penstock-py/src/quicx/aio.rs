//! The awaitable operations of `penstock.aio.quicx`.

use std::sync::Arc;

use penstock_io::runtime;
use penstock_quicx_net::{Outcome, TaskId};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::daemon::QuicxDaemon;
use super::options::{ReachOptions, StartOptions};
use super::producer::{Key, QuicxProducer, answers, batch, one};
use super::worker::QuicxWorker;
use super::{raised, stats_tuple};
use crate::error::joined;
use crate::pipestream::aio::{Futures, Operation};

/// Start a daemon.
#[pyfunction]
pub(crate) fn quicx_start(futures: &Futures, options: StartOptions) -> PyResult<Operation> {
    let started =
        runtime::spawn_blocking(move || QuicxDaemon::start(options)).map_err(|error| raised(&error.into()))?;
    Ok(futures.start(async move { joined(started).await.map_err(|error| raised(&error)) }))
}

/// Stop a daemon; return how many tasks are left.
#[pyfunction]
pub(crate) fn quicx_stop(futures: &Futures, daemon: Py<QuicxDaemon>, drain: f64) -> Operation {
    futures.start(async move { daemon.get().shutdown(drain).await.map_err(|error| raised(&error)) })
}

/// Connect a producer.
#[pyfunction]
pub(crate) fn quicx_produce(futures: &Futures, options: ReachOptions, heartbeat: f64) -> Operation {
    futures.start(async move { QuicxProducer::connect(&options, heartbeat).await.map_err(|error| raised(&error)) })
}

/// Submit a task.
#[pyfunction]
#[pyo3(signature = (futures, producer, kind, payload, key))]
pub(crate) fn quicx_submit(
    futures: &Futures,
    producer: Py<QuicxProducer>,
    kind: &str,
    payload: PyBackedBytes,
    key: Option<Key>,
) -> PyResult<Operation> {
    let batch = batch(kind, &[payload], key.map(|key| vec![key])).map_err(|error| raised(&error))?;
    let producer = Arc::clone(&producer.get().producer);
    Ok(futures.start(async move { producer.submit(batch).await.and_then(one).map_err(|error| raised(&error)) }))
}

/// Submit tasks.
#[pyfunction]
#[pyo3(signature = (futures, producer, kind, payloads, keys))]
pub(crate) fn quicx_submit_many(
    futures: &Futures,
    producer: Py<QuicxProducer>,
    kind: &str,
    payloads: Vec<PyBackedBytes>,
    keys: Option<Vec<Key>>,
) -> PyResult<Operation> {
    let batch = batch(kind, &payloads, keys).map_err(|error| raised(&error))?;
    let producer = Arc::clone(&producer.get().producer);
    Ok(futures.start(async move { producer.submit(batch).await.map(answers).map_err(|error| raised(&error)) }))
}

/// Wait for an outcome.
#[pyfunction]
pub(crate) fn quicx_observe(futures: &Futures, producer: Py<QuicxProducer>, id: u32) -> Operation {
    let producer = Arc::clone(&producer.get().producer);
    futures.start(async move {
        producer.observe(TaskId(id)).await.map(|outcome: Outcome| outcome.err()).map_err(|error| raised(&error))
    })
}

/// Return the daemon's statistics.
#[pyfunction]
pub(crate) fn quicx_stats(futures: &Futures, producer: Py<QuicxProducer>) -> Operation {
    let producer = Arc::clone(&producer.get().producer);
    futures.start(async move { producer.stats().await.map(stats_tuple).map_err(|error| raised(&error)) })
}

/// Return which of these tasks are done, or ended so long ago that they are no longer known.
#[pyfunction]
pub(crate) fn quicx_done_before(futures: &Futures, producer: Py<QuicxProducer>, ids: Vec<u32>) -> Operation {
    let producer = Arc::clone(&producer.get().producer);
    let ids: Vec<TaskId> = ids.into_iter().map(TaskId).collect();
    futures.start(async move { producer.done_before(&ids).await.map_err(|error| raised(&error)) })
}

/// Return the dead list.
#[pyfunction]
pub(crate) fn quicx_dead_list(futures: &Futures, producer: Py<QuicxProducer>) -> Operation {
    futures.start(async move { producer.get().list().await.map_err(|error| raised(&error)) })
}

/// Queue a dead task again, or drop it.
#[pyfunction]
pub(crate) fn quicx_dead(futures: &Futures, producer: Py<QuicxProducer>, id: u32, requeue: bool) -> Operation {
    let producer = Arc::clone(&producer.get().producer);
    futures.start(async move {
        let id = TaskId(id);
        let done = if requeue { producer.dead_requeue(id).await } else { producer.dead_drop(id).await };
        done.map_err(|error| raised(&error))
    })
}

/// Connect a worker.
#[pyfunction]
pub(crate) fn quicx_work(
    futures: &Futures,
    options: ReachOptions,
    types: Vec<String>,
    prefetch: u16,
    heartbeat: f64,
) -> Operation {
    futures.start(async move {
        QuicxWorker::connect(&options, types, prefetch, heartbeat).await.map_err(|error| raised(&error))
    })
}

/// Return the next task.
#[pyfunction]
pub(crate) fn quicx_next(futures: &Futures, worker: Py<QuicxWorker>) -> Operation {
    futures.start(async move { worker.get().next().await.map_err(|error| raised(&error)) })
}

/// Report the result of a task: why it failed, or `None`.
#[pyfunction]
#[pyo3(signature = (futures, worker, id, failure))]
pub(crate) fn quicx_verdict(
    futures: &Futures,
    worker: Py<QuicxWorker>,
    id: u32,
    failure: Option<Vec<u8>>,
) -> Operation {
    futures.start(async move { worker.get().verdict(id, failure).await.map_err(|error| raised(&error)) })
}

/// Request no more tasks; those that have already arrived are still returned.
#[pyfunction]
pub(crate) fn quicx_rest(futures: &Futures, worker: Py<QuicxWorker>) -> Operation {
    futures.start(async move { worker.get().pause().await.map_err(|error| raised(&error)) })
}
