//! Checks for JSON and UTF-8.

use serde::de::IgnoredAny;

use super::json_prescan::{self, Charset};

/// Return whether the bytes are exactly one JSON object in UTF-8.
pub(crate) fn is_object(bytes: &[u8]) -> bool {
    match json_prescan::object(bytes) {
        Some(Charset::Ascii) => true,
        Some(Charset::Utf8Unchecked) => std::str::from_utf8(bytes).is_ok(),
        None => looks_closer(bytes),
    }
}

/// Check with the full parser, which needs neither recursion nor memory per value.
#[cold]
fn looks_closer(bytes: &[u8]) -> bool {
    let begins = bytes.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')) == Some(&b'{');
    begins && std::str::from_utf8(bytes).is_ok_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok())
}

/// Append bytes that are not UTF-8 without loss: `\xNN` for an invalid byte, `\\` for a backslash.
pub(super) fn escape(bytes: &[u8], into: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for (index, piece) in chunk.valid().split('\\').enumerate() {
            if index > 0 {
                into.push_str("\\\\");
            }
            into.push_str(piece);
        }
        for byte in chunk.invalid() {
            into.push_str("\\x");
            for digit in [byte >> 4, byte & 15] {
                into.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
            }
        }
    }
}
