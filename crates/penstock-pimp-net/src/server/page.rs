//! The page that shows a job as it arrives, and its module, which other pages and Node import.
//!
//! The page has its key in the URL's fragment, so the key is not sent to the buffer. Its scripts carry a nonce that is
//! new each time: nothing in a job can run as a script, although it has the same origin.

use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use penstock_io::{hex, tls};
use penstock_pimp::Limits;

use super::answer;
use super::body::ResponseBody;
use super::refused::Refused;

const PAGE: &str = include_str!("../web/page.html");
const SCRIPT: &str = "text/javascript; charset=utf-8";
/// The files next to the page: path, type and content.
const FILES: [(&str, &str, &str); 4] = [
    ("/pimp.js", SCRIPT, include_str!("../web/pimp.js")),
    ("/page.js", SCRIPT, include_str!("../web/page.js")),
    ("/views.js", SCRIPT, include_str!("../web/views.js")),
    ("/page.css", "text/css; charset=utf-8", include_str!("../web/page.css")),
];
/// The placeholder for the nonce in the page.
const NONCE: &str = "NONCE";
/// The placeholder for this buffer's limits, so that the page does not reject what was written.
const LIMITS: &str = "LIMITS";

/// Respond to a request for the page or one of its files; `None` for any other path.
pub(super) fn respond(parts: &Parts, limits: &Limits) -> Option<Result<Response<ResponseBody>, Refused>> {
    let path = parts.uri.path();
    let file = FILES.iter().find(|(name, _, _)| *name == path);
    if file.is_none() && path != "/" {
        return None;
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Some(Err(Refused::Method("GET, HEAD")));
    }
    Some(file.map_or_else(|| page(limits), |(_, kind, text)| Ok(whole(kind, (*text).to_owned()))))
}

fn page(limits: &Limits) -> Result<Response<ResponseBody>, Refused> {
    let nonce = nonce()?;
    let Limits { job, chunks, value, .. } = limits;
    let limits = serde_json::json!({"job": job, "chunks": chunks, "value": value}).to_string();
    let mut response = whole("text/html; charset=utf-8", PAGE.replace(NONCE, &nonce).replace(LIMITS, &limits));
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; img-src blob:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    );
    answer::set(response.headers_mut(), CONTENT_SECURITY_POLICY, &policy);
    Ok(response)
}

fn whole(kind: &'static str, text: String) -> Response<ResponseBody> {
    let mut response = answer::bytes(StatusCode::OK, text.into_bytes());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin"));
    response
}

/// Return a random nonce in hex.
fn nonce() -> crate::Result<String> {
    Ok(hex::encode(tls::random::<16>()?))
}
