//! Claim checks (sections 6.5.2 and 10.8, decision 20): entities that are deferred until another
//! session redeems them.
//!
//! ```text
//!            issue()            redeem(), once            settle()
//!  (random) ────────► DEFERRED ───────────────► PROCESSING ────────► its terminal status
//!                         └───────────┬─────────────┴────────────────────┘
//!                                  expired: refused, and forgotten after `linger`
//! ```
//!
//! A book outlives sessions and processes, so it belongs to a server, not to a session. It does no
//! IO. Each change produces a [`ClaimRecord`] that must be on disk before the change is announced;
//! the records of a claim check must be kept until it is forgotten; and after a restart
//! [`ClaimBook::restore`] takes the records back in the order in which they were produced. The
//! caller makes IDs from a secure source of random bytes.

mod claim;
mod record;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use penstock_wire::FastMap;

pub use self::claim::{Claim, ClaimState};
pub use self::record::ClaimRecord;
use crate::ClaimResponse;
use crate::error::{Deadline, Error, LimitError, Misuse, Result, Violation};
use crate::messages::StoppingPointValidation;
use crate::session_id::SessionId;
use crate::status::Status;
use crate::time::Now;

/// The limits of a book on the number and lifetime of claim checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimLimits {
    /// The most claim checks that a book knows, including expired ones that it keeps for `linger`.
    /// Default: 1,000,000.
    pub max_claims: usize,
    /// How long a claim check is valid, by default and at most. Default: 86,400 s (section 10.4).
    pub life: Duration,
    /// How long an expired claim check is still known: then a late redemption gets CLAIM_EXPIRED instead of
    /// CLAIM_NOT_FOUND, and an entity that was redeemed in time can still be settled. Default: 3,600 s.
    pub linger: Duration,
}

impl Default for ClaimLimits {
    fn default() -> Self {
        Self { max_claims: 1_000_000, life: Duration::from_secs(86_400), linger: Duration::from_secs(3_600) }
    }
}

/// The entity and the terms of a claim check to issue.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimTerms {
    /// The session in which the entity is deferred.
    pub session: SessionId,
    /// The entity's scope.
    pub scope: u16,
    /// The entity.
    pub entity: u32,
    /// How long the claim check is valid; `None` for as long as the book allows.
    pub life: Option<Duration>,
    /// Where processing has stopped (section 9.6); `None` if it had not begun, which the claim check states too.
    pub validation: Option<StoppingPointValidation>,
}

/// The claim checks that an end has issued; see the module's documentation.
#[derive(Debug, Clone)]
pub struct ClaimBook {
    limits: ClaimLimits,
    claims: FastMap<u64, Claim>,
    /// When each claim check is forgotten, with its ID.
    ends: BTreeSet<(u64, u64)>,
    records: VecDeque<ClaimRecord>,
}

impl Default for ClaimBook {
    fn default() -> Self {
        Self::new(ClaimLimits::default())
    }
}

impl ClaimBook {
    /// Make an empty book.
    pub fn new(limits: ClaimLimits) -> Self {
        Self { limits, claims: FastMap::default(), ends: BTreeSet::new(), records: VecDeque::new() }
    }

    /// Issue a claim check under an ID of 8 random bytes. `None` if that ID is 0 or in use: draw another one.
    ///
    /// # Errors
    ///
    /// WINDOW_EXCEEDED when the book is full.
    pub fn issue(&mut self, now: Now, terms: &ClaimTerms, random: u64) -> Result<Option<Claim>> {
        self.handle_timeout(now);
        if self.claims.len() >= self.limits.max_claims {
            let limit = LimitError::ClaimChecks { count: self.claims.len() };
            return Err(Error::from(limit).at(u32::from(terms.scope), terms.entity));
        }
        if random == 0 || self.claims.contains_key(&random) {
            return Ok(None);
        }
        let life = terms.life.unwrap_or(self.limits.life).min(self.limits.life);
        let claim = Claim {
            id: random,
            session: terms.session,
            scope: terms.scope,
            entity: terms.entity,
            expiry_micros: now.unix_micros.saturating_add(micros(life)),
            validation: terms.validation.clone().map(Box::new),
            state: ClaimState::Open,
        };
        self.insert(claim.clone());
        self.records.push_back(ClaimRecord::Issued(claim.clone()));
        Ok(Some(claim))
    }

    /// Void a claim check that was never announced, because its entity has ended in another way.
    pub fn void(&mut self, id: u64) {
        if self.forget(id) {
            self.records.push_back(ClaimRecord::Voided { id });
        }
    }

    /// Return a claim check and its entity's status; neither once the claim check has expired.
    pub fn query(&self, now: Now, id: u64) -> ClaimResponse {
        let claim = self.claims.get(&id).filter(|claim| !claim.is_expired(now));
        ClaimResponse { claim_id: id, found: claim.map(Claim::found) }
    }

    /// Assign a deferred entity to the session `by`, once. `session` must be the one in which it was deferred, which a
    /// legitimate redeemer knows.
    ///
    /// # Errors
    ///
    /// CLAIM_EXPIRED, or CLAIM_NOT_FOUND if the claim check is unknown, belongs to another session,
    /// or was redeemed already.
    pub fn redeem(&mut self, now: Now, id: u64, session: SessionId, by: SessionId) -> Result<Claim> {
        self.check_redeem(now, id, session)?;
        let Some(claim) = self.claims.get_mut(&id) else { return Err(Violation::UnknownClaim { id }.into()) };
        claim.state = ClaimState::Redeemed { by };
        let claim = claim.clone();
        self.records.push_back(ClaimRecord::Redeemed { id, by });
        Ok(claim)
    }

    /// Check whether [`redeem`](Self::redeem) would succeed, without changing anything. For a store shared by several
    /// servers, which makes the final decision.
    ///
    /// # Errors
    ///
    /// The errors of [`redeem`](Self::redeem).
    pub fn check_redeem(&self, now: Now, id: u64, session: SessionId) -> Result<()> {
        let known = self.claims.get(&id).filter(|claim| claim.session == session);
        let Some(claim) = known else { return Err(Violation::UnknownClaim { id }.into()) };
        if claim.is_expired(now) {
            return Err(Deadline::ClaimExpired { id }.into());
        }
        if claim.state != ClaimState::Open {
            return Err(Violation::RedeemedClaim { id }.into());
        }
        Ok(())
    }

    /// Record the terminal status of a redeemed entity, as reported by the session that has it. The first terminal
    /// status is kept.
    ///
    /// # Errors
    ///
    /// CLAIM_NOT_FOUND if the claim check is unknown or belongs to another session; misuse for a status that is not
    /// terminal.
    pub fn settle(&mut self, id: u64, by: SessionId, status: Status) -> Result<()> {
        if !status.is_terminal() {
            return Err(Misuse::ClaimStatus(status).into());
        }
        match self.claims.get_mut(&id).map(|claim| &mut claim.state) {
            Some(state @ ClaimState::Redeemed { .. }) if *state == (ClaimState::Redeemed { by }) => {
                *state = ClaimState::Settled { by, status };
                self.records.push_back(ClaimRecord::Settled { id, by, status });
                Ok(())
            }
            Some(ClaimState::Settled { by: settled, .. }) if *settled == by => Ok(()),
            Some(ClaimState::Open | ClaimState::Redeemed { .. } | ClaimState::Settled { .. }) | None => {
                Err(Violation::ForeignClaim { id }.into())
            }
        }
    }

    /// Return the next record, which must be stored before the change is announced.
    pub fn poll_record(&mut self) -> Option<ClaimRecord> {
        self.records.pop_front()
    }

    /// Restore a stored record. A record that is obsolete, or whose claim check is unknown, changes nothing.
    pub fn restore(&mut self, now: Now, record: ClaimRecord) {
        match record {
            ClaimRecord::Issued(claim) => {
                if self.forgotten_at(&claim) > now.unix_micros && !self.claims.contains_key(&claim.id) {
                    self.insert(claim);
                }
            }
            ClaimRecord::Redeemed { id, by } => {
                if let Some(claim) = self.claims.get_mut(&id).filter(|claim| claim.state == ClaimState::Open) {
                    claim.state = ClaimState::Redeemed { by };
                }
            }
            ClaimRecord::Settled { id, by, status } => {
                if let Some(claim) = self.claims.get_mut(&id) {
                    claim.state = ClaimState::Settled { by, status };
                }
            }
            ClaimRecord::Voided { id } => drop(self.forget(id)),
        }
    }

    /// Return the fewest records that represent the book, for a store that begins a new file.
    pub fn snapshot(&self) -> impl Iterator<Item = ClaimRecord> + '_ {
        // `Issued` includes the state.
        self.claims.values().cloned().map(ClaimRecord::Issued)
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout), in microseconds since the Unix epoch.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Forget claim checks that expired more than `linger` ago, and return how many they were:
    /// their records may be deleted.
    pub fn handle_timeout(&mut self, now: Now) -> usize {
        let mut forgotten = 0;
        while let Some((_, id)) = self.ends.first().copied().filter(|(at, _)| *at <= now.unix_micros) {
            self.forget(id);
            forgotten += 1;
        }
        forgotten
    }

    /// Return a claim check that is known, even if it has expired.
    pub fn get(&self, id: u64) -> Option<&Claim> {
        self.claims.get(&id)
    }

    /// Return all known claim checks in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values()
    }

    /// Return how many claim checks are known.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Return whether no claim check is known.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    fn insert(&mut self, claim: Claim) {
        self.ends.insert((self.forgotten_at(&claim), claim.id));
        self.claims.insert(claim.id, claim);
    }

    fn forget(&mut self, id: u64) -> bool {
        let Some(claim) = self.claims.remove(&id) else { return false };
        self.ends.remove(&(self.forgotten_at(&claim), id));
        true
    }

    fn forgotten_at(&self, claim: &Claim) -> u64 {
        claim.expiry_micros.saturating_add(micros(self.limits.linger))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
