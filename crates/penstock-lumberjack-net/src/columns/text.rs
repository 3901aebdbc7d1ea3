//! What is text, and what is JSON.

use serde::de::IgnoredAny;

use super::look::{self, Octets};

/// Whether the octets are a JSON object, in UTF-8, and nothing else.
pub(crate) fn is_object(octets: &[u8]) -> bool {
    match look::object(octets) {
        Some(Octets::Ascii) => true,
        Some(Octets::Beyond) => std::str::from_utf8(octets).is_ok(),
        None => looks_closer(octets),
    }
}

/// It has no recursion, and no memory for each value.
#[cold]
fn looks_closer(octets: &[u8]) -> bool {
    let begins = octets.iter().find(|octet| !matches!(octet, b' ' | b'\t' | b'\n' | b'\r')) == Some(&b'{');
    begins && std::str::from_utf8(octets).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Appends octets that are not UTF-8 so that nothing is lost: `\xNN` for what is no character, `\\` for a backslash.
pub(super) fn escape(octets: &[u8], into: &mut String) {
    for chunk in octets.utf8_chunks() {
        for (index, piece) in chunk.valid().split('\\').enumerate() {
            if index > 0 {
                into.push_str("\\\\");
            }
            into.push_str(piece);
        }
        for octet in chunk.invalid() {
            into.push_str("\\x");
            for digit in [octet >> 4, octet & 15] {
                into.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
            }
        }
    }
}
