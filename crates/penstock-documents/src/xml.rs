//! XML: its character data as text. Office documents keep their text in XML members (word/document.xml).
//!
//! Entities that a document defines are not expanded, so the text cannot explode.

use std::io::Read;

use encoding_rs::Encoding;
use quick_xml::Reader;
use quick_xml::events::Event;

use crate::charset::DecodedText;
use crate::context::{Context, Deadline};
use crate::failure::Failure;
use crate::prose::Prose;
use crate::workspace::Source;

/// Elements that end a line in common formats: paragraphs, headings, rows, breaks, shared strings.
const LINES: [&str; 12] = ["p", "h", "tr", "row", "br", "si", "title", "li", "item", "table-row", "line-break", "para"];
/// Elements that separate words.
const SPACES: [&str; 7] = ["tab", "td", "th", "c", "s", "table-cell", "cell"];

/// The content read from a document.
pub(crate) struct Xml {
    pub(crate) text: String,
    pub(crate) cut: bool,
    /// Why the rest could not be read.
    pub(crate) damage: Option<String>,
}

/// Return the MIME type of a text that begins like XML, and whether it has an XML declaration. Without one only a
/// complete and well-formed document is XML.
pub(crate) fn detect(head: &str) -> Option<(&'static str, bool)> {
    let declared = head.trim_start_matches('\u{feff}').trim_start().starts_with("<?xml");
    let root = first_element(head)?;
    let local = root.rsplit(':').next().unwrap_or(root);
    Some((if local == "svg" { "image/svg+xml" } else { "application/xml" }, declared))
}

/// Return the name of the first element, after declarations, comments and instructions.
pub(crate) fn first_element(head: &str) -> Option<&str> {
    let mut rest = head.trim_start_matches('\u{feff}').trim_start();
    loop {
        let end = if rest.starts_with("<?") {
            rest.find("?>")? + 2
        } else if rest.starts_with("<!--") {
            rest.find("-->")? + 3
        } else if rest.starts_with("<!") {
            let subset = rest.find('[').filter(|&open| rest.find('>').is_some_and(|close| open < close));
            match subset {
                Some(open) => {
                    open + rest.get(open..)?.find("]")? + 1 + rest.get(open..)?.split_once(']')?.1.find('>')? + 1
                }
                None => rest.find('>')? + 1,
            }
        } else {
            break;
        };
        rest = rest.get(end..)?.trim_start();
    }
    let name = rest.strip_prefix('<')?;
    let end = name.find(|c: char| c.is_whitespace() || matches!(c, '>' | '/'))?;
    name.get(..end).filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'))
}

/// Read the document in `source`.
pub(crate) fn read(
    source: &mut dyn Source,
    encoding: &'static Encoding,
    context: &Context<'_>,
    deadline: &Deadline,
) -> Result<Xml, Failure> {
    source.rewind().map_err(|error| Failure::io("the part cannot be read", &error))?;
    let input = Read::take(source, context.limits.max_markup);
    let mut reader = Reader::from_reader(DecodedText::new(input, encoding));
    let mut reading = Reading { prose: Prose::new(context.limits.max_text), depth: 0, roots: 0 };
    let mut buffer = Vec::new();
    let (mut events, mut damage) = (0_u64, None);
    loop {
        events += 1;
        if events.is_multiple_of(1024) {
            context.check(deadline)?;
        }
        buffer.clear();
        match reader.read_event_into(&mut buffer) {
            Ok(Event::Eof) => break,
            Ok(event) => reading.take(&event),
            Err(error) => {
                damage = Some(error.to_string());
                break;
            }
        }
        if reading.roots > 1 {
            damage = Some("the document has something behind its root element".to_owned());
            break;
        }
    }
    if reading.depth > 0 && damage.is_none() {
        damage = Some("the document ends before its root element does".to_owned());
    }
    let (text, cut) = reading.prose.finish();
    Ok(Xml { text, cut, damage })
}

struct Reading {
    prose: Prose,
    depth: u64,
    /// The number of root elements, where one is allowed; text outside the root counts as two.
    roots: u64,
}

impl Reading {
    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(_) => {
                self.roots += u64::from(self.depth == 0);
                self.depth += 1;
            }
            Event::Text(text) => self.push_text(&text.xml10_content()),
            Event::CData(data) => self.push_text(&data.xml10_content()),
            Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                Ok(Some(c)) => self.push_text(c.encode_utf8(&mut [0; 4])),
                Ok(None) | Err(_) => self.push_text(predefined(&reference.xml10_content())),
            },
            Event::End(tag) => {
                self.depth = self.depth.saturating_sub(1);
                separate(tag.local_name().as_ref(), &mut self.prose);
            }
            Event::Empty(tag) => {
                self.roots += u64::from(self.depth == 0);
                separate(tag.local_name().as_ref(), &mut self.prose);
            }
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) | Event::Eof => {}
        }
    }

    fn push_text(&mut self, text: &str) {
        let stray = self.depth == 0 && !text.trim_start_matches('\u{feff}').trim().is_empty();
        // Two, because text outside the root is damage even if no root follows or precedes it.
        self.roots += u64::from(stray) * 2;
        self.prose.push_text(text);
    }
}

fn separate(local: &str, prose: &mut Prose) {
    if LINES.contains(&local) {
        prose.new_line();
    } else if SPACES.contains(&local) {
        prose.push_text(" ");
    }
}

fn predefined(name: &str) -> &'static str {
    match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_element_tells_the_type() {
        assert_eq!(detect("<?xml version='1.0'?>\n<!-- c -->\n<a/>"), Some(("application/xml", true)));
        assert_eq!(detect("<!DOCTYPE s [<!ENTITY x 'y'>]><s:svg >"), Some(("image/svg+xml", false)));
        assert_eq!(detect("a < b > c"), None);
        assert_eq!(detect("<3 you"), None);
    }
}
