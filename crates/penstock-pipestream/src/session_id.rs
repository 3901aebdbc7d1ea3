//! The name of a session (decision 18).

mod parse;

use std::fmt;

use serde::{Deserialize, Serialize};

/// The bytes of a session ID.
const BYTES: usize = 16;

/// The 16 bytes that name a session. At layer 2 the client makes them from a secure random source, and the session
/// outlives its connection under this name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId([u8; BYTES]);

impl SessionId {
    /// Make the session ID of these bytes.
    pub const fn new(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// Return the bytes.
    pub const fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}
