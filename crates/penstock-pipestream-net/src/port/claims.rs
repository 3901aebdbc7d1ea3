use std::collections::HashSet;
use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use penstock_io::sync::lock;
use penstock_pipestream::claims::{Claim, ClaimBook, ClaimTerms};
use penstock_pipestream::{self as core, ClaimResponse, SessionId, Status};

use crate::claim_checks::{ClaimRow, Details};
use crate::clock::now;
use crate::{Error, Misuse, Result};

/// The claim checks that an end has issued, over all its sessions (decision 20). A change is not reported before it is
/// stored.
pub trait ClaimChecks: fmt::Debug + Send + Sync {
    /// Check whether entities may be deferred.
    ///
    /// # Errors
    ///
    /// Misuse where claim checks are not stored.
    fn check_kept(&self) -> Result<()>;

    /// Issue a claim check; it is stored when this returns.
    fn issue(self: Arc<Self>, terms: ClaimTerms, details: Details) -> BoxFuture<'static, Result<Claim>>;

    /// Revoke a claim check that has not been reported to a peer.
    fn void(&self, id: u64);

    /// Return the state of a claim check.
    fn query(self: Arc<Self>, id: u64) -> BoxFuture<'static, Result<ClaimResponse>>;

    /// Transfer a deferred entity of `session` to the session `by`, once; stored when this returns.
    fn redeem(self: Arc<Self>, id: u64, session: SessionId, by: SessionId)
    -> BoxFuture<'static, Result<ClaimResponse>>;

    /// Record the outcome of an entity in the session that had redeemed it.
    fn settle(&self, id: u64, by: SessionId, status: Status);

    /// Settle a claim check that no session has redeemed; stored when this returns.
    fn settle_here(self: Arc<Self>, id: u64, status: Status) -> BoxFuture<'static, Result<()>>;

    /// Return the claim checks that a session has redeemed and that are not settled.
    fn redeemed_by(&self, session: SessionId) -> HashSet<u64>;

    /// Settle the claim checks that a session has redeemed and that are not settled, as failed.
    fn fail_redeemed(&self, by: SessionId) {
        for id in self.redeemed_by(by) {
            self.settle(id, by, Status::Failed);
        }
    }

    /// Settle the claim checks that sessions of an earlier process redeemed without an outcome, as
    /// failed, except for those of sessions that continue.
    fn fail_left(&self, goes_on: &dyn Fn(SessionId) -> bool);

    /// Return how many claim checks are stored.
    fn count(&self) -> u64;

    /// Return at most `max` claim checks that follow this expiry and ID, in that order.
    ///
    /// # Errors
    ///
    /// An error if not all are known, because the store is damaged or cannot be read.
    fn page(self: Arc<Self>, after: (u64, u64), max: usize) -> Result<Vec<ClaimRow>>;

    /// Return the claim checks that may be redeemed, in the order in which they were issued.
    fn open_rows(&self) -> Vec<ClaimRow>;

    /// Wait for open claim checks with a higher number, and return them with the last one's number.
    fn fresh(self: Arc<Self>, after: u64) -> BoxFuture<'static, (Vec<ClaimRow>, u64)>;

    /// Note that from now on a sink stores what is settled without a session. Return what was
    /// settled so far.
    fn note_in_sink(&self) -> Vec<ClaimRow>;

    /// Return the row that a sink is to store for a claim check that was settled without a session.
    fn done_here(&self, id: u64) -> Option<ClaimRow>;

    /// Return how often a limit was exceeded.
    fn counters(&self) -> &ClaimCounters;

    /// Write the remaining changes and release the store: nothing is issued or changed any more.
    fn close(self: Arc<Self>) -> BoxFuture<'static, ()>;
}

/// How often a limit of claim checks was exceeded.
#[derive(Debug, Default)]
pub struct ClaimCounters {
    /// Claim checks that were not issued, because there were too many or they took too much room.
    pub full: AtomicU64,
    /// Redemptions that were too late.
    pub expired: AtomicU64,
    /// Places of the store that were found damaged at the start.
    pub damaged: AtomicU64,
}

impl ClaimCounters {
    /// Return the counters by the names of the limits.
    pub fn limits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [("claims", read(&self.full)), ("claim_life", read(&self.expired))].into_iter()
    }
}

/// Return a store without claim checks: entities are not deferred, and no claim check is found. A claim check that was
/// forgotten could be redeemed twice (section 10.8), so an end without a store issues none.
pub fn no_claim_checks() -> Arc<dyn ClaimChecks> {
    Arc::new(NoClaimChecks::default())
}

/// A claim book that stays empty.
#[derive(Debug, Default)]
struct NoClaimChecks {
    book: Mutex<ClaimBook>,
    counters: ClaimCounters,
}

impl NoClaimChecks {
    fn not_kept() -> Error {
        Misuse::NoClaimChecks.into()
    }
}

impl ClaimChecks for NoClaimChecks {
    fn check_kept(&self) -> Result<()> {
        Err(Self::not_kept())
    }

    fn issue(self: Arc<Self>, _terms: ClaimTerms, _details: Details) -> BoxFuture<'static, Result<Claim>> {
        ready(Err(Self::not_kept())).boxed()
    }

    fn void(&self, _id: u64) {}

    fn query(self: Arc<Self>, id: u64) -> BoxFuture<'static, Result<ClaimResponse>> {
        let response = lock(&self.book).query(now(), id);
        ready(Ok(response)).boxed()
    }

    fn redeem(
        self: Arc<Self>,
        id: u64,
        session: SessionId,
        by: SessionId,
    ) -> BoxFuture<'static, Result<ClaimResponse>> {
        let redeemed = lock(&self.book).redeem(now(), id, session, by);
        ready(redeemed.map(|claim| ClaimResponse { claim_id: id, found: Some(claim.found()) }).map_err(Error::from))
            .boxed()
    }

    fn settle(&self, _id: u64, _by: SessionId, _status: Status) {}

    fn settle_here(self: Arc<Self>, id: u64, _status: Status) -> BoxFuture<'static, Result<()>> {
        ready(Err(core::Error::from(core::Violation::UnknownClaim { id }).into())).boxed()
    }

    fn redeemed_by(&self, _session: SessionId) -> HashSet<u64> {
        HashSet::new()
    }

    fn fail_left(&self, _goes_on: &dyn Fn(SessionId) -> bool) {}

    fn count(&self) -> u64 {
        0
    }

    fn page(self: Arc<Self>, _after: (u64, u64), _max: usize) -> Result<Vec<ClaimRow>> {
        Ok(Vec::new())
    }

    fn open_rows(&self) -> Vec<ClaimRow> {
        Vec::new()
    }

    fn fresh(self: Arc<Self>, _after: u64) -> BoxFuture<'static, (Vec<ClaimRow>, u64)> {
        pending().boxed()
    }

    fn note_in_sink(&self) -> Vec<ClaimRow> {
        Vec::new()
    }

    fn done_here(&self, _id: u64) -> Option<ClaimRow> {
        None
    }

    fn counters(&self) -> &ClaimCounters {
        &self.counters
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use penstock_io::runtime::block_on;
    use penstock_pipestream::ErrorCode;

    use super::*;

    #[test]
    fn an_end_that_keeps_no_claim_checks_issues_none_and_knows_none() {
        let claims = no_claim_checks();
        let session = SessionId::new([1; 16]);
        let terms = ClaimTerms { session, scope: 2, entity: 1, life: None, validation: None };
        let error = block_on(Arc::clone(&claims).issue(terms, Details::default())).unwrap().unwrap_err();
        assert!(matches!(error, Error::Misuse(Misuse::NoClaimChecks)), "{error:?}");
        let found = block_on(Arc::clone(&claims).query(1)).unwrap().unwrap().found;
        let redeemed = block_on(Arc::clone(&claims).redeem(1, session, SessionId::new([2; 16]))).unwrap();
        let settled = block_on(Arc::clone(&claims).settle_here(1, Status::Complete)).unwrap();
        let codes = [redeemed.map(drop), settled].map(|refused| refused.unwrap_err().code());
        assert_eq!((found, codes, claims.count()), (None, [Some(ErrorCode::ClaimNotFound); 2], 0));
    }
}
