//! The attempts at a received entity, and what tells one from another.

use super::Session;
use super::types::{Accepted, EntityKey};

/// One of the attempts to send an entity of the peer. What has arrived of an attempt is void once the attempt has failed,
/// or was lost with its connection, and must not be mistaken for a part of the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// The entity.
    pub key: EntityKey,
    /// How many attempts at it have failed before (layer 2).
    pub failures: u32,
    /// How often what had arrived of it was lost with a connection (layer 2).
    pub losses: u32,
}

impl Attempt {
    /// Return the only attempt at an entity below layer 2, which is the first one above.
    pub const fn first(key: EntityKey) -> Self {
        Self { key, failures: 0, losses: 0 }
    }

    /// Return how many times what had arrived of the entity became void.
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
    /// Return the attempt at a received entity that counts now: while the entity waits for a retry, the next one.
    pub fn attempt(&self, key: EntityKey) -> Attempt {
        let entity = if self.layer() == 2 { self.inbound(key) } else { None };
        match entity {
            Some(entity) => Attempt { key, failures: entity.failures(), losses: entity.losses },
            None => Attempt::first(key),
        }
    }

    /// Return whether what has arrived of an attempt is not void. Ask before the attempt is completed, failed, skipped
    /// or deferred: code that has taken its payload may not have heard yet.
    pub fn is_current(&self, attempt: Attempt) -> bool {
        self.attempt(attempt.key) == attempt
    }
}
