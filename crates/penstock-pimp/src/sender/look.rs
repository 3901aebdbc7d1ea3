//! What a buffer has in the place of chunks of which it says that they were there.
//!
//! The first write of an index wins, silently (section 7). So a chunk may be that of a writer from whom the job was taken over; a sender
//! that did not look would believe that the job is written, while its readers wait for the end, or read a mixture.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::Deserialize;

use crate::object::Object;
use crate::validate::{Bounded, json};
use crate::{Batch, Envelope, JobId, Limits, Metadata, Poll, Result};

/// How many chunks are asked for at a time: 8 MiB of values, at most, where nobody has said otherwise.
const LIMIT: u32 = 32;
/// What is read here is in memory already; how large a job may be is the buffer's to say.
const ANY: Limits =
    Limits { job: u64::MAX, chunks: u32::MAX, value: u64::MAX, error: u64::MAX, body: u64::MAX, ttl: u64::MAX };

/// What was seen of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// All are as they were to be written.
    Same,
    /// Some; more is to be looked at.
    Part,
    /// Nothing of this chunk, nor behind it.
    Nothing(u32),
    /// This chunk is another one; behind the last one is this place, unless the job has ended.
    Other { index: u32, end: Option<u32> },
}

/// Polls that look at them.
#[derive(Debug)]
pub(super) struct Look {
    job: JobId,
    /// Ours, as far as they are not compared.
    ours: VecDeque<Envelope<'static>>,
    /// The first that is another's: then only the end is looked for, from here on.
    other: Option<(u32, u32)>,
}

impl Look {
    /// Compares the chunks of a write's body.
    pub(super) fn compare(body: &[u8], job: JobId) -> Result<Self> {
        let ours = Batch::decode(body, job, &ANY)?.into_owned();
        Ok(Self { job, ours: ours.envelopes().iter().cloned().collect(), other: None })
    }

    /// Looks for the place behind the last chunk, in the way of this one.
    pub(super) const fn end(job: JobId, index: u32) -> Self {
        Self { job, ours: VecDeque::new(), other: Some((index, index)) }
    }

    fn from(&self) -> u32 {
        self.other.map_or_else(|| self.ours.front().map_or(0, |ours| ours.index), |(_, from)| from)
    }

    /// The next poll.
    pub(super) fn poll(&self) -> Poll {
        Poll { from: self.from(), wait: Duration::ZERO, limit: LIMIT }
    }

    /// Its answer. Fails where that is none.
    pub(super) fn handle_response(&mut self, body: &[u8]) -> Result<Seen> {
        let Object(Polled { chunks }) = json(body)?;
        let from = self.from();
        let mut stored = BTreeMap::new();
        for fields in chunks.into_fields() {
            let envelope = fields.check(self.job, &ANY)?;
            if envelope.index >= from {
                stored.entry(envelope.index).or_insert(envelope);
            }
        }
        if self.other.is_none() {
            while let Some(ours) = self.ours.pop_front() {
                match stored.get(&ours.index) {
                    Some(found) if is_same(&ours, found) => {}
                    Some(found) => {
                        self.other = Some((found.index, found.index));
                        break;
                    }
                    None if ours.index > from => {
                        self.ours.push_front(ours);
                        return Ok(Seen::Part);
                    }
                    None => {
                        self.ours.push_front(ours);
                        return Ok(Seen::Nothing(from));
                    }
                }
            }
        }
        let Some((index, place)) = &mut self.other else { return Ok(Seen::Same) };
        let index = *index;
        let Some(last) = stored.keys().next_back() else { return Ok(Seen::Other { index, end: Some(*place) }) };
        if stored.values().any(|found| found.done) {
            return Ok(Seen::Other { index, end: None });
        }
        *place = last.saturating_add(1);
        Ok(Seen::Part)
    }
}

/// Whether readers read the same. When a chunk was made does not count, and metadata may be written differently.
fn is_same(ours: &Envelope<'_>, found: &Envelope<'_>) -> bool {
    let metadata = |envelope: &Envelope<'_>| Metadata::decode(&envelope.value).ok();
    let value = ours.value == found.value || (ours.index == 0 && metadata(ours) == metadata(found));
    let digest = ours.sha256.zip(found.sha256).is_none_or(|(ours, found)| ours == found);
    value && digest && (ours.done, &ours.error) == (found.done, &found.error)
}

/// The answer to a poll.
#[derive(Deserialize)]
struct Polled<'a> {
    #[serde(borrow)]
    chunks: Bounded<'a>,
}
