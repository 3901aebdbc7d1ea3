//! The lines of a list, read from a store.

use std::fmt;

use penstock_io::DriverError as _;

use crate::format::LOG;
use crate::format::encode::ClosedLine;
use crate::read::store::Store;
use crate::{Error, Result};

/// Maximum length of a line: a header has at most 1 MiB, and an escape turns one byte into six.
const MAX_LINE: usize = 8 << 20;
/// Number of bytes of a list that are read at a time.
const WINDOW: u64 = 1 << 20;

/// An iterator over the lines of a list, or of a range of it that begins and ends between lines.
pub(super) struct Lines<'a> {
    store: &'a dyn Store,
    session: &'a str,
    buffer: Vec<u8>,
    /// Where the next line starts, in the buffer.
    next: usize,
    /// Where the next line starts, in the list.
    offset: u64,
    /// Where the buffer ends, in the list.
    read_to: u64,
    end: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(store: &'a dyn Store, session: &'a str, start: u64, end: u64) -> Self {
        Self { store, session, buffer: Vec::new(), next: 0, offset: start, read_to: start, end }
    }

    /// Return the next line with its offset in the list; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        let mut searched = self.next;
        let length = loop {
            let rest = self.buffer.get(searched..).unwrap_or_default();
            if let Some(found) = rest.iter().position(|byte| *byte == b'\n') {
                break searched - self.next + found;
            }
            searched = self.buffer.len();
            if self.read_to >= self.end {
                return if searched == self.next { Ok(None) } else { Err(self.wrong("it ends within a line")) };
            }
            if searched - self.next > MAX_LINE {
                return Err(self.wrong("a line is too long"));
            }
            self.fill(&mut searched)?;
        };
        let (start, offset) = (self.next, self.offset);
        self.next += length + 1;
        self.offset += length as u64 + 1;
        Ok(Some((offset, self.buffer.get(start..start + length).unwrap_or_default())))
    }

    fn fill(&mut self, searched: &mut usize) -> Result<()> {
        self.buffer.drain(..self.next);
        *searched -= self.next;
        self.next = 0;
        let to = self.end.min(self.read_to.saturating_add(WINDOW));
        let read = self.store.read_list(self.session, self.read_to..to)?;
        if read.is_empty() {
            return Err(self.wrong("it has become shorter"));
        }
        self.read_to += read.len() as u64;
        if self.buffer.is_empty() {
            self.buffer = read;
        } else {
            self.buffer.extend_from_slice(&read);
        }
        Ok(())
    }

    fn wrong(&self, problem: impl fmt::Display) -> Error {
        wrong(self.session, problem)
    }
}

/// Return the error for a line that no sink wrote, in a list that is read from its beginning. The
/// error names the file, the position and the remedy.
pub(super) fn damaged(session: &str, offset: u64, problem: impl fmt::Display) -> Error {
    Error::io(
        format!("{session}/{LOG} in the sink is damaged at byte {offset}"),
        format!(
            "{problem}. Restore it from an intact copy, or move {session} out of the sink: then the other sessions \
             can be read, and the rows of this one are missing"
        ),
    )
}

/// Return the error for a list, or a requested range of it, that is not in the format of a sink.
pub(super) fn wrong(session: &str, problem: impl fmt::Display) -> Error {
    Error::io(format!("the list of session {session} cannot be read"), problem.to_string())
}

/// Return the code with which a list of this length is closed, and where its last line starts;
/// `None` if it is not closed.
pub(super) fn closed(store: &dyn Store, session: &str, length: u64) -> Result<Option<(u64, u64)>> {
    // The last line of a closed list is short: it contains one small number.
    let from = length.saturating_sub(64);
    let tail = store.read_list(session, from..length)?;
    let Some(tail) = tail.strip_suffix(b"\n") else { return Ok(None) };
    let start = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if start == 0 && from > 0 {
        return Ok(None);
    }
    let line = tail.get(start..).unwrap_or_default();
    let parsed = serde_json::from_slice::<ClosedLine>(line).ok();
    Ok(parsed.map(|last| (last.closed, from + start as u64)))
}
