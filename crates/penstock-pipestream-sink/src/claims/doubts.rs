//! The claim checks that damage of the log has left in doubt, and for how long.
//!
//! ```text
//!  lost                                              in doubt
//!  a record of a claim check that its label names    that claim check
//!  a place without a label that can be read          every unsettled claim check that was issued before it, and
//!                                                    every ID that the log does not mention
//! ```
//!
//! A request about a claim check in doubt fails with an error that names the place; the claim check
//! is never reported as unknown, expired or open. The lost record may be its redemption, and an
//! entity in two sessions is worse than an entity in none. The doubt ends with a later record of
//! the claim check's state, or once no claim check of the place can be valid.

use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_wire::FastMap;

use crate::{Error, Result};

/// A place of the log that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loss {
    /// Time in Unix microseconds from which on all claim checks that were issued in the place are
    /// forgotten.
    pub(super) until: u64,
    /// A description of the place.
    pub(super) place: Arc<str>,
}

#[derive(Debug, Default)]
pub(super) struct Doubts {
    claims: FastMap<u64, Loss>,
    /// Places that may have held a record of any claim check.
    any: Vec<Loss>,
}

impl Doubts {
    /// Add a claim check; without an ID, all claim checks whose state is unknown.
    pub(super) fn add(&mut self, id: Option<u64>, loss: Loss) {
        match id {
            Some(id) => drop(self.claims.insert(id, loss)),
            None if self.any.contains(&loss) => {}
            None => self.any.push(loss),
        }
    }

    /// Remove a claim check whose state is known again.
    pub(super) fn clear(&mut self, id: u64) {
        self.claims.remove(&id);
    }

    pub(super) fn get(&self, id: u64) -> Option<&Loss> {
        self.claims.get(&id)
    }

    /// Return an error if a claim check is in doubt.
    pub(super) fn check(&self, now: u64, id: u64, is_known: bool) -> Result<()> {
        let any = self.any.iter().filter(|_| !is_known);
        match self.claims.get(&id).into_iter().chain(any).find(|loss| loss.until > now) {
            Some(loss) => Err(refused(format!("it is not known how the claim check {id:016x} stands"), loss)),
            None => Ok(()),
        }
    }

    /// Return an error if any claim check is in doubt, because a list of them would lack it.
    pub(super) fn check_all(&self, now: u64) -> Result<()> {
        match self.all().find(|(_, loss)| loss.until > now) {
            Some((_, loss)) => Err(refused("not all claim checks are known".to_owned(), loss)),
            None => Ok(()),
        }
    }

    /// Return the claim checks in doubt. An entry without an ID is a place that may have held a
    /// record of any claim check.
    pub(super) fn all(&self) -> impl Iterator<Item = (Option<u64>, &Loss)> {
        let claims = self.claims.iter().map(|(id, loss)| (Some(*id), loss));
        claims.chain(self.any.iter().map(|loss| (None, loss)))
    }

    /// Forget doubts that have ended.
    pub(super) fn sweep(&mut self, now: u64) {
        self.claims.retain(|_, loss| loss.until > now);
        self.any.retain(|loss| loss.until > now);
    }
}

fn refused(what: String, loss: &Loss) -> Error {
    Error::io(what, &*loss.place)
}
