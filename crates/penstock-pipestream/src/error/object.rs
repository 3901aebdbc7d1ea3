use super::ErrorCode;

/// Errors in the object that a reference names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// Nothing is there.
    #[error("there is no object {0}")]
    Missing(String),
    /// A file is named as objects of stores are.
    #[error("a file has no entity tag and no version")]
    NoTag,
    /// A key that no store takes.
    #[error("the key of {name}: {reason}")]
    Key {
        /// Its name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A location from which this end does not fetch.
    #[error("{0} is not below any prefix that this server fetches from")]
    Forbidden(String),
    /// A different object has replaced it.
    #[error("the object {0} was replaced while it was read")]
    Replaced(String),
    /// The object has become shorter.
    #[error("the object {0} became shorter while it was read")]
    Shortened(String),
    /// Its size differs from the reference.
    #[error("the object {name} has {length} bytes, the reference says {size}")]
    Size {
        /// Its name.
        name: String,
        /// Bytes that it has.
        length: u64,
        /// The size in the reference.
        size: u64,
    },
    /// Its entity tag differs from the reference.
    #[error("the object {0} has another entity tag than the reference says")]
    Tag(String),
    /// Its checksum differs from the reference.
    #[error("the object's SHA-256 is not that of the reference")]
    Digest,
    /// Its length has changed.
    #[error("the object no longer has {0} bytes")]
    Length(u64),
}

/// What is unavailable at the end that has the entity, through no party's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// An object that a reference leads to.
    #[error("the object {0} cannot be fetched; the server's log says why")]
    Object(String),
    /// A payload that was spooled.
    #[error("cannot read the payload back: {reason}")]
    Payload {
        /// What is wrong with it.
        reason: String,
    },
}

impl ObjectError {
    /// Return the registry's code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Missing(_) | Self::NoTag | Self::Key { .. } | Self::Forbidden(_) => ErrorCode::EntityInvalid,
            Self::Replaced(_)
            | Self::Shortened(_)
            | Self::Size { .. }
            | Self::Tag(_)
            | Self::Digest
            | Self::Length(_) => ErrorCode::IntegrityError,
        }
    }
}
