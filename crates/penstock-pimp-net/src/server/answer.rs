//! Responses: the headers of all, and the form of refusals.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use hyper::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use penstock_pimp::{Code, Refusal};
use serde::Serialize;

use super::body::{Broken, ResponseBody};
use super::refused::Refused;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Return a response with a body of JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<ResponseBody> {
    bytes(status, serde_json::to_vec(body).unwrap_or_default())
}

/// Return a response with a body that is already JSON.
pub(super) fn bytes(status: StatusCode, body: Vec<u8>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Return a response whose JSON body is produced as the client reads it.
pub(super) fn pieces(pieces: BoxStream<'static, Result<Bytes, Broken>>) -> Response<ResponseBody> {
    let mut response = bytes(StatusCode::OK, Vec::new());
    *response.body_mut() = ResponseBody::Stream { pieces, left: None };
    response
}

/// Return a response without a body.
pub(super) fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// Set a header whose value comes from a job; a value that no header can have is left out.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Add the generation of a job.
pub(super) fn tagged(mut response: Response<ResponseBody>, etag: &str) -> Response<ResponseBody> {
    set(response.headers_mut(), ETAG, etag);
    response
}

impl Refused {
    /// Return the response.
    pub(super) fn response(&self) -> Response<ResponseBody> {
        let (status, error, code, after) = match self {
            Self::Pimp(error) | Self::Guess(error) => {
                let status = error.code().status().and_then(|status| StatusCode::from_u16(status).ok());
                // The payload is not as its metadata states. No request can change that, and it is the sender's fault.
                let mut response = json(status.unwrap_or(StatusCode::CONFLICT), &Refusal::from(error));
                if error.code() == Code::Unauthorized {
                    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
                }
                return response;
            }
            Self::Store(error) => {
                tracing::error!(%error, "the store has failed");
                (StatusCode::SERVICE_UNAVAILABLE, "the store has failed", "UNAVAILABLE", Some(1))
            }
            Self::Busy => {
                (StatusCode::SERVICE_UNAVAILABLE, "the buffer answers too many at once", "UNAVAILABLE", Some(1))
            }
            Self::Late(why) => (StatusCode::SERVICE_UNAVAILABLE, why.as_str(), "UNAVAILABLE", Some(1)),
            Self::TooOften(after) => (StatusCode::TOO_MANY_REQUESTS, "too many requests", "TOO_OFTEN", Some(*after)),
            Self::NoPath => (StatusCode::NOT_FOUND, "nothing is at this path", "NOT_FOUND", None),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "not with this method", "METHOD_NOT_ALLOWED", None),
        };
        let mut response = json(status, &Refusal { error: error.into(), code, state: None });
        if let Some(after) = after {
            set(response.headers_mut(), RETRY_AFTER, &after.to_string());
        }
        if let Self::Method(allowed) = self {
            set(response.headers_mut(), hyper::header::ALLOW, allowed);
        }
        response
    }
}
