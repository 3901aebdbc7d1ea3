//! Payloads by reference: an object in a store instead of its bytes (sections 7.3 and 10.9).
//!
//! The payload of such an entity is an encoded FileStorageReference message, and its content type
//! is [`CONTENT_TYPE`]. A peer that does not know this content type stores the message's bytes,
//! which is correct. The meaning of the attributes is our own:
//!
//! ```text
//!  size, sha256, etag, version   properties that the object must have; sha256 in lower-case hex, size in decimal
//!  content_type                  the MIME type of its bytes
//!  account                       the account that has the container, for the provider "azure"
//! ```
//!
//! Wrapped keys, encryption contexts and the values of attributes are never shown: neither by
//! `Debug` nor in an error's message (section 10.9).

mod keys;
mod location;
mod secrets;
#[cfg(test)]
mod tests;

use std::fmt;

use bytes::{Buf, Bytes};
use prost::Message as _;

pub use self::keys::{KeyProviders, split_key_id};
pub use self::location::{Location, Provider};
pub use self::secrets::check_no_data_key;
use crate::error::{LimitError, ReferenceError, Result};
use crate::messages::{EncryptionMetadata, FileStorageReference, decode_message};
pub use crate::sizes::MAX_REFERENCE as MAX_MESSAGE;

/// The content type of an entity whose payload is a FileStorageReference.
pub const CONTENT_TYPE: &str = "application/vnd.penstock.file-storage-reference";

/// A FileStorageReference whose attributes were read.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    message: FileStorageReference,
    expected: ExpectedObject,
}

/// The properties that a reference states about its object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectedObject {
    /// The object's size in bytes.
    pub size: Option<u64>,
    /// The SHA-256 of the object's bytes.
    pub sha256: Option<[u8; 32]>,
    /// The object's entity tag in the store.
    pub etag: Option<String>,
    /// The object's version, for stores that keep versions.
    pub version: Option<String>,
    /// The object's MIME type.
    pub content_type: Option<String>,
}

impl Reference {
    /// Parse the payload of an entity. Malformed bytes are ENTITY_INVALID, more than [`MAX_MESSAGE`] bytes
    /// ENTITY_TOO_LARGE.
    pub fn decode(bytes: impl Buf) -> Result<Self> {
        let length = bytes.remaining();
        if length > MAX_MESSAGE {
            return Err(LimitError::ReferenceLength { length }.into());
        }
        Self::new(decode_message(bytes)?)
    }

    /// Make a reference from a message: ENTITY_INVALID if it names no object, or an attribute is
    /// invalid.
    pub fn new(message: FileStorageReference) -> Result<Self> {
        for (field, value) in [("provider", &message.provider), ("key", &message.key)] {
            if value.as_deref().is_none_or(str::is_empty) {
                return Err(ReferenceError::Missing { field }.into());
            }
        }
        check_no_data_key("the reference's attribute", &message.attrs)?;
        if let Some(encryption) = &message.encryption {
            check_no_data_key("the encryption context's entry", &encryption.context)?;
        }
        let attribute = |name: &str| message.attrs.get(name).cloned();
        let size = attribute("size").map(|text| decimal(&text)).transpose()?;
        let sha256 = attribute("sha256").map(|text| digest(&text)).transpose()?;
        let (etag, version) = (attribute("etag"), attribute("version"));
        let content_type = attribute("content_type");
        Ok(Self { message, expected: ExpectedObject { size, sha256, etag, version, content_type } })
    }

    /// Return the message.
    pub fn message(&self) -> &FileStorageReference {
        &self.message
    }

    /// Return the properties that the object must have.
    pub fn expected(&self) -> &ExpectedObject {
        &self.expected
    }

    /// Return how the object is encrypted, if it is.
    pub fn encryption(&self) -> Option<&EncryptionMetadata> {
        self.message.encryption.as_ref()
    }

    /// Return the location of the object: ENTITY_INVALID if the provider, the bucket or the key is
    /// invalid.
    pub fn location(&self) -> Result<Location> {
        Location::of(&self.message)
    }

    /// Reject an encryption that section 10.9 does not allow: ENTITY_INVALID.
    pub fn check_keys(&self, approved: &KeyProviders) -> Result<()> {
        self.encryption().map_or(Ok(()), |encryption| approved.check(encryption))
    }

    /// Return the payload of its entity: ENTITY_TOO_LARGE above [`MAX_MESSAGE`].
    pub fn encode(&self) -> Result<Bytes> {
        let length = self.message.encoded_len();
        if length > MAX_MESSAGE {
            return Err(LimitError::ReferenceLength { length }.into());
        }
        Ok(self.message.encode_to_vec().into())
    }
}

fn decimal(text: &str) -> Result<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or(ReferenceError::Size.into())
}

fn digest(text: &str) -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    let (pairs, odd) = text.as_bytes().as_chunks();
    if pairs.len() != bytes.len() || !odd.is_empty() {
        return Err(ReferenceError::Digest.into());
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = nibble(*high).zip(nibble(*low)).map(|(high, low)| high << 4 | low).ok_or(ReferenceError::Digest)?;
    }
    Ok(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

// `Debug` is written by hand, and the generated code does not derive it, because attributes may
// contain a token for the store, and the other hidden fields are key material.

impl fmt::Debug for FileStorageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStorageReference")
            .field("provider", &self.provider)
            .field("bucket", &self.bucket)
            .field("key", &self.key)
            .field("region", &self.region)
            .field("attrs", &self.attrs.keys())
            .field("encryption", &self.encryption)
            .finish()
    }
}

impl fmt::Debug for EncryptionMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |field: &Option<Bytes>| field.as_ref().map(|bytes| format!("{} bytes", bytes.len()));
        f.debug_struct("EncryptionMetadata")
            .field("algorithm", &self.algorithm)
            .field("key_provider", &self.key_provider)
            .field("key_id", &self.key_id)
            .field("wrapped_key", &bytes(&self.wrapped_key))
            .field("iv", &bytes(&self.iv))
            .field("context", &self.context.keys())
            .finish()
    }
}
