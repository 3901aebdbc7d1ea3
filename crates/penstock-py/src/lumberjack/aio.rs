//! The awaitable operations of `penstock.aio.lumberjack`, for receivers and senders.

use penstock_io::{duration, runtime};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3_arrow::{PyRecordBatch, PySchema};

use super::options::{ReceiveOptions, SendOptions};
use super::raised;
use super::receiver::{Into, Kept, LumberjackReceiver};
use super::sender::{LumberjackSender, json, maps, rows, send};
use crate::error::joined;
use crate::pipestream::aio::{Futures, Operation};

/// Start listening.
#[pyfunction]
#[pyo3(signature = (futures, listen, options, schema=None, spool=None))]
pub(crate) fn lumberjack_listen(
    futures: &Futures,
    listen: String,
    options: ReceiveOptions,
    schema: Option<PySchema>,
    spool: Option<Kept>,
) -> PyResult<Operation> {
    let into = Into::new(schema.map(PySchema::into_inner), spool).map_err(|error| raised(&error))?;
    let bound = runtime::spawn_blocking(move || LumberjackReceiver::bind(&listen, &options, into));
    let bound = bound.map_err(|error| raised(&error.into()))?;
    Ok(futures.start(async move { joined(bound).await.map_err(|error| raised(&error)) }))
}

/// Return the next batch; `None` once the receiver is closed.
#[pyfunction]
pub(crate) fn lumberjack_next(futures: &Futures, receiver: Py<LumberjackReceiver>) -> Operation {
    futures.start(async move { receiver.get().next().await.map_err(|error| raised(&error)) })
}

/// Accept nothing more, and close.
#[pyfunction]
pub(crate) fn lumberjack_shutdown(futures: &Futures, receiver: Py<LumberjackReceiver>, grace: f64) -> Operation {
    futures.start(async move { receiver.get().shutdown(grace).await.map_err(|error| raised(&error)) })
}

/// Open a sender. Reads the trust.
#[pyfunction]
pub(crate) fn lumberjack_open(futures: &Futures, options: SendOptions) -> PyResult<Operation> {
    let opened = runtime::spawn_blocking(move || LumberjackSender::open(&options));
    let opened = opened.map_err(|error| raised(&error.into()))?;
    Ok(futures.start(async move { joined(opened).await.map_err(|error| raised(&error)) }))
}

/// Send events of JSON.
#[pyfunction]
pub(crate) fn lumberjack_send_json(
    futures: &Futures,
    sender: Py<LumberjackSender>,
    events: Vec<PyBackedBytes>,
    wait: bool,
) -> Operation {
    futures.start(async move { send(&sender.get().sender, &json(&events), wait).await.map_err(|error| raised(&error)) })
}

/// Send events of pairs.
#[pyfunction]
pub(crate) fn lumberjack_send_maps(
    futures: &Futures,
    sender: Py<LumberjackSender>,
    events: Vec<Vec<(PyBackedBytes, PyBackedBytes)>>,
    wait: bool,
) -> Operation {
    futures.start(async move { send(&sender.get().sender, &maps(&events), wait).await.map_err(|error| raised(&error)) })
}

/// Send the rows of a column.
#[pyfunction]
pub(crate) fn lumberjack_send_column(
    futures: &Futures,
    sender: Py<LumberjackSender>,
    batch: PyRecordBatch,
    column: &str,
    wait: bool,
) -> PyResult<Operation> {
    let chunk = rows(&batch.into_inner(), column).map_err(|error| raised(&error))?;
    Ok(futures.start(async move { send(&sender.get().sender, &chunk, wait).await.map_err(|error| raised(&error)) }))
}

/// Wait until every event sent so far is acknowledged.
#[pyfunction]
pub(crate) fn lumberjack_flush(futures: &Futures, sender: Py<LumberjackSender>) -> Operation {
    futures.start(async move { sender.get().sender.flush().await.map_err(|error| raised(&error)) })
}

/// Wait for the acknowledgements for up to `grace` seconds, and end.
#[pyfunction]
pub(crate) fn lumberjack_close(futures: &Futures, sender: Py<LumberjackSender>, grace: f64) -> Operation {
    futures
        .start(async move { sender.get().sender.close(duration::grace(grace)).await.map_err(|error| raised(&error)) })
}
