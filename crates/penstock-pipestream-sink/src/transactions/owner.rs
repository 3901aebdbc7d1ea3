//! The owner of a transaction.
//!
//! ```text
//!  a session's entities: penstock.transaction-owner = SHA-256 of a token, in hex ──► owner: a client with the token
//!  else the client has shown a certificate                                      ──► owner: a client with its key
//!  neither                                                                      ──► owner: any client with the sessions' IDs
//!
//!  an order:             penstock.transaction-token = the token, 16 to 256 bytes ──► replaced by its SHA-256 on arrival
//! ```
//!
//! Only hashes are stored. Transactions of the same name and different owners have separate
//! folders, and do not affect each other.

use std::hint::black_box;

use penstock_io::hex;
use penstock_pipestream::{EntityHeader, ErrorCode, Reason};
use penstock_pipestream_net::port::{PROOF, TOKEN, TOKEN_LENGTHS};
use sha2::{Digest as _, Sha256};

use crate::format::OWNER;

/// The owner of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Owner {
    /// Any client that knows the sessions' IDs.
    Anyone,
    /// A client with the certificate of this SHA-256.
    Certificate([u8; 32]),
    /// A client that knows the token of this SHA-256.
    Token([u8; 32]),
}

impl PartialEq for Owner {
    /// Compare in constant time, so that the duration does not reveal where the digests differ.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Anyone, Self::Anyone) => true,
            (Self::Certificate(one), Self::Certificate(other)) | (Self::Token(one), Self::Token(other)) => {
                let difference = one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b));
                black_box(difference) == 0
            }
            (Self::Anyone | Self::Certificate(_) | Self::Token(_), _) => false,
        }
    }
}

impl Eq for Owner {}

impl Owner {
    /// Return the owner with this token, else with this certificate.
    pub(crate) fn of(token: Option<[u8; 32]>, certificate: Option<[u8; 32]>) -> Self {
        match (token, certificate) {
            (Some(token), _) => Self::Token(token),
            (None, Some(certificate)) => Self::Certificate(certificate),
            (None, None) => Self::Anyone,
        }
    }

    /// Return the owner's kind, as records name it.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Anyone => "anyone",
            Self::Certificate(_) => "certificate",
            Self::Token(_) => "token",
        }
    }

    /// Return the folder of the owner's sessions, relative to that of the transaction's name;
    /// `None` for [`Anyone`](Self::Anyone).
    pub(crate) fn folder(&self) -> Option<String> {
        let digest = match self {
            Self::Anyone => return None,
            Self::Certificate(digest) | Self::Token(digest) => digest,
        };
        Some(hex::encode(Sha256::new().chain_update(self.kind()).chain_update([0]).chain_update(digest).finalize()))
    }
}

/// Return whether a folder in that of a transaction's name is an owner's.
pub(crate) fn is_owner_folder(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Return the hash by which an entity names the owner of its session's transaction.
pub(crate) fn owner_hash(header: &EntityHeader) -> Result<Option<[u8; 32]>, Reason> {
    match header.metadata.get(OWNER) {
        None => Ok(None),
        Some(text) => digest(text).map(Some).ok_or_else(|| invalid(format!("{OWNER} is a SHA-256 in 64 hex digits"))),
    }
}

/// Return the hash of the token that an order contains.
pub(crate) fn token_hash(header: &EntityHeader) -> Result<Option<[u8; 32]>, Reason> {
    match header.metadata.get(PROOF) {
        None => Ok(None),
        Some(text) => digest(text)
            .map(Some)
            .ok_or_else(|| invalid(format!("{TOKEN} has {} to {} bytes", TOKEN_LENGTHS.start(), TOKEN_LENGTHS.end()))),
    }
}

/// Parse a digest. Accept only lower-case digits, because the digest names an owner's folder.
fn digest(text: &str) -> Option<[u8; 32]> {
    if is_owner_folder(text) { hex::decode(text) } else { None }
}

fn invalid(message: String) -> Reason {
    Reason { code: ErrorCode::EntityInvalid, message }
}

#[cfg(test)]
mod tests {
    use penstock_pipestream_net::port::conceal;

    use super::*;

    fn header(pairs: &[(&str, &str)]) -> EntityHeader {
        let metadata = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        EntityHeader { metadata, ..EntityHeader::default() }
    }

    #[test]
    fn a_token_is_removed_once_its_header_has_arrived() {
        let mut order = header(&[(TOKEN, "a token of some length"), (PROOF, &"00".repeat(32)), ("other", "stays")]);
        conceal(&mut order);
        assert_eq!(token_hash(&order).unwrap(), Some(Sha256::digest("a token of some length").into()));
        assert_eq!(order.metadata.keys().collect::<Vec<_>>(), ["other", PROOF]);
        let mut forged = header(&[(PROOF, &"00".repeat(32))]);
        conceal(&mut forged);
        assert_eq!(token_hash(&forged).unwrap(), None, "a hash is no token");
        for wrong in ["", "fifteen bytes..", &"x".repeat(257)] {
            let mut order = header(&[(TOKEN, wrong)]);
            conceal(&mut order);
            assert_eq!(token_hash(&order).unwrap_err().code, ErrorCode::EntityInvalid, "{wrong}");
        }
    }

    #[test]
    fn owners_differ_by_kind_and_digest() {
        let owners = [
            Owner::Anyone,
            Owner::of(None, Some([1; 32])),
            Owner::of(Some([1; 32]), Some([2; 32])),
            Owner::of(Some([2; 32]), None),
        ];
        for (at, owner) in owners.iter().enumerate() {
            for (other_at, other) in owners.iter().enumerate() {
                assert_eq!(owner == other, at == other_at);
                assert_eq!(owner.folder() == other.folder(), at == other_at);
            }
        }
        assert!(owners.iter().filter_map(Owner::folder).all(|folder| is_owner_folder(&folder)));
    }

    #[test]
    fn an_owner_is_named_by_a_digest() {
        assert_eq!(owner_hash(&header(&[])).unwrap(), None);
        assert_eq!(owner_hash(&header(&[(OWNER, &"0a".repeat(32))])).unwrap(), Some([10; 32]));
        for wrong in ["", "0a", &"0A".repeat(32), &"zz".repeat(32)] {
            assert_eq!(owner_hash(&header(&[(OWNER, wrong)])).unwrap_err().code, ErrorCode::EntityInvalid, "{wrong}");
        }
    }
}
