//! The head of an entity stream (section 6.7).
//!
//! ```text
//! +------------------+------------------------+------------------------------+
//! | header length 32 | EntityHeader, protobuf | payload until the stream ends|
//! +------------------+------------------------+------------------------------+
//! ```

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use penstock_wire::Reader;
use prost::Message;

use crate::error::{EntityError, Error, LimitError, Misuse, Result};
use crate::header_key::check_open;
use crate::messages::{ChunkInfo as ChunkInfoMessage, CompletionPolicy, EntityHeaderMessage, decode_message};
use crate::pipe_doc::PipeDoc;
use crate::sizes::{CHECKSUM_LENGTH, DOC, MAX_DATA_LAYER, MAX_HEADER_LENGTH};

/// The protocol's metadata keys (decisions 9 to 11).
pub(crate) const DEHYDRATED: &str = "pipestream.dehydrated";
pub(crate) const CHILD_SCOPE: &str = "pipestream.child-scope";
pub(crate) const PARENT_SCOPE: &str = "pipestream.parent-scope";
/// The attempt to which a stream belongs, decimal, if a policy has retries.
pub(crate) const ATTEMPT: &str = "pipestream.attempt";
pub(crate) const ORIGINAL_LENGTH: &str = "pipestream.original-length";

/// The header of an entity stream, before its payload. Fields that are not set are 0 or empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EntityHeader {
    /// The entity, unique in its scope.
    pub entity_id: u32,
    /// The parent; 0 for a root entity.
    pub parent_id: u32,
    /// The scope.
    pub scope_id: u32,
    /// The data layer, 0 to 3.
    pub layer: u32,
    /// The MIME type.
    pub content_type: String,
    /// The length of the whole payload, over all chunks.
    pub payload_length: u64,
    /// SHA-256 of the whole payload, as received; [`check`](Self::check) requires 32 bytes.
    pub checksum: Bytes,
    /// All other data, ordered by key, so that equal headers have equal bytes.
    pub metadata: BTreeMap<String, String>,
    /// The part of the payload in this stream; if absent, all of it.
    pub chunk_info: Option<ChunkInfo>,
    /// What happens to the entity when children fail (layer 2).
    pub completion_policy: Option<CompletionPolicy>,
}

/// The part of a payload in a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChunkInfo {
    /// How many streams carry the payload.
    pub total_chunks: u32,
    /// The index of this stream, from 0.
    pub chunk_index: u32,
    /// The offset of its bytes in the whole payload.
    pub chunk_offset: u64,
}

impl EntityHeader {
    /// The size of the length field before a header, in bytes.
    pub(crate) const LENGTH_FIELD: usize = 4;

    /// Return the header preceded by its length. Equal headers have equal bytes.
    pub fn encode(&self) -> Bytes {
        self.clone().into_bytes()
    }

    /// Encode like [`encode`](Self::encode), without copying the fields.
    pub fn into_bytes(self) -> Bytes {
        let message = EntityHeaderMessage {
            entity_id: Some(self.entity_id),
            parent_id: Some(self.parent_id),
            scope_id: Some(self.scope_id),
            layer: Some(self.layer),
            content_type: Some(self.content_type).filter(|content_type| !content_type.is_empty()),
            payload_length: Some(self.payload_length),
            checksum: Some(self.checksum),
            metadata: self.metadata,
            chunk_info: self.chunk_info.map(|chunk| ChunkInfoMessage {
                total_chunks: Some(chunk.total_chunks),
                chunk_index: Some(chunk.chunk_index),
                chunk_offset: Some(chunk.chunk_offset),
            }),
            completion_policy: self.completion_policy,
        };
        let length = message.encoded_len();
        let mut bytes = Vec::with_capacity(EntityHeader::LENGTH_FIELD.saturating_add(length));
        bytes.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        message.encode_raw(&mut bytes);
        bytes.into()
    }

    /// Return the approximate memory of the header in bytes.
    pub fn weight(&self) -> usize {
        let metadata: usize = self.metadata.iter().map(|(key, value)| key.len() + value.len() + 64).sum();
        256 + self.content_type.len() + self.checksum.len() + metadata
    }

    /// Return whether the header states that its entity has children (decision 9).
    pub(crate) fn is_dehydrated(&self) -> bool {
        self.metadata.get(DEHYDRATED).is_some_and(|value| value == "1")
    }

    /// Return the scope of the entity's children (decision 9): `None` if the header names none,
    /// `Some(None)` if the name is invalid: not decimal, or with a sign, blanks or leading zeros.
    pub(crate) fn child_scope(&self) -> Option<Option<u16>> {
        self.metadata.get(CHILD_SCOPE).map(|value| decimal_scope(value))
    }

    /// Return the entity's document and its owner (section 7.1), if the header states them;
    /// ENTITY_INVALID if they are invalid.
    pub fn document(&self) -> Result<Option<PipeDoc>> {
        self.metadata.get(DOC).map(|entry| PipeDoc::from_entry(entry, self.entity_id)).transpose()
    }

    /// Reject a header that fails only its entity, while the session continues (decisions 14 to
    /// 16): a data layer above 3, a checksum that is not 32 bytes, a payload above `max_payload`,
    /// an impossible chunk, an invalid PipeDoc, metadata that could not be opened.
    pub fn check(&self, max_payload: u64) -> Result<()> {
        let refused = |error: Error| Err(error.at(self.scope_id, self.entity_id));
        if self.layer > MAX_DATA_LAYER {
            return refused(EntityError::DataLayer(self.layer).into());
        }
        if self.checksum.len() != CHECKSUM_LENGTH {
            return refused(EntityError::ChecksumLength(self.checksum.len()).into());
        }
        if self.payload_length > max_payload {
            return refused(LimitError::PayloadLength { length: self.payload_length, limit: max_payload }.into());
        }
        if let Err(error) = self.chunk_info.map_or(Ok(()), |chunk| chunk.check(self.payload_length)) {
            return refused(error.into());
        }
        check_open(&self.metadata).or_else(refused)?;
        self.document().map_or_else(refused, |_| Ok(()))
    }

    /// Reject metadata whose names and values have more than `max_metadata` bytes in total, which also fails only the
    /// entity.
    pub fn check_metadata(&self, max_metadata: usize) -> Result<()> {
        let bytes: usize = self.metadata.iter().map(|(name, value)| name.len().saturating_add(value.len())).sum();
        if bytes > max_metadata {
            let limit = LimitError::Metadata { bytes, limit: max_metadata };
            return Err(Error::from(limit).at(self.scope_id, self.entity_id));
        }
        Ok(())
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let message: EntityHeaderMessage = decode_message(bytes)?;
        Ok(Self {
            entity_id: message.entity_id.unwrap_or_default(),
            parent_id: message.parent_id.unwrap_or_default(),
            scope_id: message.scope_id.unwrap_or_default(),
            layer: message.layer.unwrap_or_default(),
            content_type: message.content_type.unwrap_or_default(),
            payload_length: message.payload_length.unwrap_or_default(),
            checksum: message.checksum.unwrap_or_default(),
            metadata: message.metadata,
            chunk_info: message.chunk_info.map(|chunk| ChunkInfo {
                total_chunks: chunk.total_chunks.unwrap_or_default(),
                chunk_index: chunk.chunk_index.unwrap_or_default(),
                chunk_offset: chunk.chunk_offset.unwrap_or_default(),
            }),
            completion_policy: message.completion_policy,
        })
    }
}

/// Parse a scope ID in decimal, without sign, blanks or leading zeros.
pub(crate) fn decimal_scope(value: &str) -> Option<u16> {
    value.parse::<u16>().ok().filter(|scope| scope.to_string() == value)
}

impl ChunkInfo {
    /// Check decision 15 as far as one header allows. There may be no more chunks than bytes,
    /// except for one chunk of an empty payload; this also bounds the memory of a
    /// [`ChunkTracker`](crate::ChunkTracker).
    fn check(&self, length: u64) -> Result<(), EntityError> {
        if self.total_chunks == 0 {
            return Err(EntityError::NoChunks);
        }
        if self.chunk_index >= self.total_chunks {
            return Err(EntityError::ChunkIndex { index: self.chunk_index, total: self.total_chunks });
        }
        if u64::from(self.total_chunks) > length.max(1) {
            return Err(EntityError::ChunkCount { total: self.total_chunks, length });
        }
        if self.chunk_offset > length {
            return Err(EntityError::ChunkOffset { offset: self.chunk_offset, length });
        }
        Ok(())
    }
}

/// A decoder that takes an entity stream as it arrives and returns its header.
#[derive(Debug)]
pub struct HeaderDecoder {
    buffer: BytesMut,
    rest: Bytes,
    complete: bool,
    max_length: u32,
}

impl Default for HeaderDecoder {
    fn default() -> Self {
        Self::with_limit(MAX_HEADER_LENGTH)
    }
}

impl HeaderDecoder {
    /// Make a decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Make a decoder for headers of at most this many bytes; never more than 1 MiB (decision 14).
    pub fn with_limit(max_length: u32) -> Self {
        let max_length = max_length.min(MAX_HEADER_LENGTH);
        Self { buffer: BytesMut::new(), rest: Bytes::new(), complete: false, max_length }
    }

    /// Take the next bytes of the stream and return the header once it is complete. The bytes after it are payload:
    /// [`take_rest`](Self::take_rest) returns those that have arrived, and no further push is allowed. An error is
    /// final.
    pub fn push(&mut self, mut bytes: Bytes) -> Result<Option<EntityHeader>> {
        if self.complete {
            return Err(Misuse::Payload.into());
        }
        if self.buffer.is_empty() {
            let length = header_length(&bytes, self.max_length)?;
            if bytes.len() >= length {
                // The usual case: the header arrived in one piece.
                let header = bytes.split_to(length);
                return self.finish(&header, bytes);
            }
        }
        loop {
            let missing = header_length(&self.buffer, self.max_length)?.saturating_sub(self.buffer.len());
            if missing == 0 {
                let header = std::mem::take(&mut self.buffer);
                return self.finish(&header, bytes);
            }
            if bytes.is_empty() {
                return Ok(None);
            }
            self.buffer.extend_from_slice(&bytes.split_to(missing.min(bytes.len())));
        }
    }

    fn finish(&mut self, header: &[u8], rest: Bytes) -> Result<Option<EntityHeader>> {
        let header = EntityHeader::parse(header.get(EntityHeader::LENGTH_FIELD..).unwrap_or_default())?;
        self.rest = rest;
        self.complete = true;
        Ok(Some(header))
    }

    /// Return whether the header was returned; a stream that ends earlier is ENTITY_INVALID (decision 14).
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Return the payload bytes that arrived with the end of the header.
    pub fn take_rest(&mut self) -> Bytes {
        std::mem::take(&mut self.rest)
    }
}

/// Return the length of the header at the start of `bytes`, including its length field; 4 while that field is
/// incomplete. A length above the limit is rejected immediately.
fn header_length(bytes: &[u8], max_length: u32) -> Result<usize> {
    let Ok(length) = Reader::new(bytes).u32() else { return Ok(EntityHeader::LENGTH_FIELD) };
    if length > max_length {
        return Err(LimitError::HeaderLength { length, limit: max_length }.into());
    }
    Ok(usize::try_from(length).unwrap_or(usize::MAX).saturating_add(EntityHeader::LENGTH_FIELD))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ErrorCode, Malformed, Violation};

    fn header() -> EntityHeader {
        EntityHeader {
            entity_id: 7,
            payload_length: 5,
            checksum: Bytes::from_static(&[9; 32]),
            metadata: [("b", "2"), ("a", "1"), ("c", "3")].map(|(k, v)| (k.into(), v.into())).into(),
            ..EntityHeader::default()
        }
    }

    fn refused(header: EntityHeader) -> ErrorCode {
        let error = header.check(100).expect_err("refused");
        assert_eq!(error.entity(), Some(7));
        error.code()
    }

    #[test]
    fn a_header_comes_back_from_pieces_of_any_size_and_the_payload_after_it_is_kept() {
        let mut bytes = header().encode().to_vec();
        bytes.extend(b"hello");
        for size in 1..=bytes.len() {
            let mut decoder = HeaderDecoder::new();
            let mut found = None;
            let mut payload = Vec::new();
            for piece in bytes.chunks(size).map(Bytes::copy_from_slice) {
                match found {
                    None => {
                        found = decoder.push(piece).expect("valid");
                        payload.extend(decoder.take_rest());
                    }
                    Some(_) => payload.extend(piece),
                }
            }
            assert_eq!((found, payload.as_slice()), (Some(header()), b"hello".as_slice()));
            assert!(decoder.is_complete() && decoder.push(Bytes::new()).is_err());
        }
    }

    #[test]
    fn the_payload_behind_a_header_is_a_slice_of_what_came() {
        let mut bytes = header().encode().to_vec();
        bytes.extend(b"hello");
        let bytes = Bytes::from(bytes);
        let mut decoder = HeaderDecoder::new();
        decoder.push(bytes.clone()).expect("valid").expect("whole");
        assert_eq!(decoder.take_rest().as_ptr(), bytes.slice(bytes.len() - 5..).as_ptr());
    }

    #[test]
    fn a_header_above_1_mib_is_refused_by_its_length_and_a_length_takes_no_memory() {
        let mut decoder = HeaderDecoder::new();
        assert_eq!(decoder.push(Bytes::from_static(&[0, 0x10, 0])), Ok(None));
        let error = decoder.push(Bytes::from_static(&[1])).expect_err("too long");
        assert_eq!(error.code(), ErrorCode::EntityTooLarge);
        let mut decoder = HeaderDecoder::new();
        assert_eq!(decoder.push(Bytes::from_static(&[0, 0x10, 0, 0])), Ok(None));
        assert!(decoder.buffer.capacity() < 1024);
    }

    #[test]
    fn an_unknown_completion_mode_is_refused() {
        let policy = CompletionPolicy { mode: Some(5), ..CompletionPolicy::default() };
        let bytes = EntityHeader { completion_policy: Some(policy), ..header() }.encode();
        let error = HeaderDecoder::new().push(bytes).expect_err("unknown");
        assert_eq!(error, Malformed::EnumValue { field: "CompletionPolicy.mode", value: 5 }.into());
    }

    #[test]
    fn what_fails_one_entity_is_told_by_its_code() {
        assert_eq!(header().check(5), Ok(()));
        assert_eq!(refused(EntityHeader { layer: 4, ..header() }), ErrorCode::EntityInvalid);
        assert_eq!(refused(EntityHeader { checksum: Bytes::new(), ..header() }), ErrorCode::EntityInvalid);
        assert_eq!(refused(EntityHeader { payload_length: 101, ..header() }), ErrorCode::EntityTooLarge);
    }

    #[test]
    fn an_envelope_that_is_not_valid_fails_its_entity() {
        let with = |entry: String| {
            let mut header = header();
            header.metadata.insert(DOC.to_owned(), entry);
            header
        };
        let doc = |doc_id: &str, entity_id| PipeDoc { doc_id: doc_id.to_owned(), entity_id, ownership: None };
        assert_eq!(with(doc("d", 7).to_entry()).check(100), Ok(()));
        for bad in [doc("", 7).to_entry(), doc("d", 8).to_entry(), "no base64".to_owned(), "/w==".to_owned()] {
            let error = with(bad).check(100).expect_err("refused");
            assert_eq!((error.code(), error.entity()), (ErrorCode::EntityInvalid, Some(7)));
            let is_of_document =
                |violation: &Violation| matches!(violation, Violation::Entity(EntityError::Document(_)));
            assert!(matches!(&error, Error::Violation(violation, _) if is_of_document(violation)), "{error}");
        }
    }

    #[test]
    fn a_chunk_that_cannot_be_fails_its_entity() {
        let with = |total_chunks, chunk_index, chunk_offset| EntityHeader {
            chunk_info: Some(ChunkInfo { total_chunks, chunk_index, chunk_offset }),
            ..header()
        };
        for bad in [with(0, 0, 0), with(2, 2, 0), with(6, 0, 0), with(2, 1, 6)] {
            assert_eq!(refused(bad), ErrorCode::EntityInvalid);
        }
        assert_eq!(with(5, 4, 4).check(100), Ok(()));
        let empty = EntityHeader { payload_length: 0, ..with(1, 0, 0) };
        assert_eq!(empty.check(100), Ok(()));
    }
}
