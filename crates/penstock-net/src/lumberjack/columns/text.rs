//! What is text, and what is JSON.

use serde::de::IgnoredAny;

/// The octets as text, if they are a JSON object and nothing else.
pub(crate) fn object(octets: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(octets).ok()?;
    let begins = text.trim_start_matches([' ', '\t', '\n', '\r']).starts_with('{');
    // It only looks, without recursion and without memory for each value.
    let parses = begins && serde_json::from_str::<IgnoredAny>(text).is_ok();
    parses.then_some(text)
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
