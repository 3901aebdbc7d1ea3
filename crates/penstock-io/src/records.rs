//! Files of consecutive records: `length 4, CRC-32 4, bytes`.

use std::io;

use bytes::Buf as _;

/// Length and checksum.
const HEAD: usize = 8;

/// Append a record.
pub fn append(body: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend_from_slice(&crc32fast::hash(body).to_be_bytes());
    bytes.extend_from_slice(body);
}

/// Read the records in `bytes`, which follow the first `start` bytes of a file, each of at most
/// `max` bytes. Return the offset in the file at which the last complete record ends. A crash cut
/// off the rest, which was never acknowledged.
///
/// # Errors
///
/// A record that `each` cannot read, or that is damaged in a way that no crash explains; the error
/// names its offset.
pub fn read(bytes: &[u8], start: usize, max: usize, mut each: impl FnMut(&[u8]) -> Option<()>) -> io::Result<usize> {
    let mut rest = bytes;
    while let Some((body, more)) = first(rest, max) {
        if each(body).is_none() {
            break;
        }
        rest = more;
    }
    let length = start + bytes.len() - rest.len();
    // A damaged length can make the rest look cut off, but then the rest contains complete records.
    let is_last = || (1..rest.len()).all(|at| rest.get(at..).and_then(|rest| first(rest, max)).is_none_or(is_empty));
    if first(rest, max).is_none() && is_cut_off(rest) && is_last() {
        return Ok(length);
    }
    Err(damaged(format!("the record at byte {length} is damaged")))
}

/// Return the first record and the rest; `None` if there is no complete record.
pub fn first(bytes: &[u8], max: usize) -> Option<(&[u8], &[u8])> {
    let (mut head, rest) = bytes.split_at_checked(HEAD)?;
    let length = usize::try_from(head.get_u32()).ok().filter(|length| *length <= max)?;
    let (body, rest) = rest.split_at_checked(length)?;
    (crc32fast::hash(body) == head.get_u32()).then_some((body, rest))
}

/// Return whether a record is empty: a run of zeros looks like empty records.
fn is_empty((body, _): (&[u8], &[u8])) -> bool {
    body.is_empty()
}

/// Return whether the rest may be the beginning of one record, or one record of which not all bytes
/// reached the disk.
fn is_cut_off(bytes: &[u8]) -> bool {
    let Some((mut head, rest)) = bytes.split_at_checked(HEAD) else { return true };
    usize::try_from(head.get_u32()).is_ok_and(|length| rest.len() <= length) || bytes.iter().all(|byte| *byte == 0)
}

/// Return the error of unexpected content in a file.
pub fn damaged(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
