//! The registry of error codes (section 11.4).

use std::fmt;

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
    /// Return the registry's number.
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

    /// Return the code for a number from the wire.
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

    /// Return the registry's name; a number without one is `PIPESTREAM_UNASSIGNED` or, from 0x40 to 0xFF,
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
}
