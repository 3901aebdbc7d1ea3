use std::fmt;
use std::io;

use arrow_schema::DataType;

use crate::limits::{CHILDREN_PER_MIB, MAX_NAME};

/// An error that occurs while documents or rows are sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller's input cannot be sent; nothing was sent.
    #[error(transparent)]
    Value(#[from] Value),
    /// The caller's earlier receipt cannot be read.
    #[error("the previous receipt: {0}")]
    PreviousReceipt(#[source] serde_json::Error),
    /// A receipt cannot be written as JSON.
    #[error("{0}")]
    Receipt(#[source] serde_json::Error),
    /// The texts or contents for rows cannot be read back, or do not form a column.
    #[error("{0}")]
    Rows(#[source] io::Error),
    /// A failure of the session, the protocol, or this machine.
    #[error(transparent)]
    Session(#[from] penstock_pipestream_net::Error),
    /// The caller's [`Interrupts`](crate::Interrupts) ended the run; the caller knows why.
    #[error("{0}")]
    Interrupted(&'static str),
}

/// The reason why the caller's input cannot be sent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Value {
    /// A document's name is empty or too long.
    #[error("a document's name has 1 to {MAX_NAME} bytes")]
    NameLength,
    /// Layer 0 has no scopes for padding.
    #[error("pad_children needs layer 1, because layer 0 has no scopes")]
    PaddingLayer,
    /// Padding counts as COMPLETE, which a policy would count too.
    #[error("pad_children needs the policy strict, because padding counts as COMPLETE")]
    PaddingPolicy,
    /// A document that is taken apart is not sent by reference.
    #[error("by_reference is for whole documents: dehydrate=False")]
    ReferenceParts,
    /// There would be more padding than a receiver accepts.
    #[error("pad_children is 0 to {CHILDREN_PER_MIB}, not {0}")]
    Padding(u64),
    /// The document's ID is not a UUID.
    #[error("doc_id is a UUID in lower case, 8-4-4-4-12 hex digits, not {0:?}")]
    DocId(String),
    /// A document's message breaks a rule of the protocol.
    #[error("{}", .0.message())]
    PipeDoc(#[source] penstock_pipestream::Error),
    /// A row has an owner, but neither a document's ID nor its name.
    #[error("a row has an owner and neither doc_id nor document; filter such rows, or give them one")]
    OwnerWithoutDocument,
    /// A row has no content.
    #[error(
        "a row{} has no content (null); filter such rows, or coalesce their content to an empty one",
        Of(.document.as_deref())
    )]
    NullContent {
        /// The name of the row's document, if it has one.
        document: Option<String>,
    },
    /// A column is missing.
    #[error("the column {0} is missing")]
    MissingColumn(&'static str),
    /// A column has a type that cannot be sent.
    #[error("the column {column} must be {wanted}, not {found}")]
    ColumnType {
        /// The name of the column.
        column: String,
        /// The types that can be sent.
        wanted: &'static str,
        /// The column's type.
        found: DataType,
    },
}

impl Value {
    pub(crate) fn column_type(column: &str, wanted: &'static str, found: &DataType) -> Self {
        Self::ColumnType { column: column.to_owned(), wanted, found: found.clone() }
    }
}

/// The part of a message that names a row's document, if it is known.
struct Of<'a>(Option<&'a str>);

impl fmt::Display for Of<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(document) => write!(f, " of the document {document}"),
        }
    }
}

/// The result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl From<penstock_io::Error> for Error {
    fn from(error: penstock_io::Error) -> Self {
        Self::Session(error.into())
    }
}

impl From<penstock_pipestream::Error> for Error {
    fn from(error: penstock_pipestream::Error) -> Self {
        Self::Session(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_column_that_cannot_be_sent_is_named_with_what_it_must_be() {
        assert_eq!(Value::MissingColumn("content").to_string(), "the column content is missing");
        let wrong = Value::column_type("content", "binary or string", &DataType::Int32);
        assert_eq!(wrong.to_string(), "the column content must be binary or string, not Int32");
    }

    #[test]
    fn an_error_leads_to_what_the_library_said() {
        let broken = serde_json::from_str::<u8>("{").unwrap_err();
        let said = broken.to_string();
        let error = Error::PreviousReceipt(broken);
        assert_eq!(error.to_string(), format!("the previous receipt: {said}"));
        assert_eq!(error.source().map(ToString::to_string), Some(said));
        let error = Error::Rows(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(error.source().map(ToString::to_string), Some(error.to_string()));
        assert!(Error::from(Value::NameLength).source().is_none());
    }
}
