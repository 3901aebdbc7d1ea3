//! The envelope around every chunk (section 5).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::error::{Malformed, Result, Unwritable};
use crate::object::nullable;
use crate::{Digest, JobId, Limits, Metadata};

/// The largest integer that every reader of JSON keeps exactly.
const EXACT: u64 = (1 << 53) - 1;

/// A chunk, in the form in which it is written, stored and read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Its job.
    pub job_id: JobId,
    /// Its index: 0 is the metadata.
    pub index: u32,
    /// The metadata, or a piece of the payload in the job's encoding.
    pub value: Cow<'a, str>,
    /// Whether it is the last chunk.
    pub done: bool,
    /// Why the job failed; only the last chunk has it.
    pub error: Option<Cow<'a, str>>,
    /// When it was made, in milliseconds since the Unix epoch.
    pub created_at: u64,
    /// Of the last chunk: the SHA-256 of the payload as it is reassembled, before it is decompressed (decision 11).
    pub sha256: Option<Digest>,
}

/// The fields in JSON, not checked yet.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fields<'a> {
    #[serde(borrow)]
    job_id: Cow<'a, str>,
    index: u64,
    #[serde(borrow)]
    value: Cow<'a, str>,
    done: bool,
    #[serde(borrow, deserialize_with = "nullable")]
    error: Option<Cow<'a, str>>,
    created_at: u64,
    #[serde(borrow, default)]
    sha256: Option<Cow<'a, str>>,
}

/// The fields before and after the value, as they are written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    job_id: String,
    index: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tail<'a> {
    done: bool,
    error: Option<&'a str>,
    created_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

/// Return whether JSON can hold a string without escapes. The loop avoids a branch for each byte, because it dominates
/// the cost of writing a chunk.
fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| (byte >= b' ') & (byte != b'"') & (byte != b'\\');
    text.as_bytes().chunks(64).all(|bytes| bytes.iter().fold(true, |all, byte| all & plain(*byte)))
}

impl<'a> Fields<'a> {
    /// Return the envelope, with each field checked (section 5, decisions "restored" and 2).
    pub(crate) fn check(self, job: JobId, limits: &Limits) -> Result<Envelope<'a>> {
        if JobId::parse(&self.job_id).ok_or(Malformed::JobId)? != job {
            return Err(Malformed::OtherJob.into());
        }
        limits.index().check(self.index)?;
        if !self.done {
            limits.index_before_end().check(self.index)?;
        }
        limits.value().check(self.value.len() as u64)?;
        limits.error().check(self.error.as_ref().map_or(0, |error| error.len() as u64))?;
        let index = self.index;
        if self.error.is_some() && !self.done {
            return Err(Malformed::ErrorBeforeEnd { index }.into());
        }
        if self.created_at > EXACT {
            return Err(Malformed::CreatedAt { index }.into());
        }
        if self.sha256.is_some() && !self.done {
            return Err(Malformed::DigestBeforeEnd { index }.into());
        }
        let sha256 = self.sha256.as_deref().map(Digest::parse);
        if sha256 == Some(None) {
            return Err(Malformed::Digest { index }.into());
        }
        let index = u32::try_from(self.index).map_err(|_| Malformed::Index)?;
        if index == 0 && self.done && self.error.is_none() {
            return Err(Malformed::MetadataEnd { index: self.index }.into());
        }
        if index == 0 && !(self.done && self.value.is_empty()) {
            Metadata::decode(&self.value)?;
        }
        let Self { value, done, error, created_at, .. } = self;
        Ok(Envelope { job_id: job, index, value, done, error, created_at, sha256: sha256.flatten() })
    }
}

impl Envelope<'_> {
    /// Write the envelope as buffers store it and answer polls with it: the six fields, and `sha256` if present.
    ///
    /// Fails only where memory runs out.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<()> {
        let head = Head { job_id: self.job_id.to_string(), index: self.index };
        let tail = Tail {
            done: self.done,
            error: self.error.as_deref(),
            created_at: self.created_at,
            sha256: self.sha256.map(|digest| digest.to_string()),
        };
        let wrong = |error: serde_json::Error| Unwritable::Chunk { reason: error.to_string() };
        serde_json::to_writer(&mut *out, &head).map_err(wrong)?;
        out.pop();
        out.extend_from_slice(br#","value":"#);
        if is_plain(&self.value) {
            out.push(b'"');
            out.extend_from_slice(self.value.as_bytes());
            out.push(b'"');
        } else {
            serde_json::to_writer(&mut *out, &self.value).map_err(wrong)?;
        }
        out.push(b',');
        let rest = serde_json::to_vec(&tail).map_err(wrong)?;
        out.extend_from_slice(rest.get(1..).unwrap_or_default());
        Ok(())
    }

    /// Read an envelope that a buffer has stored or sent, and check it as a write is checked.
    pub fn decode(bytes: &str, job: JobId, limits: &Limits) -> Result<Envelope<'static>> {
        let crate::object::Object(fields): crate::object::Object<Fields<'_>> =
            serde_json::from_str(bytes).map_err(|error| Malformed::Envelope { reason: error.to_string() })?;
        fields.check(job, limits).map(Envelope::into_owned)
    }

    /// Return the envelope with owned memory.
    pub fn into_owned(self) -> Envelope<'static> {
        Envelope {
            job_id: self.job_id,
            index: self.index,
            value: Cow::Owned(self.value.into_owned()),
            done: self.done,
            error: self.error.map(|error| Cow::Owned(error.into_owned())),
            created_at: self.created_at,
            sha256: self.sha256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_chunk_is_written_as_json_has_it(
            value in ".{0,300}|[ -~]{100,200}[\u{0}-\u{7F}]{0,2}",
            error in prop::option::of(".{0,9}"),
            (index, created_at, hashed) in (any::<u32>(), any::<u64>(), any::<bool>()),
        ) {
            let job_id = JobId::parse("01010101-0101-4101-8101-010101010101").expect("an ID");
            let sha256 = hashed.then(|| Digest::parse(&"0a".repeat(32)).expect("a digest"));
            let done = error.is_some() || hashed;
            let envelope = Envelope {
                job_id, index, value: value.as_str().into(), done, error: error.as_deref().map(Cow::Borrowed), created_at, sha256,
            };
            let mut bytes = b"before ".to_vec();
            prop_assert_eq!(envelope.encode(&mut bytes), Ok(()));
            let json = serde_json::to_string(&value).expect("a string");
            let reason = serde_json::to_string(&error).expect("a string");
            let digest = sha256.map_or_else(String::new, |sha256| format!(r#","sha256":"{sha256}""#));
            let expected = format!(
                r#"before {{"jobId":"{job_id}","index":{index},"value":{json},"done":{done},"error":{reason},"createdAt":{created_at}{digest}}}"#
            );
            prop_assert_eq!(std::str::from_utf8(&bytes), Ok(expected.as_str()));
        }
    }
}
