//! Chunk 0: the metadata of a job (section 4).

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Malformed, Result, Unwritable};
use crate::object::Object;

/// How the values of chunks hold bytes (section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentEncoding {
    /// Values are the text itself.
    Identity,
    /// Values are Base64 (RFC 4648 section 4).
    Base64,
}

/// How the payload was compressed before it was cut into chunks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not compressed.
    #[default]
    None,
    /// gzip (RFC 1952).
    Gzip,
}

/// The value of chunk 0.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// The payload's MIME type.
    pub content_type: String,
    /// How values hold bytes.
    pub content_encoding: ContentEncoding,
    /// How the payload was compressed.
    #[serde(default)]
    pub compression: Compression,
    /// Bytes of the payload as it is reassembled, before it is decompressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_length: Option<u64>,
    /// A JSON object of the application, which is passed on unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<RawValue>>,
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        let text = |metadata: &Self| metadata.meta.as_ref().map(|meta| meta.get().to_owned());
        (&self.content_type, self.content_encoding, self.compression, self.content_length, text(self))
            == (&other.content_type, other.content_encoding, other.compression, other.content_length, text(other))
    }
}

/// The longest MIME type.
const CONTENT_TYPE: usize = 255;

impl Metadata {
    /// Read the value of chunk 0. Fails with [`Malformed`](crate::Code::Malformed), naming the field.
    pub fn decode(value: &str) -> Result<Self> {
        let wrong = |error: serde_json::Error| Malformed::Metadata { reason: error.to_string() };
        let Object(metadata): Object<Self> = serde_json::from_str(value).map_err(wrong)?;
        if !is_mime(&metadata.content_type) {
            return Err(Malformed::ContentType.into());
        }
        if metadata.meta.as_ref().is_some_and(|meta| !meta.get().starts_with('{')) {
            return Err(Malformed::Meta.into());
        }
        Ok(metadata)
    }

    /// Write the value of chunk 0.
    pub fn encode(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Unwritable::Metadata { reason: error.to_string() }.into())
    }
}

/// Return whether a text can be a header's value and has a type and a subtype.
pub(crate) fn is_mime(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim();
    let parts = essence.split_once('/');
    let token = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
    text.len() <= CONTENT_TYPE
        && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && parts.is_some_and(|(kind, subtype)| token(kind) && token(subtype))
}

/// Return whether a payload of this type is text, which is sent unencoded (section 3).
pub fn is_textual(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn metadata_needs_its_two_fields_and_keeps_meta_as_it_is_written() {
        let text = r#"{"contentType":"image/png","contentEncoding":"base64","meta":{"n":1.50,"n":[]},"other":1}"#;
        let metadata = Metadata::decode(text).expect("valid");
        assert_eq!(metadata.content_encoding, ContentEncoding::Base64);
        assert_eq!((metadata.compression, metadata.content_length), (Compression::None, None));
        let again = metadata.encode().expect("writable");
        assert!(again.contains(r#""meta":{"n":1.50,"n":[]}"#), "{again}");
        assert_eq!(Metadata::decode(&again), Ok(metadata));
    }

    #[test]
    fn wrong_metadata_is_malformed_and_named() {
        let wrong = [
            ("", "EOF"),
            ("[\"a/b\",\"base64\"]", "an object"),
            (r#"{"contentEncoding":"base64"}"#, "contentType"),
            (r#"{"contentType":"a/b"}"#, "contentEncoding"),
            (r#"{"contentType":"a/b","contentEncoding":"hex"}"#, "hex"),
            (r#"{"contentType":"a/b","contentEncoding":"base64","compression":"br"}"#, "br"),
            (r#"{"contentType":"a/b","contentEncoding":"base64","contentLength":-1}"#, "-1"),
            (r#"{"contentType":"a/b","contentEncoding":"base64","contentLength":1.5}"#, "1.5"),
            (r#"{"contentType":"a/b","contentType":"a/b","contentEncoding":"base64"}"#, "duplicate"),
        ];
        for (text, named) in wrong {
            let error = Metadata::decode(text).expect_err(text);
            let names = |reason: &str| reason.contains(named);
            assert!(matches!(&error, Error::Malformed(Malformed::Metadata { reason }) if names(reason)), "{error}");
        }
        for (text, malformed) in [
            (r#"{"contentType":"a/b","contentEncoding":"base64","meta":[]}"#, Malformed::Meta),
            (r#"{"contentType":"ab","contentEncoding":"base64"}"#, Malformed::ContentType),
            ("{\"contentType\":\"a/b\\r\\nx: y\",\"contentEncoding\":\"base64\"}", Malformed::ContentType),
        ] {
            assert_eq!(Metadata::decode(text), Err(malformed.into()), "{text}");
        }
    }

    #[test]
    fn text_types_are_those_of_section_3() {
        for textual in ["text/plain", "Text/CSV; charset=utf-8", "application/json", "application/ld+json"] {
            assert!(is_textual(textual), "{textual}");
        }
        for other in ["application/jsonx", "application/octet-stream", "image/svg+json", "textual/x"] {
            assert!(!is_textual(other), "{other}");
        }
    }
}
