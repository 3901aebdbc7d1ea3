//! data: URIs (RFC 2397), with which HTML embeds content.

use data_url::DataUrl;

use crate::child::Hint;
use crate::failure::Failure;

const SCHEME: &str = "data:";

/// Decode a data: URI; `None` if `uri` is not one.
pub(crate) fn decode(uri: &str) -> Option<(Hint, Result<Vec<u8>, Failure>)> {
    let url = DataUrl::process(uri).ok()?;
    let mime = url.mime_type();
    let hint = Hint {
        media_type: Some(format!("{}/{}", mime.type_, mime.subtype).to_ascii_lowercase()),
        charset: mime.get_parameter("charset").map(str::to_owned),
        mail: false,
    };
    let bytes = url.decode_to_vec().map(|(bytes, _)| bytes);
    Some((hint, bytes.map_err(|_| Failure::broken("the embedded data is not valid base64"))))
}

/// Return whether `value` begins like a data: URI.
pub(crate) fn is_data(value: &str) -> bool {
    value.trim_start().get(..SCHEME.len()).is_some_and(|start| start.eq_ignore_ascii_case(SCHEME))
}

/// Call `found` with each data: URI in a style sheet or a list of images. A URI in quotes ends at the quote, one in
/// parentheses at the parenthesis, any other at white space.
pub(crate) fn scan(text: &str, mut found: impl FnMut(&str)) {
    let mut from = 0;
    while let Some(at) = next(text, from) {
        let before = text.get(..at).and_then(|before| before.chars().next_back());
        let rest = text.get(at..).unwrap_or_default();
        let end = match before {
            Some(quote @ ('"' | '\'')) => rest.find(quote),
            Some('(') => rest.find(')'),
            _ => rest.find(char::is_whitespace),
        };
        let end = end.unwrap_or(rest.len());
        if before.is_none_or(|c| matches!(c, '"' | '\'' | '(' | ',') || c.is_whitespace()) {
            found(rest.get(..end).unwrap_or_default());
        }
        from = at + end.max(SCHEME.len());
    }
}

fn next(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes().get(from..)?;
    let at = bytes.windows(SCHEME.len()).position(|window| window.eq_ignore_ascii_case(SCHEME.as_bytes()))?;
    Some(from + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_end_where_their_surroundings_do() {
        let mut all = Vec::new();
        let css = "a{b:url(data:x,1)} c{d:url(\"data:y,(2)\")} metadata: no";
        scan(css, |uri| all.push(uri.to_owned()));
        scan("data:z,3 2x, DATA:w;base64,NA== 3x", |uri| all.push(uri.to_owned()));
        assert_eq!(all, ["data:x,1", "data:y,(2)", "data:z,3", "DATA:w;base64,NA=="]);
    }

    #[test]
    fn what_is_declared_comes_as_a_hint() {
        let (hint, bytes) = decode("data:text/CSV;charset=latin1,a%2Cb").unwrap();
        assert_eq!((hint.media_type.as_deref(), hint.charset.as_deref()), (Some("text/csv"), Some("latin1")));
        assert_eq!(bytes.unwrap(), b"a,b");
        assert!(decode("data:;base64,!").unwrap().1.is_err());
        assert!(decode("data:nothing").is_none());
    }
}
