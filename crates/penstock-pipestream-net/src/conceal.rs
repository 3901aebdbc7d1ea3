//! The token of a transaction, which nothing but its session's header may show.

use penstock_io::hex;
use penstock_pipestream::EntityHeader;
use sha2::{Digest as _, Sha256};

/// What an order shows.
pub const TOKEN: &str = "penstock.transaction-token";
/// What is left of a token once its header has come. A peer cannot say it: it is removed from what comes.
pub const PROOF: &str = "penstock.transaction-proof";
/// Bytes of a token.
pub const TOKEN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// Replace the token in a header by its hash, before anybody else sees the header.
pub fn conceal(header: &mut EntityHeader) {
    header.metadata.remove(PROOF);
    if let Some(token) = header.metadata.remove(TOKEN) {
        // What is too short is guessed.
        let proof =
            if TOKEN_LENGTHS.contains(&token.len()) { hex::encode(Sha256::digest(&token)) } else { String::new() };
        header.metadata.insert(PROOF.to_owned(), proof);
    }
}
