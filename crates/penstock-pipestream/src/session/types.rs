//! The input and output types of a [`Session`](super::Session).

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, Misuse, Result};
use crate::manifest::{EntryKey, ManifestLimits, ResolutionState};
use crate::messages::CompletionPolicy;
use crate::session_id::SessionId;
use crate::sizes::MAX_HEADER_LENGTH;
use crate::status::Status;
use crate::yield_token::{StoppingPoint, TokenKey};
use crate::{Agreement, Capabilities, Checkpoint, ClaimResponse, ScopeDigest, YieldReason};

/// An end of the connection. The client opens stream 0 and owns the even scopes; the server owns
/// the odd ones (decision 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The producer: connects, opens stream 0, closes gracefully.
    Client,
    /// The consumer: listens.
    Server,
}

impl Role {
    /// Return the scope that this end owns from the start.
    pub const fn root_scope(self) -> u16 {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }

    /// Return whether this end owns `scope` (decision 6).
    pub const fn owns(self, scope: u16) -> bool {
        scope % 2 == self.root_scope()
    }
}

/// The operator's configuration of a session. The defaults are those of section 10.4, stricter
/// where memory must stay bounded.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// Our offer; the agreement is the minimum of both ends (decision 1).
    pub capabilities: Capabilities,
    /// The largest accepted payload, in bytes (decision 16). Default: 16 GiB.
    pub max_payload: u64,
    /// The most entities of the peer without a terminal status, over all scopes; one more PENDING
    /// closes with WINDOW_EXCEEDED. Default: 1,000,000.
    pub max_open_entities: usize,
    /// The most bytes of headers whose PENDING, or whose scope's binding, has not arrived yet.
    /// Default: 16 MiB.
    pub max_held_bytes: usize,
    /// The most unanswered checkpoints of the peer. Default: 1,024.
    pub max_open_checkpoints: usize,
    /// The children allowed for each MiB of the original, whose size is rounded up to at least 1
    /// MiB (decision 11). Default: 1,000.
    pub children_per_mib: u64,
    /// The most children of one parent, whatever its length. Default: as many as a scope may have.
    pub max_children: u64,
    /// The longest accepted header, in bytes; a longer one closes with ENTITY_TOO_LARGE (decision 14). Default: 1 MiB.
    pub max_header: u32,
    /// The most bytes of names and values in a header's metadata; an entity with more fails with
    /// ENTITY_TOO_LARGE. Default: 1 MiB, so that only the header's own limit applies.
    pub max_metadata: usize,
    /// The longest time that a checkpoint of the peer may be open, even if it asks for more
    /// (section 10.4). Default: the time that it asks for, or 30 s if it states none.
    pub max_checkpoint_time: Duration,
    /// Limits of the assembly manifest.
    pub manifest: ManifestLimits,
    /// The time without a STATUS from us after which a heartbeat is sent (section 5.1.3). Default: 30 s.
    pub keepalive: Option<Duration>,
    /// The time without a byte on stream 0 after which the connection is closed with IDLE_TIMEOUT. Default: never,
    /// because heartbeats are optional; the transport detects a dead peer.
    pub idle_timeout: Option<Duration>,
    /// The interval at which everything on stream 0 after CAPABILITIES is sent, in blocks of one size, even if there is
    /// nothing to send (section 10.6); at least 1 ms. Default: frames are sent immediately.
    pub status_interval: Option<Duration>,
    /// The configuration of layer 2, if `capabilities` offer it. Default: none.
    pub layer2: Option<Layer2Config>,
}

/// The configuration of layer 2. The caller provides its random values, because the core creates
/// none.
#[derive(Debug, Clone)]
pub struct Layer2Config {
    /// For a client: the session's name, 16 bytes from a secure random source (decision 18). A server uses its
    /// client's.
    pub session: Option<SessionId>,
    /// The key that seals our yield tokens, which are valid only while the key stays the same.
    pub token_key: TokenKey,
    /// The most unanswered claim queries of each end; one more query of the peer closes with
    /// WINDOW_EXCEEDED.
    pub max_claim_requests: usize,
    /// Whether the session can be resumed after its connection is lost, if the peer can resume too. Default: no.
    pub survives: bool,
    /// Whether a resumable session produces records, from which another process can restore it. Default: no.
    pub journal: bool,
    /// The most unacknowledged bytes of stream 0 in a resumable session: above half of this limit
    /// nothing more is announced, and above the limit the connection closes with WINDOW_EXCEEDED.
    /// Default: 16 MiB; at least 256 KiB.
    pub max_unacknowledged: usize,
    /// For a client: the policy for the entities of both root scopes, if its server supports a policy in SESSION.
    /// Default: failures are FAILED, and there is no timeout.
    pub policy: Option<CompletionPolicy>,
}

impl Layer2Config {
    /// Make the configuration of a client with a name, or of a server without one. It allows 1,024
    /// open queries, and the session ends with its connection.
    pub const fn new(session: Option<SessionId>, token_key: TokenKey) -> Self {
        Self {
            session,
            token_key,
            max_claim_requests: 1_024,
            survives: false,
            journal: false,
            max_unacknowledged: 16 << 20,
            policy: None,
        }
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            capabilities: Capabilities {
                layer0: true,
                layer1: true,
                layer2: false,
                max_scope_depth: Some(7),
                max_entities_per_scope: Some(0xFFFF_FFFE),
                max_window_size: Some(65_536),
            },
            max_payload: 16 << 30,
            max_open_entities: 1_000_000,
            max_held_bytes: 16 << 20,
            max_open_checkpoints: 1_024,
            children_per_mib: 1_000,
            max_children: 0xFFFF_FFFE,
            max_header: MAX_HEADER_LENGTH,
            max_metadata: 1 << 20,
            max_checkpoint_time: Duration::from_millis(0xFFFF_FFFF),
            manifest: ManifestLimits::default(),
            keepalive: Some(Duration::from_secs(30)),
            idle_timeout: None,
            status_interval: None,
            layer2: None,
        }
    }
}

/// A use of a scope ID. `scope_use` counts the earlier uses, because IDs are reused after wrapping (decision 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScopeKey {
    /// The ID on the wire.
    pub scope: u16,
    /// 0 for the first use in this session.
    pub scope_use: u32,
}

/// A use of an entity ID in a use of a scope, which identifies one entity of a session permanently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntityKey {
    /// The scope's ID on the wire.
    pub scope: u16,
    /// 0 for the first use of the scope's ID in this session.
    pub scope_use: u32,
    /// The entity's ID on the wire.
    pub entity: u32,
    /// 0 for the first use of the entity's ID in this use of the scope.
    pub entity_use: u32,
}

impl EntityKey {
    /// Return the key of the entity's entry in a manifest.
    pub(super) fn entry(self) -> EntryKey {
        EntryKey { scope: self.scope, entity: self.entity }
    }

    /// Return the scope that the entity is in.
    pub const fn scope_key(self) -> ScopeKey {
        ScopeKey { scope: self.scope, scope_use: self.scope_use }
    }
}

/// The keys of a newly announced entity (decisions 7 and 9), for which the driver opens a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The entity's key.
    pub key: EntityKey,
    /// The entity's parent on the wire; 0 for a root.
    pub parent_id: u32,
    /// The depth of the entity's scope; 0 for a root scope.
    pub depth: u8,
    /// The scope of its children, for a dehydrated entity at layer 1.
    pub child_scope: Option<ScopeKey>,
}

impl Ticket {
    /// Return the ticket for an entity's next attempt, which equals the one from
    /// [`Session::announce`](super::Session::announce).
    pub(super) fn again(key: EntityKey, parent_id: u32, depth: u8) -> Self {
        Self { key, parent_id, depth, child_scope: None }
    }
}

/// An entity of ours without a terminal status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentOpen {
    /// Its ticket from the announcement.
    pub ticket: Ticket,
    /// The caller's label for it.
    pub label: Option<Bytes>,
    /// Whether it has children.
    pub dehydrated: bool,
    /// Whether its last child was announced.
    pub ended: bool,
}

/// The decision about an entity stream whose header has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Receive the payload.
    Accepted(Accepted),
    /// Wait: a frame that must precede the stream, such as its PENDING or the binding of its scope,
    /// has not arrived (decisions 7 and 10). An [`Event::Admitted`] or a [`Transmit::StopStream`]
    /// follows. Read nothing until then.
    Held,
    /// Drop the stream: STOP_SENDING with this code. Any frames for the peer are queued.
    Stopped(ErrorCode),
}

/// An entity stream that may be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The entity.
    pub key: EntityKey,
    /// The depth of its scope.
    pub depth: u8,
    /// Whether it has children: then [`Event::Gathered`] follows once all of them are terminal.
    pub dehydrated: bool,
    /// The scope of its children at layer 1.
    pub child_scope: Option<ScopeKey>,
    /// Its parent, which at layer 0 is in the entity's own scope; `None` for a root.
    pub parent: Option<EntityKey>,
    /// The chunk that this stream carries.
    pub chunk: Option<AcceptedChunk>,
    /// The number of failed attempts at it before this one (layer 2).
    pub failures: u32,
    /// The number of times that its received bytes were lost with a connection (layer 2).
    pub losses: u32,
}

/// The place of a chunk's stream in the whole payload (decision 15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedChunk {
    /// Its index.
    pub index: u32,
    /// The offset of its bytes.
    pub offset: u64,
}

/// The state of a payload after one of its chunks has finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkProgress {
    /// Other chunks are missing.
    Waiting,
    /// The payload is whole, without gaps; check its checksum now.
    Whole,
    /// The entity has failed, or is resolved already.
    Dropped,
}

/// The reason why an entity or a connection has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The error code.
    pub code: ErrorCode,
    /// The message for people.
    pub message: String,
}

/// An event for the user of a session. Poll until `None`.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Both CAPABILITIES have arrived; entities may be sent.
    Agreed(Agreement),
    /// A STATUS frame was sent or received (heartbeats excepted).
    Status {
        /// The entity it is about.
        key: EntityKey,
        /// The status.
        status: Status,
        /// Its depth field.
        depth: u8,
        /// The frame's cursor, if it has one (C=1).
        cursor: Option<u32>,
        /// Whether the peer sent it.
        by_peer: bool,
    },
    /// A held stream may be received now.
    Admitted {
        /// The stream.
        stream: u64,
        /// The content of [`Admission::Accepted`].
        accepted: Accepted,
    },
    /// Every descendant of a received, dehydrated entity is terminal (decision 11; at layer 0 by CHECKPOINT, decision
    /// 12). Reassemble it, then call [`complete`](super::Session::complete) or [`fail`](super::Session::fail) for it.
    Gathered {
        /// The parent; `None` for a root scope whose BARRIER has arrived.
        key: Option<EntityKey>,
        /// Its children's scope; its own at layer 0.
        scope: ScopeKey,
        /// The digest that was sent, at layer 1 and for root scopes.
        digest: Option<ScopeDigest>,
        /// COMPLETE or FAILED by the scope's policy. A root scope, and any scope below layer 2, is
        /// FAILED if an entity in it is not COMPLETE.
        outcome: Status,
    },
    /// An entity has its terminal status, ours or the peer's.
    Resolved {
        /// The entity.
        key: EntityKey,
        /// Its parent's ID on the wire; 0 for a root, or if no header arrived at layer 0.
        parent_id: u32,
        /// The terminal status.
        status: Status,
        /// The reason, if the status is not COMPLETE and one was given.
        reason: Option<Reason>,
        /// The number of earlier attempts at it that failed and could be retried (layer 2).
        failures: u32,
        /// The number of attempts that were made: one more than `failures`, or as many if an entity
        /// of ours ended before its retry.
        attempts: u32,
        /// Whether we sent the entity.
        owned: bool,
    },
    /// The peer has released one of our scopes; its digest equals ours (decision 11).
    Released {
        /// The scope.
        scope: ScopeKey,
        /// Its parent; `None` for the root scope.
        parent: Option<EntityKey>,
        /// The depth of the scope.
        depth: u8,
        /// The digest.
        digest: ScopeDigest,
    },
    /// A SCOPE_DIGEST frame was sent or received.
    Digest {
        /// The frame.
        digest: ScopeDigest,
        /// Whether the peer sent it.
        by_peer: bool,
    },
    /// A BARRIER frame was sent or received.
    Barrier {
        /// The scope that it is about.
        barrier_id: u16,
        /// The parent entity, 0 for a root scope.
        parent_id: u32,
        /// The S bit: whether the scope is released.
        released: bool,
        /// Whether the peer sent it.
        by_peer: bool,
    },
    /// A checkpoint was answered, ours by the peer or the peer's by us.
    Checkpoint {
        /// The answer.
        checkpoint: Checkpoint,
        /// True if satisfied, false if it timed out.
        satisfied: bool,
        /// Whether this end asked.
        ours: bool,
    },
    /// Window or scopes became free after [`Session::announce`](super::Session::announce) had returned `None`: try
    /// again.
    Capacity,
    /// An error of an entity, or the error that closes the connection.
    Error {
        /// Code and message.
        reason: Reason,
        /// The scope it is about.
        scope: Option<u32>,
        /// The entity it is about.
        entity: Option<u32>,
        /// Whether the peer reported it.
        by_peer: bool,
    },
    /// An event of layer 2; only if it was agreed on.
    Layer2(Layer2Event),
    /// The session is over; the last event.
    Closed {
        /// Code and message; NO_ERROR for a graceful close.
        reason: Reason,
        /// Whether the peer closed the connection.
        by_peer: bool,
    },
}

/// A request about a claim check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimAsk {
    /// A query for its status.
    Query {
        /// The claim check's ID.
        claim_id: u64,
    },
    /// A redemption of its entity.
    Redeem {
        /// The claim check's ID.
        claim_id: u64,
        /// The session in which the entity was deferred.
        session: SessionId,
    },
}

impl ClaimAsk {
    /// Return the claim check's ID.
    pub const fn claim_id(&self) -> u64 {
        match self {
            Self::Query { claim_id } | Self::Redeem { claim_id, .. } => *claim_id,
        }
    }
}

/// An event of layer 2 for the user of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Layer2Event {
    /// Both ends know the session's name; from now on all of layer 2 may be used.
    Named(SessionId),
    /// The peer of a server's new connection resumes this session: call
    /// [`adopt`](super::Session::adopt) or [`refuse_return`](super::Session::refuse_return). Only
    /// [`Event::Agreed`] comes before.
    Returns(SessionId),
    /// The session was resumed on a new connection, and everything that the peer had sent before has arrived.
    Reconnected,
    /// An attempt has failed, and the entity may be retried. One of our entities waits for
    /// [`retry`](super::Session::retry) or [`fail`](super::Session::fail). For a received entity,
    /// drop its bytes, and do not complete or fail it before its next stream.
    AttemptFailed {
        /// The entity.
        key: EntityKey,
        /// The number of its failures.
        failures: u32,
        /// The reason for the failure.
        reason: Reason,
        /// Whether we sent the entity.
        owned: bool,
    },
    /// Open a new stream for the entity: the delay after RETRYING has passed, or the session was resumed by
    /// [`Reconnected`](Self::Reconnected).
    SendAgain(Ticket),
    /// The receiver has suspended one of our entities. Return its token by [`resume`](super::Session::resume).
    Yielded {
        /// The entity.
        key: EntityKey,
        /// The receiver's reason.
        reason: YieldReason,
        /// The token, which is valid once, in this session.
        token: Bytes,
    },
    /// The receiver's answer to [`resume`](super::Session::resume).
    ResumeAnswered {
        /// The entity.
        key: EntityKey,
        /// The reason, if the entity does not resume from its state.
        refused: Option<Reason>,
    },
    /// A suspended, received entity resumes from `point`. If that is `None`, its state has changed
    /// or is not resumable, and the entity starts from its beginning.
    Resumed {
        /// The entity.
        key: EntityKey,
        /// The point at which it had stopped.
        point: Option<StoppingPoint>,
    },
    /// Under its parent's policy a failed received entity must be deferred: issue a claim check, store it, and call
    /// [`defer`](super::Session::defer).
    ClaimWanted {
        /// The entity.
        key: EntityKey,
        /// The reason for the failure.
        reason: Reason,
    },
    /// The receiver has deferred one of our entities; its terminal status follows.
    Deferred {
        /// The entity.
        key: EntityKey,
        /// The claim check's ID.
        claim_id: u64,
        /// The time at which it expires, in microseconds since the Unix epoch.
        expiry_micros: u64,
    },
    /// The peer asks about one of our claim checks: answer by [`answer_claim`](super::Session::answer_claim).
    ClaimAsked {
        /// The number of the query, for its answer.
        request: u64,
        /// The request.
        ask: ClaimAsk,
    },
    /// The answer to [`ask_claim`](super::Session::ask_claim).
    ClaimAnswered {
        /// The request.
        ask: ClaimAsk,
        /// The state of the claim check; a redemption may be refused.
        answer: Result<ClaimResponse, Reason>,
    },
    /// The outcome of a parent under its policy, once all its children are terminal.
    Outcome {
        /// The parent.
        parent: EntityKey,
        /// RESOLVED, PARTIAL or FAILED.
        state: ResolutionState,
        /// Whether we sent the parent.
        owned: bool,
    },
}

/// An action of the driver on the connection. Poll until `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    /// Bytes for stream 0.
    Control(Bytes),
    /// STOP_SENDING on an entity stream of the peer.
    StopStream {
        /// The stream.
        stream: u64,
        /// The application error code.
        code: ErrorCode,
    },
    /// CONNECTION_CLOSE; nothing follows. Queued bytes of stream 0 came before it.
    Close {
        /// The application error code.
        code: ErrorCode,
        /// The reason phrase.
        message: String,
    },
}

impl SessionConfig {
    /// Reject settings with which no session could work.
    pub fn check(&self) -> Result<()> {
        if !self.capabilities.layer0 {
            return Err(Misuse::Layer0Offer.into());
        }
        if self.capabilities.layer2 && !self.capabilities.layer1 {
            return Err(Misuse::Layer1Offer.into());
        }
        if self.capabilities.layer2 && self.layer2.is_none() {
            return Err(Misuse::Layer2Config.into());
        }
        if self.status_interval.is_some_and(|interval| interval < Duration::from_millis(1)) {
            return Err(Misuse::StatusInterval.into());
        }
        if self.layer2.as_ref().is_some_and(|layer2| layer2.survives && layer2.max_unacknowledged < 256 << 10) {
            return Err(Misuse::MaxUnacknowledged.into());
        }
        if self.max_header > MAX_HEADER_LENGTH {
            return Err(Misuse::MaxHeader.into());
        }
        Ok(())
    }
}
