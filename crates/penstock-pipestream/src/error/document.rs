use crate::sizes::{MAX_DOC_ENTRY, MAX_DOC_SCOPES, MAX_DOC_TEXT};

/// Errors in an entity's PipeDoc.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// A document without an ID.
    #[error("doc_id is missing")]
    NoDocId,
    /// A document without its entity.
    #[error("entity_id is missing")]
    NoEntityId,
    /// A message that does not parse.
    #[error("it is no PipeDoc: {0}")]
    Message(String),
    /// An entry that is too long.
    #[error("it has {bytes} bytes; the limit is {MAX_DOC_ENTRY}")]
    Length {
        /// Bytes that there are.
        bytes: usize,
    },
    /// An entry that is not base64.
    #[error("it is not base64: {0}")]
    Base64(base64::DecodeError),
    /// A document of another entity.
    #[error("entity_id is {named}, and the entity is {entity}")]
    OtherEntity {
        /// The ID that is named.
        named: u32,
        /// The entity.
        entity: u32,
    },
    /// An owner with too many scopes.
    #[error("ownership.scopes has {count} entries; the limit is {MAX_DOC_SCOPES}")]
    Scopes {
        /// How many there are.
        count: usize,
    },
    /// A text that is empty or too long.
    #[error("{field} has {bytes} bytes; it has 1 to {MAX_DOC_TEXT}")]
    TextLength {
        /// The field, as the message names it.
        field: &'static str,
        /// Bytes that there are.
        bytes: usize,
    },
    /// A text with control characters.
    #[error("{field} has control characters")]
    TextControl {
        /// The field, as the message names it.
        field: &'static str,
    },
}
