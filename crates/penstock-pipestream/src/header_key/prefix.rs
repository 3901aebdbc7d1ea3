//! The prefix of a sealed entry, which is not encrypted.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::{EntityError, Result};
use crate::sizes::SEALED;

pub(super) const VERSION: u8 = 1;
/// The version of an entry that marks metadata received unencrypted; it is never sent.
pub(super) const IN_THE_CLEAR: u8 = 0;
pub(super) const HAS_CHILDREN: u8 = 1;
/// The bytes before the nonce.
pub(super) const PREFIX: usize = 8;
pub(super) const KEY_ID: usize = 4;

/// The unencrypted prefix of a sealed entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) version: u8,
    pub(super) key_id: [u8; KEY_ID],
    pub(super) flags: u8,
    pub(super) child_scope: u16,
}

/// Reject the metadata of a header that is still sealed: its entity fails.
pub(crate) fn check_open(metadata: &BTreeMap<String, String>) -> Result<()> {
    let Some(entry) = metadata.get(SEALED) else { return Ok(()) };
    let bytes = STANDARD.decode(entry).unwrap_or_default();
    Err(match Prefix::split(&bytes) {
        Some((Prefix { version: IN_THE_CLEAR, .. }, _)) => EntityError::ClearHeader.into(),
        Some((Prefix { version: VERSION, key_id, .. }, _)) => EntityError::HeaderKey { key_id: hex(key_id) }.into(),
        Some(_) | None => EntityError::SealedHeader.into(),
    })
}

impl Prefix {
    pub(super) fn encode(&self) -> [u8; PREFIX] {
        let [a, b, c, d] = self.key_id;
        let [high, low] = self.child_scope.to_be_bytes();
        [self.version, a, b, c, d, self.flags, high, low]
    }

    pub(super) fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let ([version, a, b, c, d, flags, high, low], rest) = bytes.split_first_chunk::<PREFIX>()?;
        let child_scope = u16::from_be_bytes([*high, *low]);
        Some((Self { version: *version, key_id: [*a, *b, *c, *d], flags: *flags, child_scope }, rest))
    }
}

pub(super) fn hex(id: [u8; KEY_ID]) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}
