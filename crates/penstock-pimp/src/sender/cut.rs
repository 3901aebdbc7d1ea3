//! The cutting of values from the waiting bytes.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::ContentEncoding;

/// Return the next value and how many bytes it consumes; `None` if the rest must wait for more bytes.
pub(super) fn cut(
    rest: &[u8],
    whole: usize,
    encoding: ContentEncoding,
    end: bool,
) -> Option<(Cow<'static, str>, usize)> {
    let most = rest.get(..whole).unwrap_or(rest);
    let bytes = match encoding {
        // A chunk never splits a code point (decision 4).
        ContentEncoding::Identity => match std::str::from_utf8(most) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        },
        // Except for the last chunk, chunks hold a multiple of 3 bytes (decision 5).
        ContentEncoding::Base64 if end && rest.len() <= whole => most.len(),
        ContentEncoding::Base64 => most.len() / 3 * 3,
    };
    let taken = most.get(..bytes).filter(|taken| !taken.is_empty())?;
    let value = match encoding {
        ContentEncoding::Identity => std::str::from_utf8(taken).ok()?.to_owned(),
        ContentEncoding::Base64 => STANDARD.encode(taken),
    };
    Some((Cow::Owned(value), bytes))
}
