//! Determines the type of bytes: by marks at their beginning, then by structure, then by whether they are text at all.

use encoding_rs::{Encoding, UTF_8};

use crate::child::Hint;
use crate::stream::Codec;
use crate::{charset, html, mail, mbox, pdf, tar, xml};

/// The number of bytes at a part's beginning that are examined.
pub(crate) const HEAD: usize = 64 * 1024;

/// The format of a part, as far as its beginning shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Zip,
    Tar,
    Stream(Codec),
    Mbox,
    Mail,
    Pdf,
    /// The MIME type: HTML or XHTML.
    Html(&'static str),
    /// The MIME type; `false` if the part is XML only if it is complete and well-formed.
    Xml(&'static str, bool),
    /// Some other text.
    Text,
    /// A MIME type known by its mark, or `None`.
    Binary(Option<&'static str>),
}

/// Return the format of a part that begins with `head`. The hint counts only where the bytes are ambiguous.
pub(crate) fn format(head: &[u8], hint: &Hint) -> Format {
    if let Some(format) = marked(head) {
        return format;
    }
    if mbox::is_mbox(head) {
        return Format::Mbox;
    }
    if mail::is_mail(head) || (hint.mail && mail::begins_with_header(head)) {
        return Format::Mail;
    }
    let Some(text) = text(head, hint) else {
        return Format::Binary(infer::get(head).map(|kind| kind.mime_type()).filter(|kind| !is_container(kind)));
    };
    if let Some(kind) = text_mark(&text) {
        return Format::Binary(Some(kind));
    }
    let declared_html = hint.media_type.as_deref() == Some("text/html");
    match (html::detect(&text), xml::detect(&text)) {
        (Some(media_type), _) => Format::Html(media_type),
        (None, Some((media_type, declared))) => Format::Xml(media_type, declared),
        (None, None) if declared_html => Format::Html("text/html"),
        (None, None) => Format::Text,
    }
}

/// Return the format that a mark at the beginning identifies.
fn marked(head: &[u8]) -> Option<Format> {
    let starts = |mark: &[u8]| head.starts_with(mark);
    let bzip2_block = || {
        let block = head.get(4..10);
        block == Some(&[0x31, 0x41, 0x59, 0x26, 0x53, 0x59]) || block == Some(&[0x17, 0x72, 0x45, 0x38, 0x50, 0x90])
    };
    if starts(b"PK\x03\x04") || starts(b"PK\x05\x06") || starts(b"PK\x07\x08PK\x03\x04") || starts(b"PK00PK\x03\x04") {
        Some(Format::Zip)
    } else if starts(b"\x1f\x8b\x08") {
        Some(Format::Stream(Codec::Gzip))
    } else if starts(b"BZh") && matches!(head.get(3), Some(b'1'..=b'9')) && bzip2_block() {
        Some(Format::Stream(Codec::Bzip2))
    } else if starts(b"\xfd7zXZ\x00") {
        Some(Format::Stream(Codec::Xz))
    } else if is_zstd(head) {
        Some(Format::Stream(Codec::Zstd))
    } else if tar::is_header(head) {
        Some(Format::Tar)
    } else if pdf::is_pdf(head) {
        Some(Format::Pdf)
    } else {
        None
    }
}

/// Return whether this is a zstd frame, possibly after skippable frames (RFC 8878, 3.1), which alone would not
/// distinguish zstd from lz4.
fn is_zstd(mut head: &[u8]) -> bool {
    while let [0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d, ..] = *head {
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let Some(rest) = head.get(8..).and_then(|rest| rest.get(length..)) else { return false };
        head = rest;
    }
    head.starts_with(b"\x28\xb5\x2f\xfd")
}

/// Return the beginning as text, if it is text: no control characters except those of plain text, and UTF-16 only if a
/// byte order mark or the container says so. A byte beyond ASCII can be a letter in some charset; the charset is
/// determined later, from the whole part.
fn text(head: &[u8], hint: &Hint) -> Option<String> {
    let declared = hint.charset.as_deref().and_then(charset::label);
    let wide = declared.filter(|encoding| !encoding.is_ascii_compatible() && encoding.name().starts_with("UTF-16"));
    let encoding = Encoding::for_bom(head).map_or(wide.unwrap_or(UTF_8), |(encoding, _)| encoding);
    let control = |c: char| matches!(c, '\0'..='\x07' | '\x0b' | '\x0e'..='\x1a' | '\x1c'..='\x1f' | '\x7f');
    let (text, _) = encoding.decode_with_bom_removal(head);
    (!text.contains(control)).then(|| text.into_owned())
}

/// Return the type of a format that is written in ASCII but is not text to read: RTF, PostScript.
fn text_mark(text: &str) -> Option<&'static str> {
    match text {
        _ if text.starts_with("{\\rtf") => Some("application/rtf"),
        _ if text.starts_with("%!PS") => Some("application/postscript"),
        _ => None,
    }
}

/// Return whether a mark alone does not prove this type: the tests of this module recognise it, and they have failed.
fn is_container(kind: &str) -> bool {
    matches!(kind, "application/zip" | "application/x-tar" | "application/pdf" | "text/html" | "text/xml")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(head: &[u8]) -> Format {
        format(head, &Hint::default())
    }

    #[test]
    fn marks_tell_binary_formats() {
        assert_eq!(detect(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"), Format::Binary(Some("image/png")));
        assert_eq!(detect(b"\xff\xd8\xff\xe0\0\x10JFIF"), Format::Binary(Some("image/jpeg")));
        assert_eq!(detect(b"\0\x01\x02\x03"), Format::Binary(None));
        assert_eq!(detect(b"PK\x03\x04rest"), Format::Zip);
        assert_eq!(detect(b"\x1f\x8b\x08\0"), Format::Stream(Codec::Gzip));
        assert_eq!(detect(b"{\\rtf1 x}"), Format::Binary(Some("application/rtf")));
    }

    #[test]
    fn utf_16_needs_a_mark_or_a_declaration() {
        assert_eq!(detect(b"T\0e\0s\0t\0"), Format::Binary(None));
        assert_eq!(detect(b"\xff\xfeT\0e\0"), Format::Text);
        let hint = Hint { charset: Some("utf-16le".to_owned()), ..Hint::default() };
        assert_eq!(format(b"T\0e\0s\0t\0", &hint), Format::Text);
    }

    #[test]
    fn text_that_begins_like_a_mark_is_text() {
        assert_eq!(detect(b"BZhello, world"), Format::Text);
        assert_eq!(detect(b"BM is short for Birmingham"), Format::Text);
        assert_eq!(detect(b"A file that begins with %PDF- is a PDF"), Format::Text);
        assert_eq!(detect(b"From here on it is text\nFrom: nobody"), Format::Text);
    }

    #[test]
    fn mails_are_recognised_by_their_headers() {
        assert_eq!(detect(b"From: a@b\nTo: c@d\nSubject: hi\n\nbody"), Format::Mail);
        assert_eq!(detect(b"Received: x\r\n\tfolded\r\nDate: y\r\n\r\n\0\x01"), Format::Mail);
        assert_eq!(detect(b"Metadata-Version: 2.1\nName: x\nVersion: 1\n\nFrom: me"), Format::Text);
        assert_eq!(detect(b"From a@b Mon Jun  1 10:00:00 2026\nSubject: x\n\nbody"), Format::Mbox);
        let hint = Hint { mail: true, ..Hint::default() };
        assert_eq!(format(b"X-Odd: header\n\nbody", &hint), Format::Mail);
        assert_eq!(format(b"no header at all", &hint), Format::Text);
    }

    #[test]
    fn a_pdf_may_stand_behind_other_bytes() {
        assert_eq!(detect(b"%PDF-1.7\n"), Format::Pdf);
        assert_eq!(detect(b"\x01\x02\x03%PDF-1.7\n"), Format::Pdf);
    }

    #[test]
    fn zstd_frames_may_stand_behind_skippable_ones() {
        assert_eq!(detect(b"\x28\xb5\x2f\xfd"), Format::Stream(Codec::Zstd));
        assert_eq!(detect(b"\x50\x2a\x4d\x18\x02\0\0\0xy\x28\xb5\x2f\xfd"), Format::Stream(Codec::Zstd));
        assert_eq!(detect(b"\x50\x2a\x4d\x18\x02\0\0\0xyz"), Format::Binary(None));
    }
}
