use super::{BYTES, SessionId};
use crate::error::{Error, Malformed, Result};

impl SessionId {
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
