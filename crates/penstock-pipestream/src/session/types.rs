//! What goes into a [`Session`](super::Session) and what comes out of it.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorCode, Misuse, Result};
use crate::frame::MAX_HEADER_LENGTH;
use crate::manifest::{ManifestLimits, ResolutionState};
use crate::messages::CompletionPolicy;
use crate::session_id::SessionId;
use crate::status::Status;
use crate::yield_token::{StoppingPoint, TokenKey};
use crate::{Agreement, Capabilities, Checkpoint, ClaimResponse, ScopeDigest, YieldReason};

/// Which end of the connection this is. The client opens stream 0 and owns the even scopes; the server owns the odd
/// ones (decision 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The producer: connects, opens stream 0, closes gracefully.
    Client,
    /// The consumer: listens.
    Server,
}

impl Role {
    /// The scope that this end owns from the start.
    pub const fn root_scope(self) -> u16 {
        match self {
            Self::Client => 0,
            Self::Server => 1,
        }
    }

    /// Whether this end owns `scope` (decision 6).
    pub const fn owns(self, scope: u16) -> bool {
        scope % 2 == self.root_scope()
    }
}

/// What an operator may set. The defaults are those of section 10.4, made stricter where memory must stay bounded.
#[derive(Debug, Clone)]
pub struct SessionConfig {
    /// What we offer; the agreement is the minimum of both ends (decision 1).
    pub capabilities: Capabilities,
    /// The largest payload taken, in bytes (decision 16). Default: 16 GiB.
    pub max_payload: u64,
    /// Entities of the peer without a terminal status, over all scopes; a PENDING beyond it closes with
    /// WINDOW_EXCEEDED. Default: 1,000,000.
    pub max_open_entities: usize,
    /// Bytes of headers whose PENDING, or whose scope's binding, has not come yet. Default: 16 MiB.
    pub max_held_bytes: usize,
    /// Checkpoints of the peer that are not answered yet. Default: 1,024.
    pub max_open_checkpoints: usize,
    /// Children allowed for each MiB of the original, and at least this many (decision 11). Default: 1,000.
    pub children_per_mib: u64,
    /// Children allowed for one parent, whatever its length. Default: as many as a scope may have.
    pub max_children: u64,
    /// The longest header taken, in bytes; a longer one closes with ENTITY_TOO_LARGE (decision 14). Default: 1 MiB.
    pub max_header: u32,
    /// Bytes of the names and values in a header's metadata; with more its entity fails, ENTITY_TOO_LARGE. Default: 1 MiB,
    /// so that the header's own limit holds.
    pub max_metadata: usize,
    /// The longest that a checkpoint of the peer may be open; one that asks for more time has so much (section 10.4).
    /// Default: as long as it asks for, and 30 s where it does not say.
    pub max_checkpoint_time: Duration,
    /// Limits of the assembly manifest.
    pub manifest: ManifestLimits,
    /// After this long without a STATUS from us, a heartbeat is sent (section 5.1.3). Default: 30 s.
    pub keepalive: Option<Duration>,
    /// After this long without a byte on stream 0, the connection is closed with IDLE_TIMEOUT. Default: never, as
    /// heartbeats are optional; the transport notices a dead peer.
    pub idle_timeout: Option<Duration>,
    /// Everything on stream 0 after CAPABILITIES goes out once in this time, in blocks of one size, whether there is something
    /// to say or not (section 10.6); at least 1 ms. Default: at once.
    pub status_interval: Option<Duration>,
    /// What layer 2 needs, where `capabilities` offer it. Default: nothing.
    pub layer2: Option<Layer2Config>,
}

/// What layer 2 needs that the core has no source for.
#[derive(Debug, Clone)]
pub struct Layer2Config {
    /// A client's: the session's name, 16 bytes from a secure random source (decision 18). A server takes its client's.
    pub session: Option<SessionId>,
    /// What our yield tokens are sealed with. Tokens are good as long as the key is the same.
    pub token_key: TokenKey,
    /// Questions about claim checks that are not answered yet, for each end; one more of the peer's closes with
    /// WINDOW_EXCEEDED.
    pub max_claim_requests: usize,
    /// Whether the session can go on after its connection is lost, if the peer can too. Default: no.
    pub survives: bool,
    /// Whether a session that survives gives out records, by which another process can restore it. Default: no.
    pub journal: bool,
    /// Bytes of stream 0 that the peer may not have acknowledged, where the session survives: nothing more is announced
    /// at half of it, and more closes with WINDOW_EXCEEDED. Default: 16 MiB; at least 256 KiB.
    pub max_unacknowledged: usize,
    /// A client's: what becomes of the entities of both root scopes that fail or take too long, if its server knows SESSION's
    /// policy. Default: nothing else than FAILED, and no time-out.
    pub policy: Option<CompletionPolicy>,
}

impl Layer2Config {
    /// A client's under this name, a server's without one; 1,024 open questions, and the session ends with its connection.
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

/// A use of a scope ID. `scope_use` counts the earlier uses, because IDs come again after wrapping (decision 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ScopeKey {
    /// The ID on the wire.
    pub scope: u16,
    /// 0 for the first use in this session.
    pub scope_use: u32,
}

/// A use of an entity ID in a use of a scope: names one entity of a session for good.
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
    /// The scope that the entity is in.
    pub const fn scope_key(self) -> ScopeKey {
        ScopeKey { scope: self.scope, scope_use: self.scope_use }
    }
}

/// What a newly announced entity got (decisions 7 and 9). The driver now opens its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The entity's name.
    pub key: EntityKey,
    /// The entity's parent on the wire; 0 for a root.
    pub parent_id: u32,
    /// Depth of the entity's scope; 0 for a root scope.
    pub depth: u8,
    /// The scope of its children, for a dehydrated entity at layer 1.
    pub child_scope: Option<ScopeKey>,
}

/// An entity of ours without a terminal status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentOpen {
    /// What it got when it was announced.
    pub ticket: Ticket,
    /// What its owner calls it.
    pub label: Option<Bytes>,
    /// Whether it has children.
    pub dehydrated: bool,
    /// Whether its last child has been announced.
    pub ended: bool,
}

/// What becomes of an entity stream whose header came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Receive the payload.
    Accepted(Accepted),
    /// Wait: its PENDING, or its scope's binding, has not come (decisions 7 and 10). An [`Event::Admitted`] or a
    /// [`Transmit::StopStream`] follows. Nothing is read until then.
    Held,
    /// Drop it: STOP_SENDING with this code. What the peer must know has been queued.
    Stopped(ErrorCode),
}

/// An entity stream that may be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The entity.
    pub key: EntityKey,
    /// Depth of its scope.
    pub depth: u8,
    /// Whether it has children of its own: then [`Event::Gathered`] comes when all of them are terminal.
    pub dehydrated: bool,
    /// The scope of its children at layer 1.
    pub child_scope: Option<ScopeKey>,
    /// The scope of its parent: its own at layer 0; `None` for a root.
    pub parent: Option<EntityKey>,
    /// The chunk that this stream carries.
    pub chunk: Option<AcceptedChunk>,
    /// How many attempts at it have failed before this one (layer 2).
    pub failures: u32,
}

/// The place of a chunk's stream in the whole payload (decision 15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptedChunk {
    /// Its index.
    pub index: u32,
    /// Where its bytes go.
    pub offset: u64,
}

/// What a finished chunk means for its entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkProgress {
    /// Other chunks are missing.
    Waiting,
    /// The payload is whole, without gaps; check its checksum now.
    Whole,
    /// The entity has failed, or is resolved already.
    Dropped,
}

/// Why an entity or a connection failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The registry's code.
    pub code: ErrorCode,
    /// In words.
    pub message: String,
}

/// What the user of a session learns. Owned; poll until `None`.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Both CAPABILITIES have come; entities may be sent.
    Agreed(Agreement),
    /// A STATUS frame was sent or received (heartbeats excepted).
    Status {
        /// The entity it is about.
        key: EntityKey,
        /// What it says.
        status: Status,
        /// Its depth field.
        depth: u8,
        /// Its cursor, with C=1.
        cursor: Option<u32>,
        /// Whether the peer sent it.
        by_peer: bool,
    },
    /// A held stream may be received now.
    Admitted {
        /// The stream.
        stream: u64,
        /// What [`Admission::Accepted`] would have said.
        accepted: Accepted,
    },
    /// Every descendant of a received, dehydrated entity is terminal (decision 11; at layer 0 by CHECKPOINT, decision
    /// 12). Put it together, then call [`complete`](super::Session::complete) or [`fail`](super::Session::fail) for it.
    Gathered {
        /// The parent; `None` for a root scope whose BARRIER came.
        key: Option<EntityKey>,
        /// Its children's scope; its own at layer 0.
        scope: ScopeKey,
        /// The digest that was sent, at layer 1 and for root scopes.
        digest: Option<ScopeDigest>,
        /// COMPLETE, or FAILED when a child is not COMPLETE (STRICT).
        outcome: Status,
    },
    /// An entity has its terminal status, ours or the peer's.
    Resolved {
        /// The entity.
        key: EntityKey,
        /// Its parent on the wire, 0 for a root or when no header came at layer 0.
        parent_id: u32,
        /// The terminal status.
        status: Status,
        /// Why, where the status is not COMPLETE and one of both ends said why.
        reason: Option<Reason>,
        /// How many attempts at it had failed before, each of which could be repeated (layer 2).
        failures: u32,
        /// Whether we sent the entity.
        owned: bool,
    },
    /// The peer released one of our scopes; its digest equals ours (decision 11).
    Released {
        /// The scope.
        scope: ScopeKey,
        /// Its parent; `None` for the root scope.
        parent: Option<EntityKey>,
        /// Depth of the scope.
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
        /// S.
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
        /// Whether we asked.
        ours: bool,
    },
    /// Window or scopes came free after [`Session::announce`](super::Session::announce) had said `None`: try again.
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
    /// Something of layer 2; only where it was agreed on.
    Layer2(Layer2Event),
    /// The session is over; the last event.
    Closed {
        /// Code and message; NO_ERROR for a graceful close.
        reason: Reason,
        /// Whether the peer closed.
        by_peer: bool,
    },
}

/// A question about a claim check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimAsk {
    /// What has become of it?
    Query {
        /// The claim check's ID.
        claim_id: u64,
    },
    /// Takes its entity over.
    Redeem {
        /// The claim check's ID.
        claim_id: u64,
        /// The session in which the entity was deferred.
        session: SessionId,
    },
}

impl ClaimAsk {
    /// The claim check's ID.
    pub const fn claim_id(&self) -> u64 {
        match self {
            Self::Query { claim_id } | Self::Redeem { claim_id, .. } => *claim_id,
        }
    }
}

/// What the user of a session learns at layer 2.
#[derive(Debug, Clone, PartialEq)]
pub enum Layer2Event {
    /// Both ends know the session's name; from here on everything of layer 2 may be used.
    Named(SessionId),
    /// The peer of a server's new connection goes on with this session: [`adopt`](super::Session::adopt) or
    /// [`refuse_return`](super::Session::refuse_return). Nothing else comes before.
    Returns(SessionId),
    /// The session goes on by a new connection, and all that the peer had sent before has come.
    Reconnected,
    /// An attempt has failed, and the entity may come again. One of ours waits for
    /// [`retry`](super::Session::retry) or [`fail`](super::Session::fail). Of a received one whatever has come is void:
    /// drop it, and do not complete or fail the entity before its next stream.
    AttemptFailed {
        /// The entity.
        key: EntityKey,
        /// How often it has failed.
        failures: u32,
        /// Why.
        reason: Reason,
        /// Whether we sent it.
        owned: bool,
    },
    /// Open a new stream for the entity: the delay after RETRYING is over, or the session goes on after
    /// [`Reconnected`](Self::Reconnected).
    SendAgain(Ticket),
    /// The receiver waits with an entity of ours. Its token goes back by [`resume`](super::Session::resume).
    Yielded {
        /// The entity.
        key: EntityKey,
        /// Why.
        reason: YieldReason,
        /// The token: good once, in this session.
        token: Bytes,
    },
    /// The receiver's answer to [`resume`](super::Session::resume).
    ResumeAnswered {
        /// The entity.
        key: EntityKey,
        /// Why not, if it does not go on from where it was.
        refused: Option<Reason>,
    },
    /// A received entity that waits goes on, from `point`; without one, its state has changed since: from its beginning.
    Resumed {
        /// The entity.
        key: EntityKey,
        /// Where it had stopped.
        point: Option<StoppingPoint>,
    },
    /// By its parent's policy a received entity that has failed is to be set aside: issue a claim check, store it, and
    /// call [`defer`](super::Session::defer).
    ClaimWanted {
        /// The entity.
        key: EntityKey,
        /// Why it failed.
        reason: Reason,
    },
    /// The receiver has set an entity of ours aside; its terminal status follows.
    Deferred {
        /// The entity.
        key: EntityKey,
        /// The claim check's ID.
        claim_id: u64,
        /// Unix microseconds from which it is refused.
        expiry_micros: u64,
    },
    /// The peer asks about a claim check of ours: answer by [`answer_claim`](super::Session::answer_claim).
    ClaimAsked {
        /// Names the question.
        request: u64,
        /// The question.
        ask: ClaimAsk,
    },
    /// The answer to [`ask_claim`](super::Session::ask_claim).
    ClaimAnswered {
        /// The question.
        ask: ClaimAsk,
        /// What is known of the claim check; a redemption may be refused.
        answer: Result<ClaimResponse, Reason>,
    },
    /// All children of a parent are terminal: what its policy makes of that.
    Outcome {
        /// The parent.
        parent: EntityKey,
        /// RESOLVED, PARTIAL or FAILED.
        state: ResolutionState,
        /// Whether we sent it.
        owned: bool,
    },
}

/// What the driver does on the connection. Poll until `None`.
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
    /// CONNECTION_CLOSE; nothing follows. What was queued for stream 0 came before it.
    Close {
        /// The application error code.
        code: ErrorCode,
        /// The reason phrase.
        message: String,
    },
}

impl SessionConfig {
    /// Refuses settings that no session could work with.
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
