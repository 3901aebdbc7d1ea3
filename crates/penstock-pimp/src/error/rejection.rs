//! Requests that a buffer rejected.

use super::code::Code;

/// The most bytes of a response in a message.
const EXCERPT: usize = 300;

/// A request that a buffer rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the buffer refused {request} with {status}: {excerpt}")]
pub struct Rejection {
    /// The code of the status, or `Lost` where the body of a 410 says so.
    pub code: Code,
    /// The request.
    pub request: String,
    /// The status.
    pub status: u16,
    /// The beginning of the body, on one line.
    pub excerpt: String,
}

impl Rejection {
    /// Make a rejection from a response: the [`Code`] of its status, and the beginning of its body.
    pub(super) fn new(request: String, status: u16, body: &[u8]) -> Self {
        let code = Code::of_status(status);
        let lost = || code_of(body).as_deref() == Some(Code::Lost.name());
        let code = if code == Code::Expired && lost() { Code::Lost } else { code };
        Self { code, request, status, excerpt: excerpt(body) }
    }
}

/// Return the code in an error response.
fn code_of(body: &[u8]) -> Option<String> {
    let refusal: serde_json::Value = serde_json::from_slice(body).ok()?;
    refusal.get("code")?.as_str().map(str::to_owned)
}

/// Return the beginning of a response, on one line, for an error message.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..EXCERPT).unwrap_or(body)).into_owned();
    text.chars().map(|each| if each.is_control() { ' ' } else { each }).collect()
}
