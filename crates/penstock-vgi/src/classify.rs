//! The classification algorithm (section 7).

use crate::failure::{EXCEPTION, Failure, Log};
use crate::ipc::Batch;
use crate::metadata::{Metadata, key};

/// The class of a batch in a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Class {
    /// Data, or a zero-row batch without special metadata.
    Data,
    /// A message for the caller's `on_log`.
    Log(Log),
    /// The call has failed.
    Error(Failure),
    /// The batch is stored behind a URL (section 12).
    External,
    /// The batch is in shared memory (section 11).
    Shared,
    /// The stream continues with the token in this batch (section 10).
    State,
}

/// Classify a batch. Log keys take precedence: a zero-row batch with them is never a pointer.
pub fn classify(rows: usize, metadata: &Metadata) -> Class {
    if metadata.is_empty() || rows > 0 {
        return Class::Data;
    }
    if let Some(log) = Log::from_metadata(metadata) {
        return if log.level == EXCEPTION { Class::Error(Failure::from_log(log)) } else { Class::Log(log) };
    }
    let pointer = !metadata.contains(key::LOG_LEVEL);
    if pointer && metadata.contains(key::LOCATION) {
        Class::External
    } else if pointer && metadata.contains(key::SHM_OFFSET) {
        Class::Shared
    } else if metadata.contains(key::STREAM_STATE) || metadata.contains(key::STREAM_STATE_B64) {
        Class::State
    } else {
        Class::Data
    }
}

impl Batch {
    /// Return the class of this batch of a response.
    pub fn class(&self) -> Class {
        classify(self.rows, &self.metadata)
    }

    /// Return the reason why this batch cannot be used: it stands for another batch that was never
    /// fetched, and the empty batch that it looks like would be wrong data.
    pub(crate) fn unresolved(&self) -> Option<&'static str> {
        match self.class() {
            Class::External => Some(
                "The batch lies behind a URL (vgi_rpc.location), and this server fetches none: it has no external location",
            ),
            Class::Shared => {
                Some("The batch lies in shared memory (vgi_rpc.shm_offset), and this connection has no segment of it")
            }
            Class::Data | Class::Log(_) | Class::Error(_) | Class::State => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: usize, pairs: &[(&[u8], &str)]) -> Class {
        classify(rows, &pairs.iter().map(|(key, value)| (*key, value.as_bytes())).collect())
    }

    #[test]
    fn rows_or_no_metadata_are_data() {
        assert_eq!(of(0, &[]), Class::Data);
        assert_eq!(of(1, &[(key::LOG_LEVEL, "INFO"), (key::LOG_MESSAGE, "m")]), Class::Data);
        assert_eq!(of(1, &[(key::STREAM_STATE, "t")]), Class::Data);
        assert_eq!(of(0, &[(b"mine", "x")]), Class::Data);
        assert_eq!(of(0, &[(key::LOG_MESSAGE, "without a level")]), Class::Data);
    }

    #[test]
    fn log_keys_take_priority_over_pointers() {
        let log = Log::new("INFO", "m", None);
        for pointer in [key::SHM_OFFSET, key::LOCATION, key::STREAM_STATE] {
            assert_eq!(
                of(0, &[(pointer, "65536"), (key::LOG_LEVEL, "INFO"), (key::LOG_MESSAGE, "m")]),
                Class::Log(log.clone())
            );
        }
        assert_eq!(of(0, &[(key::SHM_OFFSET, "65536"), (key::LOG_LEVEL, "INFO")]), Class::Data);
    }

    #[test]
    fn an_exception_is_an_error_and_pointers_and_tokens_are_distinguished() {
        assert!(matches!(of(0, &[(key::LOG_LEVEL, "EXCEPTION"), (key::LOG_MESSAGE, "m")]), Class::Error(_)));
        assert_eq!(of(0, &[(key::LOCATION, "https://x/y")]), Class::External);
        assert_eq!(of(0, &[(key::SHM_OFFSET, "65536"), (key::SHM_LENGTH, "8")]), Class::Shared);
        assert_eq!(of(0, &[(key::STREAM_STATE, "t")]), Class::State);
        assert_eq!(of(0, &[(key::STREAM_STATE_B64, "t")]), Class::State);
    }
}
