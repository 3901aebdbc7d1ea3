//! What the receiver of a document learns in addition to its bytes (section 10.6): the content of headers, references
//! instead of documents, and padding.

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
use crate::{Result, Value};

const OPAQUE_TYPE: &str = "application/octet-stream";
/// The reason that the receiver gets for a part that failed at the sender, if names must not be
/// disclosed: the real reason may contain names.
const REDACTED_REASON: &str = "the part cannot be sent";
/// Maximum size of a padding entity in bytes.
const MAX_PADDING: u64 = 16 << 10;

/// The caller's options for how much the receiver learns.
#[derive(Clone, Default)]
pub struct PrivacyOptions {
    /// Pad the number of each container's children to a multiple of this; 0 and 1 mean no padding.
    pub pad_children: u64,
    /// Use `application/octet-stream` as the type of every part.
    pub opaque_types: bool,
    /// Replace names by pseudonyms that are made with this key.
    pub pseudonym_key: Option<Bytes>,
    /// Send a reference below this URL instead of a document.
    pub by_reference: Option<String>,
}

/// How much the receiver learns. By default parts are sent unchanged, under their names.
#[derive(Debug, Clone, Default)]
pub struct Privacy {
    /// The number of children is padded to a multiple of this; 0 and 1 mean no padding.
    pad_children: u64,
    opaque_types: bool,
    pseudonyms: Option<Pseudonyms>,
    by_reference: Option<Location>,
}

/// The receipt's note about the privacy with which its parts were sent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PrivacyNote {
    pad_children: u64,
    opaque_types: bool,
    /// The document's pseudonym.
    document: Option<String>,
}

/// The pseudonyms of a document's identifier and its owner in a receipt.
#[derive(Debug, Serialize)]
pub(crate) struct AliasNote {
    doc_id: String,
    owner: Option<OwnerNote>,
}

/// A padding entity.
#[derive(Debug)]
pub(crate) struct Padding {
    pub(crate) key: EntityKey,
    pub(crate) status: Status,
}

impl Privacy {
    /// Create the privacy from the caller's options.
    ///
    /// # Errors
    ///
    /// [`Value`] for too much padding, and the protocol's error for a short key or an unusable URL.
    pub fn new(options: PrivacyOptions) -> Result<Self> {
        let PrivacyOptions { pad_children, opaque_types, pseudonym_key, by_reference } = options;
        if pad_children > CHILDREN_PER_MIB {
            return Err(Value::Padding(pad_children).into());
        }
        let pseudonyms = pseudonym_key.map(|key| Pseudonyms::new(&key)).transpose()?;
        let by_reference = by_reference.map(|url| Location::parse(&url)).transpose()?;
        Ok(Self { pad_children, opaque_types, pseudonyms, by_reference })
    }

    /// Return whether scopes get padding entities.
    pub(crate) fn pads(&self) -> bool {
        self.pad_children > 1
    }

    /// Return whether references are sent instead of documents.
    pub(crate) fn refers(&self) -> bool {
        self.by_reference.is_some()
    }

    /// Return a document's name and the path to a part in the form of headers.
    pub(crate) fn disclosed_path(&self, document: &str, path: &[&str]) -> (String, Vec<String>) {
        match &self.pseudonyms {
            Some(pseudonyms) => (pseudonyms.document(document), pseudonyms.path(document, path)),
            None => (document.to_owned(), path.iter().map(|&step| step.to_owned()).collect()),
        }
    }

    /// Return the pseudonym of the last step in a part's path.
    pub(crate) fn alias(&self, document: &str, path: &[&str]) -> Option<String> {
        self.pseudonyms.as_ref().and_then(|pseudonyms| pseudonyms.path(document, path).pop())
    }

    /// Return the content type for a header. `document`: whether it is a document that is sent in one piece.
    pub(crate) fn content_type<'a>(&self, media_type: &'a str, document: bool) -> &'a str {
        match (self.opaque_types, document && self.refers()) {
            (_, true) => CONTENT_TYPE,
            (true, false) => OPAQUE_TYPE,
            (false, false) => media_type,
        }
    }

    /// Return the reason that the receiver gets for a failure.
    pub(crate) fn disclosed_reason(&self, reason: &str) -> String {
        if self.pseudonyms.is_some() { REDACTED_REASON.to_owned() } else { reason.to_owned() }
    }

    /// Return the receipt's note; `None` if parts are sent unchanged.
    pub(crate) fn note(&self, document: &str) -> Option<PrivacyNote> {
        let pseudonym = self.pseudonyms.as_ref().map(|pseudonyms| pseudonyms.document(document));
        (self.pads() || self.opaque_types || pseudonym.is_some()).then_some(PrivacyNote {
            pad_children: self.pad_children,
            opaque_types: self.opaque_types,
            document: pseudonym,
        })
    }

    /// Return the receipt's note about the pseudonyms in a document's message.
    pub(crate) fn document_alias(&self, doc: &PipeDoc) -> Option<AliasNote> {
        let hidden = self.pseudonyms.as_ref()?.pipe_doc(doc);
        Some(AliasNote { owner: hidden.ownership.as_ref().map(OwnerNote::from), doc_id: hidden.doc_id })
    }

    /// Return a document's message in the form of its header.
    pub(crate) fn disclosed_pipe_doc(&self, doc: PipeDoc) -> PipeDoc {
        disclosed_pipe_doc(doc, self.pseudonyms.as_ref())
    }

    /// Return the number of padding entities to add to `children` children of a container of
    /// `bytes` bytes.
    pub(crate) fn padding(&self, children: u64, bytes: Option<u64>) -> u64 {
        if !self.pads() {
            return 0;
        }
        let limit = CHILDREN_PER_MIB.saturating_mul(bytes.unwrap_or(0).div_ceil(1 << 20).max(1));
        let wanted = children.max(1).next_multiple_of(self.pad_children);
        wanted.min(limit).saturating_sub(children)
    }

    /// Make a random payload as long as the child before it, so that its size does not identify it as padding.
    pub(crate) fn random_payload(bytes: u64) -> Payload {
        let length = usize::try_from(bytes.min(MAX_PADDING)).unwrap_or_default();
        let mut random = vec![0; length];
        fastrand::fill(&mut random);
        Payload::bytes(random)
    }

    /// Make the reference that is sent instead of a document; return `None` if documents themselves
    /// are sent.
    pub(crate) fn reference(&self, document: &str, part: &Part) -> Option<io::Result<Payload>> {
        let prefix = self.by_reference.as_ref()?;
        let key = if prefix.key.is_empty() { document.to_owned() } else { format!("{}/{document}", prefix.key) };
        let mut message = Location { key, ..prefix.clone() }.to_message();
        message.attrs.insert("content_type".to_owned(), part.media_type.clone());
        message.attrs.extend(part.bytes.map(|bytes| ("size".to_owned(), bytes.to_string())));
        message.attrs.extend(part.sha256.as_ref().map(|digest| ("sha256".to_owned(), hex::encode(digest))));
        let encoded = Reference::new(message).and_then(|reference| {
            // A name that cannot be fetched as a key is an error.
            reference.location()?;
            reference.encode()
        });
        Some(encoded.map(Payload::bytes).map_err(io::Error::other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::testing::part;

    fn privacy(change: impl FnOnce(&mut PrivacyOptions)) -> Privacy {
        let mut options = PrivacyOptions::default();
        change(&mut options);
        Privacy::new(options).unwrap()
    }

    #[test]
    fn children_are_made_up_to_a_multiple_within_what_decision_11_allows() {
        let mib = 1 << 20;
        let table = [
            (10, 0, None, 10),
            (10, 1, None, 9),
            (10, 10, None, 0),
            (10, 11, Some(5), 9),
            (10, 995, Some(mib), 5),
            (1000, 1001, Some(mib), 0),
            (1000, 1001, Some(mib + 1), 999),
            (1, 7, None, 0),
            (0, 7, None, 0),
        ];
        for (pad_children, children, bytes, expected) in table {
            let padding = privacy(|options| options.pad_children = pad_children).padding(children, bytes);
            assert_eq!(padding, expected, "{children} children of {bytes:?} bytes, by {pad_children}");
        }
    }

    #[test]
    fn a_payload_of_no_meaning_is_as_long_as_the_child_before_up_to_16_kib() {
        for (bytes, length) in [(0, 0), (1000, 1000), (16 << 10, 16 << 10), (1 << 30, 16 << 10)] {
            assert_eq!(Privacy::random_payload(bytes).len(), length);
        }
        assert_ne!(Privacy::random_payload(64).sha256(), Privacy::random_payload(64).sha256());
    }

    #[test]
    fn more_padding_than_a_receiver_takes_and_short_keys_are_refused() {
        let refused = |options| Privacy::new(options).unwrap_err();
        let error = refused(PrivacyOptions { pad_children: 1001, ..PrivacyOptions::default() });
        assert!(matches!(error, Error::Value(Value::Padding(1001))), "{error}");
        assert_eq!(error.to_string(), "pad_children is 0 to 1000, not 1001");
        let error = refused(PrivacyOptions { pseudonym_key: Some(vec![1; 15].into()), ..PrivacyOptions::default() });
        assert!(matches!(error, Error::Session(penstock_pipestream_net::Error::Protocol(_))), "{error}");
        let error = refused(PrivacyOptions { by_reference: Some("ftp://x".to_owned()), ..PrivacyOptions::default() });
        assert!(matches!(error, Error::Session(penstock_pipestream_net::Error::Protocol(_))), "{error}");
    }

    #[test]
    fn under_pseudonyms_names_and_reasons_stay_here_and_the_receipt_can_tell_them_apart() {
        let plain = Privacy::default();
        assert_eq!(plain.disclosed_path("d", &["a"]), ("d".to_owned(), vec!["a".to_owned()]));
        assert_eq!(
            (plain.disclosed_reason("a.txt is broken"), plain.alias("d", &["a"])),
            ("a.txt is broken".to_owned(), None)
        );
        assert_eq!(plain.note("d"), None);
        let hidden = privacy(|options| options.pseudonym_key = Some(vec![7; 16].into()));
        let (document, path) = hidden.disclosed_path("d", &["a", "b"]);
        assert!(document.len() == 32 && path.iter().all(|step| step.len() == 32));
        assert_eq!(hidden.alias("d", &["a", "b"]).as_ref(), path.last());
        assert_eq!(hidden.disclosed_reason("a.txt is broken"), "the part cannot be sent");
        let note = serde_json::to_string(&hidden.note("d")).unwrap();
        assert_eq!(note, format!(r#"{{"pad_children":0,"opaque_types":false,"document":"{document}"}}"#));
    }

    #[test]
    fn the_documents_message_goes_under_pseudonyms_that_the_receipt_names() {
        let doc = PipeDoc { doc_id: "d".to_owned(), entity_id: 0, ownership: None };
        assert_eq!(Privacy::default().disclosed_pipe_doc(doc.clone()), doc);
        assert!(Privacy::default().document_alias(&doc).is_none());
        let hidden = privacy(|options| options.pseudonym_key = Some(vec![7; 16].into()));
        let disclosed = hidden.disclosed_pipe_doc(doc.clone());
        assert_ne!(disclosed.doc_id, "d");
        assert_eq!(hidden.document_alias(&doc).unwrap().doc_id, disclosed.doc_id);
    }

    #[test]
    fn a_type_can_be_withheld_and_a_reference_has_its_own() {
        let opaque = privacy(|options| options.opaque_types = true);
        assert_eq!(
            (Privacy::default().content_type("a/b", true), opaque.content_type("a/b", true)),
            ("a/b", OPAQUE_TYPE)
        );
        let referred = privacy(|options| options.by_reference = Some("s3://bucket/prefix/".to_owned()));
        assert_eq!((referred.content_type("a/b", true), referred.content_type("a/b", false)), (CONTENT_TYPE, "a/b"));
        let document = part(&[], "a/b", b"bytes");
        assert!(Privacy::default().reference("d", &document).is_none());
        let payload = referred.reference("d", &document).unwrap().unwrap();
        assert!(payload.len() > 64, "it has the digest in it");
        let other = referred.reference("d", &part(&[], "a/b", b"other")).unwrap().unwrap();
        assert_ne!(payload.sha256(), other.sha256());
    }
}
