use bytes::BufMut;
use penstock_wire::{Reader, Truncated, Writer};

use super::TaskId;
use crate::error::{Malformed, Misuse, Result};

/// The payload of SUBMIT, and the content of a block of the pool: a type and a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submit<'a> {
    /// The task's type: UTF-8, 1 to 255 bytes.
    pub kind: &'a [u8],
    /// The task's payload, which may be empty.
    pub payload: &'a [u8],
}

impl<'a> Submit<'a> {
    /// Bytes on the wire and in a block.
    pub const fn bytes(&self) -> usize {
        1 + self.kind.len() + self.payload.len()
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.kind.is_empty() || self.kind.len() > 255 {
            return Err(Misuse::TypeLength(self.kind.len()).into());
        }
        Ok(())
    }

    /// Check that the type is not empty and is UTF-8 (decision 3).
    pub(super) fn check_type(&self) -> Result<(), Malformed> {
        check_type(self.kind)
    }

    pub(super) fn encode(&self, writer: &mut Writer<impl BufMut>) {
        writer.u8(u8::try_from(self.kind.len()).unwrap_or(u8::MAX));
        writer.bytes(self.kind);
        writer.bytes(self.payload);
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> std::result::Result<Self, Truncated> {
        let length = reader.u8()?;
        let kind = reader.take(usize::from(length))?;
        Ok(Self { kind, payload: reader.take(reader.remaining())? })
    }
}

pub(super) fn check_type(kind: &[u8]) -> Result<(), Malformed> {
    if kind.is_empty() {
        return Err(Malformed::EmptyType);
    }
    std::str::from_utf8(kind).map(drop).map_err(|_| Malformed::TypeEncoding)
}

/// The payload of SUBMIT_ONCE: a key that the producer chooses, and the payload of SUBMIT. However
/// often a key is submitted, there is one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubmitOnce<'a> {
    /// The key: random bytes, or a hash of the data that identifies the task.
    pub key: [u8; SubmitOnce::KEY],
    /// The task.
    pub submit: Submit<'a>,
}

impl<'a> SubmitOnce<'a> {
    /// Bytes of a key.
    pub const KEY: usize = 16;

    /// Bytes on the wire and in a block, where the key follows the rest.
    pub const fn bytes(&self) -> usize {
        Self::KEY + self.submit.bytes()
    }

    pub(super) fn encode(&self, writer: &mut Writer<impl BufMut>) {
        writer.bytes(&self.key);
        self.submit.encode(writer);
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> std::result::Result<Self, Truncated> {
        Ok(Self { key: reader.array()?, submit: Submit::decode(reader)? })
    }
}

/// The payload of TASK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task<'a> {
    /// Its ID.
    pub id: TaskId,
    /// The submitted type and payload.
    pub submit: Submit<'a>,
}

impl<'a> Task<'a> {
    pub(super) fn encode(&self, writer: &mut Writer<impl BufMut>) {
        self.id.encode(writer);
        self.submit.encode(writer);
    }

    pub(super) fn decode(reader: &mut Reader<'a>) -> std::result::Result<Self, Truncated> {
        Ok(Self { id: TaskId::decode(reader)?, submit: Submit::decode(reader)? })
    }
}
