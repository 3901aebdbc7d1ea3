//! Custom metadata of a batch, and the keys of section 3.

use std::fmt;

/// The keys that the framework reserves (section 3).
pub mod key {
    macro_rules! keys {
        ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
            $($(#[$doc])* pub const $name: &[u8] = $value;)*

            /// Each key, with the name of its constant.
            pub const ALL: &[(&str, &[u8])] = &[$((stringify!($name), $name)),*];
        };
    }

    keys! {
        /// The method of a request.
        METHOD = b"vgi_rpc.method";
        /// The version of the protocol, in requests and descriptions.
        REQUEST_VERSION = b"vgi_rpc.request_version";
        /// The ID that correlates a request and its answers.
        REQUEST_ID = b"vgi_rpc.request_id";
        /// The W3C trace context.
        TRACEPARENT = b"traceparent";
        /// The W3C trace state.
        TRACESTATE = b"tracestate";
        /// The name of the client's shared memory segment.
        SHM_SEGMENT_NAME = b"vgi_rpc.shm_segment_name";
        /// The size of the client's shared memory segment.
        SHM_SEGMENT_SIZE = b"vgi_rpc.shm_segment_size";
        /// The level of a log or error batch.
        LOG_LEVEL = b"vgi_rpc.log_level";
        /// The text of a log or error batch.
        LOG_MESSAGE = b"vgi_rpc.log_message";
        /// The JSON of a log or error batch.
        LOG_EXTRA = b"vgi_rpc.log_extra";
        /// The server instance that answered.
        SERVER_ID = b"vgi_rpc.server_id";
        /// The token of a stream over HTTP, as bytes (the specification).
        STREAM_STATE = b"vgi_rpc.stream_state";
        /// The token of a stream over HTTP, in base64 (dialect 0.10).
        STREAM_STATE_B64 = b"vgi_rpc.stream_state#b64";
        /// The mark with which a client cancels a stream.
        CANCEL = b"vgi_rpc.cancel";
        /// The offset of a batch in the segment.
        SHM_OFFSET = b"vgi_rpc.shm_offset";
        /// The number of bytes of a batch in the segment.
        SHM_LENGTH = b"vgi_rpc.shm_length";
        /// The segment that a batch came from.
        SHM_SOURCE = b"vgi_rpc.shm_source";
        /// The URL of an external batch.
        LOCATION = b"vgi_rpc.location";
        /// The SHA-256 of the bytes at that URL, in hex.
        LOCATION_SHA256 = b"vgi_rpc.location.sha256";
        /// The duration of a fetch in milliseconds.
        LOCATION_FETCH_MS = b"vgi_rpc.location.fetch_ms";
        /// The origin of an external batch.
        LOCATION_SOURCE = b"vgi_rpc.location.source";
        /// The name of the protocol class.
        PROTOCOL_NAME = b"vgi_rpc.protocol_name";
        /// The version of the description.
        DESCRIBE_VERSION = b"vgi_rpc.describe_version";
        /// The SHA-256 over a description (dialect 0.10).
        PROTOCOL_HASH = b"vgi_rpc.protocol_hash";
    }
}

/// The version of the protocol that this crate speaks.
pub const REQUEST_VERSION: &[u8] = b"1";

/// Pairs of byte strings, in the order of the wire. Values need not be UTF-8.
///
/// Empty metadata and missing metadata are the same, because the protocol does not distinguish
/// them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Metadata {
    /// Make empty metadata.
    pub const fn new() -> Self {
        Self { pairs: Vec::new() }
    }

    /// Return whether there are no pairs.
    pub const fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Return the number of pairs.
    pub const fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Return the pairs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice()))
    }

    /// Return the first value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// Return the first value of a key, if it is UTF-8.
    pub fn text(&self, key: &[u8]) -> Option<&str> {
        self.get(key).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Return whether a key is present.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    /// Append a pair.
    pub fn push(&mut self, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.pairs.push((key.into(), value.into()));
    }

    /// Set the value of a key; replace all its pairs, or append one.
    pub fn set(&mut self, key: &[u8], value: impl Into<Vec<u8>>) {
        self.remove(key);
        self.push(key, value);
    }

    /// Remove all pairs of a key, and return its first value.
    pub fn remove(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let at = self.pairs.iter().position(|(name, _)| name == key)?;
        let (_, value) = self.pairs.remove(at);
        self.pairs.retain(|(name, _)| name != key);
        Some(value)
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        f.debug_map().entries(self.iter().map(|(key, value)| (text(key), text(value)))).finish()
    }
}

impl<K: Into<Vec<u8>>, V: Into<Vec<u8>>> FromIterator<(K, V)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self { pairs: pairs.into_iter().map(|(key, value)| (key.into(), value.into())).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_twice_has_its_first_value_and_goes_at_once() {
        let mut metadata: Metadata = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!(metadata.get(b"a"), Some(b"1".as_slice()));
        assert_eq!(metadata.remove(b"a"), Some(b"1".to_vec()));
        assert_eq!(metadata.iter().collect::<Vec<_>>(), [(b"b".as_slice(), b"2".as_slice())]);
        metadata.set(b"b", [0xFF]);
        assert_eq!((metadata.len(), metadata.text(b"b")), (1, None));
    }
}
