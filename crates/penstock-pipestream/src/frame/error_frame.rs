//! ERROR, 0xC0 (decision 20): why the sender has failed an entity, or closes the session.

use bytes::BytesMut;

use super::variable::{encode_variable, to_vec};
use crate::error::Result;
use crate::messages::{ErrorMessage, decode_message};

pub(super) const TYPE: u8 = 0xC0;

/// An error for the peer. Fields that are not set are 0 or empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorFrame {
    /// A code of the registry (section 11.4).
    pub code: u32,
    /// The entity's scope.
    pub scope_id: u32,
    /// The entity; 0 if the error concerns none.
    pub entity_id: u32,
    /// A description of the error for people.
    pub message: String,
}

impl ErrorFrame {
    /// Append the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let message = ErrorMessage {
            error_code: Some(self.code),
            scope_id: Some(self.scope_id),
            entity_id: Some(self.entity_id),
            message: Some(self.message.clone()),
        };
        encode_variable(TYPE, &message, out);
    }

    /// Return the bytes of the frame.
    pub fn encode_to_vec(&self) -> Vec<u8> {
        to_vec(|out| self.encode(out))
    }

    /// Parse a payload.
    pub(super) fn parse(payload: &[u8]) -> Result<Self> {
        let message: ErrorMessage = decode_message(payload)?;
        Ok(Self {
            code: message.error_code.unwrap_or_default(),
            scope_id: message.scope_id.unwrap_or_default(),
            entity_id: message.entity_id.unwrap_or_default(),
            message: message.message.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;

    #[test]
    fn an_error_comes_back() {
        let error = ErrorFrame { code: 4, scope_id: 0, entity_id: 7, message: "checksum".into() };
        let bytes = error.encode_to_vec();
        let length = bytes.len();
        assert_eq!(Frame::decode(&bytes), Ok(Some((Frame::Error(error), length))));
    }

    #[test]
    fn a_message_that_is_not_utf_8_is_refused() {
        let error = Frame::decode(&[0xC0, 0, 0, 0, 3, 0x22, 1, 0xFF]).expect_err("not UTF-8");
        assert_eq!(error.code(), crate::ErrorCode::EntityInvalid);
    }
}
