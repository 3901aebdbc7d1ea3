//! The kind of a zip file: an office document, a book, a Java archive or just a zip file. It is determined by the
//! members that those formats require, never by the file's name.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::directory::Directory;
use super::member;
use crate::workspace::Source;

/// The number of directory entries that are searched; the members that determine the kind come early.
const SEARCH_LIMIT: usize = 1000;
/// The number of bytes that are read of `mimetype` and of `[Content_Types].xml`.
const MIMETYPE: u64 = 128;
const CONTENT_TYPES: u64 = 1024 * 1024;

/// Return the MIME type of the zip file in `source`.
pub(crate) fn media_type(source: &mut Box<dyn Source>, directory: &Directory) -> String {
    let mut at = directory.start;
    let mut weak = None;
    for _ in 0..SEARCH_LIMIT {
        if at >= directory.end {
            break;
        }
        let Ok(entry) = directory.entry(source, at) else { break };
        at = entry.next;
        let peek = |source: &mut Box<dyn Source>, limit| {
            let data = directory.data(source, &entry).ok()?;
            member::peek(source, &entry, data, limit)
        };
        let found = match entry.name.as_slice() {
            b"mimetype" => peek(source, MIMETYPE).and_then(|bytes| declared(&bytes)),
            b"[Content_Types].xml" => peek(source, CONTENT_TYPES).and_then(|bytes| office(&bytes)),
            b"AndroidManifest.xml" => Some("application/vnd.android.package-archive".to_owned()),
            b"META-INF/MANIFEST.MF" => {
                weak = Some("application/java-archive");
                None
            }
            _ => None,
        };
        if let Some(found) = found {
            return found;
        }
    }
    weak.unwrap_or("application/zip").to_owned()
}

/// Return the content of a member `mimetype` (OpenDocument, EPUB), if it is a MIME type.
fn declared(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let token = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '_'))
    };
    let (kind, subtype) = text.split_once('/')?;
    (token(kind) && token(subtype)).then(|| text.to_ascii_lowercase())
}

/// Return the type of an Office Open XML package: its main part's type without the suffix for a main part.
fn office(bytes: &[u8]) -> Option<String> {
    let mut reader = Reader::from_reader(bytes);
    let mut buffer = Vec::new();
    loop {
        match reader.read_event_into(&mut buffer).ok()? {
            Event::Start(tag) | Event::Empty(tag) => {
                if let Some(found) = main_part(&tag) {
                    return Some(found);
                }
            }
            Event::Eof => return None,
            Event::End(_)
            | Event::Text(_)
            | Event::CData(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_)
            | Event::GeneralRef(_) => {}
        }
        buffer.clear();
    }
}

fn main_part(tag: &BytesStart<'_>) -> Option<String> {
    let attribute = tag.try_get_attribute("ContentType").ok()??;
    let value: &str = attribute.value.as_ref();
    let package = value.strip_suffix(".main+xml").or_else(|| value.strip_suffix("Main+xml"))?;
    // "application/vnd.ms-word.document.macroEnabled" is registered with ".12" at its end.
    match package.ends_with(".macroEnabled") {
        true => Some(format!("{package}.12")),
        false => declared(package.as_bytes()).map(|_| package.to_owned()),
    }
}
