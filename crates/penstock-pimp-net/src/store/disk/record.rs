//! Records, the only thing that segments hold behind their header.
//!
//! ```text
//! segment  "PIMPLOG2"  number (8)  bytes of the segment before it (8)  CRC-32 of these (4)  records
//! record   length of the body (4)  synced (8)  job ID (16)  CRC-32 of these (4)  body  CRC-32 of the body (4)
//! body     job ID (16)  until (8)  length (4)  the job's record; of length 0: it is deleted
//!          count (4)  { index (4)  length (4)  envelope } × count
//! ```
//!
//! Integers are big-endian; `until` is when the job is forgotten, in milliseconds since the Unix epoch; `synced` is how many bytes of
//! the segment were on the disk when this was written: what is broken before it was answered for, and not cut by a crash. A record
//! without a body, a seal, says only that. The ID stands there twice, so that one of the two says whose record is broken.

use bytes::Bytes;
use penstock_pimp::{Job, JobId};
use penstock_wire::Limit;

use super::Change;

/// What every segment begins with, before its number.
const MAGIC: &[u8; 8] = b"PIMPLOG2";
/// Bytes of a segment's header.
pub(super) const HEADER: usize = 28;
/// Bytes before a body.
const HEAD: usize = 32;
/// Bytes behind a body.
const TAIL: usize = 4;
/// Bytes of a seal.
pub(super) const SEAL: usize = HEAD + TAIL;
/// Bytes before each envelope.
const CHUNK: usize = 8;

/// A chunk within a segment.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) index: u32,
    /// Where it begins.
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) sum: u32,
}

/// A change, as it is written. Where chunks begin is counted from the record's first byte.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) id: JobId,
    pub(super) until: u64,
    pub(super) job: Option<Job>,
    pub(super) chunks: Vec<Chunk>,
    /// All of it; its head is written by [`set_head`].
    pub(super) bytes: Vec<u8>,
    /// The chunks themselves, to be kept in memory.
    pub(super) recent: Vec<(u32, Bytes)>,
}

/// The first bytes of a segment; `before` is how long the one before it is.
pub(super) fn header(number: u64, before: u64) -> Vec<u8> {
    let said = [MAGIC.as_slice(), &number.to_be_bytes(), &before.to_be_bytes()].concat();
    [said.as_slice(), &checksum(&said).to_be_bytes()].concat()
}

/// Whether a segment may begin with these bytes.
pub(super) fn is_begun(bytes: &[u8]) -> bool {
    bytes.iter().zip(MAGIC).all(|(byte, expected)| byte == expected)
}

/// What the first bytes of a segment say.
pub(super) enum Header {
    /// The number of the segment, and how long the one before it is.
    Whole(u64, u64),
    /// They began a segment of this version, and some of them have changed since.
    Damaged,
}

/// Reads the header of a segment; `None` where nothing says that these bytes were one of this version.
pub(super) fn read_header(bytes: &[u8]) -> Option<Header> {
    let (said, mut sum) = bytes.get(..HEADER)?.split_at_checked(HEADER - 4)?;
    let (magic, mut rest) = said.split_first_chunk::<8>()?;
    // Where only the name is damaged, the checksum is still that of the right one.
    let right = u32::from_be_bytes(*take(&mut sum)?) == checksum(&[MAGIC.as_slice(), rest].concat());
    match (magic == MAGIC, right) {
        (true, true) => {
            Some(Header::Whole(u64::from_be_bytes(*take(&mut rest)?), u64::from_be_bytes(*take(&mut rest)?)))
        }
        (true, false) | (false, true) => Some(Header::Damaged),
        (false, false) => None,
    }
}

/// Four bytes of a length, of a change or of a part of it.
fn length_of(bytes: usize) -> penstock_pimp::Result<u32> {
    Limit::new("the length of a change", u32::MAX.into()).check(bytes as u64)?;
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Writes a change, but for its head.
pub(super) fn encode(id: JobId, until: u64, change: Change) -> penstock_pimp::Result<Encoded> {
    let Change { job, chunks, .. } = change;
    let record = job.as_ref().map_or_else(|| Ok(Vec::new()), Job::encode)?;
    let length = chunks.iter().map(|(_, chunk)| CHUNK + chunk.len()).sum::<usize>() + record.len() + 32;
    length_of(length)?;
    let mut bytes = Vec::with_capacity(HEAD + length + TAIL);
    bytes.extend_from_slice(&[0; HEAD]);
    bytes.extend_from_slice(id.bytes());
    bytes.extend_from_slice(&until.to_be_bytes());
    bytes.extend_from_slice(&length_of(record.len())?.to_be_bytes());
    bytes.extend_from_slice(&record);
    bytes.extend_from_slice(&length_of(chunks.len())?.to_be_bytes());
    let mut places = Vec::with_capacity(chunks.len());
    for (index, chunk) in &chunks {
        let length = length_of(chunk.len())?;
        bytes.extend_from_slice(&index.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        places.push(Chunk { index: *index, offset: bytes.len() as u64, length, sum: checksum(chunk) });
        bytes.extend_from_slice(chunk);
    }
    let sum = checksum(bytes.get(HEAD..).unwrap_or_default());
    bytes.extend_from_slice(&sum.to_be_bytes());
    Ok(Encoded { id, until, job, chunks: places, bytes, recent: chunks })
}

/// Writes the head of a record that was [`encode`]d, which is written where so many bytes are synced.
pub(super) fn set_head(bytes: &mut [u8], id: JobId, synced: u64) {
    let length = u32::try_from(bytes.len().saturating_sub(SEAL)).unwrap_or(u32::MAX);
    if let Some(at) = bytes.get_mut(..HEAD) {
        at.copy_from_slice(&head(length, synced, id.bytes()));
    }
}

/// A record that says only how many bytes are synced.
pub(super) fn seal(synced: u64) -> Vec<u8> {
    let mut bytes = head(0, synced, &[0; 16]);
    bytes.extend_from_slice(&checksum(&[]).to_be_bytes());
    bytes
}

fn head(length: u32, synced: u64, id: &[u8; 16]) -> Vec<u8> {
    let said = [length.to_be_bytes().as_slice(), &synced.to_be_bytes(), id].concat();
    [said.as_slice(), &checksum(&said).to_be_bytes()].concat()
}

/// The CRC-32 of bytes.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// What stands at the beginning of these bytes.
pub(super) enum Scanned {
    /// A change, without its bytes, and how many these are.
    Record(Box<Encoded>, usize),
    /// A seal.
    Seal,
    /// A head that is whole, and a body that is not: whose it is, if a job's, and its bytes.
    Broken(Option<JobId>, usize),
    /// Nothing that is whole.
    Nothing,
    /// A whole record that means nothing here: another version wrote it.
    Foreign,
}

/// Reads the next record. Places are counted from its first byte.
pub(super) fn scan(bytes: &[u8]) -> Scanned {
    let Some((length, _, id)) = read_head(bytes) else { return Scanned::Nothing };
    let all = length.saturating_add(SEAL);
    let owner = JobId::from_bytes(id).ok();
    let Some((body, sum)) = bytes.get(HEAD..all).and_then(|rest| rest.split_at_checked(length)) else {
        return Scanned::Broken(owner, all);
    };
    if sum != checksum(body).to_be_bytes() {
        return Scanned::Broken(owner, all);
    }
    if body.is_empty() {
        return Scanned::Seal;
    }
    read_body(body).map_or(Scanned::Foreign, |encoded| Scanned::Record(Box::new(encoded), all))
}

/// A record that has lost its head, and that these bytes are the whole of.
pub(super) fn scan_body(bytes: &[u8]) -> Option<Encoded> {
    let (body, sum) = bytes.get(HEAD..)?.split_last_chunk::<TAIL>()?;
    if *sum == checksum(body).to_be_bytes() { read_body(body) } else { None }
}

/// Where the next record or seal begins that is whole, and how many bytes were synced when it was written.
///
/// No payload can look like one: a body is shorter than 2^29 bytes, so its length begins with a byte below 32, which JSON, as records
/// of jobs and envelopes are, does not hold.
pub(super) fn next_whole(bytes: &[u8], from: usize) -> Option<(usize, u64)> {
    (from..bytes.len()).find_map(|at| {
        let rest = bytes.get(at..)?;
        match scan(rest) {
            Scanned::Record(..) | Scanned::Seal => read_head(rest).map(|(_, synced, _)| (at, synced)),
            Scanned::Broken(..) | Scanned::Nothing | Scanned::Foreign => None,
        }
    })
}

fn read_head(bytes: &[u8]) -> Option<(usize, u64, [u8; 16])> {
    let (said, mut sum) = bytes.get(..HEAD)?.split_at_checked(HEAD - 4)?;
    if u32::from_be_bytes(*take(&mut sum)?) != checksum(said) {
        return None;
    }
    let mut rest = said;
    let length = long(&mut rest)?;
    Some((length, u64::from_be_bytes(*take(&mut rest)?), *take(&mut rest)?))
}

fn read_body(body: &[u8]) -> Option<Encoded> {
    let mut rest = body;
    let id = JobId::from_bytes(*take::<16>(&mut rest)?).ok()?;
    let until = u64::from_be_bytes(*take::<8>(&mut rest)?);
    let job = match long(&mut rest)? {
        0 => None,
        length => {
            let (job, behind) = rest.split_at_checked(length)?;
            rest = behind;
            Some(Job::decode(job).ok()?)
        }
    };
    let mut chunks = Vec::new();
    for _ in 0..long(&mut rest)? {
        let index = u32::from_be_bytes(*take::<4>(&mut rest)?);
        let length = long(&mut rest)?;
        let at = HEAD + body.len() - rest.len();
        let (chunk, behind) = rest.split_at_checked(length)?;
        rest = behind;
        let (length, sum) = (u32::try_from(length).ok()?, checksum(chunk));
        chunks.push(Chunk { index, offset: at as u64, length, sum });
    }
    rest.is_empty().then_some(Encoded { id, until, job, chunks, bytes: Vec::new(), recent: Vec::new() })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(taken)
}

fn long(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(*take::<4>(rest)?)).ok()
}
