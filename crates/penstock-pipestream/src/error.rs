//! Errors and the registry of error codes (section 11.4).

use std::fmt;

use penstock_wire::{ErrorKind, Truncated};

/// What this crate's fallible functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A code of the "PipeStream Error Codes" registry (section 11.4), the same on CONNECTION_CLOSE, RESET_STREAM,
/// STOP_SENDING (decision 21) and in a 0xC0 ERROR frame (decision 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// 0x00: graceful shutdown.
    NoError,
    /// 0x01: implementation error.
    InternalError,
    /// 0x02: idle time-out.
    IdleTimeout,
    /// 0x03: the control stream was lost.
    ControlReset,
    /// 0x04: a checksum or a digest does not match.
    IntegrityError,
    /// 0x05: invalid format.
    EntityInvalid,
    /// 0x06: a size was exceeded.
    EntityTooLarge,
    /// 0x07: the scope depth was exceeded.
    DepthExceeded,
    /// 0x08: the window is full.
    WindowExceeded,
    /// 0x09: invalid scope.
    ScopeInvalid,
    /// 0x0A: a claim check has expired.
    ClaimExpired,
    /// 0x0B: a claim check is not known.
    ClaimNotFound,
    /// 0x0C: the protocol layer was not negotiated.
    LayerUnsupported,
    /// Any other number that a peer may send: unassigned, or for private use (0x40-0xFF).
    Other(u64),
}

impl ErrorCode {
    /// The registry's number.
    pub const fn code(self) -> u64 {
        match self {
            Self::NoError => 0x00,
            Self::InternalError => 0x01,
            Self::IdleTimeout => 0x02,
            Self::ControlReset => 0x03,
            Self::IntegrityError => 0x04,
            Self::EntityInvalid => 0x05,
            Self::EntityTooLarge => 0x06,
            Self::DepthExceeded => 0x07,
            Self::WindowExceeded => 0x08,
            Self::ScopeInvalid => 0x09,
            Self::ClaimExpired => 0x0A,
            Self::ClaimNotFound => 0x0B,
            Self::LayerUnsupported => 0x0C,
            Self::Other(code) => code,
        }
    }

    /// The code for a number from the wire.
    pub const fn from_code(code: u64) -> Self {
        match code {
            0x00 => Self::NoError,
            0x01 => Self::InternalError,
            0x02 => Self::IdleTimeout,
            0x03 => Self::ControlReset,
            0x04 => Self::IntegrityError,
            0x05 => Self::EntityInvalid,
            0x06 => Self::EntityTooLarge,
            0x07 => Self::DepthExceeded,
            0x08 => Self::WindowExceeded,
            0x09 => Self::ScopeInvalid,
            0x0A => Self::ClaimExpired,
            0x0B => Self::ClaimNotFound,
            0x0C => Self::LayerUnsupported,
            other => Self::Other(other),
        }
    }

    /// The registry's name; a number without one is `PIPESTREAM_UNASSIGNED` or, from 0x40 to 0xFF,
    /// `PIPESTREAM_PRIVATE_USE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoError => "PIPESTREAM_NO_ERROR",
            Self::InternalError => "PIPESTREAM_INTERNAL_ERROR",
            Self::IdleTimeout => "PIPESTREAM_IDLE_TIMEOUT",
            Self::ControlReset => "PIPESTREAM_CONTROL_RESET",
            Self::IntegrityError => "PIPESTREAM_INTEGRITY_ERROR",
            Self::EntityInvalid => "PIPESTREAM_ENTITY_INVALID",
            Self::EntityTooLarge => "PIPESTREAM_ENTITY_TOO_LARGE",
            Self::DepthExceeded => "PIPESTREAM_DEPTH_EXCEEDED",
            Self::WindowExceeded => "PIPESTREAM_WINDOW_EXCEEDED",
            Self::ScopeInvalid => "PIPESTREAM_SCOPE_INVALID",
            Self::ClaimExpired => "PIPESTREAM_CLAIM_EXPIRED",
            Self::ClaimNotFound => "PIPESTREAM_CLAIM_NOT_FOUND",
            Self::LayerUnsupported => "PIPESTREAM_LAYER_UNSUPPORTED",
            Self::Other(code) if code >= 0x40 && code <= 0xFF => "PIPESTREAM_PRIVATE_USE",
            Self::Other(_) => "PIPESTREAM_UNASSIGNED",
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (0x{:02X})", self.name(), self.code())
    }
}

/// An error of the protocol: whose fault, which code of the registry, where, and what the user should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    code: ErrorCode,
    scope: Option<u32>,
    entity: Option<u32>,
    message: String,
}

impl Error {
    /// The peer's bytes do not parse.
    pub fn malformed(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Malformed, code, message)
    }

    /// The peer broke a rule.
    pub fn violation(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Violation, code, message)
    }

    /// A limit was exceeded; the message names the limit.
    pub fn limit(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Limit, code, message)
    }

    /// The caller broke a rule; nothing was sent.
    pub fn misuse(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misuse, ErrorCode::InternalError, message)
    }

    /// An error of the given kind.
    pub fn new(kind: ErrorKind, code: ErrorCode, message: impl Into<String>) -> Self {
        Self { kind, code, scope: None, entity: None, message: message.into() }
    }

    /// Names the scope and the entity that the error is about.
    #[must_use]
    pub fn at(mut self, scope: u32, entity: u32) -> Self {
        self.scope = Some(scope);
        self.entity = Some(entity);
        self
    }

    /// Whose fault it is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The registry's code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The scope that it is about, if it is about one.
    pub fn scope(&self) -> Option<u32> {
        self.scope
    }

    /// The entity that it is about, if it is about one.
    pub fn entity(&self) -> Option<u32> {
        self.entity
    }

    /// What happened, without the code.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        match (self.scope, self.entity) {
            (Some(scope), Some(entity)) => write!(f, " (scope {scope}, entity {entity})"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<Truncated> for Error {
    /// Bytes that end too early are ENTITY_INVALID (decision 3).
    fn from(error: Truncated) -> Self {
        Self::malformed(ErrorCode::EntityInvalid, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_the_wire() {
        for code in 0..=0x1_00 {
            assert_eq!(ErrorCode::from_code(code).code(), code);
        }
        assert_eq!(ErrorCode::from_code(0x0C).name(), "PIPESTREAM_LAYER_UNSUPPORTED");
        assert_eq!(ErrorCode::from_code(0x40).name(), "PIPESTREAM_PRIVATE_USE");
        assert_eq!(ErrorCode::from_code(0x0D).name(), "PIPESTREAM_UNASSIGNED");
    }

    #[test]
    fn an_error_names_its_code_and_its_place() {
        let error = Error::violation(ErrorCode::ScopeInvalid, "scope 3 is ours").at(3, 7);
        assert_eq!(error.to_string(), "PIPESTREAM_SCOPE_INVALID (0x09): scope 3 is ours (scope 3, entity 7)");
        assert_eq!((error.kind(), error.scope(), error.entity()), (ErrorKind::Violation, Some(3), Some(7)));
    }
}
