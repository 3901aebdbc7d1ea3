//! The request by which a consumer asks a sender for a job (section 6).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::JobId;
use crate::error::{Malformed, Result};
use crate::object::Object;
use crate::validate::{is_key, json};

/// The body of a trigger request.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// The ID of the job, which the consumer has made.
    pub job_id: String,
    /// The URL to which the sender posts the chunks.
    pub write_url: String,
    /// The key for writing the chunks.
    pub write_key: String,
    /// A JSON object for the application.
    pub payload: Box<RawValue>,
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trigger").field("job_id", &self.job_id).finish_non_exhaustive()
    }
}

impl Trigger {
    /// Parse a body; unknown fields are ignored. The host of writeUrl is not checked here.
    ///
    /// Fails with [`Malformed`](crate::Code::Malformed), naming the field.
    pub fn decode(body: &[u8]) -> Result<Self> {
        let Object(trigger): Object<Self> = json(body)?;
        JobId::parse(&trigger.job_id).ok_or(Malformed::JobId)?;
        if !is_key(&trigger.write_key) {
            return Err(Malformed::TriggerKey.into());
        }
        if !trigger.payload.get().starts_with('{') {
            return Err(Malformed::TriggerPayload.into());
        }
        Ok(trigger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";

    fn body(field: &str, value: &str) -> String {
        let mut fields = vec![
            ("jobId", format!("{JOB:?}")),
            ("writeUrl", r#""https://buffer.example/pimp""#.to_owned()),
            ("writeKey", r#""secret""#.to_owned()),
            ("payload", r#"{"page":[7]}"#.to_owned()),
        ];
        fields.retain(|(name, _)| *name != field);
        fields.push((field, value.to_owned()));
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name:?}:{value}")).collect();
        format!("{{{}}}", fields.join(","))
    }

    #[test]
    fn a_request_is_read_and_its_key_is_not_shown() {
        let trigger = Trigger::decode(body("more", "[1]").as_bytes()).expect("valid");
        assert_eq!((trigger.job_id.as_str(), trigger.payload.get()), (JOB, r#"{"page":[7]}"#));
        assert!(!format!("{trigger:?}").contains("secret"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = [
            ("jobId", "\"none\""),
            ("jobId", "7"),
            ("writeUrl", "null"),
            ("writeKey", "\"\""),
            ("writeKey", "\"a b\\n\""),
            ("payload", "[]"),
            ("payload", "null"),
            ("payload", "\"text\""),
        ];
        for (field, value) in wrong {
            let error = Trigger::decode(body(field, value).as_bytes()).expect_err(value);
            assert_eq!(error.code(), Code::Malformed, "{field} {value}: {error}");
        }
        for body in ["", "[]", "{}", "{\"jobId\":"] {
            assert!(Trigger::decode(body.as_bytes()).is_err(), "{body}");
        }
    }
}
