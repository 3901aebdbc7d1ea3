//! The attempts at a received entity, and how to tell them apart.

use super::Session;
use super::types::{Accepted, EntityKey};

/// An attempt of the peer to send one of its entities. Its received bytes are void once it has
/// failed or was lost with its connection, and must not be mistaken for a part of the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The entity.
    pub key: EntityKey,
    /// The number of failed attempts at the entity before this one (layer 2).
    pub failures: u32,
    /// The number of times that the entity's received bytes were lost with a connection (layer 2).
    pub losses: u32,
}

impl Attempt {
    /// Return the first attempt at an entity, which is the only one below layer 2.
    pub const fn first(key: EntityKey) -> Self {
        Self { key, failures: 0, losses: 0 }
    }

    /// Return how often the entity's received bytes became void.
    pub const fn voids(&self) -> u32 {
        self.failures.saturating_add(self.losses)
    }
}

impl Accepted {
    /// Return the attempt that the stream belongs to.
    pub const fn attempt(&self) -> Attempt {
        Attempt { key: self.key, failures: self.failures, losses: self.losses }
    }
}

impl Session {
    /// Return the current attempt at a received entity: while the entity waits for a retry, the
    /// next one.
    pub fn attempt(&self, key: EntityKey) -> Attempt {
        let entity = if self.layer() == 2 { self.inbound(key) } else { None };
        match entity {
            Some(entity) => Attempt { key, failures: entity.failures(), losses: entity.losses },
            None => Attempt::first(key),
        }
    }

    /// Return whether the received bytes of an attempt are still valid. Check this before
    /// completing, failing, skipping or deferring the attempt, because the code that processes its
    /// payload may not know yet that it has ended.
    pub fn is_current(&self, attempt: Attempt) -> bool {
        self.attempt(attempt.key) == attempt
    }
}
