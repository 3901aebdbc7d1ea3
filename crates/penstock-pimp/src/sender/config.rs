//! How a sender writes.

use std::time::Duration;

use serde_json::value::RawValue;

use crate::error::{Misuse, Result};
use crate::metadata::is_mime;
use crate::{Compression, ContentEncoding, Metadata};

/// How values hold the payload (section 3, decision 4).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As `Identity` if the content type is textual and the payload is not compressed, otherwise Base64.
    #[default]
    Auto,
    /// Unencoded; Base64 if the payload turns out not to be UTF-8 before chunk 0 is sent.
    Identity,
    /// Base64.
    Base64,
}

/// How a sender writes (sections 8 and 12). A value after a colon is the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderConfig {
    /// The payload's MIME type: `application/octet-stream`.
    pub content_type: String,
    /// How values hold the payload.
    pub encoding: Encoding,
    /// Whether the payload is compressed; then values are Base64.
    pub gzip: bool,
    /// The length of the payload, if known and not compressed. The job fails if the actual length differs.
    pub content_length: Option<u64>,
    /// A JSON object for the consumer.
    pub meta: Option<String>,
    /// How many complete chunks are collected before they are written: 10.
    pub max_chunks_per_batch: usize,
    /// The longest that bytes wait before they are written: 250 ms.
    pub flush_interval: Duration,
    /// The most bytes of a value: 256 KiB.
    pub max_chunk: usize,
    /// How long failed writes are retried: 30 s.
    pub stall_timeout: Duration,
    /// The pause before the first retry: 250 ms.
    pub retry_interval: Duration,
    /// The longest pause between retries: 5 s.
    pub max_retry_interval: Duration,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            content_type: "application/octet-stream".to_owned(),
            encoding: Encoding::Auto,
            gzip: false,
            content_length: None,
            meta: None,
            max_chunks_per_batch: 10,
            flush_interval: Duration::from_millis(250),
            max_chunk: 256 << 10,
            stall_timeout: Duration::from_secs(30),
            retry_interval: Duration::from_millis(250),
            max_retry_interval: Duration::from_secs(5),
        }
    }
}

impl SenderConfig {
    /// Check the configuration. Fails as a misuse where it is contradictory.
    pub fn check(&self) -> Result<()> {
        let wrong = [
            (!is_mime(&self.content_type), Misuse::ContentType),
            (self.max_chunks_per_batch == 0, Misuse::BatchLength),
            // A code point has up to 4 bytes, and a group of Base64 has 4 characters.
            (self.max_chunk < 4, Misuse::ChunkLength),
            (self.gzip && self.encoding == Encoding::Identity, Misuse::GzipText),
            (self.gzip && self.content_length.is_some(), Misuse::GzipLength),
        ];
        let first = wrong.into_iter().find(|(wrong, _)| *wrong);
        first.map_or(Ok(()), |(_, misuse)| Err(misuse.into()))
    }

    pub(super) fn metadata(&self, content_encoding: ContentEncoding) -> Result<Metadata> {
        let meta = self.meta.clone().map(RawValue::from_string).transpose();
        let meta = meta.map_err(|error| Misuse::Meta { reason: error.to_string() })?;
        if meta.as_ref().is_some_and(|meta| !meta.get().starts_with('{')) {
            return Err(Misuse::MetaObject.into());
        }
        let compression = if self.gzip { Compression::Gzip } else { Compression::None };
        let (content_type, content_length) = (self.content_type.clone(), self.content_length);
        Ok(Metadata { content_type, content_encoding, compression, content_length, meta })
    }
}
