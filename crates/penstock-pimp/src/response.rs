//! The bodies of a buffer's answers.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::error::{Code, Error, Malformed, Result};
use crate::object::Object;
use crate::{Digest, State};

/// What a write is answered with (section 7, decision 11).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// New chunks.
    pub written: u64,
    /// Chunks that were there already.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// Whether the consumer wants no more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Answer {
    /// Return its status: 201 with any new chunk, else 200.
    pub const fn status(&self) -> u16 {
        if self.written > 0 { 201 } else { 200 }
    }

    /// Read what a buffer has answered. What it leaves out is zero, and a body that is none says nothing.
    pub fn decode(body: &[u8]) -> Self {
        serde_json::from_slice(body).map_or_else(|_| Self::default(), |Object(answer)| answer)
    }
}

/// What `GET .../status` answers (decision 10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusBody {
    /// Where the job is in its life.
    pub state: State,
    /// Chunks stored, chunk 0 included.
    pub chunks: u32,
    /// Bytes of all values stored, that of chunk 0 included.
    pub bytes: u64,
    /// The highest index stored, plus 1.
    pub next_index: u64,
    /// In milliseconds since the Unix epoch.
    pub created_at: u64,
    /// In milliseconds since the Unix epoch.
    pub expires_at: u64,
    /// Whether the consumer has cancelled it.
    #[serde(default)]
    pub cancelled: bool,
    /// The payload's, if the sender said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
}

impl StatusBody {
    /// Read what a buffer has answered. Fails with [`Malformed`](Code::Malformed).
    pub fn decode(body: &[u8]) -> Result<Self> {
        let wrong = |error: serde_json::Error| Malformed::Status { reason: error.to_string() }.into();
        serde_json::from_slice(body).map(|Object(status)| status).map_err(wrong)
    }
}

/// What every refusal is answered with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal<'a> {
    /// What is wrong, for people.
    pub error: Cow<'a, str>,
    /// What is wrong, for programs.
    pub code: &'static str,
    /// EXPIRED, where that is why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
}

impl From<&Error> for Refusal<'_> {
    fn from(error: &Error) -> Self {
        let state = (error.code() == Code::Expired).then_some(State::Expired);
        Self { error: error.to_string().into(), code: error.code().name(), state }
    }
}

/// What a poll is answered with, from chunks as [`Envelope::encode`](crate::Envelope::encode) wrote them.
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

/// What the code of a refusal is.
pub(crate) fn code(body: &[u8]) -> Option<String> {
    let refusal: serde_json::Value = serde_json::from_slice(body).ok()?;
    refusal.get("code")?.as_str().map(str::to_owned)
}

/// What of a buffer's answer goes into an error: its beginning, on one line.
pub(crate) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..EXCERPT).unwrap_or(body)).into_owned();
    text.chars().map(|each| if each.is_control() { ' ' } else { each }).collect()
}

const EXCERPT: usize = 300;
