use std::fmt;

use bytes::BufMut;
use penstock_wire::{Reader, Truncated, Writer};

use super::TaskId;

/// The code of an ERROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// 0x01: nothing can be stored now.
    QueueFull,
    /// 0x02: bad version, length, type or role.
    Invalid,
    /// 0x03: the task is above the largest size class, or the frame above the limit.
    TooLarge,
    /// 0x04: the task's type is not on the list of allowed types.
    UnknownType,
    /// A code that the specification does not define.
    Other(u8),
}

impl ErrorCode {
    /// Return the byte on the wire.
    pub const fn byte(self) -> u8 {
        match self {
            Self::QueueFull => 1,
            Self::Invalid => 2,
            Self::TooLarge => 3,
            Self::UnknownType => 4,
            Self::Other(byte) => byte,
        }
    }

    /// Return the code of a byte.
    pub const fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::QueueFull,
            2 => Self::Invalid,
            3 => Self::TooLarge,
            4 => Self::UnknownType,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02X}", self.byte())
    }
}

/// The payload of ERROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The code.
    pub code: ErrorCode,
    /// The message for people; our daemon sends UTF-8.
    pub message: &'a [u8],
}

impl<'a> Failure<'a> {
    pub(super) fn encode(&self, writer: &mut Writer<impl BufMut>) {
        writer.u8(self.code.byte());
        writer.bytes(self.message);
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        let code = ErrorCode::from_byte(reader.u8()?);
        Ok(Self { code, message: reader.take(reader.remaining())? })
    }
}

/// The payload of FAILED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failed<'a> {
    /// The task.
    pub id: TaskId,
    /// The reason, byte for byte as the worker sent it (decision 3).
    pub reason: &'a [u8],
}

impl<'a> Failed<'a> {
    pub(super) fn encode(&self, writer: &mut Writer<impl BufMut>) {
        self.id.encode(writer);
        writer.bytes(self.reason);
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Self, Truncated> {
        let id = TaskId::decode(reader)?;
        Ok(Self { id, reason: reader.take(reader.remaining())? })
    }
}
