//! A comparison of a request's chunks with the chunks that the buffer already had.
//!
//! The first write of an index wins, silently (section 7). So a stored chunk may come from a writer from whom the job
//! was taken over. Without the comparison a sender would believe that the job is written, while its readers wait for
//! the end or read a mixture.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Deserialize;

use crate::object::Object;
use crate::validate::{BoundedEnvelopes, json};
use crate::{Batch, Envelope, JobId, Limits, Metadata, Poll, Result};

/// How many chunks a probe asks for: at most 8 MiB of values with the default limits.
const LIMIT: u32 = 32;
/// No limits: the chunks are in memory already, and the buffer enforces the limits of a job.
const ANY: Limits =
    Limits { job: u64::MAX, chunks: u32::MAX, value: u64::MAX, error: u64::MAX, body: u64::MAX, ttl: u64::MAX };

/// The result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeOutcome {
    /// All chunks are as this sender wrote them.
    Same,
    /// The answer shows only some of the chunks; another poll is needed.
    Partial,
    /// The buffer does not return this chunk, which is the first that the poll asked for.
    Missing(u32),
    /// This chunk was written by another writer; `end` is the index after the last chunk, unless the job has ended.
    Different { index: u32, end: Option<u32> },
}

/// Polls that compare a request's chunks with those in the buffer.
#[derive(Debug)]
pub(super) struct ConflictProbe {
    job: JobId,
    stage: Stage,
}

/// The stage of a probe.
///
/// ```text
///  compare ─▶ Compare ─ a chunk is another writer's ─▶ FindEnd ─ nothing follows ──▶ Different
///                └─ all are the same ─▶ Same              ▲
///  find_end ──────────────────────────────────────────────┘
/// ```
#[derive(Debug)]
enum Stage {
    /// Our chunks that are not compared yet.
    Compare(VecDeque<Envelope<'static>>),
    /// The chunk at `index` is another writer's; no chunk below `place` ends the job.
    FindEnd { index: u32, place: u32 },
}

impl ConflictProbe {
    /// Make a probe that compares the chunks of a write's body.
    pub(super) fn compare(body: &[u8], job: JobId) -> Result<Self> {
        let ours = Batch::decode(body, job, &ANY)?.into_owned();
        Ok(Self { job, stage: Stage::Compare(ours.envelopes().iter().cloned().collect()) })
    }

    /// Make a probe that finds the index after the last chunk; the chunk at `index` cannot be written.
    pub(super) const fn find_end(job: JobId, index: u32) -> Self {
        Self { job, stage: Stage::FindEnd { index, place: index } }
    }

    fn from(&self) -> u32 {
        match &self.stage {
            Stage::Compare(ours) => ours.front().map_or(0, |ours| ours.index),
            Stage::FindEnd { place, .. } => *place,
        }
    }

    /// Return the next poll.
    pub(super) fn poll(&self) -> Poll {
        Poll { from: self.from(), wait: Duration::ZERO, limit: LIMIT }
    }

    /// Read a poll's answer. Fails where it is malformed.
    pub(super) fn handle_response(&mut self, body: &[u8]) -> Result<ProbeOutcome> {
        let Object(PollResponse { chunks }) = json(body)?;
        let from = self.from();
        let mut stored = BTreeMap::new();
        for fields in chunks.into_fields() {
            let envelope = fields.check(self.job, &ANY)?;
            if envelope.index >= from {
                stored.entry(envelope.index).or_insert(envelope);
            }
        }
        let (index, place) = match &mut self.stage {
            Stage::Compare(ours) => match compare(ours, &stored, from) {
                ProbeOutcome::Different { index, .. } => (index, index),
                outcome @ (ProbeOutcome::Same | ProbeOutcome::Partial | ProbeOutcome::Missing(_)) => {
                    return Ok(outcome);
                }
            },
            Stage::FindEnd { index, place } => (*index, *place),
        };
        let Some(last) = stored.keys().next_back() else {
            return Ok(ProbeOutcome::Different { index, end: Some(place) });
        };
        if stored.values().any(|found| found.done) {
            return Ok(ProbeOutcome::Different { index, end: None });
        }
        self.stage = Stage::FindEnd { index, place: last.saturating_add(1) };
        Ok(ProbeOutcome::Partial)
    }
}

/// Compare our chunks with the stored ones, from the first on, as far as the buffer shows them.
fn compare(ours: &mut VecDeque<Envelope<'static>>, stored: &BTreeMap<u32, Envelope<'_>>, from: u32) -> ProbeOutcome {
    while let Some(next) = ours.front() {
        match stored.get(&next.index) {
            Some(found) if is_same(next, found) => drop(ours.pop_front()),
            Some(found) => return ProbeOutcome::Different { index: found.index, end: None },
            None if next.index > from => return ProbeOutcome::Partial,
            None => return ProbeOutcome::Missing(from),
        }
    }
    ProbeOutcome::Same
}

/// Return whether readers see no difference. The time of a chunk does not count, and metadata may be formatted
/// differently.
fn is_same(ours: &Envelope<'_>, found: &Envelope<'_>) -> bool {
    let metadata = |envelope: &Envelope<'_>| Metadata::decode(&envelope.value).ok();
    let value = ours.value == found.value || (ours.index == 0 && metadata(ours) == metadata(found));
    let digest = ours.sha256.zip(found.sha256).is_none_or(|(ours, found)| ours == found);
    value && digest && (ours.done, &ours.error) == (found.done, &found.error)
}

/// The answer to a poll.
#[derive(Deserialize)]
struct PollResponse<'a> {
    #[serde(borrow)]
    chunks: BoundedEnvelopes<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";

    fn chunks(values: &[(u32, &str, bool)]) -> Vec<u8> {
        let chunk = |&(index, value, done): &(u32, &str, bool)| {
            format!(r#"{{"jobId":"{JOB}","index":{index},"value":"{value}","done":{done},"error":null,"createdAt":7}}"#)
        };
        let all: Vec<_> = values.iter().map(chunk).collect();
        format!(r#"{{"chunks":[{}]}}"#, all.join(",")).into_bytes()
    }

    fn probe() -> ConflictProbe {
        let ours = chunks(&[(1, "a", false), (2, "b", false)]);
        ConflictProbe::compare(&ours, JobId::parse(JOB).unwrap()).unwrap()
    }

    #[test]
    fn a_probe_compares_every_chunk_and_then_finds_the_end() {
        let mut same = probe();
        assert_eq!(same.handle_response(&chunks(&[])), Ok(ProbeOutcome::Missing(1)));
        assert_eq!(same.handle_response(&chunks(&[(1, "a", false)])), Ok(ProbeOutcome::Partial));
        assert_eq!(same.poll().from, 2);
        assert_eq!(same.handle_response(&chunks(&[(2, "b", false)])), Ok(ProbeOutcome::Same));

        let mut other = probe();
        assert_eq!(other.handle_response(&chunks(&[(1, "a", false), (2, "x", false)])), Ok(ProbeOutcome::Partial));
        assert_eq!(other.poll().from, 3, "the end is behind the other writer's chunk");
        assert_eq!(other.handle_response(&chunks(&[(5, "b", false)])), Ok(ProbeOutcome::Partial));
        let found = ProbeOutcome::Different { index: 2, end: Some(6) };
        assert_eq!(other.handle_response(&chunks(&[])), Ok(found));

        let mut ended = ConflictProbe::find_end(JobId::parse(JOB).unwrap(), 4);
        assert_eq!(ended.poll().from, 4);
        assert_eq!(
            ended.handle_response(&chunks(&[(7, "", true)])),
            Ok(ProbeOutcome::Different { index: 4, end: None })
        );
    }

    #[test]
    fn a_malformed_answer_changes_nothing() {
        let mut probe = probe();
        assert_eq!(probe.handle_response(b"{").map_err(|error| error.code()), Err(Code::Malformed));
        assert_eq!(probe.poll().from, 1);
    }
}
