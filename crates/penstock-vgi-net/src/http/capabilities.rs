//! The capabilities that a server announces in the headers of its responses (section 10).

use penstock_vgi::http::{self as core, Headers};

/// The capabilities of a server. Values that are not numbers count as missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The most bytes of a request.
    pub max_request_bytes: Option<u64>,
    /// Whether the server issues URLs for uploads.
    pub upload_urls: bool,
    /// The most bytes of an upload.
    pub max_upload_bytes: Option<u64>,
    /// The number of seconds for which these capabilities may be cached.
    pub max_age: Option<u64>,
}

impl Capabilities {
    /// Read the headers of a response.
    pub fn of(headers: &Headers) -> Self {
        let number = |name| headers.get(name).and_then(|text| text.trim().parse().ok());
        Self {
            max_request_bytes: number(core::MAX_REQUEST_BYTES),
            upload_urls: headers.get(core::UPLOAD_URLS).is_some_and(|value| value.trim() == "true"),
            max_upload_bytes: number(core::MAX_UPLOAD_BYTES),
            max_age: headers.get("Cache-Control").and_then(max_age),
        }
    }

    /// Read the headers of a response; return `None` if they do not mention requests, as with a
    /// proxy's response.
    pub(super) fn announced(headers: &Headers) -> Option<Self> {
        let read = Self::of(headers);
        (read.upload_urls || read.max_request_bytes.is_some()).then_some(read)
    }
}

fn max_age(cache_control: &str) -> Option<u64> {
    let (_, rest) = cache_control.split_once("max-age=")?;
    let end = rest.find(|each: char| !each.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[(&str, &str)]) -> Headers {
        fields.iter().copied().collect()
    }

    #[test]
    fn capabilities_are_read_whatever_the_case_of_their_names() {
        let headers = of(&[
            ("vgi-max-request-bytes", "1000"),
            ("VGI-UPLOAD-URL-SUPPORT", "true"),
            ("VGI-Max-Upload-Bytes", " 2000 "),
            ("cache-control", "public, max-age=60, immutable"),
        ]);
        let read = Capabilities {
            max_request_bytes: Some(1_000),
            upload_urls: true,
            max_upload_bytes: Some(2_000),
            max_age: Some(60),
        };
        assert_eq!((Capabilities::of(&headers), Capabilities::announced(&headers)), (read, Some(read)));
    }

    #[test]
    fn a_response_that_says_nothing_announces_nothing() {
        let headers =
            of(&[("VGI-Max-Request-Bytes", "many"), ("VGI-Upload-URL-Support", "no"), ("Cache-Control", "max-age=")]);
        assert_eq!((Capabilities::of(&headers), Capabilities::announced(&headers)), (Capabilities::default(), None));
    }
}
