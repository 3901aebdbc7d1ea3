//! CHECKPOINT, 0x81 (section 9.3, decision 13).

use bytes::BytesMut;
use serde::{Deserialize, Serialize};

use super::variable::{encode_variable, to_vec};
use crate::error::Result;
use crate::messages::{CheckpointMessage, decode_message};

pub(super) const TYPE: u8 = 0x81;

/// A checkpoint, or the answer to one, which is the same message with flags. Fields that are not set are 0 or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The checkpoint's name in logs.
    pub checkpoint_id: String,
    /// The checkpoint's number.
    pub sequence_number: u64,
    /// The last entity that the checkpoint covers; 0 means all entities assigned so far.
    pub checkpoint_entity_id: u32,
    /// The scope of the entities.
    pub scope_id: u32,
    /// [`FLAG_SATISFIED`](Self::FLAG_SATISFIED), [`FLAG_TIMED_OUT`](Self::FLAG_TIMED_OUT); 0 in a query.
    pub flags: u32,
    /// How long the answer may take; 0 means 30 s.
    pub timeout_ms: u32,
}

impl Checkpoint {
    /// The flag of an answer: all three conditions of section 9.3 hold.
    pub const FLAG_SATISFIED: u32 = 1;
    /// The flag of an answer: the time ran out first.
    pub const FLAG_TIMED_OUT: u32 = 2;

    /// Append the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let message = CheckpointMessage {
            checkpoint_id: Some(self.checkpoint_id.clone()),
            sequence_number: Some(self.sequence_number),
            checkpoint_entity_id: Some(self.checkpoint_entity_id),
            scope_id: Some(self.scope_id),
            flags: Some(self.flags),
            timeout_ms: Some(self.timeout_ms),
        };
        encode_variable(TYPE, &message, out);
    }

    /// Return the bytes of the frame.
    pub fn encode_to_vec(&self) -> Vec<u8> {
        to_vec(|out| self.encode(out))
    }

    /// Parse a payload.
    pub(super) fn parse(payload: &[u8]) -> Result<Self> {
        let message: CheckpointMessage = decode_message(payload)?;
        Ok(Self {
            checkpoint_id: message.checkpoint_id.unwrap_or_default(),
            sequence_number: message.sequence_number.unwrap_or_default(),
            checkpoint_entity_id: message.checkpoint_entity_id.unwrap_or_default(),
            scope_id: message.scope_id.unwrap_or_default(),
            flags: message.flags.unwrap_or_default(),
            timeout_ms: message.timeout_ms.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;

    #[test]
    fn a_checkpoint_comes_back_and_what_is_not_set_is_zero() {
        let checkpoint = Checkpoint {
            checkpoint_id: "cp-1".into(),
            sequence_number: 1,
            checkpoint_entity_id: 7,
            scope_id: 2,
            flags: Checkpoint::FLAG_SATISFIED,
            timeout_ms: 30_000,
        };
        let bytes = checkpoint.encode_to_vec();
        let length = bytes.len();
        assert_eq!(Frame::decode(&bytes), Ok(Some((Frame::Checkpoint(checkpoint), length))));
        let empty = Frame::Checkpoint(Checkpoint::default());
        assert_eq!(Frame::decode(&[0x81, 0, 0, 0, 0]), Ok(Some((empty, 5))));
    }
}
