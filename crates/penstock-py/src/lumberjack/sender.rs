//! A sender for Python; `penstock.lumberjack.Sender` wraps it.

use std::time::Duration;

use arrow_array::RecordBatch;
use penstock_io::duration;
use penstock_lumberjack_net::{self as net, Chunk, Line, Result};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3_arrow::PyRecordBatch;

use super::options::SendOptions;
use super::{raised, wait};
use crate::pipestream::waiting::{Timeout, attached};

/// The interval at which Python is asked whether to continue.
const ASK: Duration = Duration::from_millis(100);

/// The form in which a dictionary of strings arrives.
type PairList = Vec<(PyBackedBytes, PyBackedBytes)>;

/// A sender.
#[pyclass(frozen, name = "LumberjackSender", module = "penstock._core")]
pub(crate) struct LumberjackSender {
    pub(crate) sender: net::Sender,
}

#[pymethods]
impl LumberjackSender {
    #[new]
    fn new(py: Python<'_>, options: SendOptions) -> PyResult<Self> {
        py.detach(|| Self::open(&options)).map_err(|error| raised(&error))
    }

    /// Send events that are JSON documents, unchanged.
    fn send_json(&self, py: Python<'_>, events: Vec<PyBackedBytes>, wait: bool, timeout: Timeout) -> PyResult<u64> {
        self.send(py, &json(&events), wait, timeout)
    }

    /// Send events of pairs.
    fn send_maps(&self, py: Python<'_>, events: Vec<PairList>, wait: bool, timeout: Timeout) -> PyResult<u64> {
        self.send(py, &maps(&events), wait, timeout)
    }

    /// Send the rows of a column of strings or bytes, each as an unchanged event of JSON; nulls are skipped.
    fn send_column(
        &self,
        py: Python<'_>,
        batch: PyRecordBatch,
        column: &str,
        wait: bool,
        timeout: Timeout,
    ) -> PyResult<u64> {
        let batch = batch.into_inner();
        let chunk = py.detach(|| rows(&batch, column)).map_err(|error| raised(&error))?;
        self.send(py, &chunk, wait, timeout)
    }

    /// Send lines of text: JSON objects unchanged, others as the message of an object. Return how many events were sent
    /// so far, or `None` if `stop` ended the call.
    #[pyo3(signature = (text, map, time, host, path, offset, stop))]
    #[allow(clippy::too_many_arguments)]
    fn send_lines(
        &self,
        py: Python<'_>,
        text: PyBackedBytes,
        map: bool,
        time: &str,
        host: &str,
        path: Option<&str>,
        offset: u64,
        stop: Option<Py<PyAny>>,
    ) -> PyResult<Option<u64>> {
        let chunk = py.detach(|| {
            let mut chunk = Chunk::default();
            Line { time, host, path }.push_all(&mut chunk, &text, offset, map);
            chunk
        });
        let sending = self.sender.send(&chunk);
        let Some(stop) = stop else { return wait(py, Timeout::NEVER, sending).map(Some) };
        let sending = async {
            tokio::select! {
                biased;
                given = sending => given.map(Some),
                () = stopped(&stop) => Ok(None),
            }
        };
        wait(py, Timeout::NEVER, sending)
    }

    /// Return whether the sender has failed: then nothing more will be acknowledged.
    fn has_failed(&self) -> bool {
        self.sender.watermark().is_err()
    }

    /// Wait until this many events since the beginning are acknowledged; without a number, all that were sent.
    fn flush(&self, py: Python<'_>, events: Option<u64>, timeout: Timeout) -> PyResult<()> {
        wait(py, timeout, async {
            match events {
                Some(events) => self.sender.acknowledged(events).await,
                None => self.sender.flush().await,
            }
        })
    }

    /// Return how many events are acknowledged without a gap.
    fn acknowledged(&self) -> PyResult<u64> {
        self.sender.watermark().map_err(|error| raised(&error))
    }

    /// End immediately, without waiting for acknowledgements.
    fn abandon(&self) {
        self.sender.abandon();
    }

    /// Wait for the acknowledgements for up to `grace` seconds, and end.
    fn close(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.sender.close(duration::grace(grace)))
    }
}

impl LumberjackSender {
    pub(crate) fn open(options: &SendOptions) -> Result<Self> {
        Ok(Self { sender: net::Sender::new(options.net()?)? })
    }

    fn send(&self, py: Python<'_>, chunk: &Chunk, wait_for_all: bool, timeout: Timeout) -> PyResult<u64> {
        wait(py, timeout, send(&self.sender, chunk, wait_for_all))
    }
}

/// Wait until the Python function returns true.
async fn stopped(stop: &Py<PyAny>) {
    let check = || attached(|py| stop.call0(py).and_then(|stopped| stopped.is_truthy(py)).unwrap_or(true));
    while !check() {
        tokio::time::sleep(ASK).await;
    }
}

/// Send events; with `wait_for_all`, wait until all are acknowledged.
pub(crate) async fn send(sender: &net::Sender, chunk: &Chunk, wait_for_all: bool) -> Result<u64> {
    let given = sender.send(chunk).await?;
    if wait_for_all {
        sender.acknowledged(given).await?;
    }
    Ok(given)
}

pub(crate) fn json(events: &[PyBackedBytes]) -> Chunk {
    let mut chunk = Chunk::default();
    events.iter().for_each(|event| chunk.push_json(event));
    chunk
}

pub(crate) fn maps(events: &[PairList]) -> Chunk {
    let mut chunk = Chunk::default();
    for pairs in events {
        chunk.push_map(pairs.iter().map(|(key, value)| (&**key, &**value)));
    }
    chunk
}

pub(crate) fn rows(batch: &RecordBatch, column: &str) -> Result<Chunk> {
    let mut chunk = Chunk::default();
    chunk.push_column(batch, column)?;
    Ok(chunk)
}
