//! Records, the only thing that segments hold behind their header.
//!
//! ```text
//! segment  "PIMPLOG1"  number (8)  records
//! record   length of the body (4)  CRC-32 of length and body (4)  body
//! body     job ID (16)  until (8)  length (4)  the job's record; of length 0: it is deleted
//!          count (4)  { index (4)  length (4)  envelope } × count
//! ```
//!
//! Integers are big-endian; `until` is when the job is forgotten, in milliseconds since the Unix epoch.

use bytes::Bytes;
use penstock_pimp::{Job, JobId};

use super::Change;

/// What every segment begins with, before its number.
const MAGIC: &[u8; 8] = b"PIMPLOG1";
/// Octets of a segment's header.
pub(super) const HEADER: usize = 16;
/// Octets before a body.
const HEAD: usize = 8;
/// Octets before each envelope.
const CHUNK: usize = 8;

/// A chunk within a segment: its index, where it begins, its octets.
pub(super) type Chunk = (u32, u64, u32);

/// A change, as it is written. Where chunks begin is counted from the record's first octet.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) id: JobId,
    pub(super) until: u64,
    pub(super) job: Option<Job>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) octets: Vec<u8>,
    /// The chunks themselves, to be kept in memory.
    pub(super) recent: Vec<(u32, Bytes)>,
}

/// The first octets of a segment.
pub(super) fn header(number: u64) -> Vec<u8> {
    [MAGIC.as_slice(), &number.to_be_bytes()].concat()
}

/// The number of a segment; `None` where these octets are no whole header.
pub(super) fn number(octets: &[u8]) -> Option<u64> {
    let (number, _) = octets.strip_prefix(MAGIC)?.split_first_chunk::<8>()?;
    Some(u64::from_be_bytes(*number))
}

fn too_long(_: std::num::TryFromIntError) -> penstock_pimp::Error {
    penstock_pimp::Error::new(penstock_pimp::Code::TooLarge, "the octets of a change are more than 4 GiB")
}

/// Writes a change.
pub(super) fn encode(id: JobId, until: u64, change: Change) -> penstock_pimp::Result<Encoded> {
    let Change { job, chunks, .. } = change;
    let record = job.as_ref().map_or_else(|| Ok(Vec::new()), Job::encode)?;
    let length = chunks.iter().map(|(_, chunk)| CHUNK + chunk.len()).sum::<usize>() + record.len() + 32;
    let mut octets = Vec::with_capacity(HEAD + length);
    octets.extend_from_slice(&u32::try_from(length).map_err(too_long)?.to_be_bytes());
    octets.extend_from_slice(&[0; 4]);
    octets.extend_from_slice(id.octets());
    octets.extend_from_slice(&until.to_be_bytes());
    octets.extend_from_slice(&u32::try_from(record.len()).map_err(too_long)?.to_be_bytes());
    octets.extend_from_slice(&record);
    octets.extend_from_slice(&u32::try_from(chunks.len()).map_err(too_long)?.to_be_bytes());
    let mut places = Vec::with_capacity(chunks.len());
    for (index, chunk) in &chunks {
        let length = u32::try_from(chunk.len()).map_err(too_long)?;
        octets.extend_from_slice(&index.to_be_bytes());
        octets.extend_from_slice(&length.to_be_bytes());
        places.push((*index, octets.len() as u64, length));
        octets.extend_from_slice(chunk);
    }
    let sum = checksum(&octets);
    if let Some(at) = octets.get_mut(4..HEAD) {
        at.copy_from_slice(&sum.to_be_bytes());
    }
    Ok(Encoded { id, until, job, chunks: places, octets, recent: chunks })
}

fn checksum(record: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(record.get(..4).unwrap_or_default());
    hasher.update(record.get(HEAD..).unwrap_or_default());
    hasher.finalize()
}

/// What stands at the beginning of these octets.
pub(super) enum Scanned {
    /// A change, without its octets, and how many these are.
    Record(Box<Encoded>, usize),
    /// Nothing whole: the end, or a write that was cut.
    Torn,
    /// A whole record that means nothing here: another version wrote it.
    Foreign,
}

/// Reads the next record. Places are counted from its first octet.
pub(super) fn scan(octets: &[u8]) -> Scanned {
    let Some((length, _)) = octets.split_first_chunk::<4>() else { return Scanned::Torn };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX).saturating_add(HEAD);
    let Some(record) = octets.get(..length) else { return Scanned::Torn };
    let sum = record.get(4..HEAD).and_then(|sum| sum.first_chunk::<4>());
    if sum.is_none_or(|sum| u32::from_be_bytes(*sum) != checksum(record)) {
        return Scanned::Torn;
    }
    body(record).map_or(Scanned::Foreign, |encoded| Scanned::Record(Box::new(encoded), length))
}

fn body(record: &[u8]) -> Option<Encoded> {
    let mut rest = record.get(HEAD..)?;
    let id = JobId::from_octets(*take::<16>(&mut rest)?).ok()?;
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
        let at = record.len() - rest.len();
        rest = rest.get(length..)?;
        chunks.push((index, at as u64, u32::try_from(length).ok()?));
    }
    rest.is_empty().then_some(Encoded { id, until, job, chunks, octets: Vec::new(), recent: Vec::new() })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(taken)
}

fn long(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(*take::<4>(rest)?)).ok()
}
