//! How parts go out: what their headers tell, what stands for them, and what is sent besides (section 10.6).

use std::io;

use bytes::Bytes;
use penstock_documents::Part;
use penstock_pipestream::reference::{CONTENT_TYPE, Location, Reference};
use penstock_pipestream::{PipeDoc, Pseudonyms};
use penstock_pipestream_net::{EntityKey, Payload, Status};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use super::identity::{OwnerNote, disguised};
use crate::error::IntoPyErr;
use penstock_io::hex;

const OPAQUE: &str = "application/octet-stream";
/// What is said of a part that failed at the sender, where names must not cross: a reason may have some.
const UNTOLD: &str = "the part cannot be sent";
/// As many children as decision 11 allows for each MiB of their container, and at least.
const CHILDREN_PER_MIB: u64 = 1000;
/// The largest padding.
const MAX_PADDING: u64 = 16 << 10;

/// What Python says of it.
#[derive(FromPyObject)]
pub(crate) struct MannerFields {
    pad_children: u64,
    opaque_types: bool,
    pseudonym_key: Option<Bytes>,
    by_reference: Option<String>,
}

/// How parts go out. By default they go as they are, under their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Manner {
    /// Children of a container are made up to a multiple of this; 0 and 1: they are not.
    pad_children: u64,
    opaque_types: bool,
    pseudonyms: Option<Pseudonyms>,
    by_reference: Option<Location>,
}

/// What a receipt says of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrivacyNote {
    pad_children: u64,
    opaque_types: bool,
    /// The document's pseudonym.
    document: Option<String>,
}

/// The pseudonyms of a document's identifier and of its owner, as a receipt has them.
#[derive(Debug, Serialize)]
pub(crate) struct AliasNote {
    doc_id: String,
    owner: Option<OwnerNote>,
}

/// An entity that stands for nothing.
#[derive(Debug)]
pub(crate) struct Padding {
    pub(crate) key: EntityKey,
    pub(crate) status: Status,
}

impl TryFrom<MannerFields> for Manner {
    type Error = PyErr;

    fn try_from(fields: MannerFields) -> PyResult<Self> {
        let MannerFields { pad_children, opaque_types, pseudonym_key, by_reference } = fields;
        if pad_children > CHILDREN_PER_MIB {
            let message = format!("pad_children is 0 to {CHILDREN_PER_MIB}, not {pad_children}");
            return Err(PyValueError::new_err(message));
        }
        let pseudonyms = pseudonym_key.map(|key| Pseudonyms::new(&key)).transpose().map_err(IntoPyErr::into_py_err)?;
        let by_reference = by_reference.map(|url| Location::parse(&url)).transpose().map_err(IntoPyErr::into_py_err)?;
        Ok(Self { pad_children, opaque_types, pseudonyms, by_reference })
    }
}

impl Manner {
    /// Whether scopes get more entities than a document has parts.
    pub(super) fn pads(&self) -> bool {
        self.pad_children > 1
    }

    /// Whether a reference stands for a document.
    pub(super) fn refers(&self) -> bool {
        self.by_reference.is_some()
    }

    /// A document's name and the way down to a part, as headers have them.
    pub(super) fn named(&self, document: &str, path: &[&str]) -> (String, Vec<String>) {
        match &self.pseudonyms {
            Some(pseudonyms) => (pseudonyms.document(document), pseudonyms.path(document, path)),
            None => (document.to_owned(), path.iter().map(|&step| step.to_owned()).collect()),
        }
    }

    /// The pseudonym of a part's own step.
    pub(super) fn alias(&self, document: &str, path: &[&str]) -> Option<String> {
        self.pseudonyms.as_ref().and_then(|pseudonyms| pseudonyms.path(document, path).pop())
    }

    /// The content type of a header. `document`: of one that is sent whole.
    pub(super) fn content_type<'a>(&self, media_type: &'a str, document: bool) -> &'a str {
        match (self.opaque_types, document && self.refers()) {
            (_, true) => CONTENT_TYPE,
            (true, false) => OPAQUE,
            (false, false) => media_type,
        }
    }

    /// What the receiver is told of a failure.
    pub(super) fn told(&self, reason: &str) -> String {
        if self.pseudonyms.is_some() { UNTOLD.to_owned() } else { reason.to_owned() }
    }

    /// What the receipt says; nothing of parts that go as they are.
    pub(super) fn note(&self, document: &str) -> Option<PrivacyNote> {
        let pseudonym = self.pseudonyms.as_ref().map(|pseudonyms| pseudonyms.document(document));
        (self.pads() || self.opaque_types || pseudonym.is_some()).then_some(PrivacyNote {
            pad_children: self.pad_children,
            opaque_types: self.opaque_types,
            document: pseudonym,
        })
    }

    /// What a receipt says of the pseudonyms in a document's message.
    pub(super) fn alias_of(&self, doc: &PipeDoc) -> Option<AliasNote> {
        let hidden = self.pseudonyms.as_ref()?.pipe_doc(doc);
        Some(AliasNote { owner: hidden.ownership.as_ref().map(OwnerNote::from), doc_id: hidden.doc_id })
    }

    /// A document's message as its header has it.
    pub(super) fn enveloped(&self, doc: PipeDoc) -> PipeDoc {
        disguised(doc, self.pseudonyms.as_ref())
    }

    /// How many entities are to follow so many children of a container of so many octets.
    pub(super) fn padding(&self, children: u64, octets: Option<u64>) -> u64 {
        if !self.pads() {
            return 0;
        }
        let limit = CHILDREN_PER_MIB.saturating_mul(octets.unwrap_or(0).div_ceil(1 << 20).max(1));
        let wanted = children.max(1).next_multiple_of(self.pad_children);
        wanted.min(limit).saturating_sub(children)
    }

    /// Octets of no meaning, as many as the child before has, so that its size does not give it away.
    pub(super) fn random(octets: u64) -> Payload {
        let length = usize::try_from(octets.min(MAX_PADDING)).unwrap_or_default();
        let mut random = vec![0; length];
        fastrand::fill(&mut random);
        Payload::bytes(random)
    }

    /// The message that stands for a document, where one does.
    pub(super) fn reference(&self, document: &str, part: &Part) -> Option<io::Result<Payload>> {
        let prefix = self.by_reference.as_ref()?;
        let key = if prefix.key.is_empty() { document.to_owned() } else { format!("{}/{document}", prefix.key) };
        let mut message = Location { key, ..prefix.clone() }.to_message();
        message.attrs.insert("content_type".to_owned(), part.media_type.clone());
        message.attrs.extend(part.bytes.map(|bytes| ("size".to_owned(), bytes.to_string())));
        message.attrs.extend(part.sha256.as_ref().map(|digest| ("sha256".to_owned(), hex::encode(digest))));
        let encoded = Reference::new(message).and_then(|reference| {
            // Where nobody could fetch it, the document's name is no key.
            reference.location()?;
            reference.encode()
        });
        Some(encoded.map(Payload::bytes).map_err(io::Error::other))
    }
}
