//! Keys: bearer keys and signed tokens (section 13, decision 1).
//!
//! A token is a JWT with HS256. This module verifies it without `jsonwebtoken`, whose version 11 panics without a
//! crypto provider: `rustcrypto` brings the advisory about RSA, `aws-lc` needs a build in C, and a provider is chosen
//! for the whole process, which belongs to the application.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use sha2::Sha256;

use crate::object::Object;
use crate::{Error, JobId, Now, Result};

/// Return the key of an `Authorization: Bearer KEY`; `None` if there is none.
pub fn bearer(authorization: Option<&str>) -> Option<&str> {
    let (scheme, key) = authorization?.trim().split_once(' ')?;
    let key = key.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

/// How far the clock of a token's signer may differ from the buffer's.
const LEEWAY: Duration = Duration::from_millis(LEEWAY_MS);
pub(crate) const LEEWAY_MS: u64 = 10_000;

/// The claims of a signed token.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claims {
    /// The job that the token may write.
    job_id: String,
    /// Its expiry, in seconds since the Unix epoch. RFC 7519 allows a fraction.
    exp: f64,
    /// When it becomes valid.
    #[serde(default)]
    nbf: f64,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

/// Return the expiry of a writeKey that is a signed token (a JWT, HS256 under `secret`), in milliseconds since the Unix
/// epoch; `None` for an ordinary key, which is not signed with this secret (section 13, decision 1).
///
/// Fails with [`Unauthorized`](crate::Code::Unauthorized) where the token is signed but belongs to another job, has
/// expired, is not valid yet, or expires more than `ttl` milliseconds from now, which is the longest lifetime of a job.
pub fn verify_jwt(token: &str, secret: &[u8], job: JobId, now: Now, ttl: u64) -> Result<Option<u64>> {
    // Anyone can sign with an empty secret.
    let Some(signed) = signed(token, secret).filter(|_| !secret.is_empty()) else { return Ok(None) };
    let claims = claims(signed).filter(|claims| claims.job_id == job.to_string()).ok_or_else(Error::unauthorized)?;
    let at = Duration::from_micros(now.unix_micros);
    let (soon, last) = (at + LEEWAY, at.saturating_add(Duration::from_millis(ttl)).saturating_add(LEEWAY));
    let until = Duration::try_from_secs_f64(claims.exp).map_err(|_| Error::unauthorized())?;
    if claims.nbf > soon.as_secs_f64() || until <= at || until > last {
        return Err(Error::unauthorized());
    }
    Ok(Some(u64::try_from(until.as_millis()).unwrap_or(u64::MAX)))
}

/// Return the signed part of a token, if the signature is valid.
fn signed<'a>(token: &'a str, secret: &[u8]) -> Option<&'a str> {
    let (signed, signature) = token.rsplit_once('.')?;
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret).ok()?;
    mac.update(signed.as_bytes());
    mac.verify_slice(&URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    Some(signed)
}

fn claims(signed: &str) -> Option<Claims> {
    let (header, claims) = signed.split_once('.')?;
    let Object(header): Object<Header> = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    let Object(claims) = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    (header.alg == "HS256").then_some(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";

    fn sign(header: &str, claims: &str, secret: &[u8]) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret).expect("any length");
        mac.update(signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    #[test]
    fn a_bearer_is_read_in_any_case_of_its_scheme() {
        assert_eq!(bearer(Some("Bearer abc")), Some("abc"));
        assert_eq!(bearer(Some(" bearer   a.b-c ")), Some("a.b-c"));
        for none in [None, Some(""), Some("Bearer"), Some("Bearer "), Some("Basic abc"), Some("abc")] {
            assert_eq!(bearer(none), None);
        }
    }

    #[test]
    fn a_token_counts_for_its_job_until_it_expires() {
        let job = JobId::parse(JOB).expect("valid");
        let now = Now { instant: std::time::Instant::now(), unix_micros: 1_000_000_000_000 };
        let hs256 = r#"{"alg":"HS256","typ":"JWT"}"#;
        let good = format!(r#"{{"jobId":"{JOB}","exp":1000001}}"#);
        let verify = |token: &str| verify_jwt(token, b"secret", job, now, 300_000);
        let code = |found: Result<Option<u64>>| found.map_err(|error| error.code());
        assert_eq!(verify(&sign(hs256, &good, b"secret")), Ok(Some(1_000_001_000)));
        let says = |fields: &str| format!(r#"{{"jobId":"{JOB}"{fields}}}"#);
        for right in [r#","exp":1000300.5"#, r#","exp":1000300,"nbf":1000005"#] {
            assert!(verify(&sign(hs256, &says(right), b"secret")).is_ok_and(|until| until.is_some()), "{right}");
        }
        let other = r#"{"jobId":"550e8400-e29b-41d4-a716-446655440001","exp":1000001}"#;
        for (header, claims) in [
            (hs256, says(r#","exp":1000000"#).as_str()),
            (hs256, &says(r#","exp":1000311"#)),
            (hs256, &says(r#","exp":1e300"#)),
            (hs256, &says(r#","exp":-1"#)),
            (hs256, &says(r#","exp":"1000001""#)),
            (hs256, &says(r#","exp":1000060,"nbf":1000050"#)),
            (hs256, &says(r#","exp":1000060,"nbf":"1""#)),
            (hs256, &says("")),
            (hs256, other),
            (r#"{"alg":"none"}"#, &good),
            (hs256, "[]"),
        ] {
            let found = code(verify(&sign(header, claims, b"secret")));
            assert_eq!(found, Err(crate::Code::Unauthorized), "{header} {claims}");
        }
        assert_eq!(verify_jwt(&sign(hs256, &good, b""), b"", job, now, 300_000), Ok(None), "a secret of nothing");
        for token in ["", ".", "..", "a.b.c", &sign(hs256, &good, b"other")] {
            assert_eq!(verify(token), Ok(None), "a key like others: {token}");
        }
    }
}
