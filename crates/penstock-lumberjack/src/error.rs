use std::fmt;

use penstock_wire::{ErrorKind, LimitExceeded};

/// What this crate's fallible functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a connection is over: whose fault it is, and where in the peer's bytes it was seen (decision 8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    offset: Option<u64>,
    message: String,
}

impl Error {
    /// The peer's bytes do not parse.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed, message)
    }

    /// The bytes parse, but the peer broke a rule.
    pub(crate) fn violation(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Violation, message)
    }

    /// Something took too long.
    pub(crate) fn deadline(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Deadline, message)
    }

    /// The caller broke a rule.
    pub(crate) fn misuse(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misuse, message)
    }

    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, offset: None, message: message.into() }
    }

    /// Says where it was seen, unless that is known already.
    pub(crate) fn at(mut self, offset: u64) -> Self {
        self.offset = self.offset.or(Some(offset));
        self
    }

    /// Says whose it is: a peer's address.
    #[must_use]
    pub fn of(mut self, peer: &str) -> Self {
        self.message = format!("{peer}: {}", self.message);
        self
    }

    /// Whose fault it is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// How many bytes of the connection came before the frame that is wrong. Inside a compressed frame it is that
    /// frame's.
    pub const fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// What happened, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.offset {
            Some(offset) => write!(f, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<LimitExceeded> for Error {
    fn from(exceeded: LimitExceeded) -> Self {
        Self::new(ErrorKind::Limit, exceeded.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_place_once() {
        let error = Error::malformed("no frame begins with 0x00").at(7).at(9);
        assert_eq!(error.to_string(), "no frame begins with 0x00 (at byte 7)");
        assert_eq!((error.kind(), error.offset()), (ErrorKind::Malformed, Some(7)));
        assert_eq!(error.of("192.0.2.1:5044").to_string(), "192.0.2.1:5044: no frame begins with 0x00 (at byte 7)");
    }
}
