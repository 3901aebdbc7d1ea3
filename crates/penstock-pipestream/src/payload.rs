//! Checks that a payload is the one that its header announced (sections 6.7 and 10.2).

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::error::{EntityError, Result};

/// A check that counts and hashes a whole payload, in order, as it arrives. No part of it may be
/// committed before [`finish`](Self::finish) has succeeded (section 10.2).
#[derive(Debug, Clone)]
pub struct PayloadCheck {
    length: u64,
    checksum: Bytes,
    seen: u64,
    hash: Sha256,
}

impl PayloadCheck {
    /// Expect a payload of `length` bytes with this SHA-256, both from the header.
    pub fn new(length: u64, checksum: Bytes) -> Self {
        Self { length, checksum, seen: 0, hash: Sha256::new() }
    }

    /// Check a payload that is complete in memory; return its digest.
    pub fn whole(length: u64, checksum: &[u8], bytes: &[u8]) -> Result<[u8; 32]> {
        let seen = bytes.len() as u64;
        conclude(seen, length, checksum, || Sha256::digest(bytes).into())
    }

    /// Take the next bytes. Bytes beyond the announced length are ENTITY_INVALID, and are not hashed.
    pub fn update(&mut self, bytes: &[u8]) -> Result<()> {
        let seen = self.seen.saturating_add(bytes.len() as u64);
        if seen > self.length {
            return Err(EntityError::PayloadOverrun { seen, length: self.length }.into());
        }
        self.seen = seen;
        self.hash.update(bytes);
        Ok(())
    }

    /// Handle the end of the payload: return its digest if its length and checksum are right,
    /// otherwise ENTITY_INVALID or INTEGRITY_ERROR.
    pub fn finish(self) -> Result<[u8; 32]> {
        conclude(self.seen, self.length, &self.checksum, || self.hash.finalize().into())
    }
}

fn conclude(seen: u64, length: u64, checksum: &[u8], digest: impl FnOnce() -> [u8; 32]) -> Result<[u8; 32]> {
    if seen != length {
        return Err(EntityError::PayloadLength { seen, length }.into());
    }
    let digest = digest();
    if digest.as_slice() != checksum {
        return Err(EntityError::Checksum.into());
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    fn check(length: u64) -> PayloadCheck {
        PayloadCheck::new(length, Bytes::copy_from_slice(&Sha256::digest(b"hello world")))
    }

    #[test]
    fn the_right_payload_passes_in_pieces_of_any_size() {
        for size in 1..=11 {
            let mut check = check(11);
            for piece in b"hello world".chunks(size) {
                check.update(piece).expect("within its length");
            }
            let digest = Sha256::digest(b"hello world");
            assert_eq!(check.finish().expect("right").as_slice(), digest.as_slice());
            assert_eq!(PayloadCheck::whole(11, &digest, b"hello world"), Ok(digest.into()));
        }
    }

    #[test]
    fn a_payload_without_bytes_has_the_checksum_of_nothing() {
        let digest = Sha256::digest(b"");
        assert_eq!(PayloadCheck::new(0, Bytes::copy_from_slice(&digest)).finish(), Ok(digest.into()));
    }

    #[test]
    fn a_wrong_length_is_entity_invalid_and_one_byte_too_many_is_refused_at_once() {
        let mut long = check(10);
        long.update(b"hello worl").expect("within its length");
        assert_eq!(long.update(b"d").expect_err("too long").code(), ErrorCode::EntityInvalid);
        let mut short = check(12);
        short.update(b"hello world").expect("within its length");
        assert_eq!(short.finish().expect_err("too short").code(), ErrorCode::EntityInvalid);
    }

    #[test]
    fn a_wrong_byte_is_an_integrity_error() {
        let mut check = check(11);
        check.update(b"hello_world").expect("within its length");
        assert_eq!(check.finish().expect_err("wrong").code(), ErrorCode::IntegrityError);
    }
}
