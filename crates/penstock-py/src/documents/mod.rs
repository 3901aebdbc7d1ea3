//! Taking documents apart for Python, without a network: the iterator of parts, and the digests of
//! receipts.

mod content;
mod interrupts;
mod limits;
mod pdf;
mod python_file;
mod receipt;
mod source;
mod workspace;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use penstock_documents::Event;
use penstock_io::hex;
use penstock_io::sync::lock;
use pyo3::prelude::*;

pub(crate) use content::Content;
pub(crate) use interrupts::Interrupts;
pub(crate) use limits::{LimitFields, default_limits};
pub(crate) use receipt::{ContentTree, document_key};
pub(crate) use source::SourceArgument;
pub(crate) use workspace::PythonWorkspace;

/// The dehydrator as this extension uses it.
pub(crate) type Dehydrator = penstock_documents::Dehydrator<PythonWorkspace>;

/// Takes one document apart: the document itself first, then its parts, depth first.
#[pyclass(frozen, name = "Dehydrator", module = "penstock._core")]
pub(crate) struct PyDehydrator {
    inner: Mutex<Dehydrator>,
    interrupts: Interrupts,
}

/// A part in the fields of the dataclass; its bytes are in `content`.
#[derive(IntoPyObject)]
pub(crate) struct PartFields {
    path: Vec<String>,
    r#type: String,
    sha256: Option<String>,
    bytes: Option<u64>,
    reason: Option<String>,
    text: Option<String>,
    metadata: BTreeMap<String, String>,
    depth: u32,
    container: bool,
    content: Option<Content>,
}

#[pymethods]
impl PyDehydrator {
    #[new]
    fn new(name: &str, source: SourceArgument, limits: LimitFields) -> PyResult<Self> {
        let interrupts = Interrupts::default();
        let limits = limits.try_into()?;
        let workspace = PythonWorkspace::new(interrupts.clone());
        let inner = Dehydrator::new(name, source.open(&interrupts), workspace, limits);
        Ok(Self { inner: Mutex::new(inner), interrupts })
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PartFields>> {
        let part = py.detach(|| self.next_part());
        self.interrupts.result().map(|()| part)
    }
}

impl PyDehydrator {
    /// Return the next part. Skip the ends of containers, because the depths already show them.
    fn next_part(&self) -> Option<PartFields> {
        let mut dehydrator: MutexGuard<'_, _> = lock(&self.inner);
        loop {
            return match dehydrator.next_event()? {
                Event::Enter(part, payload) => Some(fields(part, true, payload)),
                Event::Leaf(part, payload) => Some(fields(part, false, payload)),
                Event::Leave { .. } => continue,
            };
        }
    }
}

fn fields(part: penstock_documents::Part, container: bool, payload: Option<penstock_documents::Payload>) -> PartFields {
    PartFields {
        path: part.path,
        r#type: part.media_type,
        sha256: part.sha256.map(hex::encode),
        bytes: part.bytes,
        reason: part.failure.map(|failure| failure.reason),
        text: part.text,
        metadata: part.metadata,
        depth: part.depth,
        container,
        content: payload.map(Content::new),
    }
}
