//! The headers of a mail and of its parts: what they declare about the content, and what becomes metadata.

use std::collections::BTreeMap;

use mail_parser::{Address, ContentType, HeaderName, HeaderValue, MessageParser, MimeHeaders};

use super::transfer::Encoding;
use crate::name;

/// The maximum number of bytes of one header that become metadata.
const MAX_VALUE: usize = 32 * 1024;
/// Bytes that are not UTF-8 pass through the library as the private-use characters that begin here, because the
/// library would replace all of them by the same character.
const PRIVATE: u32 = 0x10_ff00;

/// The declarations of a block of headers about the content after it.
#[derive(Default)]
pub(crate) struct Headers {
    /// The type and subtype in lower case, with a slash.
    pub(crate) media_type: Option<String>,
    pub(crate) boundary: Option<String>,
    pub(crate) charset: Option<String>,
    pub(crate) file_name: Option<String>,
    pub(crate) content_id: Option<String>,
    pub(crate) encoding: Encoding,
    /// Subject, from, to, cc, date, message-id.
    pub(crate) metadata: BTreeMap<String, String>,
}

impl Headers {
    /// Parse a block of headers without the blank line after it.
    pub(crate) fn decode(bytes: &[u8], name_limit: usize) -> Self {
        let mut block = escape(bytes);
        block.push_str("\r\n\r\n");
        let Some(message) = MessageParser::new().parse_headers(block.as_bytes()) else { return Self::default() };
        let Some(part) = message.parts.first() else { return Self::default() };
        let mut headers = Self::default();
        if let Some(content) = part.content_type() {
            headers.take_content_type(content);
        }
        headers.encoding = part.content_transfer_encoding().map(Encoding::named).unwrap_or_default();
        headers.content_id = part.content_id().map(|id| bounded(id, MAX_VALUE));
        headers.file_name =
            part.attachment_name().map(|name| bounded(name, name_limit)).filter(|name| !name.is_empty());
        let texts = [
            ("mail.subject", HeaderName::Subject),
            ("mail.from", HeaderName::From),
            ("mail.to", HeaderName::To),
            ("mail.cc", HeaderName::Cc),
            ("mail.date", HeaderName::Date),
            ("mail.message-id", HeaderName::MessageId),
        ];
        for (key, header) in texts {
            if let Some(text) = message.header(header).and_then(text) {
                headers.metadata.insert(key.to_owned(), bounded(&text, MAX_VALUE));
            }
        }
        headers
    }

    fn take_content_type(&mut self, content: &ContentType<'_>) {
        if let Some(subtype) = content.subtype() {
            let media_type = format!("{}/{subtype}", content.ctype()).to_ascii_lowercase();
            self.media_type = Some(media_type).filter(|media_type| media_type.len() <= 255);
        }
        self.boundary = content.attribute("boundary").map(str::to_owned).filter(|boundary| !boundary.is_empty());
        self.charset = content.attribute("charset").map(str::to_owned);
    }

    /// Return the boundary between the parts, if these are the headers of a multipart.
    pub(crate) fn multipart(&self) -> Option<&str> {
        self.boundary.as_deref().filter(|_| self.is_multipart())
    }

    pub(crate) fn is_multipart(&self) -> bool {
        self.media_type.as_deref().is_some_and(|media_type| media_type.starts_with("multipart/"))
    }
}

fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + 4);
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().filter_map(|&byte| char::from_u32(PRIVATE + u32::from(byte))));
    }
    text
}

/// Return `text`, cut at `limit`, with the bytes that [`escape`] hid written as `\xhh`.
fn bounded(text: &str, limit: usize) -> String {
    let mut bytes = Vec::with_capacity(text.len().min(limit));
    for c in text.chars() {
        match u8::try_from(u32::from(c).wrapping_sub(PRIVATE)) {
            Ok(byte) => bytes.push(byte),
            Err(_) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        if bytes.len() > limit {
            break;
        }
    }
    name::decode(&bytes, limit)
}

fn text(value: &HeaderValue<'_>) -> Option<String> {
    match value {
        HeaderValue::Text(text) => Some(text.clone().into_owned()),
        HeaderValue::TextList(list) => Some(list.join(", ")),
        HeaderValue::Address(address) => Some(addresses(address)),
        HeaderValue::DateTime(date) => Some(date.to_rfc3339()).filter(|_| date.is_valid()),
        HeaderValue::ContentType(_) | HeaderValue::Received(_) | HeaderValue::Empty => None,
    }
}

fn addresses(list: &Address<'_>) -> String {
    let mut text = String::new();
    for address in list.iter() {
        if !text.is_empty() {
            text.push_str(", ");
        }
        match (&address.name, &address.address) {
            (Some(name), Some(address)) => text.push_str(&format!("{name} <{address}>")),
            (Some(only), None) | (None, Some(only)) => text.push_str(only),
            (None, None) => {}
        }
        if text.len() > MAX_VALUE {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_words_and_parameters_are_decoded() {
        let block = b"Subject: =?iso-8859-1?Q?caf=E9?=\r\nFrom: \"A, B\" <a@example.org>, c@example.org\r\n\
            Date: Mon, 1 Jun 2026 10:00:00 +0200\r\nMessage-ID: <1@example.org>\r\n\
            Content-Type: Text/Plain; charset=\"utf-8\";\r\n name*=utf-8''h%C3%B6he.txt\r\n\
            Content-Transfer-Encoding: Base64";
        let headers = Headers::decode(block, 4096);
        let metadata = |key: &str| headers.metadata.get(key).map(String::as_str);
        assert_eq!(metadata("mail.subject"), Some("café"));
        assert_eq!(metadata("mail.from"), Some("A, B <a@example.org>, c@example.org"));
        assert_eq!(metadata("mail.date"), Some("2026-06-01T10:00:00+02:00"));
        assert_eq!(metadata("mail.message-id"), Some("1@example.org"));
        assert_eq!(headers.media_type.as_deref(), Some("text/plain"));
        assert_eq!(headers.charset.as_deref(), Some("utf-8"));
        assert_eq!(headers.file_name.as_deref(), Some("höhe.txt"));
        assert_eq!(headers.encoding, Encoding::Base64);
    }

    #[test]
    fn raw_bytes_in_a_file_name_are_written_in_hex() {
        let headers = Headers::decode(b"Content-Disposition: attachment; filename=\"caf\xe9.txt\"", 4096);
        assert_eq!(headers.file_name.as_deref(), Some(r"caf\xe9.txt"));
    }
}
