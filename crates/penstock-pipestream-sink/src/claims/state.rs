//! The book, the descriptions of its claim checks' entities, and the order in which they were issued.

use std::collections::BTreeMap;

use penstock_pipestream::claims::{Claim, ClaimBook, ClaimLimits, ClaimRecord, ClaimState};
use penstock_pipestream::{self as core, ClaimResponse, SessionId, Status};
use penstock_pipestream_net::port::Details;
use penstock_pipestream_net::{ClaimCheck, ClaimRow, now};
use penstock_wire::FastMap;

use crate::Result;

/// The settler of claim checks that no session has redeemed.
pub(super) const HERE: SessionId = SessionId::new([0; 16]);

/// Maximum number of claim checks that `fresh` returns at a time.
const FRESH: usize = 4_096;
/// Maximum size of the details of all claim checks together, in bytes.
const MAX_DETAILS: usize = 512 << 20;
/// Number of surplus details, of claim checks that the book has forgotten, at which they are swept.
const SWEPT: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) book: ClaimBook,
    pub(super) details: FastMap<u64, Details>,
    pub(super) details_bytes: usize,
    /// Claim checks that are stored, by their number, in the order in which they were issued.
    pub(super) order: BTreeMap<u64, u64>,
    pub(super) last: u64,
    /// Claim checks that sessions of an earlier process had redeemed, and that are not settled.
    pub(super) left: Vec<(u64, SessionId)>,
}

impl State {
    pub(super) fn new(limits: ClaimLimits) -> Self {
        Self { book: ClaimBook::new(limits), ..Self::default() }
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

    /// Return whether the work was done without a session, and the payload is in the sink.
    pub(super) fn is_done_here(&self, claim: &Claim) -> bool {
        claim.state == ClaimState::Settled { by: HERE, status: Status::Complete }
            && self.details.get(&claim.id).is_some_and(|details| details.file.is_some())
    }

    /// Add the place of the payload to the answer about a claim check whose work was done without a session.
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

    pub(super) fn page(&self, after: (u64, u64), max: usize) -> Vec<ClaimRow> {
        let place = |claim: &Claim| (claim.expiry_micros, claim.id);
        let mut found: Vec<_> = self.book.iter().map(place).filter(|place| *place > after).collect();
        if found.len() > max {
            found.select_nth_unstable(max);
            found.truncate(max);
        }
        found.sort_unstable();
        found.into_iter().filter_map(|(_, id)| self.book.get(id)).map(|claim| self.row(claim)).collect()
    }

    pub(super) fn note_left(&mut self) {
        let redeemed = self.book.iter().filter_map(|claim| match claim.state {
            ClaimState::Redeemed { by } if by != HERE => Some((claim.id, by)),
            ClaimState::Open | ClaimState::Redeemed { .. } | ClaimState::Settled { .. } => None,
        });
        self.left = redeemed.collect();
    }

    pub(super) fn row(&self, claim: &Claim) -> ClaimRow {
        let details = self.details.get(&claim.id).cloned().unwrap_or_default();
        ClaimRow { check: ClaimCheck { validation: None, ..ClaimCheck::from(claim) }, details }
    }

    /// A claim check is stored.
    pub(super) fn number(&mut self, id: u64) {
        self.last += 1;
        self.order.insert(self.last, id);
    }

    /// Number the claim checks that were read from disk; those that expire first were mostly issued first.
    pub(super) fn number_all(&mut self) {
        let mut found: Vec<_> = self.book.iter().map(|claim| (claim.expiry_micros, claim.id)).collect();
        found.sort_unstable();
        found.into_iter().for_each(|(_, id)| self.number(id));
    }

    pub(super) fn fresh(&self, after: u64) -> (Vec<ClaimRow>, u64) {
        let known = self.order.range(after.saturating_add(1)..).filter_map(|(_, id)| self.book.get(*id));
        let rows = known.filter(|claim| claim.is_open(now())).take(FRESH).map(|claim| self.row(claim));
        let rows: Vec<_> = rows.collect();
        let last = match (rows.len() == FRESH, rows.last()) {
            // There may be more.
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
        if self.details.len() > 2 * self.book.len() + SWEPT {
            let book = &self.book;
            self.details.retain(|id, _| book.get(*id).is_some());
            self.details_bytes = self.details.values().map(Details::weight).sum();
            self.order.retain(|_, id| book.get(*id).is_some());
        }
    }

    /// Return all claim checks, if there are no more than `most`.
    pub(super) fn snapshot(&mut self, most: usize) -> Option<Vec<(ClaimRecord, Option<Details>)>> {
        self.sweep();
        if self.book.len() > most {
            return None;
        }
        let details = |record: &ClaimRecord| match record {
            ClaimRecord::Issued(claim) => self.details.get(&claim.id).cloned(),
            ClaimRecord::Redeemed { .. } | ClaimRecord::Settled { .. } | ClaimRecord::Voided { .. } => None,
        };
        let with_details = |record| {
            let details = details(&record);
            (record, details)
        };
        Some(self.book.snapshot().map(with_details).collect())
    }
}
