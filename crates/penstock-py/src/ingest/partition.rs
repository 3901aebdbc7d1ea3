//! The groups into which a large document is divided, in the form of Python.

use penstock_documents::Limits;
use penstock_ingest::{ChildSelection, ContainerPart, Division};
use penstock_io::hex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::documents::{Interrupts, LimitFields, PythonWorkspace, SourceArgument};

/// Some children of a container in a document.
#[derive(FromPyObject)]
pub(crate) struct SelectionFields {
    #[pyo3(attribute("digest"))]
    sha256: [u8; 32],
    #[pyo3(attribute("bytes"))]
    length: u64,
    depth: u32,
    places: Vec<(u64, u64)>,
}

impl From<SelectionFields> for ChildSelection {
    fn from(fields: SelectionFields) -> Self {
        let SelectionFields { sha256, length, depth, places } = fields;
        Self { sha256, length, depth, places }
    }
}

/// A container, as announced in its own session.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct ContainerFields {
    #[pyo3(item)]
    path: Vec<String>,
    #[pyo3(item("type"))]
    r#type: String,
    #[pyo3(item)]
    sha256: Digest,
    #[pyo3(item)]
    bytes: u64,
}

impl From<ContainerFields> for ContainerPart {
    fn from(fields: ContainerFields) -> Self {
        let ContainerFields { path, r#type, sha256, bytes } = fields;
        Self { path, media_type: r#type, sha256: sha256.0, bytes }
    }
}

impl From<ContainerPart> for ContainerFields {
    fn from(part: ContainerPart) -> Self {
        let ContainerPart { path, media_type, sha256, bytes } = part;
        Self { path, r#type: media_type, sha256: Digest(sha256), bytes }
    }
}

/// A SHA-256, which Python passes in hex.
pub(crate) struct Digest([u8; 32]);

impl<'a, 'py> FromPyObject<'a, 'py> for Digest {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text: String = object.extract()?;
        hex::decode(&text).map(Self).ok_or_else(|| PyValueError::new_err("a digest is 64 hex digits"))
    }
}

impl<'py> IntoPyObject<'py> for Digest {
    type Target = pyo3::types::PyString;
    type Output = Bound<'py, Self::Target>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        hex::encode(self.0).into_pyobject(py)
    }
}

/// The division of a document.
#[derive(IntoPyObject)]
pub(crate) struct DivisionFields {
    /// The document itself, then each only descendant, down to the container that is divided.
    chain: Vec<ContainerFields>,
    /// The number of children of that container.
    children: u64,
    /// The number of bytes in the containers above it.
    inflated: u64,
    /// Runs of children: the first, the last, and the approximate number of bytes.
    groups: Vec<(u64, u64, u64)>,
}

impl From<Division> for DivisionFields {
    fn from(division: Division) -> Self {
        let Division { chain, children, inflated, groups } = division;
        let chain = chain.into_iter().map(Into::into).collect();
        let groups = groups.into_iter().map(|group| (group.first, group.last, group.bytes)).collect();
        Self { chain, children, inflated, groups }
    }
}

/// Divide the children of the document in `source`, a file, into groups of about `group_bytes` bytes; `None` if it is
/// better sent in one piece. A container with another one as its only content is passed through, down to the one worth
/// dividing.
#[pyfunction]
pub(crate) fn divide(
    py: Python<'_>,
    name: &str,
    source: SourceArgument,
    limits: LimitFields,
    group_bytes: u64,
) -> PyResult<Option<DivisionFields>> {
    let (limits, interrupts) = (Limits::try_from(limits)?, Interrupts::default());
    let division = py.detach(|| {
        // A source that is not a file, or cannot be checked, is sent in one piece.
        let open = source.reopen(&interrupts).ok().flatten()?;
        let workspace = || PythonWorkspace::new(interrupts.clone());
        penstock_ingest::divide(name, open, workspace, limits, group_bytes)
    });
    interrupts.result()?;
    Ok(division.map(Into::into))
}
