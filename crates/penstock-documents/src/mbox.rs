//! mbox (RFC 4155): consecutive mails, each after a line that begins with `From `.
//!
//! Such a line begins a mail if it is the first line or follows a blank one, and contains a time and a year. The mail's
//! bytes are those after that line, without the blank line before the next one, unchanged: `>From ` stays.

use std::io;

use crate::child::{Child, Walker};
use crate::context::{Context, Meter, Origin};
use crate::failure::Failure;
use crate::lines::Lines;
use crate::mail;
use crate::name;
use crate::workspace::Source;

/// Return whether `head` is the beginning of an mbox.
pub(crate) fn is_mbox(head: &[u8]) -> bool {
    let Some(end) = head.iter().position(|&byte| byte == b'\n') else { return false };
    let Some((first, rest)) = head.split_at_checked(end + 1) else { return false };
    separates(first) && mail::begins_with_header(rest)
}

/// Return whether a line begins a mail: `From`, an address, a date.
fn separates(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"From ") else { return false };
    let time = rest.windows(4).any(|w| matches!(w, [a, b':', b, c] if [a, b, c].iter().all(|o| o.is_ascii_digit())));
    let mut words = rest.split(u8::is_ascii_whitespace);
    time && words.any(|word| word.len() == 4 && word.iter().all(u8::is_ascii_digit))
}

/// Walks the mails of an mbox.
pub(crate) struct MboxWalker {
    lines: Lines,
    done: bool,
}

impl MboxWalker {
    pub(crate) fn new(source: Box<dyn Source>) -> io::Result<Self> {
        Ok(Self { lines: Lines::new(source)?, done: false })
    }

    fn next_mail(&mut self, context: &mut Context<'_>) -> Result<Option<Child>, Failure> {
        let failed = |error: io::Error| Failure::io("reading the container failed", &error);
        let deadline = context.deadline();
        let Some(envelope) = self.lines.next_line().map_err(failed)? else { return Ok(None) };
        let start = envelope.end;
        let (mut end, mut blank) = (start, None);
        let next = loop {
            context.check(&deadline)?;
            let Some(line) = self.lines.next_line().map_err(failed)? else { break self.lines.position() };
            if blank.is_some() && separates(&line.text) {
                break line.start;
            }
            blank = line.is_blank().then_some(line.start);
            end = line.end;
        };
        let end = blank.unwrap_or(end);
        let meter = Meter::default();
        let fetched = if let Some(nothing) = context.skip(end.saturating_sub(start)) {
            Ok(nothing)
        } else {
            let range = self.lines.range(start, end).map_err(failed)?;
            context.fetch(&mut meter.tap(range), &meter, Origin::Plain)
        };
        self.lines.go(next).map_err(failed)?;
        let mut child = Child::fetched(None, fetched);
        child.hint.mail = true;
        let mut sender = name::decode(envelope.text.get(5..).unwrap_or_default(), context.limits.max_name);
        sender.truncate(sender.trim_end().len());
        child.metadata.insert("mbox.from".to_owned(), sender);
        Ok(Some(child))
    }
}

impl Walker for MboxWalker {
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child> {
        if self.done {
            return None;
        }
        let step = self.next_mail(context);
        self.done = !matches!(step, Ok(Some(_)));
        step.unwrap_or_else(|failure| Some(Child::failed(None, failure)))
    }

    fn divisible(&self) -> bool {
        true
    }
}
