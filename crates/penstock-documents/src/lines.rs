//! A source that is read line by line, for formats made of lines (mbox, mail). A line may have any length; only its
//! beginning is kept.

use std::io::{self, BufRead, BufReader, Read, SeekFrom};

use crate::context::PIECE;
use crate::workspace::Source;

/// The number of bytes at a line's beginning that are kept. Boundaries have at most 70 bytes (RFC 2046, 5.1.1), and
/// headers are folded long before 4,096.
const MAX_TEXT: usize = 4096;

/// One line of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) start: u64,
    /// The end of its content, without the line end.
    pub(crate) content_end: u64,
    /// The beginning of the next line.
    pub(crate) end: u64,
    /// The beginning of its content.
    pub(crate) text: Vec<u8>,
}

impl Line {
    pub(crate) fn is_blank(&self) -> bool {
        self.content_end == self.start
    }
}

/// Reads lines and ranges of a source.
pub(crate) struct Lines {
    reader: BufReader<Box<dyn Source>>,
    position: u64,
}

impl Lines {
    /// Start at the beginning of `source`.
    pub(crate) fn new(mut source: Box<dyn Source>) -> io::Result<Self> {
        source.rewind()?;
        Ok(Self { reader: BufReader::with_capacity(PIECE, source), position: 0 })
    }

    /// Return the position of the next line.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Return the source.
    pub(crate) fn into_source(self) -> Box<dyn Source> {
        self.reader.into_inner()
    }

    /// Seek to `target`, within the buffer if possible.
    pub(crate) fn go(&mut self, target: u64) -> io::Result<()> {
        match i64::try_from(i128::from(target) - i128::from(self.position)) {
            Ok(distance) => self.reader.seek_relative(distance)?,
            Err(_) => {
                io::Seek::seek(&mut self.reader, SeekFrom::Start(target))?;
            }
        }
        self.position = target;
        Ok(())
    }

    /// Return the next line; `None` at the end of the source.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line>> {
        let start = self.position;
        let mut text = Vec::new();
        // The last two bytes determine the line end, wherever the edges of the buffer are.
        let (mut last, mut before) = (0, 0);
        loop {
            let ahead = self.reader.fill_buf()?;
            if ahead.is_empty() {
                break;
            }
            let length = ahead.iter().position(|&byte| byte == b'\n').map_or(ahead.len(), |at| at + 1);
            let piece = ahead.get(..length).unwrap_or_default();
            text.extend(piece.iter().take(MAX_TEXT.saturating_sub(text.len())));
            for &byte in piece.get(length.saturating_sub(2)..).unwrap_or_default() {
                (before, last) = (last, byte);
            }
            self.reader.consume(length);
            self.position += length as u64;
            if last == b'\n' {
                break;
            }
        }
        if self.position == start {
            return Ok(None);
        }
        let ending = match (last, before) {
            (b'\n', b'\r') if self.position - start > 1 => 2,
            (b'\n', _) => 1,
            _ => 0,
        };
        let content_end = self.position - ending;
        text.truncate(usize::try_from(content_end - start).unwrap_or(usize::MAX));
        Ok(Some(Line { start, content_end, end: self.position, text }))
    }

    /// Return a reader of the bytes from `start` to `end`. The next line begins where the reader stops.
    pub(crate) fn range(&mut self, start: u64, end: u64) -> io::Result<impl Read + '_> {
        self.go(start)?;
        Ok(Range { lines: self, end })
    }
}

struct Range<'l> {
    lines: &'l mut Lines,
    end: u64,
}

impl Read for Range<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.end.saturating_sub(self.lines.position);
        let limit = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let count = self.lines.reader.read(buffer.get_mut(..limit).unwrap_or_default())?;
        self.lines.position += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn lines(bytes: &[u8]) -> Lines {
        Lines::new(Box::new(Cursor::new(bytes.to_vec()))).unwrap()
    }

    #[test]
    fn lines_end_in_lf_or_crlf_or_with_the_source() {
        let mut lines = lines(b"a\r\n\nbc\n\r\nd");
        let mut seen = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            seen.push((line.start, line.content_end, line.end, line.text));
        }
        let expected: [(u64, u64, u64, &[u8]); 5] =
            [(0, 1, 3, b"a"), (3, 3, 4, b""), (4, 6, 7, b"bc"), (7, 7, 9, b""), (9, 10, 10, b"d")];
        assert_eq!(seen, expected.map(|(a, b, c, text)| (a, b, c, text.to_vec())));
    }

    #[test]
    fn only_the_beginning_of_a_long_line_is_kept() {
        let mut bytes = vec![b'x'; 3 * PIECE];
        bytes.extend_from_slice(b"\r\ny");
        let mut lines = lines(&bytes);
        let line = lines.next_line().unwrap().unwrap();
        assert_eq!((line.text.len(), line.content_end), (MAX_TEXT, 3 * PIECE as u64));
        assert_eq!(lines.next_line().unwrap().unwrap().text, b"y");
    }

    #[test]
    fn a_range_is_read_and_the_lines_go_on_behind_it() {
        let mut lines = lines(b"one\ntwo\nthree\n");
        let mut text = String::new();
        lines.range(4, 8).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "two\n");
        assert_eq!(lines.next_line().unwrap().unwrap().text, b"three");
    }
}
