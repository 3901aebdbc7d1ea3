//! The awaitable operations of `penstock.aio.pimp`.

use std::sync::Arc;

use penstock_io::runtime;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::PimpBuffer;
use super::consumer::PimpConsumer;
use super::job::PimpJob;
use super::options::{ReachOptions, ServeOptions};
use super::raised;
use super::sender::{PieceArgument, PimpSender};
use crate::error::joined;
use crate::pipestream::aio::{Futures, Operation};

/// Start listening.
#[pyfunction]
pub(crate) fn pimp_listen(futures: &Futures, listen: String, options: ServeOptions) -> PyResult<Operation> {
    let bound =
        runtime::spawn_blocking(move || PimpBuffer::bind(&listen, options)).map_err(|error| raised(&error.into()))?;
    Ok(futures.start(async move { joined(bound).await.map_err(|error| raised(&error)) }))
}

/// Stop accepting connections, and end.
#[pyfunction]
pub(crate) fn pimp_close(futures: &Futures, buffer: Py<PimpBuffer>, grace: f64) -> Operation {
    futures.start(async move { buffer.get().shutdown(grace).await.map_err(|error| raised(&error)) })
}

/// Make a job's client. Reads the trust.
#[pyfunction]
pub(crate) fn pimp_open(futures: &Futures, url: String, options: ReachOptions) -> PyResult<Operation> {
    let opened =
        runtime::spawn_blocking(move || PimpJob::open(&url, &options)).map_err(|error| raised(&error.into()))?;
    Ok(futures.start(async move { joined(opened).await.map_err(|error| raised(&error)) }))
}

/// Create a job.
#[pyfunction]
#[pyo3(signature = (futures, job, key, ttl, read_key))]
pub(crate) fn pimp_create(
    futures: &Futures,
    job: Py<PimpJob>,
    key: String,
    ttl: Option<u64>,
    read_key: Option<String>,
) -> Operation {
    futures
        .start(async move { job.get().created(&key, ttl, read_key.as_deref()).await.map_err(|error| raised(&error)) })
}

/// Take over a job.
#[pyfunction]
pub(crate) fn pimp_take_over(
    futures: &Futures,
    job: Py<PimpJob>,
    etag: String,
    key: String,
    new_key: String,
) -> Operation {
    futures.start(async move { job.get().taken_over(&etag, &key, &new_key).await.map_err(|error| raised(&error)) })
}

/// Return the job's status.
#[pyfunction]
#[pyo3(signature = (futures, job, key))]
pub(crate) fn pimp_status(futures: &Futures, job: Py<PimpJob>, key: Option<String>) -> Operation {
    futures.start(async move { job.get().known(key.as_deref()).await.map_err(|error| raised(&error)) })
}

/// Cancel the job for the consumer.
#[pyfunction]
pub(crate) fn pimp_cancel(futures: &Futures, job: &PimpJob, key: String) -> Operation {
    let client = Arc::clone(&job.client);
    futures.start(async move { client.cancel(&key).await.map_err(|error| raised(&error)) })
}

/// Delete the job at the buffer.
#[pyfunction]
pub(crate) fn pimp_delete(futures: &Futures, job: &PimpJob, key: String) -> Operation {
    let client = Arc::clone(&job.client);
    futures.start(async move { client.delete(&key).await.map_err(|error| raised(&error)) })
}

/// Send a piece.
#[pyfunction]
pub(crate) fn pimp_send(futures: &Futures, sender: Py<PimpSender>, piece: PieceArgument) -> Operation {
    let piece = piece.piece();
    futures.start(async move { sender.get().sender.send(piece).await.map_err(|error| raised(&error)) })
}

/// Set the payload's content type.
#[pyfunction]
pub(crate) fn pimp_describe(futures: &Futures, sender: Py<PimpSender>, content_type: String) -> Operation {
    futures.start(async move { sender.get().sender.describe(content_type).await.map_err(|error| raised(&error)) })
}

/// Wait until the buffer has what was sent.
#[pyfunction]
pub(crate) fn pimp_flush(futures: &Futures, sender: Py<PimpSender>) -> Operation {
    futures.start(async move { sender.get().sender.flush().await.map_err(|error| raised(&error)) })
}

/// End the job, with an error if there is one.
#[pyfunction]
#[pyo3(signature = (futures, sender, why))]
pub(crate) fn pimp_end(futures: &Futures, sender: Py<PimpSender>, why: Option<String>) -> Operation {
    futures.start(async move {
        let sender = &sender.get().sender;
        let ended = match why {
            Some(why) => sender.fail(why).await,
            None => sender.finish().await,
        };
        ended.map_err(|error| raised(&error))
    })
}

/// Wait for chunk 0.
#[pyfunction]
pub(crate) fn pimp_metadata(futures: &Futures, consumer: Py<PimpConsumer>) -> Operation {
    futures.start(async move { consumer.get().described().await.map_err(|error| raised(&error)) })
}

/// Return the next bytes.
#[pyfunction]
pub(crate) fn pimp_next(futures: &Futures, consumer: Py<PimpConsumer>) -> Operation {
    futures.start(async move {
        let data = consumer.get().received().await.map_err(|error| raised(&error))?;
        Ok(data.map(|data| Python::attach(|py| PyBytes::new(py, &data).unbind())))
    })
}
