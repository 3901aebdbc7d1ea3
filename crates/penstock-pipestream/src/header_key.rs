//! Headers whose metadata and content type only the two ends can read (section 10.6).
//!
//! Both ends have a secret of 32 bytes. A header's content type and metadata are encrypted into one metadata entry,
//! [`SEALED`], and the visible content type is `application/octet-stream`. IDs, lengths, the checksum, the chunk's
//! place and the completion policy stay unchanged.
//!
//! ```text
//!  pipestream.sealed = base64, with padding (RFC 4648, section 4), of
//!  +-------------+------------+-----------+------------------+------------+---------------------------------------+
//!  | version (1) | key ID (4) | flags (1) | child scope (2)  | nonce (12) | EntityHeader { content_type, metadata }|
//!  |    0x01     |            |           | big-endian, or 0 |            | in AES-256-GCM, with its tag (16)      |
//!  +-------------+------------+-----------+------------------+------------+---------------------------------------+
//!    associated data: "pipestream header", these first 8 bytes, session ID (16), scope (4), entity (4), parent (4),
//!                     payload length (8), chunk index (4), chunk offset (8), checksum
//!
//!  session key = HKDF-SHA-256(secret, salt "penstock pipestream header", info "key" and the session ID)
//!  key ID      = the first 4 bytes of HKDF-SHA-256(secret, the same salt, info "id")
//! ```
//!
//! Bit 0 of the flags states that the entity has children, whose scope is the child scope. Stream 0 shows both as well,
//! and a receiver that cannot open a header must still bind that scope. A nonce has 96 random bits, with which one
//! session key can seal 2^32 headers.

mod prefix;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message as _;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};

pub(crate) use self::prefix::check_open;
use self::prefix::{HAS_CHILDREN, IN_THE_CLEAR, KEY_ID, Prefix, VERSION, hex};
use crate::error::{Error, LimitError, Misuse, Result};
use crate::frame::EntityHeader;
use crate::messages::{EntityHeaderMessage, decode_message};
use crate::session_id::SessionId;
use crate::sizes::{MAX_HEADER_LENGTH, MAX_SECRETS, SEALED, SECRET};

const SALT: &[u8] = b"penstock pipestream header";
const CONTEXT: &[u8] = b"pipestream header";
const OPAQUE: &str = "application/octet-stream";
/// The most characters of a sealed entry, which leaves room for the rest of its header.
const MAX_ENTRY: usize = MAX_HEADER_LENGTH as usize - 1024;
/// The bytes of a nonce (section 5.3 of RFC 5116).
pub const NONCE: usize = 12;

/// The secrets for sealing headers: the first one seals, all of them open, so that secrets can be rotated. They are
/// never shown.
#[derive(Clone)]
pub struct HeaderKeys(Vec<Secret>);

#[derive(Clone)]
struct Secret {
    id: [u8; KEY_ID],
    prk: Prk,
}

/// The keys of one session.
pub struct SessionHeaderKeys {
    session: SessionId,
    keys: Vec<([u8; KEY_ID], LessSafeKey)>,
}

/// Known properties of a header whose metadata cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Outside {
    pub(crate) dehydrated: bool,
    pub(crate) child_scope: Option<u16>,
}

/// The length of HKDF's output.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl HeaderKeys {
    /// Parse secrets, one per line, each 64 hex digits; blank lines are skipped. The first one seals.
    ///
    /// # Errors
    ///
    /// Misuse; the error names the line but does not show its content.
    pub fn parse(text: &str) -> Result<Self> {
        let mut secrets = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let secret = secret_of(line).ok_or(Misuse::HeaderKeyLine { line: number })?;
            secrets.push(Secret::new(&secret)?);
        }
        if secrets.is_empty() || secrets.len() > MAX_SECRETS {
            return Err(Misuse::HeaderKeyCount { count: secrets.len() }.into());
        }
        Ok(Self(secrets))
    }

    /// Return the keys of a session.
    pub fn for_session(&self, session: SessionId) -> Result<SessionHeaderKeys> {
        let key = |secret: &Secret| {
            let info = [b"key".as_slice(), session.bytes()];
            let key = secret.prk.expand(&info, &AES_256_GCM).map_err(|_| LimitError::KeyDerivation)?;
            Ok((secret.id, LessSafeKey::new(UnboundKey::from(key))))
        };
        Ok(SessionHeaderKeys { session, keys: self.0.iter().map(key).collect::<Result<_>>()? })
    }
}

impl Secret {
    fn new(secret: &[u8; SECRET]) -> Result<Self> {
        let prk = Salt::new(HKDF_SHA256, SALT).extract(secret);
        let mut id = [0; KEY_ID];
        let filled = prk.expand(&[b"id"], Length(KEY_ID)).and_then(|okm| okm.fill(&mut id));
        filled.map_err(|_| LimitError::KeyDerivation)?;
        Ok(Self { id, prk })
    }
}

fn secret_of(line: &str) -> Option<[u8; SECRET]> {
    let (pairs, odd) = line.as_bytes().as_chunks::<2>();
    let mut secret = [0; SECRET];
    if pairs.len() != SECRET || !odd.is_empty() {
        return None;
    }
    for (byte, [high, low]) in secret.iter_mut().zip(pairs) {
        let digit = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(secret)
}

impl SessionHeaderKeys {
    /// Move a header's content type and metadata into a sealed entry. `nonce` must come from a secure random source, a
    /// new one for each header.
    ///
    /// # Errors
    ///
    /// ENTITY_TOO_LARGE if the header would be too long for any peer; misuse if there are no keys.
    pub fn seal(&self, header: &EntityHeader, nonce: [u8; NONCE]) -> Result<EntityHeader> {
        let Some((key_id, key)) = self.keys.first() else { return Err(Misuse::NoHeaderKey.into()) };
        let outside = Outside::of(header);
        let prefix = Prefix {
            version: VERSION,
            key_id: *key_id,
            flags: if outside.dehydrated { HAS_CHILDREN } else { 0 },
            child_scope: outside.child_scope.unwrap_or(0),
        };
        let message = EntityHeaderMessage {
            content_type: Some(header.content_type.clone()),
            metadata: header.metadata.clone(),
            ..EntityHeaderMessage::default()
        };
        let mut sealed = message.encode_to_vec();
        let aad = Aad::from(self.associated(&prefix, header));
        let tag = key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed);
        let tag = tag.map_err(|_| Error::from(Misuse::HeaderLength))?;
        let parts: [&[u8]; 4] = [&prefix.encode(), &nonce, &sealed, tag.as_ref()];
        let entry = STANDARD.encode(parts.concat());
        if entry.len() > MAX_ENTRY {
            return Err(LimitError::SealedHeaderLength { length: entry.len() }.into());
        }
        Ok(EntityHeader {
            content_type: OPAQUE.to_owned(),
            metadata: [(SEALED.to_owned(), entry)].into(),
            checksum: header.checksum.clone(),
            completion_policy: header.completion_policy,
            ..*header
        })
    }

    /// Open a header. `None` if none of our keys opens it, or if it arrived unencrypted;
    /// [`refused`] then returns the header to use in its place.
    pub fn open(&self, header: &EntityHeader) -> Option<EntityHeader> {
        let bytes = STANDARD.decode(header.metadata.get(SEALED)?).ok()?;
        let (prefix, rest) = Prefix::split(&bytes)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE>()?;
        let (sealed, tag) = rest.split_last_chunk::<16>()?;
        let known = prefix.version == VERSION && header.metadata.len() == 1;
        let (_, key) = self.keys.iter().find(|(id, _)| known && *id == prefix.key_id)?;
        let mut opened = sealed.to_vec();
        let aad = Aad::from(self.associated(&prefix, header));
        let nonce = Nonce::assume_unique_for_key(*nonce);
        key.open_in_place_separate_tag(nonce, aad, Tag::from(*tag), &mut opened, 0..).ok()?;
        let message: EntityHeaderMessage = decode_message(opened.as_slice()).ok()?;
        let (content_type, metadata) = (message.content_type.unwrap_or_default(), message.metadata);
        Some(EntityHeader {
            content_type,
            metadata,
            checksum: header.checksum.clone(),
            completion_policy: header.completion_policy,
            ..*header
        })
    }

    fn associated(&self, prefix: &Prefix, header: &EntityHeader) -> Vec<u8> {
        let chunk = header.chunk_info.unwrap_or_default();
        let parts: [&[u8]; 10] = [
            CONTEXT,
            &prefix.encode(),
            self.session.bytes(),
            &header.scope_id.to_be_bytes(),
            &header.entity_id.to_be_bytes(),
            &header.parent_id.to_be_bytes(),
            &header.payload_length.to_be_bytes(),
            &chunk.chunk_index.to_be_bytes(),
            &chunk.chunk_offset.to_be_bytes(),
            &header.checksum,
        ];
        parts.concat()
    }
}

/// Return the header to use in place of one that an end with header keys could not open: it fails
/// its entity, but still binds the scope of the children. A sealed header stays unchanged; an
/// unencrypted one loses its content type and its metadata.
pub fn refused(header: &EntityHeader) -> EntityHeader {
    if header.metadata.contains_key(SEALED) {
        return header.clone();
    }
    let outside = Outside::of(header);
    let prefix = Prefix {
        version: IN_THE_CLEAR,
        key_id: [0; KEY_ID],
        flags: if outside.dehydrated { HAS_CHILDREN } else { 0 },
        child_scope: outside.child_scope.unwrap_or(0),
    };
    EntityHeader {
        content_type: OPAQUE.to_owned(),
        metadata: [(SEALED.to_owned(), STANDARD.encode(prefix.encode()))].into(),
        checksum: header.checksum.clone(),
        completion_policy: header.completion_policy,
        ..*header
    }
}

impl Outside {
    /// Return what a header states about its entity's children, sealed or not.
    pub(crate) fn of(header: &EntityHeader) -> Self {
        if let Some(entry) = header.metadata.get(SEALED) {
            let bytes = STANDARD.decode(entry).unwrap_or_default();
            let Some((prefix, _)) = Prefix::split(&bytes) else { return Self { dehydrated: false, child_scope: None } };
            let dehydrated = prefix.flags & HAS_CHILDREN != 0;
            return Self { dehydrated, child_scope: Some(prefix.child_scope).filter(|scope| *scope != 0) };
        }
        Self { dehydrated: header.is_dehydrated(), child_scope: header.child_scope().flatten() }
    }
}

impl fmt::Debug for HeaderKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|secret| hex(secret.id))).finish()
    }
}

impl fmt::Debug for SessionHeaderKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionHeaderKeys").field("session", &self.session).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
