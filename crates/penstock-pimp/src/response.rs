//! The bodies of a buffer's responses.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Malformed, Result};
use crate::object::Object;
use crate::{Digest, State};

/// The response to a write (section 7, decision 11).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// How many chunks are new.
    pub written: u64,
    /// How many chunks were already stored.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Whether the consumer has cancelled the job.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Answer {
    /// Return its status: 201 if any chunk is new, otherwise 200.
    pub const fn status(&self) -> u16 {
        if self.written > 0 { 201 } else { 200 }
    }

    /// Read a buffer's response. Missing fields are zero, and an invalid body counts as empty.
    pub fn decode(body: &[u8]) -> Self {
        serde_json::from_slice(body).map_or_else(|_| Self::default(), |Object(answer)| answer)
    }
}

/// The response to `GET .../status` (decision 10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusBody {
    /// The job's state.
    pub state: State,
    /// How many chunks are stored, chunk 0 included.
    pub chunks: u32,
    /// Bytes of all stored values, including chunk 0.
    pub bytes: u64,
    /// The highest index stored, plus 1.
    pub next_index: u64,
    /// When the job was made, in milliseconds since the Unix epoch.
    pub created_at: u64,
    /// When the job expires, in milliseconds since the Unix epoch.
    pub expires_at: u64,
    /// Whether the consumer has cancelled the job.
    #[serde(default)]
    pub cancelled: bool,
    /// The payload's checksum, if the sender stated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

impl StatusBody {
    /// Read a buffer's response. Fails with [`Malformed`](Code::Malformed).
    pub fn decode(body: &[u8]) -> Result<Self> {
        let wrong = |error: serde_json::Error| Malformed::Status { reason: error.to_string() }.into();
        serde_json::from_slice(body).map(|Object(status)| status).map_err(wrong)
    }
}

/// The body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal<'a> {
    /// Description of the error, for people.
    pub error: Cow<'a, str>,
    /// Code of the error, for programs.
    pub code: &'static str,
    /// `EXPIRED`, if the job has expired.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

impl From<&Error> for Refusal<'_> {
    fn from(error: &Error) -> Self {
        let state = (error.code() == Code::Expired).then_some(State::Expired);
        Self { error: error.to_string().into(), code: error.code().name(), state }
    }
}

/// Return the body of a response to a poll, from chunks as [`Envelope::encode`](crate::Envelope::encode) wrote them.
pub fn poll_body<T: AsRef<[u8]>>(chunks: impl IntoIterator<Item = T>, next_index: u64) -> Vec<u8> {
    let mut body = b"{\"chunks\":[".to_vec();
    for (place, chunk) in chunks.into_iter().enumerate() {
        if place > 0 {
            body.push(b',');
        }
        body.extend_from_slice(chunk.as_ref());
    }
    body.extend_from_slice(format!("],\"nextIndex\":{next_index}}}").as_bytes());
    body
}
