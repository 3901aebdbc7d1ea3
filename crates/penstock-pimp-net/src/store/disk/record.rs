//! The records of the log, and their meaning.
//!
//! ```text
//! label  job ID (16)
//! body   job ID (16)  until (8)  length (4)  the job's record; length 0 if it is deleted
//!        count (4)  { index (4)  length (4)  envelope } × count
//! ```
//!
//! Integers are big-endian; `until` is when the job is forgotten, in milliseconds since the Unix epoch. The ID is
//! stored twice, so that one copy still identifies the job if the other is damaged.

use bytes::Bytes;
use penstock_log::{Format, Label, Record};
use penstock_pimp::{Job, JobId};
use penstock_wire::Limit;

use crate::Change;

/// Bytes before each envelope.
const CHUNK: usize = 8;
/// Bytes of a body without a job's record and chunks.
const FIXED: usize = 32;

/// Return the format of a store's log, with segments that end after this many bytes.
pub(super) const fn format(segment: u64) -> Format {
    Format { kind: *b"pimp   3", suffix: ".chunks", what: "a PIMP store", segment }
}

/// A chunk within a body.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) index: u32,
    /// Where its envelope begins.
    pub(super) offset: u64,
    pub(super) length: u32,
    pub(super) sum: u32,
}

/// A record's update of a job.
#[derive(Debug)]
pub(super) struct Update {
    pub(super) id: JobId,
    pub(super) until: u64,
    pub(super) job: Option<Job>,
    pub(super) chunks: Vec<Chunk>,
}

/// A change in its encoded form.
#[derive(Debug)]
pub(super) struct EncodedChange {
    pub(super) update: Update,
    /// The whole body except the envelopes.
    fields: Vec<u8>,
    /// The envelopes, each with its index.
    pub(super) envelopes: Vec<(u32, Bytes)>,
}

/// The longest body: the log's records are shorter than 2 GiB.
const MAX_BODY: u64 = i32::MAX as u64;

/// Check the length of a change or of a part of it, and return it as a `u32`.
fn length_of(bytes: usize) -> penstock_pimp::Result<u32> {
    Limit::new("the length of a change", MAX_BODY).check(bytes as u64)?;
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Encode a change.
pub(super) fn encode(id: JobId, until: u64, change: Change) -> penstock_pimp::Result<EncodedChange> {
    let Change { job, chunks: envelopes, .. } = change;
    let record = job.as_ref().map_or_else(|| Ok(Vec::new()), Job::encode)?;
    let length = envelopes.iter().map(|(_, envelope)| CHUNK + envelope.len()).sum::<usize>() + record.len() + FIXED;
    length_of(length)?;
    let mut fields = Vec::with_capacity(FIXED + record.len() + CHUNK * envelopes.len());
    fields.extend_from_slice(id.bytes());
    fields.extend_from_slice(&until.to_be_bytes());
    fields.extend_from_slice(&length_of(record.len())?.to_be_bytes());
    fields.extend_from_slice(&record);
    fields.extend_from_slice(&length_of(envelopes.len())?.to_be_bytes());
    let mut chunks = Vec::with_capacity(envelopes.len());
    let mut written = 0;
    for (index, envelope) in &envelopes {
        let length = length_of(envelope.len())?;
        fields.extend_from_slice(&index.to_be_bytes());
        fields.extend_from_slice(&length.to_be_bytes());
        let offset = (fields.len() + written) as u64;
        chunks.push(Chunk { index: *index, offset, length, sum: checksum(envelope) });
        written += envelope.len();
    }
    Ok(EncodedChange { update: Update { id, until, job, chunks }, fields, envelopes })
}

impl EncodedChange {
    /// Return the length of its body.
    pub(super) fn length(&self) -> usize {
        self.fields.len() + self.envelopes.iter().map(|(_, envelope)| envelope.len()).sum::<usize>()
    }
}

impl Record for EncodedChange {
    fn label(&self) -> Label {
        *self.update.id.bytes()
    }

    fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>) {
        // The first envelope is preceded by all other fields as well.
        let first = self.fields.len() - CHUNK * self.envelopes.len().saturating_sub(1);
        let (fields, mut rest) = self.fields.split_at_checked(first).unwrap_or((&self.fields, &[]));
        parts.push(fields);
        for (place, (_, envelope)) in self.envelopes.iter().enumerate() {
            if place > 0 {
                let (before, behind) = rest.split_at_checked(CHUNK).unwrap_or((rest, &[]));
                parts.push(before);
                rest = behind;
            }
            parts.push(envelope);
        }
    }
}

/// Return the CRC-32 of bytes.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Parse a body; `None` if another version wrote it.
pub(super) fn read_body(body: &[u8]) -> Option<Update> {
    let mut rest = body;
    let id = JobId::from_bytes(*take::<16>(&mut rest)?)?;
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
        let offset = (body.len() - rest.len()) as u64;
        let (chunk, behind) = rest.split_at_checked(length)?;
        rest = behind;
        let (length, sum) = (u32::try_from(length).ok()?, checksum(chunk));
        chunks.push(Chunk { index, offset, length, sum });
    }
    rest.is_empty().then_some(Update { id, until, job, chunks })
}

fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(taken)
}

fn long(rest: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_be_bytes(*take::<4>(rest)?)).ok()
}
