//! The state of an end's claim checks: the book, the descriptions of their entities, and the order
//! of issue.

use std::collections::BTreeMap;
use std::time::Duration;

use penstock_pipestream::claims::{Claim, ClaimBook, ClaimLimits, ClaimRecord, ClaimState};
use penstock_pipestream::{self as core, ClaimResponse, SessionId, Status};
use penstock_pipestream_net::port::Details;
use penstock_pipestream_net::{ClaimCheck, ClaimRow, now};
use penstock_wire::FastMap;

use crate::Result;
use crate::claims::doubts::{Doubts, Loss};
use crate::claims::record::{Entry, Item};

/// The session ID that stands for settling without a session.
pub(super) const HERE: SessionId = SessionId::new([0; 16]);

/// Maximum number of claim checks that `fresh` returns at a time.
const FRESH: usize = 4_096;
/// Maximum size of the details of all claim checks together, in bytes.
const MAX_DETAILS: usize = 512 << 20;
/// Number of surplus details, of claim checks that the book has forgotten, beyond which they are
/// removed.
const SWEPT: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct State {
    limits: ClaimLimits,
    pub(super) book: ClaimBook,
    pub(super) details: FastMap<u64, Details>,
    pub(super) details_bytes: usize,
    /// The IDs of stored claim checks by number, in the order of issue.
    pub(super) order: BTreeMap<u64, u64>,
    pub(super) last: u64,
    /// Claim checks that sessions of an earlier process had redeemed and that are not settled, with
    /// the session.
    pub(super) left: Vec<(u64, SessionId)>,
    /// The claim checks that damage of the log has left in doubt.
    pub(super) doubts: Doubts,
}

impl State {
    pub(super) fn new(limits: ClaimLimits) -> Self {
        Self { limits, book: ClaimBook::new(limits), ..Self::default() }
    }

    /// Apply a record of a folder's log. Records come in the order in which they were written.
    pub(super) fn replay(&mut self, item: Item) {
        match item {
            Item::Change((record, details)) => {
                let id = match &record {
                    // This record replaces all earlier ones of the claim check.
                    ClaimRecord::Issued(claim) => {
                        self.forget(claim.id);
                        self.book.restore(now(), ClaimRecord::Voided { id: claim.id });
                        Some(claim.id)
                    }
                    ClaimRecord::Voided { id } => Some(*id),
                    // The record proves that the claim check was open until then.
                    ClaimRecord::Redeemed { id, .. } => Some(*id).filter(|id| self.is_open(*id)),
                    ClaimRecord::Settled { id, .. } => Some(*id).filter(|id| self.book.get(*id).is_some()),
                };
                id.into_iter().for_each(|id| self.doubts.clear(id));
                self.restore(record, details);
            }
            Item::Doubted(change, loss) => {
                let id = if let ClaimRecord::Issued(claim) = &change.0 { Some(claim.id) } else { None };
                self.replay(Item::Change(change));
                if id.is_some() {
                    self.doubts.add(id, loss);
                }
            }
            Item::Lost(id, loss) => self.doubts.add(id, loss),
        }
    }

    fn is_open(&self, id: u64) -> bool {
        self.book.get(id).is_some_and(|claim| claim.state == ClaimState::Open)
    }

    /// Note that a place of the log is lost: a record of the claim check `id`, or, without an ID,
    /// records of unknown claim checks.
    pub(super) fn lose(&mut self, id: Option<u64>, place: &str) {
        // The server that wrote the record may have had other limits, so the longest doubt counts.
        let (limits, most) = (self.limits, ClaimLimits::default());
        let kept: Duration = limits.life.max(most.life).saturating_add(limits.linger.max(most.linger));
        let micros = u64::try_from(kept.as_micros()).unwrap_or(u64::MAX);
        let loss = Loss { until: now().unix_micros.saturating_add(micros), place: place.into() };
        // A settled claim check does not change any more.
        let changes = |claim: &&Claim| !matches!(claim.state, ClaimState::Settled { .. });
        let known = self.book.iter().filter(|claim| id.is_none_or(|id| id == claim.id));
        let doubted: Vec<u64> = known.filter(changes).map(|claim| claim.id).collect();
        doubted.into_iter().for_each(|id| self.doubts.add(Some(id), loss.clone()));
        if id.is_none_or(|id| self.book.get(id).is_none()) {
            self.doubts.add(id, loss);
        }
    }

    /// Return an error if the claim check is in doubt.
    pub(super) fn check(&self, id: u64) -> Result<()> {
        self.doubts.check(now().unix_micros, id, self.book.get(id).is_some())
    }

    /// Return whether a claim check is not in doubt.
    pub(super) fn is_sure(&self, id: u64) -> bool {
        self.doubts.get(id).is_none()
    }

    pub(super) fn restore(&mut self, record: ClaimRecord, details: Option<Details>) {
        if let (ClaimRecord::Issued(claim), Some(details)) = (&record, details) {
            self.remember(claim.id, details);
        }
        self.book.restore(now(), record);
    }

    pub(super) fn remember(&mut self, id: u64, details: Details) {
        self.details_bytes = self.details_bytes.saturating_add(details.weight());
        if let Some(old) = self.details.insert(id, details) {
            self.details_bytes = self.details_bytes.saturating_sub(old.weight());
        }
    }

    /// Return whether the entity was settled COMPLETE without a session, and its payload is in the
    /// sink.
    pub(super) fn is_done_here(&self, claim: &Claim) -> bool {
        claim.state == ClaimState::Settled { by: HERE, status: Status::Complete }
            && self.details.get(&claim.id).is_some_and(|details| details.file.is_some())
    }

    /// Add the payload's place to the response about a claim check whose work was done without a
    /// session.
    pub(super) fn tell_place(&self, response: &mut ClaimResponse) {
        let done = self.book.get(response.claim_id).filter(|claim| self.is_done_here(claim));
        let file = done.and_then(|claim| self.details.get(&claim.id)?.file.clone());
        if let Some(found) = &mut response.found {
            found.file = file;
        }
    }

    pub(super) fn forget(&mut self, id: u64) {
        if let Some(old) = self.details.remove(&id) {
            self.details_bytes = self.details_bytes.saturating_sub(old.weight());
        }
    }

    pub(super) fn has_room(&self) -> Result<()> {
        if self.details_bytes < MAX_DETAILS {
            return Ok(());
        }
        Err(core::Error::from(core::LimitError::ClaimDetails { bytes: MAX_DETAILS }).into())
    }

    /// Return the first `max` claim checks whose expiry and ID follow `after`, in that order.
    ///
    /// # Errors
    ///
    /// If any claim check is in doubt.
    pub(super) fn page(&self, after: (u64, u64), max: usize) -> Result<Vec<ClaimRow>> {
        self.doubts.check_all(now().unix_micros)?;
        let place = |claim: &Claim| (claim.expiry_micros, claim.id);
        let mut found: Vec<_> = self.book.iter().map(place).filter(|place| *place > after).collect();
        if found.len() > max {
            found.select_nth_unstable(max);
            found.truncate(max);
        }
        found.sort_unstable();
        Ok(found.into_iter().filter_map(|(_, id)| self.book.get(id)).map(|claim| self.row(claim)).collect())
    }

    pub(super) fn note_left(&mut self) {
        let redeemed = self.book.iter().filter_map(|claim| match claim.state {
            // A claim check in doubt may have been settled.
            ClaimState::Redeemed { by } if by != HERE && self.is_sure(claim.id) => Some((claim.id, by)),
            ClaimState::Open | ClaimState::Redeemed { .. } | ClaimState::Settled { .. } => None,
        });
        self.left = redeemed.collect();
    }

    pub(super) fn row(&self, claim: &Claim) -> ClaimRow {
        let details = self.details.get(&claim.id).cloned().unwrap_or_default();
        ClaimRow { check: ClaimCheck { validation: None, ..ClaimCheck::from(claim) }, details }
    }

    /// Give the next number to a claim check, which is stored by now.
    pub(super) fn number(&mut self, id: u64) {
        self.last += 1;
        self.order.insert(self.last, id);
    }

    /// Number the claim checks that were read from the disk, by expiry: those that expire first
    /// were mostly issued first.
    pub(super) fn number_all(&mut self) {
        let mut found: Vec<_> = self.book.iter().map(|claim| (claim.expiry_micros, claim.id)).collect();
        found.sort_unstable();
        found.into_iter().for_each(|(_, id)| self.number(id));
    }

    pub(super) fn fresh(&self, after: u64) -> (Vec<ClaimRow>, u64) {
        let known = self.order.range(after.saturating_add(1)..).filter_map(|(_, id)| self.book.get(*id));
        let known = known.filter(|claim| self.is_sure(claim.id));
        let rows = known.filter(|claim| claim.is_open(now())).take(FRESH).map(|claim| self.row(claim));
        let rows: Vec<_> = rows.collect();
        let last = match (rows.len() == FRESH, rows.last()) {
            // More may follow, so the caller has to continue after the last row.
            (true, Some(row)) => {
                let found = self.order.range(after.saturating_add(1)..).find(|(_, id)| **id == row.check.id);
                found.map_or(self.last, |(number, _)| *number)
            }
            (_, _) => self.last,
        };
        (rows, last)
    }

    /// Forget claim checks that expired long ago.
    pub(super) fn sweep(&mut self) {
        self.book.handle_timeout(now());
        self.doubts.sweep(now().unix_micros);
        if self.details.len() > 2 * self.book.len() + SWEPT {
            let book = &self.book;
            self.details.retain(|id, _| book.get(*id).is_some());
            self.details_bytes = self.details.values().map(Details::weight).sum();
            self.order.retain(|_, id| book.get(*id).is_some());
        }
    }

    /// Return records of the current state, without history, for a rewritten log.
    pub(super) fn entries(&mut self) -> Vec<Entry> {
        self.sweep();
        let issued = self.book.snapshot().map(|record| match &record {
            ClaimRecord::Issued(claim) => {
                let details = self.details.get(&claim.id);
                match self.doubts.get(claim.id) {
                    Some(loss) => Entry::doubted(claim.id, &record, details, loss),
                    None => Entry::change(&record, details),
                }
            }
            ClaimRecord::Redeemed { .. } | ClaimRecord::Settled { .. } | ClaimRecord::Voided { .. } => {
                Entry::change(&record, None)
            }
        });
        let is_unknown = |(id, _): &(Option<u64>, &Loss)| id.is_none_or(|id| self.book.get(id).is_none());
        let lost = self.doubts.all().filter(is_unknown).map(|(id, loss)| Entry::lost(id, loss));
        issued.chain(lost).collect()
    }
}
