//! A receiver for Python; `penstock.lumberjack.Receiver` wraps it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_array::RecordBatch;
use penstock_io::storage::StorageOptions;
use penstock_io::sync::lock;
use penstock_io::{DriverError as _, duration};
use penstock_lumberjack_net::columns::Layout;
use penstock_lumberjack_net::{self as net, Batches, Destination, Error, Result, channel};
use penstock_lumberjack_spool::{Keep, Spool, SpoolOptions};
use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatch, PySchema};

use super::options::ReceiveOptions;
use super::{raised, wait};
use crate::pipestream::waiting::{Timeout, wait_or_not};
use crate::spool::writer::Spool as PySpool;

/// A listening receiver.
#[pyclass(frozen, name = "LumberjackReceiver", module = "penstock._core")]
pub(crate) struct LumberjackReceiver {
    receiver: net::Receiver,
    /// The source of batches, unless the events go elsewhere.
    batches: Option<Batches>,
}

/// A receiver's counters, in the fields of the dataclass.
#[derive(IntoPyObject)]
pub(crate) struct ReceiverCounterFields {
    connections: u64,
    open: u64,
    refused: u64,
    handshakes_failed: u64,
    events: u64,
    bytes: u64,
    wire_bytes: u64,
    windows: u64,
    acknowledged: u64,
    held_bytes: u64,
    errors: Vec<(&'static str, u64)>,
    foreign: Vec<(&'static str, u64)>,
    peers: Vec<(String, u64, u64)>,
}

#[pymethods]
impl LumberjackReceiver {
    /// Without a schema the columns are the raw ones. With `discard`, events are counted, acknowledged and dropped;
    /// with a spool they are stored in it.
    #[new]
    #[pyo3(signature = (listen, options, schema=None, spool=None, discard=false))]
    fn new(
        py: Python<'_>,
        listen: &str,
        options: ReceiveOptions,
        schema: Option<PySchema>,
        spool: Option<Kept>,
        discard: bool,
    ) -> PyResult<Self> {
        let schema = schema.map(PySchema::into_inner);
        let into = if discard { Into::Nothing } else { Into::new(schema, spool).map_err(|error| raised(&error))? };
        py.detach(|| Self::bind(listen, &options, into)).map_err(|error| raised(&error))
    }

    fn address(&self) -> PyResult<String> {
        self.receiver.local_addr().map(|address| address.to_string()).map_err(|error| raised(&error))
    }

    /// Return the fingerprint of the certificate; `None` without TLS.
    fn fingerprint(&self) -> PyResult<Option<String>> {
        let fingerprint = self.receiver.fingerprint().map_err(|error| raised(&error))?;
        Ok(fingerprint.map(|fingerprint| fingerprint.to_string()))
    }

    fn metrics_address(&self) -> PyResult<Option<String>> {
        let address = self.receiver.metrics_addr().map_err(|error| raised(&error))?;
        Ok(address.map(|address| address.to_string()))
    }

    fn counters(&self) -> PyResult<ReceiverCounterFields> {
        let counters = self.receiver.counters().map_err(|error| raised(&error))?;
        Ok(ReceiverCounterFields {
            connections: counters.connections,
            open: counters.open,
            refused: counters.refused,
            handshakes_failed: counters.handshakes_failed,
            events: counters.events,
            bytes: counters.bytes,
            wire_bytes: counters.wire_bytes,
            windows: counters.windows,
            acknowledged: counters.acknowledged,
            held_bytes: counters.held_bytes,
            errors: counters.errors,
            foreign: counters.foreign,
            peers: counters.peers,
        })
    }

    /// Return the next batch; `None` once the receiver is closed.
    fn next_batch(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<LumberjackBatch>> {
        let next = wait_or_not(py, timeout, async { Ok(self.next().await) })?;
        let late = || raised(&Error::deadline("no batch has come within the time-out".into()));
        next.ok_or_else(late)?.map_err(|error| raised(&error))
    }

    /// Read the certificate again if its files have changed; return whether they had.
    fn reload(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.receiver.reload()).map_err(|error| raised(&error))
    }

    /// Accept nothing more, wait up to `grace` seconds for acknowledgements of what has arrived, then close.
    fn close(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.shutdown(grace))
    }
}

impl LumberjackReceiver {
    pub(crate) fn bind(listen: &str, options: &ReceiveOptions, into: Into) -> Result<Self> {
        let (mut options, mut batches) = (options.net(listen)?, None);
        options.shared_destination = matches!(into, Into::Kept(_));
        let destination: Arc<dyn Destination> = match into {
            Into::Nothing => Arc::new(net::Discard),
            Into::Batches(layout) => {
                let (channel, taken) = channel(layout);
                batches = Some(taken);
                channel
            }
            Into::Kept(spool) => spool,
            Into::Spool(keep) => Spool::open(SpoolOptions::new(keep))?,
        };
        Ok(Self { receiver: net::Receiver::bind(options, destination)?, batches })
    }

    pub(crate) async fn next(&self) -> Result<Option<LumberjackBatch>> {
        let elsewhere = || Error::misuse("the events of this receiver go to another destination".into());
        Ok(self.batches.as_ref().ok_or_else(elsewhere)?.next().await.map(LumberjackBatch::new))
    }

    pub(crate) async fn shutdown(&self, grace: f64) -> Result<()> {
        self.receiver.shutdown(duration::grace(grace)).await
    }
}

/// The destination of events.
pub(crate) enum Into {
    /// No destination: events are counted and dropped.
    Nothing,
    /// The application, which gets events in these columns.
    Batches(Layout),
    /// A spool that the receiver owns and closes.
    Spool(Keep),
    /// A spool that its owner closes.
    Kept(Arc<Spool>),
}

/// An open spool, or the place of a new one.
#[derive(FromPyObject)]
pub(crate) enum Kept {
    /// An open spool.
    Open(Py<PySpool>),
    /// A folder, or the URI of a prefix in an object store.
    Place(PathBuf),
}

impl Into {
    /// Return the destination for these options. A spool stores the raw columns, so it excludes a
    /// schema.
    pub(crate) fn new(schema: Option<Arc<arrow_schema::Schema>>, spool: Option<Kept>) -> Result<Self> {
        match (schema, spool) {
            (Some(_), Some(_)) => Err(Error::misuse("a spool stores raw events: pass the schema to its reader".into())),
            (Some(schema), None) => Ok(Self::Batches(Layout::typed(schema)?)),
            (None, None) => Ok(Self::Batches(Layout::raw())),
            (None, Some(Kept::Open(spool))) => Ok(Self::Kept(spool.get().destination())),
            (None, Some(Kept::Place(spool))) => Ok(Self::Spool(Keep::at(&spool, &StorageOptions::default())?)),
        }
    }
}

/// Events that were not acknowledged yet.
#[pyclass(frozen, name = "LumberjackBatch", module = "penstock._core")]
pub(crate) struct LumberjackBatch {
    record_batch: RecordBatch,
    peer: Arc<str>,
    identity: Option<Arc<str>>,
    received: i64,
    batch: Mutex<net::Batch>,
}

#[pymethods]
impl LumberjackBatch {
    fn record_batch<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PyRecordBatch::new(self.record_batch.clone()).into_pyarrow(py)
    }

    fn num_rows(&self) -> usize {
        self.record_batch.num_rows()
    }

    fn peer(&self) -> &str {
        &self.peer
    }

    fn identity(&self) -> Option<&str> {
        self.identity.as_deref()
    }

    /// Return when the events arrived, in microseconds since 1970, UTC.
    fn received(&self) -> i64 {
        self.received
    }

    fn ack(&self) {
        self.batch().ack();
    }

    fn is_acked(&self) -> bool {
        self.batch().is_acked()
    }
}

impl LumberjackBatch {
    fn new(batch: net::Batch) -> Self {
        Self {
            record_batch: batch.record_batch.clone(),
            peer: Arc::clone(&batch.origin.peer),
            identity: batch.origin.identity.clone(),
            received: batch.origin.received,
            batch: Mutex::new(batch),
        }
    }

    fn batch(&self) -> MutexGuard<'_, net::Batch> {
        lock(&self.batch)
    }
}
