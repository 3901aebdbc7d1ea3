//! Parts of a document that are sent apart from the others: which they are, and how a document is divided.

use std::io;

use penstock_documents::{Event, Part, Selection};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::documents::{Dehydrator, Interrupts, LimitFields, PythonWorkspace, SourceArgument};

/// What every child weighs besides its octets: it has a row, an entity and a status, however small it is.
const CHILD: u64 = 4096;

/// Some children of a container that lies in a document.
#[derive(FromPyObject)]
pub(crate) struct Selected {
    /// Of the document.
    #[pyo3(attribute("digest"))]
    pub(crate) sha256: [u8; 32],
    #[pyo3(attribute("bytes"))]
    length: u64,
    /// How deep the container lies; the containers above it have one child each.
    pub(crate) depth: u32,
    /// First and last of each run of children, counted from 1, in ascending order.
    places: Vec<(u64, u64)>,
}

impl Selected {
    /// `dehydrator`, for these children only.
    pub(super) fn select(&self, dehydrator: Dehydrator) -> Dehydrator {
        let places = self.places.iter().map(|&(first, last)| first..=last).collect();
        let selection = Selection { depth: usize::try_from(self.depth).unwrap_or(usize::MAX), places };
        dehydrator.with_known(self.sha256, self.length).with_selection(selection)
    }

    /// The children, one by one.
    pub(super) fn each(&self) -> impl Iterator<Item = u64> + Send + use<> {
        self.places.clone().into_iter().flat_map(|(first, last)| first..=last)
    }

    /// The children, to be read: from the first one to the last one.
    pub(super) fn children(&self) -> String {
        let first = self.places.first().map_or(0, |&(first, _)| first);
        let last = self.places.last().map_or(0, |&(_, last)| last);
        format!("{first}-{last}")
    }
}

/// A container as its own session knows it.
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

/// 32 octets in hex.
#[derive(IntoPyObjectRef)]
pub(crate) struct Digest(String);

impl<'a, 'py> FromPyObject<'a, 'py> for Digest {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let text: String = object.extract()?;
        octets(&text).map(|_| Self(text)).ok_or_else(|| PyValueError::new_err("a digest is 64 hex digits"))
    }
}

impl<'py> IntoPyObject<'py> for Digest {
    type Target = pyo3::types::PyString;
    type Output = Bound<'py, Self::Target>;
    type Error = std::convert::Infallible;

    fn into_pyobject(self, py: Python<'py>) -> Result<Self::Output, Self::Error> {
        self.0.into_pyobject(py)
    }
}

fn octets(text: &str) -> Option<[u8; 32]> {
    penstock_io::hex::decode(text)
}

impl From<ContainerFields> for Part {
    fn from(fields: ContainerFields) -> Self {
        let depth = u32::try_from(fields.path.len()).unwrap_or(u32::MAX);
        let (sha256, bytes) = (octets(&fields.sha256.0), Some(fields.bytes));
        Self { depth, path: fields.path, media_type: fields.r#type, sha256, bytes, ..Self::default() }
    }
}

/// How a document is divided.
#[derive(IntoPyObject)]
pub(crate) struct Division {
    /// The document itself, and what lies alone in it, down to the container that is divided.
    chain: Vec<ContainerFields>,
    /// How many children that one has.
    children: u64,
    /// How many octets lie in the containers above it.
    inflated: u64,
    /// Runs of children: the first one, the last one, and about how many octets they have together.
    groups: Vec<(u64, u64, u64)>,
}

/// Divides the children of the document in `source`, a file, into groups of about `group_bytes` octets; `None` if it is better sent
/// as one. A container that holds nothing but another one is passed, down to the one that is worth dividing.
#[pyfunction]
pub(crate) fn divide(
    py: Python<'_>,
    name: &str,
    source: SourceArgument,
    limits: LimitFields,
    group_bytes: u64,
) -> PyResult<Option<Division>> {
    let (mut limits, interrupts) = (penstock_documents::Limits::try_from(limits)?, Interrupts::default());
    // As where they are sent: the receiver's rule of decision 11.
    limits.children_per_mib = limits.children_per_mib.min(1000);
    let divided = py.detach(|| {
        let Some(reopen) = source.reopen(&interrupts)? else { return Ok(None) };
        let open = |known: Option<([u8; 32], u64)>| -> io::Result<Dehydrator> {
            let made = Dehydrator::new(name, reopen()?, PythonWorkspace::new(interrupts.clone()), limits.clone());
            Ok(match known {
                Some((sha256, bytes)) => made.with_known(sha256, bytes),
                None => made,
            })
        };
        division(open, group_bytes.max(1))
    });
    interrupts.result()?;
    // What cannot be read is sent as one, and then has its reason.
    Ok(divided.unwrap_or_default())
}

fn division(
    open: impl Fn(Option<([u8; 32], u64)>) -> io::Result<Dehydrator>,
    group_bytes: u64,
) -> io::Result<Option<Division>> {
    let mut known = None;
    for levels in 1.. {
        let mut dehydrator = open(known)?;
        let mut chain = Vec::new();
        for _ in 0..levels {
            // A container with octets of its own is not only its children.
            let Some(Event::Enter(part, None)) = dehydrator.next_event() else { return Ok(None) };
            let (Some(sha256), Some(bytes)) = (part.sha256, part.bytes) else { return Ok(None) };
            known = known.or(Some((sha256, bytes)));
            let sha256 = Digest(penstock_io::hex::encode(sha256));
            chain.push(ContainerFields { path: part.path, r#type: part.media_type, sha256, bytes });
        }
        if !dehydrator.divisible() {
            return Ok(None);
        }
        let inflated = dehydrator.inflated();
        let (children, groups) = grouped(&mut dehydrator, group_bytes);
        if !dehydrator.divisible() {
            return Ok(None);
        }
        match children {
            0 => return Ok(None),
            1 => {}
            _ => return Ok((groups.len() > 1).then_some(Division { chain, children, inflated, groups })),
        }
    }
    Ok(None)
}

fn grouped(dehydrator: &mut Dehydrator, group_bytes: u64) -> (u64, Vec<(u64, u64, u64)>) {
    let (mut children, mut groups) = (0_u64, Vec::new());
    let (mut first, mut octets) = (1, 0_u64);
    while let Some(passed) = dehydrator.pass() {
        children += 1;
        octets = octets.saturating_add(passed).saturating_add(CHILD);
        if octets >= group_bytes {
            groups.push((first, children, octets));
            (first, octets) = (children + 1, 0);
        }
    }
    if first <= children {
        groups.push((first, children, octets));
    }
    (children, groups)
}
