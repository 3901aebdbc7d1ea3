//! State tokens of streams over HTTP (section 10): version 2 of the specification, version 3 of dialect 0.10.
//!
//! ```text
//! version (1)  created_at (8)  state  schema  input schema  [stream ID, version 3]  HMAC-SHA256 (32)
//!                              each: length (4), bytes
//! ```
//!
//! Integers are little-endian. The HMAC is verified, in constant time, before anything is parsed.

use hmac::{Hmac, KeyInit, Mac};
use penstock_wire::{Reader, Writer};
use sha2::{Digest, Sha256};

use crate::protocol::Dialect;

/// The bytes of an HMAC-SHA256.
const MAC: usize = 32;

/// The content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The time at which the token was made, in seconds since the Unix epoch.
    pub created_at: u64,
    /// The stream's state, an IPC stream.
    pub state: Vec<u8>,
    /// The output schema, serialized.
    pub schema: Vec<u8>,
    /// The input schema, serialized.
    pub input_schema: Vec<u8>,
    /// The ID of the stream, which only version 3 has.
    pub stream_id: String,
}

/// The caller to which a token belongs; only version 3 binds tokens to callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Identity {
    /// A caller without authentication.
    #[default]
    Anonymous,
    /// An authenticated caller.
    Principal {
        /// The domain that authenticated the caller.
        domain: String,
        /// The name of the caller.
        principal: String,
    },
}

/// The reasons why a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The token was not issued here, belongs to another caller, or was changed.
    Forged,
    /// The token was issued here, with another version or form.
    Malformed,
    /// The token is too old.
    Expired,
}

impl Refused {
    /// Return the message for the client.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Forged => "State token verification failed",
            Self::Malformed => "Malformed state token",
            Self::Expired => "State token expired",
        }
    }
}

/// Return HMAC-SHA256 under a key of any length; a key longer than a block is hashed first (RFC
/// 2104).
fn hmac(key: &[u8]) -> Hmac<Sha256> {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block.iter_mut().zip(Sha256::digest(key)).for_each(|(to, from)| *to = from);
    } else {
        block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    }
    Hmac::new(&block.into())
}

/// A signer, which issues and verifies the tokens of one fleet of servers.
pub struct Signer {
    key: Vec<u8>,
    dialect: Dialect,
    /// The lifetime of a token in seconds; 0 means no expiry.
    ttl: u64,
}

impl Signer {
    /// Make a signer for the tokens of a dialect. A `ttl` of 0 seconds means no expiry.
    pub fn new(key: impl Into<Vec<u8>>, dialect: Dialect, ttl: u64) -> Self {
        Self { key: key.into(), dialect, ttl }
    }

    const fn version(&self) -> u8 {
        match self.dialect {
            Dialect::Spec => 2,
            Dialect::V0_10 => 3,
        }
    }

    /// Return the HMAC for a caller. Version 3 derives a key for each caller.
    fn mac(&self, identity: &Identity) -> Hmac<Sha256> {
        match self.dialect {
            Dialect::Spec => hmac(&self.key),
            Dialect::V0_10 => {
                let mut derived = hmac(&self.key);
                derived.update(b"vgi_rpc.stream_state:");
                match identity {
                    Identity::Anonymous => derived.update(b"\0anonymous"),
                    Identity::Principal { domain, principal } => {
                        derived.update(b"\x01");
                        derived.update(domain.as_bytes());
                        derived.update(b"\0");
                        derived.update(principal.as_bytes());
                    }
                }
                hmac(&derived.finalize().into_bytes())
            }
        }
    }

    /// Return the bytes of a token.
    pub fn seal(&self, token: &Token, identity: &Identity) -> Vec<u8> {
        let mut out = Writer::new(Vec::new());
        out.u8(self.version());
        out.u64_le(token.created_at);
        let fields = [token.state.as_slice(), &token.schema, &token.input_schema];
        let id = (self.dialect == Dialect::V0_10).then_some(token.stream_id.as_bytes());
        for field in fields.into_iter().chain(id) {
            out.u32_le(u32::try_from(field.len()).unwrap_or(u32::MAX));
            out.bytes(field);
        }
        self.sign(out.into_inner(), identity)
    }

    /// Append the HMAC of the bytes, under the key of this caller.
    pub fn sign(&self, mut bytes: Vec<u8>, identity: &Identity) -> Vec<u8> {
        let mut mac = self.mac(identity);
        mac.update(&bytes);
        bytes.extend_from_slice(&mac.finalize().into_bytes());
        bytes
    }

    /// Verify and read a token. `now` is in seconds since the Unix epoch.
    pub fn open(&self, bytes: &[u8], identity: &Identity, now: u64) -> Result<Token, Refused> {
        let at = bytes.len().checked_sub(MAC).ok_or(Refused::Forged)?;
        let (signed, tag) = bytes.split_at_checked(at).ok_or(Refused::Forged)?;
        let mut mac = self.mac(identity);
        mac.update(signed);
        mac.verify_slice(tag).map_err(|_| Refused::Forged)?;
        let token = self.read(signed).ok_or(Refused::Malformed)?;
        if self.ttl > 0 && now.saturating_sub(token.created_at) > self.ttl {
            return Err(Refused::Expired);
        }
        Ok(token)
    }

    fn read(&self, signed: &[u8]) -> Option<Token> {
        fn field(reader: &mut Reader<'_>) -> Option<Vec<u8>> {
            let length = reader.u32_le().ok()?;
            reader.take(length as usize).ok().map(<[u8]>::to_vec)
        }
        let mut reader = Reader::new(signed);
        if reader.u8().ok()? != self.version() {
            return None;
        }
        let token = Token {
            created_at: reader.u64_le().ok()?,
            state: field(&mut reader)?,
            schema: field(&mut reader)?,
            input_schema: field(&mut reader)?,
            stream_id: match self.dialect {
                Dialect::Spec => String::new(),
                Dialect::V0_10 => String::from_utf8(field(&mut reader)?).ok()?,
            },
        };
        reader.is_empty().then_some(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Token {
        Token {
            created_at: 1_000,
            state: b"state".to_vec(),
            schema: b"schema".to_vec(),
            input_schema: b"input".to_vec(),
            stream_id: String::new(),
        }
    }

    fn alice() -> Identity {
        Identity::Principal { domain: "jwt".into(), principal: "alice".into() }
    }

    #[test]
    fn version_2_has_the_layout_of_section_10() {
        let bytes = Signer::new(*b"key", Dialect::Spec, 0).seal(&token(), &Identity::Anonymous);
        let fields = [
            [2].as_slice(),
            &1_000_u64.to_le_bytes(),
            &[5, 0, 0, 0],
            b"state",
            &[6, 0, 0, 0],
            b"schema",
            &[5, 0, 0, 0],
            b"input",
        ]
        .concat();
        assert_eq!((&bytes[..fields.len()], bytes.len()), (fields.as_slice(), fields.len() + MAC));
    }

    #[test]
    fn what_is_sealed_is_opened_and_any_changed_byte_is_forged() {
        for dialect in [Dialect::Spec, Dialect::V0_10] {
            let signer = Signer::new(*b"key", dialect, 60);
            let bytes = signer.seal(&token(), &alice());
            assert_eq!(signer.open(&bytes, &alice(), 1_060), Ok(token()));
            assert_eq!(signer.open(&bytes, &alice(), 1_061), Err(Refused::Expired));
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(signer.open(&changed, &alice(), 1_000), Err(Refused::Forged));
                assert!(signer.open(&bytes[..at], &alice(), 1_000).is_err());
            }
            assert_eq!(Signer::new(*b"other", dialect, 60).open(&bytes, &alice(), 1_000), Err(Refused::Forged));
        }
    }

    #[test]
    fn version_3_belongs_to_its_caller_and_version_2_to_anybody() {
        let open = |dialect| {
            let signer = Signer::new(*b"key", dialect, 0);
            signer.open(&signer.seal(&token(), &alice()), &Identity::Anonymous, u64::MAX)
        };
        assert_eq!(open(Dialect::Spec), Ok(token()));
        assert_eq!(open(Dialect::V0_10), Err(Refused::Forged));
    }

    #[test]
    fn a_version_of_the_other_dialect_is_refused_after_its_hmac() {
        let mut bytes = vec![7];
        bytes.extend_from_slice(&[0; 20]);
        let signer = Signer::new(*b"key", Dialect::Spec, 0);
        let mut mac = signer.mac(&Identity::Anonymous);
        mac.update(&bytes);
        bytes.extend_from_slice(&mac.finalize().into_bytes());
        assert_eq!(signer.open(&bytes, &Identity::Anonymous, 0), Err(Refused::Malformed));
    }
}
