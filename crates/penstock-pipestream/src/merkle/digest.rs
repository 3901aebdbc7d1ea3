//! Digests, and how many leaves are hashed together.

/// A SHA-256 digest.
pub(crate) type Digest = [u8; 32];

/// The initial state of SHA-256 (FIPS 180-4, section 5.3.3).
pub(super) const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
/// The number of leaves that are hashed together.
pub(super) const BATCH: usize = LANES * LEAVES;
/// The number of subtrees in a batch, and the number of leaves of each: a power of 2.
pub(super) const LANES: usize = 16;
pub(super) const LEAVES: usize = 16;

#[inline]
pub(super) fn to_digest(state: &[u32; 8]) -> Digest {
    let mut digest = [0; 32];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}
