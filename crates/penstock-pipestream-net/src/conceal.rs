//! Concealment of a transaction's token, which must not appear anywhere but in its session's header.

use penstock_io::hex;
use penstock_pipestream::EntityHeader;
use sha2::{Digest as _, Sha256};

/// Metadata key of the token in an order.
pub const TOKEN: &str = "penstock.transaction-token";
/// Metadata key of the hash that replaces the token once its header has arrived. It is removed from headers that
/// arrive, so a peer cannot set it.
pub const PROOF: &str = "penstock.transaction-proof";
/// Permitted length of a token in bytes.
pub const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// Replace the token in a header by its hash, before any other code sees the header.
pub fn conceal(header: &mut EntityHeader) {
    header.metadata.remove(PROOF);
    if let Some(token) = header.metadata.remove(TOKEN) {
        // A token that is too short could be guessed.
        let proof =
            if TOKEN_LENGTHS.contains(&token.len()) { hex::encode(Sha256::digest(&token)) } else { String::new() };
        header.metadata.insert(PROOF.to_owned(), proof);
    }
}
