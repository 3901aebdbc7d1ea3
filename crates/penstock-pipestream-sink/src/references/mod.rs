//! Entities whose payload refers to an object: stored as they arrive, or fetched (sections 7.3 and
//! 10.9).
//!
//! ```text
//!  the message, verified ──► parsed, its keys checked ──► keep:  stored as it is
//!                                                    └──► fetch: below an allowed prefix? ──► read, checked ──► stored
//! ```
//!
//! A receiver fetches only below the prefixes that its operator has named, at the endpoints and
//! with the credentials that the operator has configured. Only bucket, key and version of a
//! reference count; its region is a hint for other receivers.

mod allowed;
mod check;
mod object;

use std::fmt;

use bytes::Bytes;
use penstock_io::storage::StorageOptions;
use penstock_pipestream::reference::{CONTENT_TYPE, KeyProviders, Reference, check_no_data_key};
use penstock_pipestream::{self as core, EntityHeader};
use serde::{Deserialize, Serialize};

use self::allowed::AllowedPrefix;
pub(crate) use self::check::Check;
pub(crate) use self::object::Object;
use crate::Result;

/// How a receiver handles references.
#[derive(Debug, Clone, Default)]
pub(crate) struct References {
    /// The prefixes from which objects are fetched; `None`: messages are kept.
    fetching: Option<Fetching>,
    /// Providers whose keys may have wrapped an object's key. `None`: kept messages are not
    /// examined, and encrypted objects are not fetched.
    approved: Option<KeyProviders>,
}

#[derive(Debug, Clone)]
struct Fetching {
    allowed: Vec<AllowedPrefix>,
    max_bytes: u64,
}

impl References {
    /// Keep messages as they arrive.
    pub(crate) fn keep() -> Self {
        Self::default()
    }

    /// Fetch objects of at most `max_bytes` bytes below these URLs, with the options of their store.
    pub(crate) fn fetch(prefixes: &[String], storage: &StorageOptions, max_bytes: u64) -> Result<Self> {
        let allowed = prefixes.iter().map(|prefix| AllowedPrefix::open(prefix, storage)).collect::<Result<_>>()?;
        Ok(Self { fetching: Some(Fetching { allowed, max_bytes }), approved: None })
    }

    /// Accept only objects whose keys are from these providers, kept or fetched: `PROVIDER` or
    /// `PROVIDER=KEY`.
    pub(crate) fn with_key_providers(mut self, approved: &[String]) -> Result<Self> {
        self.approved = Some(KeyProviders::parse(approved)?);
        Ok(self)
    }

    /// Accept the verified payload of an entity that refers to an object. Return the fields of the
    /// entity's line, and the object if it has to be fetched.
    pub(crate) async fn take(&self, message: Bytes) -> core::Result<(ReferenceFields, Option<Object>)> {
        let reference = Reference::decode(message.clone())?;
        match (&self.approved, &self.fetching) {
            (Some(approved), _) => reference.check_keys(approved)?,
            (None, Some(_)) => reference.check_keys(&KeyProviders::default())?,
            (None, None) => {}
        }
        let Some(Fetching { allowed, max_bytes }) = &self.fetching else {
            return Ok((ReferenceFields::new(&reference, Stored::Message, Bytes::new()), None));
        };
        let location = reference.location()?;
        let Some(place) = allowed.iter().find(|allowed| location.is_below(allowed.prefix())) else {
            return Err(core::ObjectError::Forbidden(location.to_string()).into());
        };
        let object = place.find(&location, reference.expected(), *max_bytes).await?;
        Ok((ReferenceFields::new(&reference, Stored::Object, message), Some(object)))
    }
}

/// Return `None` if the entity refers to no object, else whether its header is permitted.
pub(crate) fn referring(header: &EntityHeader) -> Option<core::Result<()>> {
    (header.content_type == CONTENT_TYPE).then(|| check_no_data_key("the header's metadata", &header.metadata))
}

/// The content that is stored for a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stored {
    /// The message itself.
    Message,
    /// The object's bytes, and the message in a file next to them, because a wrapped key is stored
    /// nowhere else.
    Object,
}

/// The fields of a sink's line about an entity that refers to an object, without key material.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReferenceFields {
    provider: Option<String>,
    bucket: Option<String>,
    key: Option<String>,
    version: Option<String>,
    stored: Stored,
    encryption: Option<KeyName>,
    #[serde(skip)]
    content_type: Option<String>,
    #[serde(skip)]
    message: RedactedMessage,
}

/// The key that has wrapped the object's key.
#[derive(Debug, Serialize, Deserialize)]
struct KeyName {
    algorithm: Option<String>,
    key_provider: Option<String>,
    key_id: Option<String>,
}

/// A message whose bytes are hidden in debug output, because it may contain a wrapped key.
#[derive(Default)]
struct RedactedMessage(Bytes);

impl fmt::Debug for RedactedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl ReferenceFields {
    fn new(reference: &Reference, stored: Stored, message: Bytes) -> Self {
        let found = reference.message();
        let encryption = reference.encryption().map(|encryption| KeyName {
            algorithm: encryption.algorithm.clone(),
            key_provider: encryption.key_provider.clone(),
            key_id: encryption.key_id.clone(),
        });
        Self {
            provider: found.provider.clone(),
            bucket: found.bucket.clone(),
            key: found.key.clone(),
            version: reference.expected().version.clone(),
            stored,
            encryption,
            content_type: reference.expected().content_type.clone(),
            message: RedactedMessage(message),
        }
    }

    /// Parse the fields in an entity's line, which lacks the message's bytes. Return `None` if the
    /// entity refers to no object.
    pub(crate) fn of_line(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Line {
            reference: Option<ReferenceFields>,
        }

        serde_json::from_slice::<Line>(line).ok()?.reference
    }

    /// Return the content type of the stored bytes, if it is not the header's.
    pub(crate) fn content_type(&self) -> Option<&str> {
        match self.stored {
            Stored::Message => None,
            Stored::Object => Some(self.content_type.as_deref().unwrap_or("application/octet-stream")),
        }
    }

    /// Return the message and the name of its file next to the bytes of `file`, if the object was
    /// fetched.
    pub(crate) fn message_file(&self, file: &str) -> Option<(String, Bytes)> {
        (self.stored == Stored::Object).then(|| (format!("{file}.reference"), self.message.0.clone()))
    }
}
