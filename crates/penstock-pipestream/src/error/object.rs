use super::ErrorCode;

/// Errors in the object that a reference names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// An object that does not exist.
    #[error("there is no object {0}")]
    Missing(String),
    /// A reference to a file that states an entity tag or a version.
    #[error("a file has no entity tag and no version")]
    NoTag,
    /// An object key that the store does not allow.
    #[error("the key of {name}: {reason}")]
    Key {
        /// The object's URL.
        name: String,
        /// Why the key is not allowed.
        reason: String,
    },
    /// A location outside of the prefixes from which this end fetches.
    #[error("{0} is not below any prefix that this server fetches from")]
    Forbidden(String),
    /// An object that was replaced while it was read.
    #[error("the object {0} was replaced while it was read")]
    Replaced(String),
    /// An object that became shorter while it was read.
    #[error("the object {0} became shorter while it was read")]
    Shortened(String),
    /// An object whose size differs from the one in the reference.
    #[error("the object {name} has {length} bytes, the reference says {size}")]
    Size {
        /// The object's URL.
        name: String,
        /// The object's length in bytes.
        length: u64,
        /// The size in the reference.
        size: u64,
    },
    /// An object whose entity tag differs from the one in the reference.
    #[error("the object {0} has another entity tag than the reference says")]
    Tag(String),
    /// An object whose SHA-256 differs from the one in the reference.
    #[error("the object's SHA-256 is not that of the reference")]
    Digest,
    /// An object of which more or fewer bytes arrived than its length.
    #[error("the object no longer has {0} bytes")]
    Length(u64),
}

/// Data that is unavailable at the end that has the entity, through no fault of either end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The object that a reference names.
    #[error("the object {0} cannot be fetched; the server's log says why")]
    Object(String),
    /// A spooled payload.
    #[error("cannot read the payload back: {reason}")]
    Payload {
        /// Why the payload cannot be read.
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
