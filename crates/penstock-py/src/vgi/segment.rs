//! Shared memory for Python.

use std::os::fd::IntoRawFd;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use penstock_io::sync::lock;
use penstock_vgi::shm_layout::{HEADER, MOST, Region, Table, is_pointer, set_pointer};
use penstock_vgi::{Error, Limits, Metadata};
use penstock_vgi_net::{Peer, Segment};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::batches::{BatchWithMetadata, PyBatch, annotated, metadata as read_metadata, metadata_to_python};
use super::errors::{IntoVgiErr, misuse};
use crate::columns::array_to_python;

/// A shared memory segment while it is open.
#[pyclass(frozen, name = "VgiSegment", module = "penstock._core")]
pub(crate) struct VgiSegment {
    segment: Mutex<Option<Arc<Segment>>>,
    name: String,
    size: u64,
}

impl VgiSegment {
    fn new(segment: Arc<Segment>) -> Self {
        let (name, size) = (segment.name().to_owned(), segment.size());
        Self { segment: Mutex::new(Some(segment)), name, size }
    }

    /// Return the segment for batches.
    fn current(&self) -> PyResult<Arc<Segment>> {
        self.segment().map(|segment| segment.current())
    }

    /// Return the segment, or an error if it was closed.
    pub(crate) fn segment(&self) -> PyResult<Arc<Segment>> {
        let segment = lock(&self.segment);
        segment.clone().ok_or_else(|| misuse("the segment was closed"))
    }
}

#[pymethods]
impl VgiSegment {
    /// Create a segment of this many bytes, the header included.
    #[staticmethod]
    fn create(size: u64) -> PyResult<Self> {
        Segment::create(size).map(Self::new).map_err(IntoVgiErr::into_vgi_err)
    }

    /// Attach another process's segment.
    #[staticmethod]
    fn attach(name: &str, size: u64) -> PyResult<Self> {
        // The creator is unknown: it may be any process of this user, and is trusted no further.
        Segment::attach(name, size, Peer::of_this_user()).map(Self::new).map_err(IntoVgiErr::into_vgi_err)
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// Return how many regions are in use.
    #[getter]
    fn num_allocs(&self) -> PyResult<usize> {
        let table = self.current()?.with_table(|table| table.regions().len());
        table.map_err(IntoVgiErr::into_vgi_err)
    }

    /// Return how many regions there can be.
    #[getter]
    fn max_allocs(&self) -> usize {
        MOST
    }

    /// Allocate a region; `None` if there is no room.
    fn allocate(&self, length: u64) -> PyResult<Option<u64>> {
        if length == 0 {
            return Err(PyValueError::new_err("a region has at least one byte"));
        }
        let region = self.current()?.with_table(|table| table.allocate(length)).map_err(IntoVgiErr::into_vgi_err)?;
        Ok(region.map(|region| region.offset))
    }

    /// Free a region.
    fn free(&self, offset: u64) -> PyResult<()> {
        if self.current()?.with_table(|table| table.free(offset)).map_err(IntoVgiErr::into_vgi_err)? {
            return Ok(());
        }
        Err(PyValueError::new_err(format!("no region begins at {offset}")))
    }

    /// Free all regions.
    fn reset(&self) -> PyResult<()> {
        let freed = self.current()?.with_table(|table| {
            let offsets: Vec<u64> = table.regions().iter().map(|region| region.offset).collect();
            offsets.into_iter().for_each(|offset| {
                table.free(offset);
            });
        });
        freed.map_err(IntoVgiErr::into_vgi_err)
    }

    /// Write a batch and return its region; `None` if there is no room.
    fn write_batch(&self, py: Python<'_>, batch: PyBatch) -> PyResult<Option<(u64, u64)>> {
        let segment = self.current()?;
        let region = py.detach(|| segment.write_batch(&batch.0)).map_err(IntoVgiErr::into_vgi_err)?;
        Ok(region.map(|region| (region.offset, region.length)))
    }

    /// Put a batch into the segment, and return the pointer to send in its place; `None` if there is no room.
    #[pyo3(signature = (batch, metadata=None))]
    fn share(
        &self,
        py: Python<'_>,
        batch: PyBatch,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<BatchWithMetadata>> {
        let (segment, batch) = (self.current()?, batch.0.with_metadata(read_metadata(metadata)?));
        let pointer = py.detach(|| segment.share(&batch)).map_err(IntoVgiErr::into_vgi_err)?;
        pointer.map(|pointer| annotated(py, &pointer)).transpose()
    }

    /// Return the batch behind a pointer, with its metadata; any other batch is returned unchanged.
    #[pyo3(signature = (batch, metadata=None))]
    fn resolve(
        &self,
        py: Python<'_>,
        batch: PyBatch,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<BatchWithMetadata> {
        let (segment, batch) = (self.current()?, batch.0.with_metadata(read_metadata(metadata)?));
        let found = py.detach(|| segment.resolve(batch, Limits::default().body)).map_err(IntoVgiErr::into_vgi_err)?;
        annotated(py, &found)
    }

    /// Return whether a batch of this many rows is a pointer to one in a segment.
    #[staticmethod]
    #[pyo3(signature = (rows, metadata=None))]
    fn is_pointer(rows: usize, metadata: Option<&Bound<'_, PyDict>>) -> PyResult<bool> {
        Ok(is_pointer(rows, &read_metadata(metadata)?))
    }

    /// Return the metadata of a pointer to a region.
    #[staticmethod]
    fn pointer(py: Python<'_>, offset: u64, length: u64) -> PyResult<Bound<'_, PyDict>> {
        let mut metadata = Metadata::new();
        set_pointer(&mut metadata, Region { offset, length });
        metadata_to_python(py, &metadata)
    }

    /// Return the bytes of a region in place; the region is freed when the last view of them is dropped.
    fn read_buffer<'py>(&self, py: Python<'py>, offset: u64, length: u64) -> PyResult<Bound<'py, PyAny>> {
        let bytes = self
            .current()?
            .lease(Region { offset, length }, Limits::default().body)
            .map_err(IntoVgiErr::into_vgi_err)?;
        let values = ScalarBuffer::from(Buffer::from(bytes));
        let array: ArrayRef = Arc::new(UInt8Array::new(values, None));
        let field = Arc::new(Field::new("", DataType::UInt8, false));
        array_to_python(py, &array, &field)?.call_method0("buffers")?.get_item(1)
    }

    /// Return whether the bytes may be mapped: the segment must be ours, and be shared only with our parent and our
    /// children, which remains so from then on.
    fn view(&self) -> PyResult<bool> {
        Ok(self.current()?.view())
    }

    /// Return a descriptor of its memory, which the caller must close.
    fn descriptor(&self) -> PyResult<i32> {
        self.current()?.duplicate().map(IntoRawFd::into_raw_fd).map_err(IntoVgiErr::into_vgi_err)
    }

    /// Return a copy of all bytes.
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let segment = self.current()?;
        let bytes = py.detach(|| segment.snapshot(Limits::default().body)).map_err(IntoVgiErr::into_vgi_err)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Release the mapping, once no batch points into it.
    fn close(&self) {
        lock(&self.segment).take();
    }

    /// Remove the name.
    fn unlink(&self) -> PyResult<()> {
        self.segment()?.unlink();
        Ok(())
    }
}

/// The allocations of a segment whose memory Python has.
#[pyclass(name = "VgiTable", module = "penstock._core")]
pub(crate) struct VgiTable(Table);

fn table(table: Result<Table, Error>) -> PyResult<VgiTable> {
    table.map(VgiTable).map_err(|error| PyValueError::new_err(error.to_string()))
}

#[pymethods]
impl VgiTable {
    /// The largest size of a header in bytes.
    #[classattr]
    const HEADER: u64 = HEADER;

    /// How many regions there can be.
    #[classattr]
    const MOST: usize = MOST;

    /// Make the table of a new segment.
    #[staticmethod]
    fn create(size: u64) -> PyResult<Self> {
        table(Table::new(size))
    }

    /// Read the table of a segment from its header, which must be present at least up to its last region.
    #[staticmethod]
    fn read(header: &[u8], size: u64) -> PyResult<Self> {
        table(Table::read(header, size))
    }

    /// Return the header, up to its last region.
    fn write<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.write())
    }

    fn __len__(&self) -> usize {
        self.0.regions().len()
    }

    /// Allocate a region; `None` if there is no room.
    fn allocate(&mut self, length: u64) -> Option<u64> {
        self.0.allocate(length).map(|region| region.offset)
    }

    /// Free a region. Return whether one began there.
    fn free(&mut self, offset: u64) -> bool {
        self.0.free(offset)
    }
}
