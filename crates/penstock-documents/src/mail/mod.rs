//! Mail (RFC 5322) and MIME (RFC 2045, 2046): the parts of a mail in sequence, with multiparts flattened, decoded as
//! they are read. A nested mail is one part, and is a container itself.
//!
//! The boundaries are walked here, because the library holds a mail and all of its decoded parts in memory; the library
//! parses the headers.
//!
//! ```text
//! Preamble ── first delimiter ──> Part ── delimiter ──> Part ... ── close ──> Between ── delimiter of an outer one ──> Part
//!                                   └─ multipart: one level down, Preamble                └─ end of the mail ──> Done
//! ```

mod header;
mod machine;
mod transfer;
mod uu;

use std::collections::BTreeMap;
use std::io;

use header::Headers;
use transfer::Encoding;

use crate::child::{Child, Content, Walker};
use crate::context::{Context, Meter, Origin};
use crate::failure::Failure;
use crate::lines::{Line, Lines};
use crate::workspace::Source;

/// The most bytes of the headers of a mail or a part.
const MAX_HEADERS: u64 = 1024 * 1024;
/// The deepest nesting of multiparts in one mail.
const MAX_LEVELS: usize = 100;
/// Headers that make a text a mail: at least one of the first list, and two in total.
const ORIGIN_HEADERS: [&str; 6] = ["from", "sender", "received", "return-path", "message-id", "delivered-to"];
const OTHER_HEADERS: [&str; 7] = ["to", "cc", "bcc", "subject", "date", "mime-version", "reply-to"];

/// Return whether `head` begins with the headers of a mail that was sent, or of a multipart. A text is not a mail if
/// any line before the first blank one is neither a header nor a continuation.
pub(crate) fn is_mail(head: &[u8]) -> bool {
    let (mut senders, mut others, mut lines, mut multipart) = (0, 0, 0, false);
    for line in head.split(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            break;
        }
        if matches!(line, [b' ' | b'\t', ..]) && lines > 0 {
            continue;
        }
        let Some(name) = header_name(line) else { return false };
        lines += 1;
        let value = line.get(name.len() + 1..).unwrap_or_default().trim_ascii_start();
        multipart |= name.eq_ignore_ascii_case(b"content-type")
            && value.get(..10).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/"));
        senders += usize::from(ORIGIN_HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())));
        others += usize::from(OTHER_HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes())));
    }
    multipart || (senders > 0 && senders + others > 1)
}

/// Return whether the first line is a header, which suffices if the container declares that this is a mail.
pub(crate) fn begins_with_header(head: &[u8]) -> bool {
    head.split(|&byte| byte == b'\n').next().is_some_and(|line| header_name(line).is_some())
}

fn header_name(line: &[u8]) -> Option<&[u8]> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let name = line.get(..colon)?.trim_ascii_end();
    (!name.is_empty() && name.iter().all(u8::is_ascii_graphic)).then_some(name)
}

/// Walks the parts of a mail.
pub(crate) struct MailWalker {
    lines: Lines,
    state: State,
    /// The multiparts that contain the next part, innermost last.
    levels: Vec<Level>,
}

/// Why a mail cannot be walked, and its source if that can still be read.
type Refused = (Failure, Option<Box<dyn Source>>);

struct Level {
    boundary: Vec<u8>,
    /// Whether it is a multipart/digest, whose parts are mails unless declared otherwise (RFC 2046, 5.1.5).
    digest: bool,
}

enum State {
    /// The mail's own body, which is not a multipart.
    Body(Headers),
    /// Before the first part of the innermost multipart, whose preamble begins at this position.
    Preamble(u64),
    /// The next bytes are the headers of a part.
    Part,
    /// After the close of a multipart, inside an outer one.
    Between,
    Done,
}

/// A line that is a delimiter of one of the levels.
struct Delimiter {
    level: usize,
    closes: bool,
}

impl MailWalker {
    /// Read the mail's headers; return the walker and the mail's metadata.
    pub(crate) fn open(
        source: Box<dyn Source>,
        name_limit: usize,
    ) -> Result<(Self, BTreeMap<String, String>), Refused> {
        let failed = |error: io::Error| Failure::io("reading the container failed", &error);
        let lines = Lines::new(source).map_err(|error| (failed(error), None))?;
        let mut walker = Self { lines, state: State::Done, levels: Vec::new() };
        let mut headers = match walker.read_headers(name_limit) {
            Ok(headers) => headers,
            Err(failure) => return Err((failure, Some(walker.lines.into_source()))),
        };
        let metadata = std::mem::take(&mut headers.metadata);
        walker.state = match walker.enter(&headers) {
            true => State::Preamble(walker.lines.position()),
            false => State::Body(headers),
        };
        Ok((walker, metadata))
    }

    /// Descend one level if `headers` are those of a multipart.
    fn enter(&mut self, headers: &Headers) -> bool {
        let Some(boundary) = headers.multipart().filter(|_| self.levels.len() < MAX_LEVELS) else { return false };
        let digest = headers.media_type.as_deref() == Some("multipart/digest");
        self.levels.push(Level { boundary: boundary.as_bytes().to_vec(), digest });
        true
    }

    /// Read headers up to and including the blank line after them, or up to a delimiter.
    fn read_headers(&mut self, name_limit: usize) -> Result<Headers, Failure> {
        let failed = |error: io::Error| Failure::io("reading the container failed", &error);
        let start = self.lines.position();
        let mut bytes = Vec::new();
        while let Some(line) = self.lines.next_line().map_err(failed)? {
            if line.is_blank() {
                break;
            }
            if self.delimiter(&line).is_some() {
                self.lines.go(line.start).map_err(failed)?;
                break;
            }
            if line.end - start > MAX_HEADERS {
                return Err(Failure::limit(format!("the headers have more than {MAX_HEADERS} bytes")));
            }
            bytes.extend_from_slice(&line.text);
            bytes.extend_from_slice(b"\r\n");
        }
        Ok(Headers::decode(&bytes, name_limit))
    }

    fn delimiter(&self, line: &Line) -> Option<Delimiter> {
        let rest = line.text.strip_prefix(b"--")?;
        self.levels.iter().enumerate().rev().find_map(|(level, Level { boundary, .. })| {
            let rest = rest.strip_prefix(boundary.as_slice())?.trim_ascii_end();
            (rest.is_empty() || rest == b"--").then_some(Delimiter { level, closes: rest == b"--" })
        })
    }

    /// Leave the multiparts that a delimiter ends, and return the next state.
    fn consume_delimiter(&mut self, delimiter: &Delimiter) -> State {
        self.levels.truncate(delimiter.level + usize::from(!delimiter.closes));
        match (delimiter.closes, self.levels.is_empty()) {
            (false, _) => State::Part,
            (true, false) => State::Between,
            (true, true) => State::Done,
        }
    }

    /// Read to the next delimiter or the end of the mail. Return the end of the content before it, and the delimiter.
    /// The line end before a delimiter belongs to the delimiter.
    fn seek_delimiter(&mut self, context: &Context<'_>) -> Result<(u64, Option<Delimiter>), Failure> {
        let deadline = context.deadline();
        let mut end = self.lines.position();
        loop {
            context.check(&deadline)?;
            let line = self.lines.next_line().map_err(|error| Failure::io("reading the container failed", &error))?;
            let Some(line) = line else { return Ok((self.lines.position(), None)) };
            if let Some(delimiter) = self.delimiter(&line) {
                return Ok((end, Some(delimiter)));
            }
            end = line.content_end;
        }
    }

    /// Return the part with the content from `start` to `end`. The next line to be read stays the same.
    fn take(&mut self, headers: Headers, start: u64, end: u64, context: &mut Context<'_>) -> Result<Child, Failure> {
        let failed = |error: io::Error| Failure::io("reading the container failed", &error);
        let next = self.lines.position();
        let meter = Meter::default();
        let fetched = {
            let range = self.lines.range(start, end).map_err(failed)?;
            context.fetch(&mut headers.encoding.decode(meter.tap(range)), &meter, Origin::Plain)
        };
        self.lines.go(next).map_err(failed)?;
        let mut child = Child::fetched(headers.file_name, fetched);
        if let Encoding::Unknown(encoding) = &headers.encoding {
            let failure = Failure::unsupported(format!("the transfer encoding {encoding:?} is not supported"));
            child = child.damaged(failure);
        } else if headers.media_type.as_deref().is_some_and(|media_type| media_type.starts_with("multipart/")) {
            child = child.damaged(Failure::broken(match headers.boundary {
                None => "a multipart without a boundary".to_owned(),
                Some(_) => format!("multiparts lie more than {MAX_LEVELS} deep in one another"),
            }));
        }
        let details = [("mail.content-type", &headers.media_type), ("mail.content-id", &headers.content_id)];
        for (key, value) in details {
            child.metadata.extend(value.clone().map(|value| (key.to_owned(), value)));
        }
        let mail = |media_type: &str| matches!(media_type, "message/rfc822" | "message/global" | "message/news");
        child.hint.mail = match &headers.media_type {
            Some(media_type) => mail(media_type),
            None => self.levels.last().is_some_and(|level| level.digest),
        };
        (child.hint.media_type, child.hint.charset) = (headers.media_type, headers.charset);
        Ok(child)
    }

    fn take_body(&mut self, headers: Headers, context: &mut Context<'_>) -> Result<Option<Child>, Failure> {
        let start = self.lines.position();
        // There are no levels, so this reads to the end.
        let (end, _) = self.seek_delimiter(context)?;
        match start == end {
            true => Ok(None),
            false => self.take(headers, start, end, context).map(Some),
        }
    }

    fn take_preamble(&mut self, start: u64, context: &mut Context<'_>) -> Result<Option<Child>, Failure> {
        let (end, delimiter) = self.seek_delimiter(context)?;
        if let Some(delimiter) = delimiter {
            self.state = self.consume_delimiter(&delimiter);
            return Ok(None);
        }
        if start == end && self.levels.len() == 1 {
            // Headers only, as in a report of an undeliverable mail: there is no body that could be incomplete.
            return Ok(None);
        }
        let child = self.take(Headers::default(), start, end, context)?;
        Ok(Some(child.damaged(Failure::broken("the mail ends before the first part of its multipart"))))
    }

    fn take_part(&mut self, context: &mut Context<'_>) -> Result<Option<Child>, Failure> {
        let headers = self.read_headers(context.limits.max_name);
        let start = self.lines.position();
        if headers.as_ref().is_ok_and(|headers| self.enter(headers)) {
            self.state = State::Preamble(start);
            return Ok(None);
        }
        let (end, delimiter) = self.seek_delimiter(context)?;
        let child = headers.and_then(|headers| self.take(headers, start, end, context));
        let Some(delimiter) = delimiter else {
            let cut = Failure::broken("the mail ends before the boundary that closes this part");
            return child.map(|child| Some(child.damaged(cut)));
        };
        self.state = self.consume_delimiter(&delimiter);
        child.map(Some)
    }

    fn skip_between_parts(&mut self, context: &mut Context<'_>) -> Result<Option<Child>, Failure> {
        match self.seek_delimiter(context)? {
            (_, Some(delimiter)) => {
                self.state = self.consume_delimiter(&delimiter);
                Ok(None)
            }
            (_, None) => Err(Failure::broken("the mail ends before the boundary that closes it; parts may be missing")),
        }
    }
}

impl Walker for MailWalker {
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child> {
        loop {
            // Each step sets the next state, unless it ends the walk.
            let step = match std::mem::replace(&mut self.state, State::Done) {
                State::Body(headers) => return result(self.take_body(headers, context)),
                State::Preamble(start) => self.take_preamble(start, context),
                State::Part => self.take_part(context),
                State::Between => self.skip_between_parts(context),
                State::Done => return None,
            };
            if let Some(child) = result(step) {
                return Some(child);
            }
        }
    }
}

fn result(step: Result<Option<Child>, Failure>) -> Option<Child> {
    step.unwrap_or_else(|failure| Some(Child::failed(None, failure)))
}

impl Child {
    /// Mark the child as failed: it keeps the bytes that the container has, and `failure` says what is wrong with them.
    fn damaged(mut self, failure: Failure) -> Self {
        self.content = match self.content {
            Content::Whole(fetched) | Content::Damaged(fetched, _) | Content::Typed(fetched, _, _) => {
                Content::Damaged(fetched, failure)
            }
            Content::Failed(first) => Content::Failed(first),
        };
        self
    }
}
