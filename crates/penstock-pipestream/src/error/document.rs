use crate::sizes::{MAX_DOC_ENTRY, MAX_DOC_SCOPES, MAX_DOC_TEXT};

/// Errors in an entity's PipeDoc.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// A PipeDoc without a document ID.
    #[error("doc_id is missing")]
    NoDocId,
    /// A PipeDoc without an entity ID.
    #[error("entity_id is missing")]
    NoEntityId,
    /// An entry that is not a valid message.
    #[error("it is no PipeDoc: {0}")]
    Message(String),
    /// An entry that is too long.
    #[error("it has {bytes} bytes; the limit is {MAX_DOC_ENTRY}")]
    Length {
        /// The entry's length in bytes.
        bytes: usize,
    },
    /// An entry that is not base64.
    #[error("it is not base64: {0}")]
    Base64(base64::DecodeError),
    /// A PipeDoc that names another entity.
    #[error("entity_id is {named}, and the entity is {entity}")]
    OtherEntity {
        /// The entity that the PipeDoc names.
        named: u32,
        /// The entity whose header has the PipeDoc.
        entity: u32,
    },
    /// An owner with too many access scopes.
    #[error("ownership.scopes has {count} entries; the limit is {MAX_DOC_SCOPES}")]
    Scopes {
        /// How many access scopes there are.
        count: usize,
    },
    /// A text that is empty or too long.
    #[error("{field} has {bytes} bytes; it has 1 to {MAX_DOC_TEXT}")]
    TextLength {
        /// The field, as the message names it.
        field: &'static str,
        /// The text's length in bytes.
        bytes: usize,
    },
    /// A text with control characters.
    #[error("{field} has control characters")]
    TextControl {
        /// The field, as the message names it.
        field: &'static str,
    },
}
