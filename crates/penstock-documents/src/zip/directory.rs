//! The central directory of a zip file (APPNOTE 4.3), read from the source entry by entry, so that a directory of a
//! million entries uses no memory, and two entries with the same name stay separate.
//!
//! ```text
//! members ... | central header * n | [zip64 end record] [zip64 locator] | end record, comment
//!             ^ start              ^ end
//! ```
//! Offsets in the directory count from the first member's header, which need not be the file's first byte
//! (self-extracting archives); `shift` is the difference.

use std::io::{self, SeekFrom};

use crate::bytes::{u16_at, u32_at, u64_at};
use crate::failure::Failure;
use crate::workspace::Source;

const END_LENGTH: u64 = 22;
const LOCATOR_LENGTH: u64 = 20;
const ZIP64_END_LENGTH: u64 = 56;
const CENTRAL_LENGTH: u64 = 46;
const LOCAL_LENGTH: u64 = 30;
const MAX_COMMENT: u64 = 65535;

const END: &[u8] = b"PK\x05\x06";
const LOCATOR: &[u8] = b"PK\x06\x07";
const ZIP64_END: &[u8] = b"PK\x06\x06";
const CENTRAL: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";

/// The position of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Directory {
    pub(crate) start: u64,
    pub(crate) end: u64,
    shift: u64,
    /// The number of entries that the end record states; exact only if it is the zip64 end record.
    pub(crate) entries: u64,
    pub(crate) exact: bool,
}

/// One entry of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) crc: u32,
    pub(crate) compressed: u64,
    pub(crate) size: u64,
    pub(crate) symlink: bool,
    /// The position of the member's local header in the source.
    pub(crate) header: u64,
    /// The position of the next entry in the source.
    pub(crate) next: u64,
}

impl Directory {
    /// Find the directory of the `length` bytes in `source`.
    pub(crate) fn locate(source: &mut dyn Source, length: u64) -> Result<Self, Failure> {
        let tail_start = length.saturating_sub(END_LENGTH + MAX_COMMENT);
        let tail = read_at(source, tail_start, length - tail_start).map_err(|error| unreadable(&error))?;
        let mut failure = Failure::broken("the zip's central directory cannot be found");
        for at in (0..tail.len()).rev() {
            let Some(record) = tail.get(at..).filter(|record| record.starts_with(END)) else { continue };
            let Some(comment) = u16_at(record, 20) else { continue };
            if END_LENGTH + u64::from(comment) > record.len() as u64 {
                continue;
            }
            match Self::from_end(source, record, tail_start + at as u64) {
                Ok(directory) => return Ok(directory),
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    fn from_end(source: &mut dyn Source, record: &[u8], at: u64) -> Result<Self, Failure> {
        let short = |at| u16_at(record, at).unwrap_or_default();
        let long = |at| u32_at(record, at).unwrap_or_default();
        let (entries, size, offset) = (short(10), long(12), long(16));
        let overflows = entries == u16::MAX || size == u32::MAX || offset == u32::MAX;
        if overflows && let Some(directory) = Self::from_zip64(source, at)? {
            return Ok(directory);
        }
        if short(4) != 0 || short(6) != 0 {
            return Err(Failure::unsupported("the zip is split over several files"));
        }
        Self::check(source, at, u64::from(size), u64::from(offset), u64::from(entries), false)
    }

    /// Return the directory from the zip64 end record that belongs to the end record at `at`, if there is one.
    fn from_zip64(source: &mut dyn Source, at: u64) -> Result<Option<Self>, Failure> {
        let Some(locator_at) = at.checked_sub(LOCATOR_LENGTH) else { return Ok(None) };
        let locator = read_at(source, locator_at, LOCATOR_LENGTH).map_err(|error| unreadable(&error))?;
        if !locator.starts_with(LOCATOR) {
            return Ok(None);
        }
        // The locator's offset is right unless other bytes precede the archive; then the record is still directly
        // before the locator.
        let declared = u64_at(&locator, 8).unwrap_or_default();
        for place in [Some(declared), locator_at.checked_sub(ZIP64_END_LENGTH)].into_iter().flatten() {
            if place.checked_add(ZIP64_END_LENGTH).is_none_or(|end| end > locator_at) {
                continue;
            }
            let record = read_at(source, place, ZIP64_END_LENGTH).map_err(|error| unreadable(&error))?;
            if let (true, Some(entries), Some(size), Some(offset)) =
                (record.starts_with(ZIP64_END), u64_at(&record, 32), u64_at(&record, 40), u64_at(&record, 48))
            {
                return Self::check(source, place, size, offset, entries, true).map(Some);
            }
        }
        Err(Failure::broken("the zip64 end record cannot be found"))
    }

    fn check(
        source: &mut dyn Source,
        end: u64,
        size: u64,
        offset: u64,
        entries: u64,
        exact: bool,
    ) -> Result<Self, Failure> {
        let place = end.checked_sub(size).and_then(|start| Some((start, start.checked_sub(offset)?)));
        let Some((start, shift)) = place else {
            return Err(Failure::broken("the zip's central directory reaches beyond the file"));
        };
        if entries > 0 || size > 0 {
            let first = read_at(source, start, CENTRAL.len() as u64).map_err(|error| unreadable(&error))?;
            if !first.starts_with(CENTRAL) {
                return Err(Failure::broken("the zip's central directory does not begin where the end record says"));
            }
        }
        Ok(Self { start, end, shift, entries, exact })
    }

    /// Return the entry at `at`, which must lie within the directory.
    pub(crate) fn entry(&self, source: &mut dyn Source, at: u64) -> Result<Entry, Failure> {
        let damaged = || Failure::broken(format!("the zip's central directory is damaged at byte {at}"));
        let fixed = read_at(source, at, CENTRAL_LENGTH).map_err(|error| unreadable(&error))?;
        let short = |at| u16_at(&fixed, at).ok_or_else(damaged);
        let long = |at| u32_at(&fixed, at).ok_or_else(damaged);
        if !fixed.starts_with(CENTRAL) {
            return Err(damaged());
        }
        let (name, extra, comment) = (u64::from(short(28)?), u64::from(short(30)?), u64::from(short(32)?));
        let next = at + CENTRAL_LENGTH + name + extra + comment;
        if next > self.end {
            return Err(damaged());
        }
        let variable = read_at(source, at + CENTRAL_LENGTH, name + extra).map_err(|error| unreadable(&error))?;
        let (name, extra) = variable.split_at_checked(name as usize).ok_or_else(damaged)?;
        let mut sizes = [u64::from(long(24)?), u64::from(long(20)?), u64::from(long(42)?)];
        widen(&mut sizes, extra);
        let [size, compressed, offset] = sizes;
        // Archives made on Unix and macOS have the file's mode in the upper half of the external attributes.
        let unix = matches!(short(4)? >> 8, 3 | 19);
        let symlink = unix && (long(38)? >> 16) & 0o170_000 == 0o120_000;
        let header = offset.checked_add(self.shift).ok_or_else(damaged)?;
        let (flags, method, crc) = (short(8)?, short(10)?, long(16)?);
        Ok(Entry { name: name.to_vec(), flags, method, crc, compressed, size, symlink, header, next })
    }

    /// Return where the bytes of `entry`'s member begin and end.
    pub(crate) fn data(&self, source: &mut dyn Source, entry: &Entry) -> Result<(u64, u64), Failure> {
        let local = read_at(source, entry.header, LOCAL_LENGTH).map_err(|error| unreadable(&error))?;
        let (true, Some(name), Some(extra)) = (local.starts_with(LOCAL), u16_at(&local, 26), u16_at(&local, 28)) else {
            return Err(Failure::broken("the member's local header is damaged"));
        };
        let start = entry.header.saturating_add(LOCAL_LENGTH + u64::from(name) + u64::from(extra));
        match start.checked_add(entry.compressed) {
            Some(end) if end <= self.start => Ok((start, end)),
            _ => Err(Failure::broken("the member reaches beyond the archive")),
        }
    }
}

/// Replace those of size, compressed size and offset that do not fit into 32 bits by the values in the zip64 extra
/// field (APPNOTE 4.5.3), which contains only the replaced ones, in this order.
fn widen(sizes: &mut [u64; 3], mut extra: &[u8]) {
    while let (Some(id), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
        let Some((field, rest)) = extra.get(4..).and_then(|rest| rest.split_at_checked(usize::from(length))) else {
            return;
        };
        if id == 1 {
            let wide = sizes.iter_mut().filter(|size| **size == u64::from(u32::MAX));
            for (place, size) in wide.enumerate() {
                *size = u64_at(field, place * 8).unwrap_or(*size);
            }
            return;
        }
        extra = rest;
    }
}

/// Read up to `length` bytes at `at`; fewer at the end of the source.
pub(crate) fn read_at(source: &mut dyn Source, at: u64, length: u64) -> io::Result<Vec<u8>> {
    source.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(source, length), &mut bytes)?;
    Ok(bytes)
}

fn unreadable(error: &io::Error) -> Failure {
    Failure::io("reading the container failed", error)
}
