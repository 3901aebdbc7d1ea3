//! PipeDoc and OwnershipContext (section 7.1): the document of an entity, and its owner.
//!
//! A document's root entity carries its message in the header's metadata, under [`DOC`]:
//!
//! ```text
//!  pipestream.doc = base64, with padding (RFC 4648, section 4), of
//!    PipeDoc { 1: doc_id, 2: entity_id, 3: OwnershipContext { 1: owner_id, 2: group_id, 3: scopes } }
//! ```
//!
//! `entity_id` is the ID of the entity that has the header. Texts have 1 to 256 bytes without control characters; an
//! ownership has at most 64 access scopes.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;

use crate::error::{DocumentError, Result};
use crate::messages::{OwnershipContextMessage, PipeDocMessage, decode_message};
pub use crate::sizes::DOC;
use crate::sizes::{MAX_DOC_ENTRY, MAX_DOC_SCOPES, MAX_DOC_TEXT};

/// The bytes of a UUID.
const UUID: usize = 16;

/// The envelope of a document (section 7.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PipeDoc {
    /// The document's identifier; our senders use UUIDs.
    pub doc_id: String,
    /// The entity's ID in its scope.
    pub entity_id: u32,
    /// The document's owner, if the sender states one.
    pub ownership: Option<OwnershipContext>,
}

/// The owner of a document, and the scopes of access to it (section 7.1).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnershipContext {
    /// The owner.
    pub owner_id: Option<String>,
    /// The owner's group.
    pub group_id: Option<String>,
    /// The access scopes, in the sender's order.
    pub scopes: Vec<String>,
}

impl PipeDoc {
    /// Reject a document that section 7.1 or the limits above do not allow: ENTITY_INVALID, naming
    /// the field.
    pub fn check(&self) -> Result<()> {
        if self.doc_id.is_empty() {
            return Err(DocumentError::NoDocId.into());
        }
        check_text("doc_id", &self.doc_id)?;
        self.ownership.as_ref().map_or(Ok(()), OwnershipContext::check)
    }

    /// Return the message's bytes. Equal values have equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let ownership = self.ownership.as_ref().map(|ownership| OwnershipContextMessage {
            owner_id: ownership.owner_id.clone(),
            group_id: ownership.group_id.clone(),
            scopes: ownership.scopes.clone(),
        });
        let doc_id = Some(self.doc_id.clone());
        PipeDocMessage { doc_id, entity_id: Some(self.entity_id), ownership }.encode_to_vec()
    }

    /// Parse a message.
    ///
    /// # Errors
    ///
    /// ENTITY_INVALID if the message cannot be parsed, lacks a required field, or has a text that
    /// exceeds the limits.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let message: PipeDocMessage = decode_message(bytes).map_err(|error| DocumentError::Message(error.message()))?;
        let doc_id = message.doc_id.unwrap_or_default();
        if doc_id.is_empty() {
            return Err(DocumentError::NoDocId.into());
        }
        let Some(entity_id) = message.entity_id else { return Err(DocumentError::NoEntityId.into()) };
        let ownership = message.ownership.map(|ownership| OwnershipContext {
            owner_id: ownership.owner_id,
            group_id: ownership.group_id,
            scopes: ownership.scopes,
        });
        let doc = Self { doc_id, entity_id, ownership };
        doc.check()?;
        Ok(doc)
    }

    /// Return the value of the metadata entry [`DOC`].
    pub fn to_entry(&self) -> String {
        STANDARD.encode(self.encode())
    }

    /// Parse the value of the metadata entry [`DOC`] in an entity's header.
    ///
    /// # Errors
    ///
    /// ENTITY_INVALID if the value is not base64, is not a valid message, or names another entity.
    pub fn from_entry(entry: &str, entity_id: u32) -> Result<Self> {
        if entry.len() > MAX_DOC_ENTRY {
            return Err(DocumentError::Length { bytes: entry.len() }.into());
        }
        let bytes = STANDARD.decode(entry).map_err(DocumentError::Base64)?;
        let doc = Self::decode(&bytes)?;
        if doc.entity_id != entity_id {
            return Err(DocumentError::OtherEntity { named: doc.entity_id, entity: entity_id }.into());
        }
        Ok(doc)
    }
}

impl OwnershipContext {
    /// Return whether all fields are empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn check(&self) -> Result<()> {
        self.owner_id.as_deref().map_or(Ok(()), |text| check_text("ownership.owner_id", text))?;
        self.group_id.as_deref().map_or(Ok(()), |text| check_text("ownership.group_id", text))?;
        if self.scopes.len() > MAX_DOC_SCOPES {
            let count = self.scopes.len();
            return Err(DocumentError::Scopes { count }.into());
        }
        self.scopes.iter().try_for_each(|scope| check_text("ownership.scopes", scope))
    }
}

fn check_text(field: &'static str, text: &str) -> Result<()> {
    if text.is_empty() || text.len() > MAX_DOC_TEXT {
        return Err(DocumentError::TextLength { field, bytes: text.len() }.into());
    }
    if text.chars().any(char::is_control) {
        return Err(DocumentError::TextControl { field }.into());
    }
    Ok(())
}

/// Return the document ID for a receipt's key, 32 hex digits: the same bits as a UUID of version 8 (RFC 9562, section
/// 5.8). `None` for any other text.
pub fn doc_id_of_key(key: &str) -> Option<String> {
    let digits = key.len() == 2 * UUID && key.bytes().all(|digit| digit.is_ascii_hexdigit());
    let bits = u128::from_str_radix(key, 16).ok().filter(|_| digits)?;
    Some(uuid_v8(bits.to_be_bytes()))
}

/// Return whether a text is a UUID in its canonical form, in lower case.
pub fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        })
}

/// Format the bytes as a UUID of version 8: the version's 4 bits and the variant's 2 bits are set.
pub(crate) fn uuid_v8(bytes: [u8; UUID]) -> String {
    let bits = u128::from_be_bytes(bytes);
    let bits = bits & !(0xF << 76) | 0x8 << 76;
    let bits = bits & !(0x3 << 62) | 0x2 << 62;
    let mut text = String::with_capacity(36);
    for (at, digit) in format!("{bits:032x}").chars().enumerate() {
        if matches!(at, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        // Writing to a String cannot fail.
        let _ = text.write_char(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use penstock_testkit::vectors::Hex;
    use serde::Deserialize;

    use super::*;
    use crate::error::ErrorCode;

    #[derive(Deserialize)]
    struct Vectors {
        valid: Vec<Valid>,
        invalid: Vec<Invalid>,
        keys: Vec<(String, String)>,
    }

    #[derive(Deserialize)]
    struct Valid {
        name: String,
        hex: Hex,
        entry: String,
        doc_id: String,
        entity_id: u32,
        ownership: Option<Ownership>,
    }

    #[derive(Deserialize)]
    struct Ownership {
        owner_id: Option<String>,
        group_id: Option<String>,
        scopes: Vec<String>,
    }

    #[derive(Deserialize)]
    struct Invalid {
        name: String,
        entry: String,
        entity_id: u32,
        error: String,
    }

    fn vectors() -> Vectors {
        serde_json::from_str(include_str!("../../../tests/vectors/pipestream/pipe-doc.json")).expect("valid JSON")
    }

    #[test]
    fn every_valid_vector_reads_and_writes_as_it_says() {
        let vectors = vectors().valid;
        assert!(vectors.len() >= 4, "only {} vectors", vectors.len());
        for vector in vectors {
            let ownership = vector.ownership.map(|ownership| OwnershipContext {
                owner_id: ownership.owner_id,
                group_id: ownership.group_id,
                scopes: ownership.scopes,
            });
            let doc = PipeDoc { doc_id: vector.doc_id, entity_id: vector.entity_id, ownership };
            assert_eq!(PipeDoc::decode(&vector.hex.0).as_ref(), Ok(&doc), "{}", vector.name);
            assert_eq!(doc.encode(), vector.hex.0, "{}", vector.name);
            assert_eq!(doc.to_entry(), vector.entry, "{}", vector.name);
            assert_eq!(PipeDoc::from_entry(&vector.entry, doc.entity_id), Ok(doc), "{}", vector.name);
        }
    }

    #[test]
    fn every_invalid_vector_is_refused_with_its_reason() {
        let vectors = vectors().invalid;
        assert!(vectors.len() >= 8, "only {} vectors", vectors.len());
        for vector in vectors {
            let error = PipeDoc::from_entry(&vector.entry, vector.entity_id).expect_err(&vector.name);
            assert_eq!(error.code(), ErrorCode::EntityInvalid, "{}", vector.name);
            assert!(error.message().contains(&vector.error), "{}: {}", vector.name, error.message());
        }
    }

    #[test]
    fn a_key_is_a_uuid_of_version_8() {
        let keys = vectors().keys;
        assert!(keys.len() >= 3);
        for (key, doc_id) in keys {
            assert_eq!(doc_id_of_key(&key).as_deref(), Some(doc_id.as_str()));
            assert!(is_uuid(&doc_id));
        }
        for wrong in ["", "0", "+0112233445566778899aabbccddeeff", "g0112233445566778899aabbccddeeff"] {
            assert_eq!(doc_id_of_key(wrong), None, "{wrong}");
        }
        assert!(!is_uuid("00112233-4455-8677-8899-AABBCCDDEEFF") && !is_uuid("00112233445586778899aabbccddeeff"));
    }

    #[test]
    fn texts_and_lists_are_bounded() {
        let doc = |doc_id: &str, scopes: usize| PipeDoc {
            doc_id: doc_id.to_owned(),
            entity_id: 1,
            ownership: Some(OwnershipContext { scopes: vec!["s".to_owned(); scopes], ..Default::default() }),
        };
        assert!(doc(&"d".repeat(256), 64).check().is_ok());
        assert!(doc(&"d".repeat(257), 0).check().is_err());
        assert!(doc("d", 65).check().is_err());
        let longest = PipeDoc {
            doc_id: "d".repeat(256),
            entity_id: u32::MAX,
            ownership: Some(OwnershipContext {
                owner_id: Some("o".repeat(256)),
                group_id: Some("g".repeat(256)),
                scopes: vec!["s".repeat(256); 64],
            }),
        };
        assert!(longest.to_entry().len() <= MAX_DOC_ENTRY, "the longest valid message can be read");
        assert!(PipeDoc::from_entry(&"A".repeat(MAX_DOC_ENTRY + 4), 1).is_err());
    }
}
