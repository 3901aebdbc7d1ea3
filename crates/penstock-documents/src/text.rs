//! Plain text, Markdown, CSV and JSON: decoding, and distinguishing them.
//!
//! - JSON is an object or an array that parses completely.
//! - CSV has the same number of fields, at least two, in every line. It has at least three lines, or its name or
//!   declared type says CSV.
//! - Markdown begins like Markdown and has two of headings, fenced code and links, or its name or declared type says
//!   Markdown.
//!
//! The content takes precedence; the name and the declared type only choose between these and plain text.

use std::io::{self, Read};

use encoding_rs::Encoding;
use serde::de::IgnoredAny;

use crate::charset::DecodedText;
use crate::child::Hint;
use crate::name;
use crate::workspace::Source;

/// The number of lines that are examined to recognise CSV and Markdown.
const LINES: usize = 1000;

/// Decode up to `limit` bytes of text from `source`, and return whether there was more.
pub(crate) fn read(source: &mut dyn Source, encoding: &'static Encoding, limit: u64) -> io::Result<(String, bool)> {
    source.rewind()?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut decoded = DecodedText::new(Read::take(&mut *source, u64::MAX), encoding);
    let mut text = String::new();
    loop {
        let piece = decoded.next_piece()?;
        if piece.is_empty() {
            return Ok((text, false));
        }
        text.push_str(piece);
        if name::cut(&mut text, limit) {
            return Ok((text, true));
        }
    }
}

/// Return the MIME type of a text; `cut` means that it is not complete.
pub(crate) fn media_type(text: &str, cut: bool, own_name: &str, hint: &Hint) -> String {
    let declared = hint.media_type.as_deref().filter(|kind| kind.starts_with("text/") && *kind != "text/plain");
    let declared_as = |suffixes: &[&str], kind: &str| name::has_suffix(own_name, suffixes) || declared == Some(kind);
    if !cut && is_json(text) {
        return "application/json".to_owned();
    }
    let csv = declared_as(&["csv", "tsv", "tab"], "text/csv");
    if let Some(delimiter) = table(text, cut, csv) {
        let tabs = delimiter == '\t';
        return if tabs { "text/tab-separated-values" } else { "text/csv" }.to_owned();
    }
    if declared_as(&["md", "markdown", "mdown", "mkd"], "text/markdown") || is_markdown(text) {
        return "text/markdown".to_owned();
    }
    declared.filter(|kind| *kind != "text/csv" && *kind != "text/html").unwrap_or("text/plain").to_owned()
}

fn is_json(text: &str) -> bool {
    // The parser skips values without recursion, so deep nesting cannot overflow the stack.
    text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Return the delimiter, if every line has the same number of fields.
fn table(text: &str, cut: bool, declared_as: bool) -> Option<char> {
    [',', ';', '\t'].into_iter().find(|&delimiter| {
        let mut rows = Rows { text, delimiter };
        let first = rows.next_row();
        let wanted = match first {
            Some((fields, true)) if fields > 1 => fields,
            _ => return false,
        };
        let (mut count, mut same) = (1, true);
        while let Some((fields, whole)) = rows.next_row().filter(|_| same && count < LINES) {
            // The last row of a text that was cut off, and empty rows, do not count.
            same = fields == wanted || (!whole && cut) || fields == 0;
            count += usize::from(fields > 0);
        }
        same && (declared_as || (count > 2 && looks_like_data(text, delimiter)))
    })
}

/// Return whether the fields look like data. Prose may have one comma in each of three lines, and the lines of a
/// program end in semicolons. So unless its name or declared type says that the text is a table, few lines may have a
/// space after the delimiter, as prose has, and not nearly all lines may end in the delimiter.
fn looks_like_data(text: &str, delimiter: char) -> bool {
    let lines = || text.lines().take(LINES).filter(|line| !line.trim().is_empty());
    let spaced = lines().filter(|line| line.contains(&format!("{delimiter} "))).count();
    let ended = lines().filter(|line| line.trim_end().ends_with(delimiter)).count();
    spaced * 10 < lines().count() && ended * 10 < lines().count() * 9
}

/// The rows of a table; a quoted field may contain delimiters and line ends.
struct Rows<'t> {
    text: &'t str,
    delimiter: char,
}

impl Rows<'_> {
    /// Return how many fields the next row has (0: the row is empty), and whether its end was found.
    fn next_row(&mut self) -> Option<(usize, bool)> {
        if self.text.is_empty() {
            return None;
        }
        let (mut fields, mut quoted, mut empty) = (1, false, true);
        for (at, c) in self.text.char_indices() {
            match c {
                '"' => quoted = !quoted,
                '\n' if !quoted => {
                    self.text = self.text.get(at + 1..).unwrap_or_default();
                    return Some((if empty { 0 } else { fields }, true));
                }
                _ if c == self.delimiter && !quoted => fields += 1,
                _ => {}
            }
            empty &= c == '\r';
        }
        self.text = "";
        Some((if empty { 0 } else { fields }, !quoted))
    }
}

fn is_markdown(text: &str) -> bool {
    let (mut heading, mut fence, mut link, mut inside, mut blank) = (false, false, false, false, true);
    if !begins_like_markdown(text) {
        return false;
    }
    for line in text.lines().take(LINES) {
        let marks = line.chars().take_while(|&c| c == '#').count();
        // A heading follows a blank line; comments in scripts mostly do not.
        let headed = blank && (1..=6).contains(&marks) && line.get(marks..).is_some_and(|rest| rest.starts_with(' '));
        if line.trim_start().starts_with("```") {
            inside = !inside;
            fence |= !inside;
        } else if !inside {
            heading |= headed;
            link |= has_link(line);
        }
        blank = line.trim().is_empty();
    }
    usize::from(heading) + usize::from(fence) + usize::from(link) > 1
}

/// Return whether the first line is a heading, a badge, a tag or the edge of a front matter. This excludes programs,
/// whose comments are often Markdown, and configuration files, which contain many of its marks.
fn begins_like_markdown(text: &str) -> bool {
    let mut lines = text.lines().skip_while(|line| line.trim().is_empty());
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let underlined = second.len() > 2 && (second.chars().all(|c| c == '=') || second.chars().all(|c| c == '-'));
    let heading = first.starts_with('#') && first.trim_start_matches('#').starts_with(' ');
    underlined || heading || first == "---" || ["[!", "![", "<"].iter().any(|start| first.starts_with(start))
}

/// Return whether there is a `[text](target)` whose target looks like a path or a URL.
fn has_link(line: &str) -> bool {
    line.split("](").skip(1).any(|rest| {
        let target = rest.split_once(')').map(|(target, _)| target).unwrap_or_default();
        target.contains(['/', '#', '.']) && !target.contains(char::is_whitespace)
    }) && line.contains('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect(text: &str) -> String {
        media_type(text, false, "", &Hint::default())
    }

    #[test]
    fn json_must_parse_whole() {
        assert_eq!(detect("{\"a\": [1, 2]}\n"), "application/json");
        assert_eq!(detect("{\"a\": [1, 2}\n"), "text/plain");
        assert_eq!(detect("[not json]"), "text/plain");
        assert_eq!(media_type("[1]", true, "x.json", &Hint::default()), "text/plain");
        assert_eq!(detect(&"[".repeat(100_000)), "text/plain");
        assert_eq!(detect(&format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))), "application/json");
    }

    #[test]
    fn csv_has_the_same_number_of_fields_in_every_line() {
        assert_eq!(detect("a,b\n1,2\n3,\"x,\ny\"\n"), "text/csv");
        assert_eq!(detect("a;b\r\n1;2\r\n3;4"), "text/csv");
        assert_eq!(detect("a\tb\n1\t2\n3\t4"), "text/tab-separated-values");
        assert_eq!(detect("a,b\n1,2\n3\n"), "text/plain");
        assert_eq!(detect("Dear all, hello\nWell, then\nYours, me\n"), "text/plain");
        assert_eq!(detect("mod a;\nmod b;\n\npub mod c;\n"), "text/plain");
        assert_eq!(media_type("a,b\n", false, "t.CSV", &Hint::default()), "text/csv");
        assert_eq!(media_type("hello", false, "t.csv", &Hint::default()), "text/plain");
    }

    #[test]
    fn markdown_has_two_kinds_of_marks() {
        assert_eq!(detect("# Title\n\nSee [here](https://example.org/).\n"), "text/markdown");
        assert_eq!(detect("# Title\n\n```\ncode\n```\n"), "text/markdown");
        assert_eq!(detect("# only a comment\nimport x\n"), "text/plain");
        assert_eq!(detect("#!/bin/sh\n\n# x\n# [a](b/c)\n"), "text/plain");
        assert_eq!(media_type("just words", false, "README.md", &Hint::default()), "text/markdown");
    }

    #[test]
    fn a_declared_kind_of_text_stands_where_the_content_leaves_a_choice() {
        let hint = |kind: &str| Hint { media_type: Some(kind.to_owned()), ..Hint::default() };
        assert_eq!(media_type("BEGIN:VCALENDAR\n", false, "", &hint("text/calendar")), "text/calendar");
        assert_eq!(media_type("{}", false, "", &hint("text/calendar")), "application/json");
        assert_eq!(media_type("words", false, "", &hint("text/csv")), "text/plain");
    }
}
