//! Answers: what every one has, and how refusals look.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use hyper::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::{Response, StatusCode};
use penstock_pimp::{Code, Error, Refusal};
use serde::Serialize;

use super::body::{Broken, ResponseBody};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Why a request has no other answer.
#[derive(Debug)]
pub(super) enum Refused {
    /// The core has refused it.
    Pimp(Error),
    /// The same, because the key is another: it costs a guess, whatever the status.
    Guess(Error),
    /// The store could not: it may be tried again.
    Store(crate::Error),
    /// There is no room for it now: it may be tried again.
    Busy,
    /// The body did not come in time: it may be tried again.
    Late(String),
    /// Too often: after so many seconds again.
    TooOften(u64),
    /// Nothing is there.
    NoPath,
    /// Not with this method; with these.
    Method(&'static str),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Pimp(error)
    }
}

impl From<crate::Error> for Refused {
    fn from(error: crate::Error) -> Self {
        Self::Store(error)
    }
}

impl From<penstock_io::Error> for Refused {
    fn from(error: penstock_io::Error) -> Self {
        Self::Store(error.into())
    }
}

/// Return an answer with a body of JSON.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response<ResponseBody> {
    bytes(status, serde_json::to_vec(body).unwrap_or_default())
}

/// Return an answer with a body that is JSON already.
pub(super) fn bytes(status: StatusCode, body: Vec<u8>) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, JSON);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Return an answer whose body of JSON comes as it is taken.
pub(super) fn pieces(pieces: BoxStream<'static, Result<Bytes, Broken>>) -> Response<ResponseBody> {
    let mut response = bytes(StatusCode::OK, Vec::new());
    *response.body_mut() = ResponseBody::Stream { pieces, left: None };
    response
}

/// Return an answer without a body.
pub(super) fn empty(status: StatusCode) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::Whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

/// Set a header whose value comes from a job; what no header can have is left out.
pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// With the generation of a job.
pub(super) fn tagged(mut response: Response<ResponseBody>, etag: &str) -> Response<ResponseBody> {
    set(response.headers_mut(), ETAG, etag);
    response
}

impl Refused {
    /// Return whether it tells that a key is wrong: then it counts against who guesses.
    pub(super) fn is_guess(&self) -> bool {
        match self {
            Self::Guess(_) => true,
            Self::Pimp(error) => error.code() == Code::Unauthorized,
            Self::Store(_) | Self::Busy | Self::Late(_) | Self::TooOften(_) | Self::NoPath | Self::Method(_) => false,
        }
    }

    /// What the caller is told.
    pub(super) fn response(&self) -> Response<ResponseBody> {
        let (status, error, code, after) = match self {
            Self::Pimp(error) | Self::Guess(error) => {
                let status = error.code().status().and_then(|status| StatusCode::from_u16(status).ok());
                // A payload that is not what its metadata says: no request mends that, and it is the sender's fault.
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
