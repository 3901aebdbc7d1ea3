use std::fmt;

use penstock_wire::{ErrorKind, LimitExceeded, Truncated};

/// What this crate's fallible functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Bytes that cannot be used, or a call that cannot be made: whose fault it is, and what happened. After one of a kind
/// other than [`ErrorKind::Misuse`] a connection is over.
///
/// What a method or a request is answered with is a [`Failure`](crate::Failure) instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// An error of a kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// The peer's bytes do not parse.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed, message)
    }

    /// The bytes parse, but the peer broke a rule.
    pub(crate) fn violation(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Violation, message)
    }

    /// The caller broke a rule.
    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misuse, message)
    }

    /// Whose fault it is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<LimitExceeded> for Error {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::new(ErrorKind::Limit, exceeded.to_string())
    }
}

impl From<Truncated> for Error {
    fn from(truncated: Truncated) -> Self {
        Self::malformed(truncated.to_string())
    }
}
