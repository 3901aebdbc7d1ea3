//! Recovery at the start: the jobs in the log, and those of them that have lost something.
//!
//! The log reports what is damaged; this module finds the jobs concerned. A record with a damaged head is still read. A
//! record with a damaged body is identified by its head. Otherwise any job may have lost a record, unless it had ended
//! or has a later record. A job that has lost a record and has no newer one, or that has a chunk without a known
//! position, [is lost](penstock_pimp::Job::set_lost).

use std::collections::HashSet;
use std::sync::Arc;

use penstock_log::{DiskFile, EarlierSegment, Entry, Hole, Replay};
use penstock_pimp::JobId;

use super::earlier;
use super::record::{Update, read_body};
use super::state::State;

/// The length of the shortest record: a shorter gap contains none.
const SHORTEST: u64 = 64;

/// The contents of the log, collected oldest first.
#[derive(Default)]
pub(super) struct Recovery {
    state: State,
    /// Jobs that have lost a record, and have no newer one so far.
    lost: HashSet<JobId>,
}

impl Replay for Recovery {
    fn segment(&mut self, number: u64, file: &Arc<dyn DiskFile>) {
        self.state.add_segment(number, file);
    }

    fn record(&mut self, entry: &Entry<'_>) -> Option<()> {
        self.take(entry.segment, entry.offset, read_body(entry.body)?);
        Some(())
    }

    fn hole(&mut self, hole: &Hole<'_>) {
        let update = hole.body.and_then(|(offset, body)| Some((offset, read_body(body)?)));
        match (update, hole.label) {
            (Some((offset, update)), _) => self.take(hole.segment, offset, update),
            (None, Some(label)) => self.lost.extend(JobId::from_bytes(label)),
            (None, None) if hole.loses && hole.end - hole.start >= SHORTEST => self.suspect(),
            (None, None) => {}
        }
    }

    fn is_begun(&self, start: &[u8]) -> bool {
        earlier::is_begun(start)
    }

    fn earlier(&self, number: u64, start: &[u8]) -> Option<EarlierSegment> {
        earlier::earlier(number, start)
    }
}

impl Recovery {
    /// Apply a whole record. Earlier losses of its job no longer matter, because the record has its
    /// current state.
    fn take(&mut self, segment: u64, offset: u64, update: Update) {
        self.lost.remove(&update.id);
        self.state.apply(segment, offset, update, Vec::new());
    }

    /// Mark the jobs that a hole without an owner may concern. Chunks before a final one may be missing, as they may
    /// have come later than it.
    fn suspect(&mut self) {
        let open = self.state.jobs.iter().filter(|(_, entry)| {
            let job = entry.job.as_ref().filter(|job| !job.is_deleted());
            job.is_some_and(|job| !job.is_whole() && job.done().is_none_or(|done| !done.failed))
        });
        self.lost.extend(open.map(|(id, _)| *id));
    }

    /// Return the state in the log; `now` is in milliseconds since the Unix epoch.
    pub(super) fn end(self, now: u64) -> State {
        let Self { mut state, mut lost } = self;
        state.remove_unowned_chunks();
        for (id, entry) in &mut state.jobs {
            let was_named = lost.remove(id);
            let Some(job) = entry.job.as_mut().filter(|job| !job.is_deleted()) else { continue };
            if !was_named && job.indices().count() as usize == entry.chunks.len() {
                continue;
            }
            job.set_lost();
            if now < job.expires_at() {
                tracing::error!(job = %id, "the job has lost chunks, or its newest state; requests for it get 410");
            }
        }
        for id in lost {
            tracing::error!(job = %id, "a lost job is forgotten");
        }
        state
    }
}
