//! Log and error batches (section 8).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::metadata::{Metadata, key};

/// The level that makes a log batch an error.
pub const EXCEPTION: &str = "EXCEPTION";

/// A log message for the client: the content of a zero-row batch with `vgi_rpc.log_level`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// `ERROR`, `WARN`, `INFO`, `DEBUG` or `TRACE`; an unknown level is passed on.
    pub level: String,
    /// The text.
    pub message: String,
    /// A JSON object.
    pub extra: Option<String>,
    /// The server that wrote the message, as received by a client; a server adds its own ID when it
    /// sends one.
    pub server_id: Option<String>,
    /// The request to which the message belongs, under the same rule.
    pub request_id: Option<String>,
}

impl Log {
    /// Make a log message of this end.
    pub fn new(level: impl Into<String>, message: impl Into<String>, extra: Option<String>) -> Self {
        Self { level: level.into(), message: message.into(), extra, server_id: None, request_id: None }
    }

    /// Return the metadata of the message's batch.
    pub fn metadata(&self, server_id: &str, request_id: &str) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.push(key::LOG_LEVEL, self.level.as_bytes());
        metadata.push(key::LOG_MESSAGE, self.message.as_bytes());
        if let Some(extra) = &self.extra {
            metadata.push(key::LOG_EXTRA, extra.as_bytes());
        }
        for (name, value) in [(key::SERVER_ID, server_id), (key::REQUEST_ID, request_id)] {
            if !value.is_empty() {
                metadata.push(name, value.as_bytes());
            }
        }
        metadata
    }

    /// Read a batch's metadata; return `None` if a key is missing. Replace invalid UTF-8.
    pub fn from_metadata(metadata: &Metadata) -> Option<Self> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Self {
            level: text(metadata.get(key::LOG_LEVEL)?),
            message: text(metadata.get(key::LOG_MESSAGE)?),
            extra: metadata.get(key::LOG_EXTRA).map(text),
            server_id: metadata.get(key::SERVER_ID).map(text),
            request_id: metadata.get(key::REQUEST_ID).map(text),
        })
    }
}

/// The answer to a failed call: the exception of a method or of the framework.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The name of the exception's class.
    pub error_type: String,
    /// `"ValueError: boom"`.
    pub message: String,
    /// The traceback, or nothing.
    pub traceback: String,
    /// The JSON of section 8, as sent over the wire.
    pub extra: String,
    /// The request that failed, if known.
    pub request_id: String,
}

/// The JSON of an exception that no Python code raised.
#[derive(Serialize)]
struct Extra<'a> {
    exception_type: &'a str,
    exception_message: &'a str,
    traceback: &'a str,
    frames: [(); 0],
}

/// The fields of this JSON that a client reads.
#[derive(Default, Deserialize)]
struct Received {
    #[serde(default)]
    exception_type: Option<serde_json::Value>,
    #[serde(default)]
    traceback: Option<serde_json::Value>,
}

impl Failure {
    /// Make an exception of the framework.
    pub fn new(error_type: &str, message: &str) -> Self {
        let line = format!("{error_type}: {message}");
        let traceback = format!("{line}\n");
        let extra = Extra { exception_type: error_type, exception_message: message, traceback: &traceback, frames: [] };
        Self {
            error_type: error_type.to_owned(),
            message: line,
            extra: serde_json::to_string(&extra).unwrap_or_default(),
            traceback,
            request_id: String::new(),
        }
    }

    /// Return the metadata of the failure's batch.
    pub fn metadata(&self, server_id: &str, request_id: &str) -> Metadata {
        let extra = (!self.extra.is_empty()).then(|| self.extra.clone());
        Log::new(EXCEPTION, self.message.clone(), extra).metadata(server_id, request_id)
    }

    /// Convert an error batch for a client (section 8). Treat JSON that does not parse as missing.
    pub(crate) fn from_log(log: Log) -> Self {
        let extra = log.extra.unwrap_or_default();
        let received: Received = serde_json::from_str(&extra).unwrap_or_default();
        let text = |value: Option<serde_json::Value>| {
            value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        };
        Self {
            error_type: text(received.exception_type).unwrap_or(log.level),
            message: log.message,
            traceback: text(received.traceback).unwrap_or_default(),
            request_id: log.request_id.unwrap_or_default(),
            extra,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_of_an_exception_has_the_fields_of_section_8_in_order() {
        let failure = Failure::new("ValueError", "a \"b\"\n");
        assert_eq!(
            failure.extra,
            r#"{"exception_type":"ValueError","exception_message":"a \"b\"\n","traceback":"ValueError: a \"b\"\n\n","frames":[]}"#
        );
        assert_eq!(failure.message, "ValueError: a \"b\"\n");
    }

    #[test]
    fn what_is_sent_is_what_the_client_raises() {
        let failure = Failure::new("KeyError", "'x'");
        let metadata = failure.metadata("0123456789ab", "0123456789abcdef");
        let log = Log::from_metadata(&metadata).expect("both keys");
        assert_eq!(log.level, EXCEPTION);
        let received = Failure::from_log(log);
        assert_eq!(received, Failure { request_id: "0123456789abcdef".into(), ..failure });
        assert_eq!(metadata.text(key::SERVER_ID), Some("0123456789ab"));
    }

    #[test]
    fn without_json_the_level_is_the_type_and_there_is_no_traceback() {
        for extra in [None, Some("{"), Some("[]"), Some("{}"), Some("{\"exception_type\": null}")] {
            let log = Log::new(EXCEPTION, "boom", extra.map(Into::into));
            let received = Failure::from_log(log);
            assert_eq!((received.error_type.as_str(), received.traceback.as_str()), (EXCEPTION, ""), "{extra:?}");
        }
    }
}
