//! What damage of the log has left in doubt, and until when.
//!
//! ```text
//!  what is lost                                      what is in doubt
//!  a record of a claim check that its label names    that claim check
//!  a place of which nothing says whose it was        every claim check before it that was not settled, and every ID
//!                                                    of which the log says nothing
//! ```
//!
//! A question about what is in doubt is answered with an error that names the place: never as if the claim check were unknown, expired
//! or open. What is lost may be its redemption, and an entity that two sessions have is worse than one that no session gets. The doubt
//! ends with a later record that says again how the claim check stands, or once no claim check of the place can be valid.

use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_wire::FastMap;

use crate::{Error, Result};

/// A place of the log that is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Loss {
    /// Unix microseconds from which no claim check that was issued there is known any more.
    pub(super) until: u64,
    /// The place, in words.
    pub(super) place: Arc<str>,
}

#[derive(Debug, Default)]
pub(super) struct Doubts {
    claims: FastMap<u64, Loss>,
    /// Places that may have been any claim check's.
    any: Vec<Loss>,
}

impl Doubts {
    /// Doubt a claim check; without an ID, all that are not known.
    pub(super) fn add(&mut self, id: Option<u64>, loss: Loss) {
        match id {
            Some(id) => drop(self.claims.insert(id, loss)),
            None if self.any.contains(&loss) => {}
            None => self.any.push(loss),
        }
    }

    /// A claim check is known again.
    pub(super) fn clear(&mut self, id: u64) {
        self.claims.remove(&id);
    }

    pub(super) fn get(&self, id: u64) -> Option<&Loss> {
        self.claims.get(&id)
    }

    /// Refuse to say anything of a claim check that is in doubt.
    pub(super) fn check(&self, now: u64, id: u64, is_known: bool) -> Result<()> {
        let any = self.any.iter().filter(|_| !is_known);
        match self.claims.get(&id).into_iter().chain(any).find(|loss| loss.until > now) {
            Some(loss) => Err(refused(format!("it is not known how the claim check {id:016x} stands"), loss)),
            None => Ok(()),
        }
    }

    /// Refuse to say which claim checks there are, where not all of them are known.
    pub(super) fn check_all(&self, now: u64) -> Result<()> {
        match self.all().find(|(_, loss)| loss.until > now) {
            Some((_, loss)) => Err(refused("not all claim checks are known".to_owned(), loss)),
            None => Ok(()),
        }
    }

    /// Return the claim checks that are in doubt; without an ID, the places that may have been any claim check's.
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
