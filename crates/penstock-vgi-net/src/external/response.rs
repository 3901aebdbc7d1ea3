//! Requests for objects, and their responses.

use penstock_io::DriverError as _;
use reqwest::{RequestBuilder, Response, Url};

use super::guard::Refused;
use crate::faults::{LocationFault, SizeLimit};
use crate::{Error, Result};

/// Read the body of a response, counting its bytes as they arrive.
pub(super) async fn body(url: &Url, mut response: Response, most: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| failed(url, &error))? {
        if (bytes.len() as u64).saturating_add(piece.len() as u64) > most {
            return Err(too_long(url, most));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

pub(super) fn too_long(url: &Url, most: u64) -> Error {
    Error::Size(SizeLimit::Object { url: shown(url), limit: most })
}

/// Send a request. An error may be transient, unless the address was refused.
pub(super) async fn sent(url: &Url, request: RequestBuilder) -> Result<Response> {
    request.send().await.map_err(|error| failed(url, &error))
}

fn failed(url: &Url, error: &reqwest::Error) -> Error {
    if let Some(Refused { host, address }) = Refused::within(error) {
        let (url, host) = (shown(url), host.clone());
        return Error::Location(LocationFault::Resolved { url, host, address: *address });
    }
    // The innermost error is the specific one.
    let mut inner: &dyn std::error::Error = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    Error::io(shown(url), inner.to_string())
}

/// Return the response if it is successful.
pub(super) fn ok(url: &Url, response: Response) -> Result<Response> {
    let status = response.status();
    if status.is_redirection() {
        return Err(Error::Location(LocationFault::Redirect { url: shown(url), status }));
    }
    if !status.is_success() {
        return Err(Error::io(shown(url), format!("HTTP {status}")));
    }
    Ok(response)
}

/// Return a URL without its signature, which is a secret while it is valid.
pub(super) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}
