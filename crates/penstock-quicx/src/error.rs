use std::fmt;

use penstock_wire::ErrorKind;

/// What this crate's fallible functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whose fault something is, and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    /// The bytes do not parse.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Malformed, message: message.into() }
    }

    /// The peer broke a rule.
    pub(crate) fn violation(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Violation, message: message.into() }
    }

    /// A limit was exceeded.
    pub(crate) fn limit(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Limit, message: message.into() }
    }

    /// The caller broke a rule.
    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Misuse, message: message.into() }
    }

    /// The same, with whom it is about.
    #[must_use]
    pub fn of(self, whom: &str) -> Self {
        Self { message: format!("{whom}: {}", self.message), ..self }
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
