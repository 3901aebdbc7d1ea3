//! The bytes: an entity's header as protobuf writes it, and STATUS frames.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// PENDING, and a probe.
pub const STATUS: usize = 12;
/// COMPLETE with the new cursor.
pub const STATUS_WITH_CURSOR: usize = 16;

const CONTENT_TYPE: &[u8] = b"application/octet-stream";
/// Marks a probe; a status has 0x50 here.
pub const PROBE: u8 = 0x55;

/// Entity ID, parent, scope, layer, content type, length and SHA-256, with the header's length before them.
pub fn header(id: u32, payload: &[u8]) -> Bytes {
    let mut message = Vec::with_capacity(96);
    for (field, value) in [(1_u8, u64::from(id)), (2, 0), (3, 0), (4, 0)] {
        message.push(field << 3);
        varint(&mut message, value);
    }
    bytes(&mut message, 5, CONTENT_TYPE);
    message.push(6 << 3);
    varint(&mut message, payload.len() as u64);
    bytes(&mut message, 7, &Sha256::digest(payload));
    let mut framed = Vec::with_capacity(4 + message.len());
    framed.extend_from_slice(&(message.len() as u32).to_be_bytes());
    framed.append(&mut message);
    framed.into()
}

fn bytes(message: &mut Vec<u8>, field: u8, value: &[u8]) {
    message.push(field << 3 | 2);
    varint(message, value.len() as u64);
    message.extend_from_slice(value);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

/// How long a header is, with its length field, and where in it the SHA-256 stands: it is the last field.
pub fn header_length(start: [u8; 4]) -> usize {
    4 + u32::from_be_bytes(start) as usize
}

/// A frame of this length about an entity.
pub fn status(kind: u8, id: u32, length: usize) -> [u8; STATUS_WITH_CURSOR] {
    let mut frame = [0; STATUS_WITH_CURSOR];
    frame[0] = kind;
    frame[4..8].copy_from_slice(&id.to_be_bytes());
    frame[length - 4..length].copy_from_slice(&id.to_be_bytes());
    frame
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).expect("hex")).collect()
}
