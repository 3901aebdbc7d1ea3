//! Errors, and the registry of their codes (section 11.4).

mod code;
mod document;
mod entity;
mod limit;
mod malformed;
mod misuse;
mod object;
mod reference;
mod stream_end;
#[cfg(test)]
mod tests;
mod violation;

use std::fmt;

use penstock_wire::{ErrorKind, Truncated};

pub use code::ErrorCode;
pub use document::DocumentError;
pub use entity::EntityError;
pub use limit::{Deadline, LimitError};
pub use malformed::{ClaimRecordError, Malformed, StoredError, UriError};
pub use misuse::Misuse;
pub use object::{ObjectError, Unavailable};
pub use reference::ReferenceError;
pub use stream_end::StreamEnd;
pub use violation::{Early, Violation};

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error by whose fault it is, with the entity concerned, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer's bytes, or stored ones, do not parse.
    #[error("{code}: {0}{place}", code = .0.code(), place = Place(*.1))]
    Malformed(Malformed, Option<Subject>),
    /// The bytes parse, but the peer broke a rule.
    #[error("{code}: {0}{place}", code = .0.code(), place = Place(*.1))]
    Violation(Violation, Option<Subject>),
    /// A limit was exceeded.
    #[error("{code}: {0}{place}", code = .0.code(), place = Place(*.1))]
    Limit(LimitError, Option<Subject>),
    /// A deadline passed.
    #[error("{code}: {0}{place}", code = .0.code(), place = Place(*.1))]
    Deadline(Deadline, Option<Subject>),
    /// Data is unavailable at the end that has the entity.
    #[error("{code}: {0}{place}", code = ErrorCode::InternalError, place = Place(*.1))]
    Unavailable(Unavailable, Option<Subject>),
    /// The caller broke a rule; nothing was sent.
    #[error("{code}: {0}{place}", code = ErrorCode::InternalError, place = Place(*.1))]
    Misuse(Misuse, Option<Subject>),
}

/// The scope and the entity of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject {
    /// The scope.
    pub scope: u32,
    /// The entity.
    pub entity: u32,
}

/// The subject of an error, formatted to follow the message.
struct Place(Option<Subject>);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |Subject { scope, entity }| write!(f, " (scope {scope}, entity {entity})"))
    }
}

impl Error {
    /// Return the same error with the scope and the entity concerned.
    #[must_use]
    pub fn at(mut self, scope: u32, entity: u32) -> Self {
        match &mut self {
            Self::Malformed(_, subject)
            | Self::Violation(_, subject)
            | Self::Limit(_, subject)
            | Self::Deadline(_, subject)
            | Self::Unavailable(_, subject)
            | Self::Misuse(_, subject) => *subject = Some(Subject { scope, entity }),
        }
        self
    }

    /// Return the kind of the error, by whose fault it is.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(..) => ErrorKind::Malformed,
            Self::Violation(..) => ErrorKind::Violation,
            Self::Limit(..) => ErrorKind::Limit,
            Self::Deadline(..) => ErrorKind::Deadline,
            Self::Unavailable(..) => ErrorKind::Io,
            Self::Misuse(..) => ErrorKind::Misuse,
        }
    }

    /// Return the registry's code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed(malformed, _) => malformed.code(),
            Self::Violation(violation, _) => violation.code(),
            Self::Limit(limit, _) => limit.code(),
            Self::Deadline(deadline, _) => deadline.code(),
            Self::Unavailable(..) | Self::Misuse(..) => ErrorCode::InternalError,
        }
    }

    /// Return the scope and the entity concerned.
    pub const fn subject(&self) -> Option<Subject> {
        match self {
            Self::Malformed(_, subject)
            | Self::Violation(_, subject)
            | Self::Limit(_, subject)
            | Self::Deadline(_, subject)
            | Self::Unavailable(_, subject)
            | Self::Misuse(_, subject) => *subject,
        }
    }

    /// Return the scope concerned.
    pub fn scope(&self) -> Option<u32> {
        self.subject().map(|subject| subject.scope)
    }

    /// Return the entity concerned.
    pub fn entity(&self) -> Option<u32> {
        self.subject().map(|subject| subject.entity)
    }

    /// Return the message without the code and the subject.
    pub fn message(&self) -> String {
        match self {
            Self::Malformed(malformed, _) => malformed.to_string(),
            Self::Violation(violation, _) => violation.to_string(),
            Self::Limit(limit, _) => limit.to_string(),
            Self::Deadline(deadline, _) => deadline.to_string(),
            Self::Unavailable(unavailable, _) => unavailable.to_string(),
            Self::Misuse(misuse, _) => misuse.to_string(),
        }
    }
}

impl From<Malformed> for Error {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed, None)
    }
}

impl From<UriError> for Error {
    fn from(error: UriError) -> Self {
        Malformed::from(error).into()
    }
}

impl From<StoredError> for Error {
    fn from(error: StoredError) -> Self {
        Malformed::from(error).into()
    }
}

impl From<ClaimRecordError> for Error {
    fn from(error: ClaimRecordError) -> Self {
        Malformed::from(error).into()
    }
}

impl From<Truncated> for Error {
    /// Bytes that end too early are ENTITY_INVALID (decision 3).
    fn from(truncated: Truncated) -> Self {
        Malformed::Truncated(truncated).into()
    }
}

impl From<Violation> for Error {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation, None)
    }
}

impl From<EntityError> for Error {
    fn from(error: EntityError) -> Self {
        Violation::from(error).into()
    }
}

impl From<DocumentError> for Error {
    fn from(error: DocumentError) -> Self {
        EntityError::from(error).into()
    }
}

impl From<ReferenceError> for Error {
    fn from(error: ReferenceError) -> Self {
        EntityError::from(error).into()
    }
}

impl From<ObjectError> for Error {
    fn from(error: ObjectError) -> Self {
        EntityError::from(error).into()
    }
}

impl From<Unavailable> for Error {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable, None)
    }
}

impl From<LimitError> for Error {
    fn from(limit: LimitError) -> Self {
        Self::Limit(limit, None)
    }
}

impl From<Deadline> for Error {
    fn from(deadline: Deadline) -> Self {
        Self::Deadline(deadline, None)
    }
}

impl From<Misuse> for Error {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse, None)
    }
}
