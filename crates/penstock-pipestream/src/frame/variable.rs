//! The head of variable frames, and functions that all encoders of frames share.

use bytes::BytesMut;
use penstock_wire::{Reader, Writer};
use prost::Message;

use crate::error::{LimitError, Result};
use crate::sizes::MAX_FRAME_LENGTH;

/// The bytes of a variable frame's type and length.
pub(super) const VARIABLE_HEAD: usize = 5;

/// Return the payload's length from the head of a variable frame (section 6.1).
pub(super) fn variable_length(bytes: &[u8]) -> Result<Option<usize>> {
    let mut head = Reader::new(bytes);
    let (Ok(frame_type), Ok(length)) = (head.u8(), head.u32()) else { return Ok(None) };
    if length > MAX_FRAME_LENGTH {
        return Err(LimitError::FrameLength { frame_type, length }.into());
    }
    Ok(usize::try_from(length).ok())
}

/// Append a variable frame.
pub(super) fn encode_variable(frame_type: u8, message: &impl Message, out: &mut BytesMut) {
    let payload = message.encode_to_vec();
    let mut writer = Writer::new(out);
    writer.u8(frame_type);
    writer.u32(u32::try_from(payload.len()).unwrap_or(u32::MAX));
    writer.bytes(&payload);
}

/// Return the bytes that `encode` writes.
pub(super) fn to_vec(encode: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.into()
}
