//! Decoding of values into the payload: Base64, gzip, and the checks at the end (sections 3 and 9, decisions 5, 6 and
//! 11).

use std::fmt;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::write::MultiGzDecoder;
use penstock_wire::Limit;
use serde::{Deserialize, Serialize};
use sha2::digest::common::hazmat::{SerializableState, SerializedState};
use sha2::{Digest as _, Sha256};

use crate::error::{Corrupt, Malformed, Result};
use crate::{Compression, ContentEncoding, Digest, Metadata};

/// Compressed bytes that are inflated in one step: gzip expands them at most about a thousandfold before the limit is
/// checked again.
const STEP: usize = 4 << 10;

/// The decoder of the values of chunks, from chunk 1 on and in order, into the payload.
pub struct Decoder {
    encoding: ContentEncoding,
    // The first characters of a group of four whose rest is in the next value.
    carry: Vec<u8>,
    gzip: Option<MultiGzDecoder<Vec<u8>>>,
    hasher: Sha256,
    reassembled: u64,
    expected: Option<u64>,
    delivered: u64,
    limit: Limit,
}

/// The saved state of a decoder.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DecoderState {
    carry: String,
    hash: String,
    reassembled: u64,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("encoding", &self.encoding)
            .field("delivered", &self.delivered)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// Make a decoder for a job's chunks. A compressed payload may inflate to at most `inflated` bytes.
    pub fn new(metadata: &Metadata, inflated: u64) -> Self {
        let gzip = match metadata.compression {
            Compression::None => None,
            Compression::Gzip => Some(MultiGzDecoder::new(Vec::new())),
        };
        Self {
            encoding: metadata.content_encoding,
            carry: Vec::new(),
            gzip,
            hasher: Sha256::new(),
            reassembled: 0,
            expected: metadata.content_length,
            delivered: 0,
            limit: Limit::new("the bytes of the inflated payload", inflated),
        }
    }

    /// Return the state for a position; `None` for a compressed payload, which is decoded from its beginning again.
    pub(crate) fn keep(&self) -> Option<DecoderState> {
        let hash = STANDARD.encode(self.hasher.serialize());
        let carry = String::from_utf8_lossy(&self.carry).into_owned();
        self.gzip.is_none().then_some(DecoderState { carry, hash, reassembled: self.reassembled })
    }

    /// Make a decoder that resumes from a saved state. Fails with [`Malformed`](crate::Code::Malformed) where the state
    /// is invalid.
    pub(crate) fn resume(metadata: &Metadata, inflated: u64, kept: &DecoderState) -> Result<Self> {
        let hash = STANDARD.decode(&kept.hash).ok();
        let hash = hash.and_then(|bytes| SerializedState::<Sha256>::try_from(bytes.as_slice()).ok());
        let hasher = hash.and_then(|state| Sha256::deserialize(&state).ok());
        let hasher = hasher.ok_or(Malformed::PositionDigest)?;
        if kept.carry.len() > 3 || !kept.carry.is_ascii() || metadata.compression != Compression::None {
            return Err(Malformed::PositionPayload.into());
        }
        let (carry, reassembled) = (kept.carry.clone().into_bytes(), kept.reassembled);
        Ok(Self { carry, hasher, reassembled, delivered: reassembled, ..Self::new(metadata, inflated) })
    }

    /// Decode the next value and append the bytes of the payload that it completes.
    ///
    /// Fails with [`Corrupt`](crate::Code::Corrupt) where the value is not Base64 or gzip, or exceeds contentLength;
    /// with [`TooLarge`](crate::Code::TooLarge) where it inflates beyond the limit.
    pub fn push(&mut self, value: &str, out: &mut Vec<u8>) -> Result<()> {
        match self.encoding {
            ContentEncoding::Identity => self.take(value.as_bytes(), out),
            ContentEncoding::Base64 => {
                let bytes = self.unbase64(value.as_bytes())?;
                self.take(&bytes, out)
            }
        }
    }

    /// Decode Base64. Four characters are three bytes, or fewer if padded. So this accepts values that are each encoded
    /// separately as well as one text cut at any position (decision 5).
    fn unbase64(&mut self, value: &[u8]) -> Result<Vec<u8>> {
        let joined;
        let text = if self.carry.is_empty() {
            value
        } else {
            self.carry.extend_from_slice(value);
            joined = std::mem::take(&mut self.carry);
            &joined
        };
        let (mut whole, rest) = text.split_at_checked(text.len() / 4 * 4).unwrap_or_default();
        self.carry = rest.to_vec();
        let mut bytes = Vec::with_capacity(whole.len() / 4 * 3);
        while !whole.is_empty() {
            let padded = whole.iter().position(|byte| *byte == b'=');
            let end = padded.map_or(whole.len(), |at| (at / 4 + 1) * 4);
            let (now, later) = whole.split_at_checked(end).unwrap_or((whole, &[]));
            STANDARD.decode_vec(now, &mut bytes).map_err(Corrupt::Base64)?;
            whole = later;
        }
        Ok(bytes)
    }

    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        self.hasher.update(bytes);
        self.reassembled = self.reassembled.saturating_add(bytes.len() as u64);
        if let Some(expected) = self.expected.filter(|expected| *expected < self.reassembled) {
            return Err(Corrupt::Length { expected, actual: self.reassembled }.into());
        }
        let Some(gzip) = &mut self.gzip else {
            self.delivered = self.reassembled;
            out.extend_from_slice(bytes);
            return Ok(());
        };
        for step in bytes.chunks(STEP) {
            gzip.write_all(step).map_err(|error| Corrupt::Gzip { reason: error.to_string() })?;
            self.delivered = self.delivered.saturating_add(gzip.get_ref().len() as u64);
            self.limit.check(self.delivered)?;
            out.append(gzip.get_mut());
        }
        Ok(())
    }

    /// Handle the end after the final chunk: check that the payload is complete, and append its last bytes.
    ///
    /// Fails with [`Corrupt`](crate::Code::Corrupt) where Base64 or gzip is incomplete, or the length or the SHA-256
    /// differs.
    pub fn finish(&mut self, sha256: Option<&Digest>, out: &mut Vec<u8>) -> Result<()> {
        if !self.carry.is_empty() {
            return Err(Corrupt::Base64End.into());
        }
        if let Some(gzip) = &mut self.gzip {
            gzip.try_finish().map_err(|error| Corrupt::GzipEnd { reason: error.to_string() })?;
            self.delivered = self.delivered.saturating_add(gzip.get_ref().len() as u64);
            self.limit.check(self.delivered)?;
            out.append(gzip.get_mut());
        }
        if let Some(expected) = self.expected.filter(|expected| *expected != self.reassembled) {
            return Err(Corrupt::Length { expected, actual: self.reassembled }.into());
        }
        let hash = Digest::finish(std::mem::take(&mut self.hasher));
        if let Some(expected) = sha256.filter(|expected| **expected != hash) {
            return Err(Corrupt::Digest { expected: Box::new(*expected), actual: Box::new(hash) }.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression as Level;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::Code;

    fn metadata(text: &str) -> Metadata {
        Metadata::decode(&format!("{{\"contentType\":\"a/b\",{text}}}")).expect("valid")
    }

    fn decode(metadata: &Metadata, values: &[&str], inflated: u64) -> Result<Vec<u8>> {
        let (mut decoder, mut out) = (Decoder::new(metadata, inflated), Vec::new());
        values.iter().try_for_each(|value| decoder.push(value, &mut out))?;
        decoder.finish(None, &mut out).map(|()| out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Level::best());
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn base64_is_read_from_values_padded_each_and_from_a_text_cut_anywhere() {
        let metadata = metadata(r#""contentEncoding":"base64""#);
        let each: Vec<String> = [&b"a"[..], b"bc", b"def", b""].iter().map(|part| STANDARD.encode(part)).collect();
        let each: Vec<&str> = each.iter().map(String::as_str).collect();
        assert_eq!(decode(&metadata, &each, 0).as_deref(), Ok(&b"abcdef"[..]));
        let whole = STANDARD.encode(b"abcdefg");
        for at in 0..=whole.len() {
            for behind in at..=whole.len() {
                let cut = [&whole[..at], &whole[at..behind], &whole[behind..]];
                assert_eq!(decode(&metadata, &cut, 0).as_deref(), Ok(&b"abcdefg"[..]), "{cut:?}");
            }
        }
        for wrong in ["A", "AB=A", "AAA", "A===", "====", "AA A", "AA\n==", "é===", "AB==", "_-__"] {
            assert_eq!(decode(&metadata, &[wrong], 0).map_err(|error| error.code()), Err(Code::Corrupt), "{wrong}");
        }
    }

    #[test]
    fn a_length_or_a_checksum_that_differs_is_corrupt() {
        let five = metadata(r#""contentEncoding":"identity","contentLength":5"#);
        assert_eq!(decode(&five, &["ab", "cde"], 0).as_deref(), Ok(&b"abcde"[..]));
        for values in [&["abcd"][..], &["abc", "def"]] {
            assert_eq!(decode(&five, values, 0).map_err(|error| error.code()), Err(Code::Corrupt));
        }
        for (hash, right) in [(Digest::of(b"abcde"), true), (Digest::of(b"abcdf"), false)] {
            let (mut decoder, mut out) = (Decoder::new(&five, 0), Vec::new());
            decoder.push("abcde", &mut out).expect("text");
            assert_eq!(decoder.finish(Some(&hash), &mut out).is_ok(), right);
        }
    }

    #[test]
    fn gzip_is_inflated_within_its_limit_and_must_be_whole() {
        let metadata = metadata(r#""contentEncoding":"base64","compression":"gzip""#);
        let bytes = vec![b'x'; 100_000];
        let packed = gzip(&bytes);
        let value = STANDARD.encode(&packed);
        assert_eq!(decode(&metadata, &[&value], 100_000), Ok(bytes.clone()));
        assert_eq!(decode(&metadata, &[&value], 99_999).map_err(|error| error.code()), Err(Code::TooLarge));
        let twice = STANDARD.encode([packed.clone(), packed.clone()].concat());
        assert_eq!(decode(&metadata, &[&twice], 1 << 20).map(|all| all.len()), Ok(200_000));
        for cut in [0, 5, 10, packed.len() - 8, packed.len() - 1] {
            let value = STANDARD.encode(&packed[..cut]);
            assert_eq!(
                decode(&metadata, &[&value], 1 << 20).map_err(|error| error.code()),
                Err(Code::Corrupt),
                "{cut}"
            );
        }
    }

    #[test]
    fn a_bomb_costs_little_memory() {
        let metadata = metadata(r#""contentEncoding":"base64","compression":"gzip""#);
        let value = STANDARD.encode(gzip(&vec![0; 64 << 20]));
        let (mut decoder, mut out) = (Decoder::new(&metadata, 1 << 20), Vec::new());
        assert_eq!(decoder.push(&value, &mut out).map_err(|error| error.code()), Err(Code::TooLarge));
        assert!(out.len() <= 1 << 20);
        assert!(decoder.gzip.is_some_and(|gzip| gzip.get_ref().capacity() <= 16 << 20));
    }
}
