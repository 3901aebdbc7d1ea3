//! A spool that is written, and the service for its readers.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_io::duration::seconds;
use penstock_io::tls::ServerTlsOptions;
use penstock_io::{Addresses, DriverError as _, ReadKey};
use penstock_lumberjack_net::{Error, Result};
use penstock_lumberjack_spool::{Ack, Keep, PlanLimits, Spool as NetSpool, SpoolOptions};
use pyo3::prelude::*;

use super::{PieceTuple, PositionTuple, detached, divide, position};
use crate::lumberjack::raised;

/// The attributes of the dataclass that `penstock.lumberjack.Spool` makes.
#[derive(FromPyObject)]
pub(crate) struct SpoolFields {
    /// A folder, or the URI of a prefix in an object store.
    place: PathBuf,
    storage: BTreeMap<String, String>,
    max_bytes: u64,
    segment_bytes: u64,
    segment_seconds: f64,
    linger: f64,
    ack: String,
    dedup: bool,
}

impl SpoolFields {
    fn net(&self) -> Result<SpoolOptions> {
        Ok(SpoolOptions {
            keep: Keep::at(&self.place, &self.storage)?,
            max_bytes: self.max_bytes,
            segment_bytes: self.segment_bytes,
            segment_age: seconds("segment_seconds", self.segment_seconds)?,
            linger: seconds("linger", self.linger)?,
            ack: match self.ack.as_str() {
                "spool" => Ack::Spool,
                "commit" => Ack::Commit,
                other => return Err(Error::misuse(format!("ack={other:?}: \"spool\" or \"commit\""))),
            },
            dedup: self.dedup,
        })
    }
}

/// A spool's counters, in the fields of the dataclass.
#[derive(IntoPyObject)]
pub(crate) struct SpoolCounterFields {
    events: u64,
    duplicates: u64,
    syncs: u64,
    refused: u64,
    damaged: u64,
    bytes: u64,
}

/// A spool that is written.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct Spool {
    spool: Arc<NetSpool>,
}

impl Spool {
    /// Return the destination for a receiver.
    pub(crate) fn destination(&self) -> Arc<NetSpool> {
        Arc::clone(&self.spool)
    }
}

#[pymethods]
impl Spool {
    #[new]
    fn new(py: Python<'_>, options: SpoolFields) -> PyResult<Self> {
        let spool = detached(py, || NetSpool::open(options.net()?))?;
        Ok(Self { spool })
    }

    /// Return the spool's ID.
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.spool.store()?.spool())
    }

    #[pyo3(signature = (start, until, rows, max_bytes, piece))]
    fn plan(
        &self,
        py: Python<'_>,
        start: PositionTuple,
        until: Option<PositionTuple>,
        rows: u64,
        max_bytes: u64,
        piece: u64,
    ) -> PyResult<(Vec<PieceTuple>, PositionTuple)> {
        let store = self.spool.store().map_err(|error| raised(&error))?;
        divide(py, &*store, start, until, PlanLimits { rows, bytes: max_bytes, piece })
    }

    fn commit(&self, py: Python<'_>, reader: &str, at: PositionTuple) -> PyResult<()> {
        detached(py, || self.spool.commit(reader, position(at)))
    }

    fn counters(&self) -> PyResult<SpoolCounterFields> {
        let counters = self.spool.counters().map_err(|error| raised(&error))?;
        Ok(SpoolCounterFields {
            events: counters.events,
            duplicates: counters.duplicates,
            syncs: counters.syncs,
            refused: counters.refused,
            damaged: counters.damaged,
            bytes: counters.bytes,
        })
    }

    /// Serve readers that have the key. Return the address and the certificate's fingerprint.
    #[pyo3(signature = (listen, read_key, development, cert=None, key=None))]
    fn serve(
        &self,
        py: Python<'_>,
        listen: &str,
        read_key: &str,
        development: PathBuf,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
    ) -> PyResult<(String, String)> {
        let (address, fingerprint) = detached(py, || {
            let tls = ServerTlsOptions { cert, key, development, client_ca: None }.required()?;
            self.spool.serve(Addresses::resolve(listen)?, &tls, ReadKey::new(read_key)?)
        })?;
        Ok((address.to_string(), fingerprint.to_string()))
    }

    /// Accept nothing more, and wait until everything accepted is on disk.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.spool.close())
    }
}
