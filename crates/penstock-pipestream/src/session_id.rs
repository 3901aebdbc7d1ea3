//! The name of a session (decision 18).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Malformed, Result};

/// How many bytes a session ID has.
const BYTES: usize = 16;

/// The 16 bytes that name a session. At layer 2 the client makes them from a secure random source, and the session
/// outlives its connection under this name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId([u8; BYTES]);

impl SessionId {
    /// Return the session of these bytes.
    pub const fn new(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// Return the bytes.
    pub const fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// Parse exactly 32 digits of lower-case hex; anything else is ENTITY_INVALID.
    pub fn parse(text: &str) -> Result<Self> {
        let invalid = || Error::from(Malformed::SessionId { length: text.len() });
        let (pairs, odd) = text.as_bytes().as_chunks::<2>();
        let mut bytes = [0; BYTES];
        if pairs.len() != BYTES || !odd.is_empty() {
            return Err(invalid());
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low).ok_or_else(invalid)?;
        }
        Ok(Self(bytes))
    }
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn an_id_is_32_digits_of_lower_case_hex_and_nothing_else() {
        let text = "000102030405060708090a0b0c0d0eff";
        let id = SessionId::parse(text).expect("valid");
        assert_eq!((id.to_string().as_str(), id.bytes()[15]), (text, 0xFF));
        for bad in ["", "00", &text[1..], &format!("{text}0"), &text.to_uppercase(), &text.replace('f', "g")] {
            assert_eq!(SessionId::parse(bad).expect_err("refused").code(), ErrorCode::EntityInvalid, "{bad}");
        }
    }
}
