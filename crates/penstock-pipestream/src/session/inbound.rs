//! The state of an entity that we receive.

use std::time::Instant;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::scopes::PeerScopes;
use super::types::{EntityKey, Event, Layer2Event, Reason};
use crate::chunk::ChunkTracker;
use crate::error::ErrorCode;
use crate::policy::Policy;
use crate::status::Status;

/// The state of an entity's own bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum Payload {
    /// No header has arrived.
    #[default]
    Awaited,
    /// A stream was accepted.
    Receiving,
    /// Verified and delivered.
    Delivered,
    /// Failed, at our end or the owner's.
    Failed,
    /// Failed, and its owner may retry it (layer 2).
    SetAside,
}

/// The streams that carry an entity's payload.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) enum Streams {
    #[default]
    None,
    Whole(u64),
    Chunks {
        tracker: Box<ChunkTracker>,
        streams: Vec<u64>,
    },
    /// The streams arrived over a connection that was lost, and no bytes are missing: streams that
    /// are sent again are stopped.
    Former,
}

/// The state of a received entity that has no terminal status yet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Inbound {
    pub(super) payload: Payload,
    pub(super) streams: Streams,
    pub(super) header_seen: bool,
    /// From the header; 0 until it has arrived.
    pub(super) parent_id: u32,
    /// Whether DEHYDRATING or the header states that it has children.
    pub(super) dehydrated: bool,
    /// Its children's scope, from its header or its BARRIER (decision 10).
    pub(super) child: Option<u16>,
    /// The scope that its owner uses for its children, if scopes are assigned in the order of DEHYDRATING frames.
    pub(super) expected_child: u16,
    /// The most children that it may have (decision 11).
    pub(super) max_children: u64,
    /// The number of its known children; at layer 0 by their headers.
    pub(super) children: u64,
    /// The result under its policy, once all its descendants are terminal.
    pub(super) gathered: Option<Status>,
    /// The reason for its failure, if one was given.
    pub(super) reason: Option<Box<Reason>>,
    /// The policy for its children, from its header (layer 2).
    pub(super) policy: Option<Box<Policy>>,
    /// Its layer-2 state.
    pub(super) layer2: Option<Box<Received>>,
    /// The number of times that its received bytes were lost with a connection. Not stored, because
    /// it only tells apart the attempts that one process has received.
    #[serde(skip)]
    pub(super) losses: u32,
}

/// The layer-2 state of a received entity; most have none.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Received {
    /// The number of failures after which it could be retried.
    pub(super) failures: u32,
    /// The deadline under its policy.
    #[serde(with = "crate::stored::optional_moment")]
    pub(super) deadline: Option<Instant>,
    /// The yield whose token was sent.
    pub(super) yielded: Option<Yielded>,
    /// The status with which its owner gave it up; the terminal STATUS waits for the barrier.
    pub(super) owner_status: Option<Status>,
    /// Whether a claim check was requested.
    pub(super) claim_wanted: bool,
    /// The numbers of COMPLETE children and of all children, for a parent whose children are gathered.
    pub(super) children: Option<(u32, u32)>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Yielded {
    pub(super) number: u64,
    /// Empty if there is no state from which to resume.
    #[serde(with = "crate::stored::byte_string")]
    pub(super) state_checksum: Bytes,
    /// The last checkpoint according to its token.
    pub(super) checkpoint: Option<String>,
}

impl Inbound {
    /// Return the event for it that the caller must still answer.
    pub(super) fn owed(&self, key: EntityKey, scopes: &PeerScopes) -> Option<Event> {
        if self.layer2.as_ref().is_some_and(|layer2| layer2.claim_wanted) {
            let reason = self.reason.as_deref().cloned();
            let reason = reason.unwrap_or(Reason { code: ErrorCode::NoError, message: String::new() });
            return Some(Event::Layer2(Layer2Event::ClaimWanted { key, reason }));
        }
        let outcome = self.gathered.filter(|_| !matches!(self.payload, Payload::Delivered | Payload::Failed))?;
        let scope = scopes.latest(self.child?);
        Some(Event::Gathered { key: Some(key), scope, digest: None, outcome })
    }

    pub(super) fn layer2_mut(&mut self) -> &mut Received {
        self.layer2.get_or_insert_default()
    }

    /// Discard the state of its token, because its bytes were lost: they are sent again, and its processing starts
    /// over.
    pub(super) fn lose_state(&mut self) {
        if let Some(yielded) = self.layer2.as_mut().and_then(|layer2| layer2.yielded.as_mut()) {
            yielded.state_checksum.clear();
        }
    }

    /// Void the token, because the entity has reached a point from which no token can resume it.
    pub(super) fn void_token(&mut self) {
        if let Some(layer2) = &mut self.layer2 {
            layer2.yielded = None;
        }
    }

    /// Return how many attempts at it have failed.
    pub(super) fn failures(&self) -> u32 {
        self.layer2.as_ref().map_or(0, |layer2| layer2.failures)
    }

    /// Return the number of its present attempt; while it waits for a retry, that of the last one.
    pub(super) fn attempt(&self) -> u32 {
        if self.payload == Payload::SetAside { self.failures() } else { self.failures() + 1 }
    }

    /// Forget the streams of its payload, which are lost with the connection.
    pub(super) fn lose_streams(&mut self, whole: bool) {
        self.streams = Streams::None;
        if self.payload == Payload::Receiving && !whole {
            self.payload = Payload::Awaited;
            self.header_seen = false;
            self.losses = self.losses.saturating_add(1);
            self.lose_state();
        }
        if self.header_seen {
            self.streams = Streams::Former;
        }
    }
}

/// The attempt of a stream according to its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamedAttempt {
    /// The expected attempt.
    Present,
    /// An attempt that has failed.
    Past,
    /// An attempt whose RETRYING has not arrived.
    Early,
}
