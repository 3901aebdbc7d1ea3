//! What crosses to the receiver of a document beside its bytes (section 10.6): what headers tell, what stands for a
//! document, and what is sent besides.

use std::io;

use bytes::Bytes;
use penstock_documents::Part;
use penstock_io::hex;
use penstock_pipestream::reference::{CONTENT_TYPE, Location, Reference};
use penstock_pipestream::{PipeDoc, Pseudonyms};
use penstock_pipestream_net::{EntityKey, Payload, Status};
use serde::{Deserialize, Serialize};

use crate::identity::{OwnerNote, disclosed_pipe_doc};
use crate::limits::CHILDREN_PER_MIB;
use crate::{Error, Result};

const OPAQUE_TYPE: &str = "application/octet-stream";
/// What the receiver is told of a part that failed at the sender, where names must not cross: a reason may have some.
const REDACTED_REASON: &str = "the part cannot be sent";
/// The most bytes of an entity that stands for nothing.
const MAX_PADDING: u64 = 16 << 10;

/// How much the receiver is to learn, as the caller says it.
#[derive(Clone, Default)]
pub struct PrivacyOptions {
    /// Make the number of each container's children a multiple of this; 0 and 1 leave it.
    pub pad_children: u64,
    /// Call every part `application/byte-stream`.
    pub opaque_types: bool,
    /// Replace names by pseudonyms that are made with this key.
    pub pseudonym_key: Option<Bytes>,
    /// Send, instead of a document, a reference to it below this URL.
    pub by_reference: Option<String>,
}

/// How much the receiver learns. By default parts go as they are, under their names.
#[derive(Debug, Clone, Default)]
pub struct Privacy {
    /// Children of a container are made up to a multiple of this; 0 and 1: they are not.
    pad_children: u64,
    opaque_types: bool,
    pseudonyms: Option<Pseudonyms>,
    by_reference: Option<Location>,
}

/// What a receipt says of the privacy that its parts were sent with.
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

impl Privacy {
    /// Read what the caller says.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for too much padding, and the protocol's error for a short key or a URL that is no place.
    pub fn new(options: PrivacyOptions) -> Result<Self> {
        let PrivacyOptions { pad_children, opaque_types, pseudonym_key, by_reference } = options;
        if pad_children > CHILDREN_PER_MIB {
            let message = format!("pad_children is 0 to {CHILDREN_PER_MIB}, not {pad_children}");
            return Err(Error::Value(message));
        }
        let pseudonyms = pseudonym_key.map(|key| Pseudonyms::new(&key)).transpose()?;
        let by_reference = by_reference.map(|url| Location::parse(&url)).transpose()?;
        Ok(Self { pad_children, opaque_types, pseudonyms, by_reference })
    }

    /// Return whether scopes get more entities than a document has parts.
    pub(crate) fn pads(&self) -> bool {
        self.pad_children > 1
    }

    /// Return whether a reference stands for a document.
    pub(crate) fn refers(&self) -> bool {
        self.by_reference.is_some()
    }

    /// Return a document's name and the way down to a part, as headers have them.
    pub(crate) fn disclosed_path(&self, document: &str, path: &[&str]) -> (String, Vec<String>) {
        match &self.pseudonyms {
            Some(pseudonyms) => (pseudonyms.document(document), pseudonyms.path(document, path)),
            None => (document.to_owned(), path.iter().map(|&step| step.to_owned()).collect()),
        }
    }

    /// Return the pseudonym of a part's own step.
    pub(crate) fn alias(&self, document: &str, path: &[&str]) -> Option<String> {
        self.pseudonyms.as_ref().and_then(|pseudonyms| pseudonyms.path(document, path).pop())
    }

    /// Return the content type of a header. `document`: of one that is sent whole.
    pub(crate) fn content_type<'a>(&self, media_type: &'a str, document: bool) -> &'a str {
        match (self.opaque_types, document && self.refers()) {
            (_, true) => CONTENT_TYPE,
            (true, false) => OPAQUE_TYPE,
            (false, false) => media_type,
        }
    }

    /// Return what the receiver is told of a failure.
    pub(crate) fn disclosed_reason(&self, reason: &str) -> String {
        if self.pseudonyms.is_some() { REDACTED_REASON.to_owned() } else { reason.to_owned() }
    }

    /// Return what the receipt says; nothing of parts that go as they are.
    pub(crate) fn note(&self, document: &str) -> Option<PrivacyNote> {
        let pseudonym = self.pseudonyms.as_ref().map(|pseudonyms| pseudonyms.document(document));
        (self.pads() || self.opaque_types || pseudonym.is_some()).then_some(PrivacyNote {
            pad_children: self.pad_children,
            opaque_types: self.opaque_types,
            document: pseudonym,
        })
    }

    /// Return what a receipt says of the pseudonyms in a document's message.
    pub(crate) fn document_alias(&self, doc: &PipeDoc) -> Option<AliasNote> {
        let hidden = self.pseudonyms.as_ref()?.pipe_doc(doc);
        Some(AliasNote { owner: hidden.ownership.as_ref().map(OwnerNote::from), doc_id: hidden.doc_id })
    }

    /// Return a document's message as its header has it.
    pub(crate) fn disclosed_pipe_doc(&self, doc: PipeDoc) -> PipeDoc {
        disclosed_pipe_doc(doc, self.pseudonyms.as_ref())
    }

    /// Return how many entities are to follow so many children of a container of so many bytes.
    pub(crate) fn padding(&self, children: u64, bytes: Option<u64>) -> u64 {
        if !self.pads() {
            return 0;
        }
        let limit = CHILDREN_PER_MIB.saturating_mul(bytes.unwrap_or(0).div_ceil(1 << 20).max(1));
        let wanted = children.max(1).next_multiple_of(self.pad_children);
        wanted.min(limit).saturating_sub(children)
    }

    /// Make a payload of no meaning, as long as the child before, so that its size does not give it away.
    pub(crate) fn random_payload(bytes: u64) -> Payload {
        let length = usize::try_from(bytes.min(MAX_PADDING)).unwrap_or_default();
        let mut random = vec![0; length];
        fastrand::fill(&mut random);
        Payload::bytes(random)
    }

    /// Make the message that stands for a document, where one does.
    pub(crate) fn reference(&self, document: &str, part: &Part) -> Option<io::Result<Payload>> {
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
