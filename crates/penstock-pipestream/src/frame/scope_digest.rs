//! SCOPE_DIGEST, 0x54 (section 6.3): 68 bytes.
//!
//! ```text
//! byte 0      1         2          4            12           20          28            36
//!       +------+---------+----------+------------+------------+-----------+-------------+-------------+
//!       | 0x54 | Flags 8 | Scope 16 | Processed  | Succeeded  | Failed    | Deferred 64 | Root 256    |
//!       +------+---------+----------+------------+------------+-----------+-------------+-------------+
//! ```

use bytes::BytesMut;
use penstock_wire::{Reader, Writer};

use super::variable::to_vec;
use crate::error::Result;

pub(super) const TYPE: u8 = 0x54;
pub(super) const LENGTH: usize = 68;

/// The outcomes of a scope's entities (decision 11 defines which status counts where).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeDigest {
    /// The scope.
    pub scope_id: u16,
    /// How many entities the scope has.
    pub processed: u64,
    /// How many of them are COMPLETE.
    pub succeeded: u64,
    /// How many of them are FAILED or ABANDONED.
    pub failed: u64,
    /// How many of them are DEFERRED.
    pub deferred: u64,
    /// The Merkle root over all IDs and statuses (section 9.4).
    pub merkle_root: [u8; 32],
}

impl ScopeDigest {
    /// Append the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut writer = Writer::new(out);
        writer.u8(TYPE);
        writer.u8(0);
        writer.u16(self.scope_id);
        for count in [self.processed, self.succeeded, self.failed, self.deferred] {
            writer.u64(count);
        }
        writer.bytes(&self.merkle_root);
    }

    /// Return the bytes of the frame.
    pub fn encode_to_vec(&self) -> Vec<u8> {
        to_vec(|out| self.encode(out))
    }

    /// Parse a whole frame.
    pub(super) fn parse(whole: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(whole);
        reader.u16()?;
        Ok(Self {
            scope_id: reader.u16()?,
            processed: reader.u64()?,
            succeeded: reader.u64()?,
            failed: reader.u64()?,
            deferred: reader.u64()?,
            merkle_root: reader.array()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;

    #[test]
    fn a_digest_takes_68_bytes_and_its_flags_are_ignored() {
        let digest = ScopeDigest {
            scope_id: 0x0203,
            processed: 10,
            succeeded: 7,
            failed: 2,
            deferred: 1,
            merkle_root: std::array::from_fn(|index| u8::try_from(index).expect("below 32")),
        };
        let mut bytes = digest.encode_to_vec();
        assert_eq!((bytes.len(), &bytes[..4], bytes[11], bytes[67]), (68, [0x54, 0, 2, 3].as_slice(), 10, 31));
        bytes[1] = 0xFF;
        assert_eq!(Frame::decode(&bytes), Ok(Some((Frame::ScopeDigest(digest), 68))));
    }
}
