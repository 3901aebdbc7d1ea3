//! A spool that is read, either in its place or through the receiver that writes it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use penstock_io::storage::ObjectPrefix;
use penstock_io::sync::lock;
use penstock_io::tls::ClientTlsOptions;
use penstock_io::{Addresses, DriverError as _};
use penstock_lumberjack_net::{Error, Result};
use penstock_lumberjack_spool::{FolderStore, ObjectStore, PlanLimits, Reader, RemoteStore, RowRange, Store};
use pyo3::prelude::*;
use pyo3_arrow::{PyRecordBatch, PySchema};

use super::{PieceTuple, PositionTuple, detached, divide, layout, position};

/// The attributes of the dataclass that `penstock.lumberjack.SpoolReader` makes.
#[derive(FromPyObject)]
pub(crate) struct SpoolReaderFields {
    /// A folder or the URI of a prefix in an object store; without it, the address of the
    /// receiver's service is used.
    place: Option<PathBuf>,
    storage: BTreeMap<String, String>,
    address: Option<String>,
    fingerprint: Option<String>,
    ca: Option<PathBuf>,
    system_ca: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
    read_key: Option<String>,
}

impl SpoolReaderFields {
    fn store(&self) -> Result<Arc<dyn Store>> {
        if let Some(folder) = &self.place {
            return Ok(match ObjectPrefix::of_sink(Some(folder), &self.storage)? {
                Some(place) => Arc::new(ObjectStore::open(place)?),
                None => Arc::new(FolderStore::open(folder)?),
            });
        }
        let missing = || Error::misuse("a place or an address must be given".into());
        let name = self.address.as_deref().ok_or_else(missing)?;
        let addresses = Addresses::resolve(name)?;
        let tls = ClientTlsOptions {
            fingerprint: self.fingerprint.clone(),
            ca: self.ca.clone(),
            system_ca: self.system_ca,
            cert: self.cert.clone(),
            key: self.key.clone(),
        };
        let tls = tls.required()?;
        let key = self.read_key.as_deref().unwrap_or_default();
        Ok(Arc::new(RemoteStore::new(&tls, addresses, self.server_name.as_deref(), key)?))
    }
}

/// A spool that is being read.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct SpoolReader {
    store: Arc<dyn Store>,
}

#[pymethods]
impl SpoolReader {
    #[new]
    fn new(py: Python<'_>, options: SpoolReaderFields) -> PyResult<Self> {
        Ok(Self { store: detached(py, || options.store())? })
    }

    /// Return the spool's ID.
    fn id(&self, py: Python<'_>) -> PyResult<String> {
        detached(py, || self.store.spool())
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
        divide(py, &*self.store, start, until, PlanLimits { rows, bytes: max_bytes, piece })
    }

    fn commit(&self, py: Python<'_>, reader: &str, at: PositionTuple) -> PyResult<()> {
        detached(py, || self.store.commit(reader, position(at)))
    }

    /// Return the rows of a piece, in the columns of a schema, or in those of the raw layout.
    #[pyo3(signature = (piece, schema=None, skip_damaged=false))]
    fn rows(&self, piece: PieceTuple, schema: Option<PySchema>, skip_damaged: bool) -> PyResult<SpoolRows> {
        let (segment, header, start, end, skip, rows) = piece;
        let piece = RowRange { segment, header, start, end, skip, rows };
        let reader = Reader::new(Arc::clone(&self.store), piece, layout(schema)?);
        let reader = if skip_damaged { reader.skip_damaged() } else { reader };
        Ok(SpoolRows { reader: Mutex::new(reader) })
    }
}

/// The rows of a piece, batch by batch.
#[pyclass(frozen, module = "penstock._core")]
pub(crate) struct SpoolRows {
    reader: Mutex<Reader>,
}

#[pymethods]
impl SpoolRows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let batch = detached(py, || lock(&self.reader).next_batch())?;
        batch.map(|batch| Ok(PyRecordBatch::new(batch).into_pyarrow(py)?.unbind())).transpose()
    }
}
