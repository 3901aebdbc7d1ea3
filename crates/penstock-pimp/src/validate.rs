//! Parsing of input, and every rule that a buffer checks first (sections 5 and 7, decisions 1 to 10).

use std::fmt;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::envelope::Fields;
use crate::error::{Error, Malformed, Result};
use crate::limits::LONGEST_KEY;
use crate::object::Object;
use crate::{Envelope, JobId, Limits};

/// The longest that an empty poll is held open (decision 10).
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// The body of a write: one or more well-formed envelopes of the path's job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<'a>(Vec<Envelope<'a>>);

impl<'a> Batch<'a> {
    /// Parse a body and check every rule that does not depend on the job's state (section 7).
    ///
    /// Fails with [`Malformed`](crate::Code::Malformed) or [`TooLarge`](crate::Code::TooLarge), naming the field and
    /// the limit.
    pub fn decode(body: &'a [u8], job: JobId, limits: &Limits) -> Result<Self> {
        limits.body().check(body.len() as u64)?;
        let Object(Chunks { chunks }) = json(body)?;
        limits.envelopes().check(chunks.count())?;
        if chunks.count() == 0 {
            return Err(Malformed::NoChunks.into());
        }
        chunks.into_fields().map(|fields| fields.check(job, limits)).collect::<Result<_>>().map(Self)
    }

    /// Return the batch with owned memory.
    pub fn into_owned(self) -> Batch<'static> {
        Batch(self.0.into_iter().map(Envelope::into_owned).collect())
    }

    /// Return the envelopes, in the order of the body.
    pub fn envelopes(&self) -> &[Envelope<'a>] {
        &self.0
    }
}

#[derive(Deserialize)]
struct Chunks<'a> {
    #[serde(borrow)]
    chunks: BoundedEnvelopes<'a>,
}

/// The most envelopes that are kept in memory; further ones are only counted.
const MOST: usize = 65_536;

/// Envelopes as they are in JSON; if there are too many, only their number.
pub(crate) struct BoundedEnvelopes<'a> {
    fields: Vec<Fields<'a>>,
    beyond: u64,
}

impl<'a> BoundedEnvelopes<'a> {
    pub(crate) fn count(&self) -> u64 {
        (self.fields.len() as u64).saturating_add(self.beyond)
    }

    pub(crate) fn into_fields(self) -> impl Iterator<Item = Fields<'a>> {
        self.fields.into_iter()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for BoundedEnvelopes<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;

        impl<'de> Visitor<'de> for List {
            type Value = BoundedEnvelopes<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array of envelopes")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut bounded = BoundedEnvelopes { fields: Vec::new(), beyond: 0 };
                while bounded.fields.len() < MOST {
                    let Some(Object(fields)) = list.next_element()? else { return Ok(bounded) };
                    bounded.fields.push(fields);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    bounded.beyond += 1;
                }
                Ok(bounded)
            }
        }

        deserializer.deserialize_seq(List)
    }
}

/// Read a body that is JSON in UTF-8. Without this check, strings that serde skips would not be validated.
pub(crate) fn json<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    let text = std::str::from_utf8(body).map_err(Malformed::BodyText)?;
    serde_json::from_str(text).map_err(|error| Malformed::Body { reason: error.to_string() }.into())
}

/// Reject a body whose type is not JSON. A body without a type counts as JSON.
pub(crate) fn content_type(value: Option<&str>) -> Result<()> {
    let essence = value.map(|value| value.split(';').next().unwrap_or_default().trim());
    if essence.is_none_or(|essence| essence.eq_ignore_ascii_case("application/json")) {
        return Ok(());
    }
    Err(Error::ContentType)
}

impl Batch<'_> {
    /// Reject a `Content-Type` that is not JSON on a write or a creation: 415.
    pub fn check_content_type(value: Option<&str>) -> Result<()> {
        content_type(value)
    }
}

/// The body of a PUT: the consumer's settings of the job (decisions 1 and 11). All fields are optional.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Creation {
    /// The lifetime of the job in milliseconds; the longest if not set.
    pub ttl_ms: Option<u64>,
    /// The key that readers need.
    pub read_key: Option<String>,
    /// The new writeKey, in a takeover.
    pub write_key: Option<String>,
}

impl fmt::Debug for Creation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Creation").field("ttl_ms", &self.ttl_ms).finish_non_exhaustive()
    }
}

impl Creation {
    /// Read a body, which may be empty. Fails with [`Malformed`](crate::Code::Malformed), naming the field.
    pub fn decode(body: &[u8], limits: &Limits) -> Result<Self> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let Object(creation): Object<Self> = json(body)?;
        if creation.ttl_ms.is_some_and(|ttl| ttl == 0 || ttl > limits.ttl) {
            return Err(Malformed::Ttl { limit: limits.ttl }.into());
        }
        for (field, key) in [("readKey", &creation.read_key), ("writeKey", &creation.write_key)] {
            if key.as_ref().is_some_and(|key| !is_key(key)) {
                return Err(Malformed::Key { field }.into());
            }
        }
        Ok(creation)
    }
}

/// Return whether a header can carry the key as a bearer token.
pub(crate) fn is_key(key: &str) -> bool {
    !key.is_empty() && key.len() <= LONGEST_KEY && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The query of a poll (section 9, decisions 8 and 10).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Query {
    /// The first index wanted; 0 if not set.
    pub from: u64,
    /// The most chunks wanted; all if not set.
    pub limit: Option<u64>,
    /// How long an empty poll is held open; not at all if not set.
    pub wait: Duration,
}

impl Query {
    /// Parse the part after the `?`. Unknown parameters are ignored.
    ///
    /// Fails with [`Malformed`](crate::Code::Malformed) where a number is invalid, or occurs twice.
    pub fn decode(query: Option<&str>) -> Result<Self> {
        let mut found: [(&'static str, Option<u64>); 3] = [("from", None), ("limit", None), ("wait", None)];
        for pair in query.unwrap_or_default().split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = percent_decode_str(name).decode_utf8_lossy();
            let Some((name, slot)) = found.iter_mut().find(|(known, _)| *known == name) else { continue };
            if slot.replace(number(name, value)?).is_some() {
                return Err(Malformed::Repeated { name }.into());
            }
        }
        let [(_, from), (_, limit), (_, wait)] = found;
        if limit == Some(0) {
            return Err(Malformed::NoLimit.into());
        }
        let wait = Duration::from_millis(wait.unwrap_or(0)).min(LONGEST_WAIT);
        Ok(Self { from: from.unwrap_or(0), limit, wait })
    }
}

fn number(name: &'static str, value: &str) -> Result<u64, Malformed> {
    let value = percent_decode_str(value).decode_utf8_lossy();
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| value.parse().ok()).flatten().ok_or(Malformed::Number { name })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn a_query_has_integers_and_each_once() {
        let decode = |query| Query::decode(Some(query));
        assert_eq!(Query::decode(None), Ok(Query::default()));
        assert_eq!(decode("from=7&x=y"), Ok(Query { from: 7, ..Query::default() }));
        assert_eq!(decode("from=%37&limit=2").map(|query| (query.from, query.limit)), Ok((7, Some(2))));
        assert_eq!(decode("wait=99999").map(|query| query.wait), Ok(Duration::from_secs(30)));
        let wrong = [
            "from",
            "from=",
            "from=-1",
            "from=1.0",
            "from=+1",
            "from=x",
            "from=1&from=1",
            "limit=0",
            "wait=soon",
            "from=99999999999999999999",
        ];
        for query in wrong {
            assert_eq!(decode(query).map_err(|error| error.code()), Err(Code::Malformed), "{query}");
        }
    }

    #[test]
    fn a_creation_may_be_empty_and_its_fields_have_bounds() {
        let decode = |body: &str| Creation::decode(body.as_bytes(), &Limits::default());
        assert_eq!(decode(""), Ok(Creation::default()));
        assert_eq!(
            decode(r#"{"ttlMs":300000,"readKey":"r","x":1}"#).map(|creation| creation.ttl_ms),
            Ok(Some(300_000))
        );
        let wrong = [
            "[]",
            "{",
            r#"{"ttlMs":0}"#,
            r#"{"ttlMs":300001}"#,
            r#"{"ttlMs":1.5}"#,
            r#"{"ttlMs":"1"}"#,
            r#"{"readKey":""}"#,
            r#"{"readKey":"a b"}"#,
            r#"{"writeKey":"é"}"#,
            r#"{"ttlMs":1,"ttlMs":1}"#,
            "[1]",
        ];
        for body in wrong {
            assert_eq!(decode(body).map_err(|error| error.code()), Err(Code::Malformed), "{body}");
        }
    }

    #[test]
    fn a_body_is_json_by_its_type_or_has_none() {
        for right in [None, Some("application/json"), Some("Application/JSON; charset=utf-8")] {
            assert_eq!(content_type(right), Ok(()));
        }
        for wrong in ["text/json", "", "application/x-www-form-urlencoded"] {
            assert_eq!(content_type(Some(wrong)), Err(Error::ContentType));
        }
    }
}
