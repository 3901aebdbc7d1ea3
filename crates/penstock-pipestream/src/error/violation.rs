use std::fmt;

use super::{EntityError, ErrorCode, StreamEnd};
use crate::session_id::SessionId;
use crate::status::Status;

/// A rule that the peer broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A peer that does not offer layer 0.
    #[error("the peer does not have layer 0")]
    NoLayer0,
    /// A frame before CAPABILITIES.
    #[error("frame type 0x{frame_type:02X} came before CAPABILITIES")]
    BeforeCapabilities {
        /// The type of the frame.
        frame_type: u8,
    },
    /// A second CAPABILITIES on one connection.
    #[error("a second CAPABILITIES came")]
    SecondCapabilities,
    /// An entity stream of a client before its CAPABILITIES.
    #[error("an entity stream came before CAPABILITIES")]
    EarlyStream,
    /// A bidirectional stream in addition to the control stream (decision 4).
    #[error("a bidirectional stream other than stream 0")]
    BidirectionalStream,
    /// A control stream that ended before the session did.
    #[error("stream 0 was {how}")]
    ControlEnd {
        /// How the stream ended.
        how: StreamEnd,
    },
    /// A status of layer 2, without an agreement on that layer.
    #[error("STATUS {status} without layer 2")]
    Layer2Status {
        /// The status.
        status: Status,
    },
    /// A STATUS in a scope of layer 1, without an agreement on that layer.
    #[error("STATUS with depth {depth} in scope {scope} at layer 0")]
    Layer1Status {
        /// The stated depth.
        depth: u8,
        /// The scope.
        scope: u16,
    },
    /// A frame about a scope of layer 1, without an agreement on that layer.
    #[error("{frame} for scope {scope} at layer 0")]
    Layer1Frame {
        /// The name of the frame.
        frame: &'static str,
        /// The scope.
        scope: u16,
    },
    /// A CHECKPOINT in a scope of layer 1, without an agreement on that layer.
    #[error("CHECKPOINT for scope {scope} at layer 0")]
    Layer1Checkpoint {
        /// The scope.
        scope: u32,
    },
    /// An entity stream in a scope of layer 1, without an agreement on that layer.
    #[error("scope {scope} at layer 0")]
    Layer1Stream {
        /// The scope.
        scope: u16,
    },
    /// A child that is dehydrated in turn, at layer 0.
    #[error("DEHYDRATING of an entity with a parent at layer 0")]
    Layer1Parent,
    /// A frame of layer 2, without an agreement on that layer.
    #[error("frame type 0x{frame_type:02X} without layer 2")]
    Layer2Frame {
        /// The type of the frame.
        frame_type: u8,
    },
    /// A reserved ID, where an entity's ID is required.
    #[error("a reserved entity ID")]
    ReservedEntity,
    /// A STATUS in a scope of the peer that is not open.
    #[error("scope {scope} is not known")]
    UnknownScope {
        /// The scope.
        scope: u16,
    },
    /// A STATUS in a scope of this end that has not been opened.
    #[error("scope {scope} has not been opened")]
    UnopenedScope {
        /// The scope.
        scope: u16,
    },
    /// An owner's status from the receiver.
    #[error("STATUS {status} in scope {scope}, which is not the sender's")]
    ForeignStatus {
        /// The status.
        status: Status,
        /// The scope.
        scope: u16,
    },
    /// COMPLETE from the entity's owner, which only the receiver may send.
    #[error("COMPLETE by the entity's own owner")]
    OwnComplete,
    /// A receiver's status from the entity's owner.
    #[error("STATUS {status} by the entity's own owner")]
    OwnStatus {
        /// The status.
        status: Status,
    },
    /// A STATUS whose depth is not that of its scope.
    #[error("depth {depth} for a scope at depth {expected}")]
    Depth {
        /// The stated depth.
        depth: u8,
        /// The scope's depth.
        expected: u8,
    },
    /// A STATUS with a cursor outside the allowed range.
    #[error("cursor {cursor} does not lie from {first} to {next}")]
    Cursor {
        /// The cursor.
        cursor: u32,
        /// The lowest cursor that is allowed.
        first: u32,
        /// The highest cursor that is allowed: the next unassigned ID.
        next: u32,
    },
    /// A cursor before the current one, or after the next unassigned ID (decision 8).
    #[error("cursor {cursor} is not within {first} to {next}")]
    CursorRange {
        /// The cursor.
        cursor: u32,
        /// The lowest cursor that is allowed.
        first: u32,
        /// The highest cursor that is allowed: the next unassigned ID.
        next: u32,
    },
    /// A STATUS about an entity that was never announced.
    #[error("STATUS about an entity that was never announced")]
    NotAnnounced,
    /// A second PENDING of an entity.
    #[error("an entity ID was announced twice")]
    AnnouncedTwice,
    /// A PENDING after its scope's BARRIER.
    #[error("a child was announced after its scope's BARRIER")]
    LateChild,
    /// A PENDING whose ID is not the next one.
    #[error("the next entity ID is {next}")]
    NextEntity {
        /// The next ID.
        next: u32,
    },
    /// DEHYDRATING after a header that does not state that the entity has children.
    #[error("DEHYDRATING came after the stream of an entity whose header does not say so")]
    LateDehydrating,
    /// RETRYING from the receiver of the entity.
    #[error("RETRYING by another than the entity's owner")]
    ForeignRetrying,
    /// RETRYING of an entity that is not waiting for a retry.
    #[error("RETRYING of an entity that was not set aside")]
    NotSetAside,
    /// COMPLETE for a parent whose children are not complete.
    #[error("COMPLETE for a parent whose children are not")]
    IncompleteChildren,
    /// COMPLETE for a parent before the barrier of its scope is released.
    #[error("COMPLETE for a dehydrated entity before its barrier")]
    EarlyComplete,
    /// A status of an entity that is not a child of the sealed entry.
    #[error("the sealed entry of entity {parent} has no such child")]
    NoSuchChild {
        /// The parent.
        parent: u32,
    },
    /// A child scope whose ID the peer may not use.
    #[error("scope {scope} cannot be a child scope of the peer's")]
    ChildScope {
        /// The child scope.
        scope: u16,
    },
    /// A second child scope for one entity.
    #[error("the parent is bound to scope {bound}, not to {scope}")]
    ParentBound {
        /// The child scope that the entity has already.
        bound: u16,
        /// The second child scope.
        scope: u16,
    },
    /// A released scope ID that is used again before the IDs have wrapped.
    #[error("scope {scope} was released and is used again before the IDs have wrapped")]
    ScopeReused {
        /// The scope.
        scope: u16,
    },
    /// A second parent for one scope.
    #[error("scope {scope} is bound to entity {entity} already")]
    ScopeBound {
        /// The scope.
        scope: u16,
        /// The parent that the scope has already.
        entity: u32,
    },
    /// A scope whose STATUS frames state another depth than one below its parent.
    #[error("STATUS frames put scope {scope} at another depth than {depth}")]
    ScopeDepth {
        /// The scope.
        scope: u16,
        /// The depth below the parent.
        depth: u8,
    },
    /// A scope for which no open DEHYDRATING entity is left as a parent.
    #[error("no open entity{} that is DEHYDRATING is without a scope of its own", Id(*.id))]
    NoParent {
        /// The ID of the parent, if it is known.
        id: Option<u32>,
    },
    /// A scope at a depth for which no open entity is left as a parent.
    #[error("STATUS frames put the scope at a depth at which no entity can be its parent")]
    ParentDepth,
    /// Scopes that together need more parents than there are.
    #[error("the depths that STATUS frames name and the parents that BARRIERs name leave a scope without a parent")]
    NoParents,
    /// A second BARRIER for one scope.
    #[error("a second BARRIER for a scope")]
    SecondBarrier,
    /// A BARRIER for a scope that was released.
    #[error("BARRIER for scope {scope}, which was released")]
    LateBarrier {
        /// The scope.
        scope: u16,
    },
    /// A BARRIER that names an entity other than its scope's parent.
    #[error("BARRIER names entity {entity} as the parent of scope {scope}")]
    BarrierParent {
        /// The entity that the BARRIER names.
        entity: u32,
        /// The scope.
        scope: u16,
    },
    /// BARRIER S=0 for a scope of the other end.
    #[error("BARRIER S=0 for a scope that is not the sender's")]
    ForeignBarrier,
    /// BARRIER S=1 from the scope's owner, which only the receiver may send.
    #[error("BARRIER S=1 by the scope's own owner")]
    OwnRelease,
    /// BARRIER S=1 for a scope that is not open.
    #[error("BARRIER S=1 for scope {scope}, which is not open")]
    ReleasedScope {
        /// The scope.
        scope: u16,
    },
    /// BARRIER S=1 that names an entity other than its scope's parent.
    #[error("BARRIER S=1 names another parent")]
    ReleasedParent,
    /// BARRIER S=1 before the scope's SCOPE_DIGEST.
    #[error("BARRIER S=1 before the scope's SCOPE_DIGEST")]
    EarlyRelease,
    /// A SCOPE_DIGEST for a scope that is not open.
    #[error("SCOPE_DIGEST for scope {scope}, which is not open")]
    DigestScope {
        /// The scope.
        scope: u16,
    },
    /// A SCOPE_DIGEST before the scope has ended and all its entities are terminal.
    #[error("SCOPE_DIGEST before every entity of the scope is terminal")]
    EarlyDigest,
    /// A SCOPE_DIGEST that differs from the one of this end.
    #[error("the digest of scope {scope} differs from ours")]
    Digest {
        /// The scope.
        scope: u16,
    },
    /// A CHECKPOINT for a scope that is not open.
    #[error("CHECKPOINT for scope {scope}, which is not open")]
    CheckpointScope {
        /// The scope.
        scope: u32,
    },
    /// A scope ID in a header that exceeds 16 bits.
    #[error("scope {scope} is above 65535")]
    HeaderScope {
        /// The scope.
        scope: u32,
    },
    /// An entity stream in a scope of the receiving end.
    #[error("scope {scope} is not the sender's")]
    ForeignStream {
        /// The scope.
        scope: u16,
    },
    /// An entity stream in a new scope, outside the window that such a scope has.
    #[error("an entity stream outside the window of a new scope")]
    NewScopeWindow,
    /// An entity stream outside the window of its scope.
    #[error("an entity stream whose PENDING can no longer arrive")]
    StreamWindow,
    /// The stream of an unannounced entity, after the end of its scope's announcements.
    #[error("an entity stream whose PENDING can no longer arrive")]
    StreamBehindEnd,
    /// A second stream of an entity whose payload is not in chunks.
    #[error("a second stream for an entity without chunk_info")]
    SecondStream,
    /// A header that names an entity other than its scope's parent.
    #[error("parent {parent} in the header, {bound} by the binding of the scope")]
    HeaderParent {
        /// The parent in the header.
        parent: u32,
        /// The parent of the scope.
        bound: u32,
    },
    /// A header that does not name the scope of the entity's parent.
    #[error("pipestream.parent-scope does not name scope {scope}")]
    ParentScope {
        /// The scope of the parent.
        scope: u16,
    },
    /// A header with a malformed child scope.
    #[error("pipestream.child-scope is malformed")]
    ChildScopeName,
    /// The header of a dehydrated entity without a child scope.
    #[error("pipestream.child-scope is missing")]
    NoChildScope,
    /// A child of an entity that was never announced.
    #[error("the parent was never announced")]
    UnknownParent,
    /// A child of an entity that is not dehydrated.
    #[error("the parent is not being dehydrated")]
    WholeParent,
    /// A header with an attempt that is malformed or too high.
    #[error("pipestream.attempt is {named:?}; the next attempt is {next}")]
    Attempt {
        /// The attempt in the header.
        named: String,
        /// The next attempt.
        next: u32,
    },
    /// A frame or a status of layer 2 before the first SESSION (decision 18).
    #[error("{what} came before SESSION")]
    BeforeSession {
        /// The frame or the status.
        what: Early,
    },
    /// A SESSION that is neither the first one nor an acknowledgement.
    #[error("a second SESSION came")]
    SecondSession,
    /// A SESSION with another name than that of this session.
    #[error("SESSION names another session than ours")]
    OtherSession,
    /// A SESSION that resumes a session on its first connection.
    #[error("SESSION resumes a session that begins")]
    EarlyResumption,
    /// A SESSION whose policy differs from that of this end.
    #[error("SESSION has another policy than ours")]
    SessionPolicy,
    /// A SESSION on a later connection that does not resume the session.
    #[error("SESSION does not resume the session")]
    NoResumption,
    /// A SESSION that resumes a session after other frames of its connection.
    #[error("SESSION resumes a session after other frames")]
    LateResumption,
    /// A SESSION that acknowledges frames that were not sent, or fewer frames than before.
    #[error("SESSION has received {received} frames; {sent} were sent, and {acknowledged} acknowledged")]
    SessionReceived {
        /// The frames that the peer states to have received.
        received: u64,
        /// The frames that this end has sent.
        sent: u64,
        /// The frames that the peer acknowledged before.
        acknowledged: u64,
    },
    /// A SESSION that states fewer sent frames than have arrived.
    #[error("SESSION has sent {sent} frames, of which {received} have come before")]
    SessionSent {
        /// The frames that the peer states to have sent.
        sent: u64,
        /// The frames that have arrived.
        received: u64,
    },
    /// A frame before the SESSION that resumes the session.
    #[error("frame type 0x{frame_type:02X} came before the session was resumed")]
    BeforeResumption {
        /// The type of the frame.
        frame_type: u8,
    },
    /// A later connection that agrees on other capabilities than the first one did.
    #[error("the session's first connection agreed on other capabilities than this one")]
    Capabilities,
    /// A SESSION that resumes a session unknown at this end.
    #[error("session {0} is not known here")]
    UnknownSession(SessionId),
    /// A SESSION that resumes a session, at an end whose sessions end with their connections.
    #[error("session {0} is not known here: sessions end with their connections")]
    ShortSession(SessionId),
    /// A scope ID in a RESUME that exceeds 16 bits.
    #[error("scope {scope} of a RESUME is above 65535")]
    ResumeScopeId {
        /// The scope.
        scope: u32,
    },
    /// A RESUME in a scope of the other end.
    #[error("RESUME in a scope that is not the sender's")]
    ResumeScope,
    /// A yield token of another entity or session.
    #[error("the yield token is not one of this entity in this session")]
    YieldToken,
    /// A yield token that was used before, or is no longer valid.
    #[error("the yield token was used before, or is void")]
    SpentToken,
    /// A CLAIM_RESPONSE that answers no request.
    #[error("a CLAIM_RESPONSE for {id:016x}, which answers no request")]
    UnexpectedClaimResponse {
        /// The claim check's ID.
        id: u64,
    },
    /// A claim check that was never issued, or is forgotten.
    #[error("claim check {id:016x} is not known")]
    UnknownClaim {
        /// The claim check's ID.
        id: u64,
    },
    /// A claim check that was redeemed before.
    #[error("claim check {id:016x} was redeemed before")]
    RedeemedClaim {
        /// The claim check's ID.
        id: u64,
    },
    /// A claim check that this session has not redeemed.
    #[error("claim check {id:016x} is not this session's")]
    ForeignClaim {
        /// The claim check's ID.
        id: u64,
    },
    /// A QUORUM policy without a ratio from 0 to 1.
    #[error("QUORUM needs a min_success_ratio from 0 to 1, not {ratio}")]
    Quorum {
        /// The ratio that was given.
        ratio: String,
    },
    /// An entity stream that the peer reset with this code.
    #[error("the peer reset the entity's stream")]
    StreamReset(ErrorCode),
    /// An entity that failed with this code while its payload was arriving.
    #[error("the entity has failed meanwhile")]
    StreamStopped(ErrorCode),
    /// An error that fails one entity only.
    #[error(transparent)]
    Entity(EntityError),
}

/// A frame or a status that arrived before SESSION.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Early {
    /// A frame of this type.
    Frame(u8),
    /// A STATUS of layer 2.
    Status(Status),
}

impl fmt::Display for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame(frame_type) => write!(f, "frame type 0x{frame_type:02X}"),
            Self::Status(status) => write!(f, "STATUS {status}"),
        }
    }
}

/// An optional ID, formatted to follow a noun.
struct Id(Option<u32>);

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |id| write!(f, " {id}"))
    }
}

impl Violation {
    /// Return the registry's code.
    #[expect(clippy::too_many_lines, reason = "a line for each variant")]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::NoLayer0
            | Self::Layer2Status { .. }
            | Self::Layer1Status { .. }
            | Self::Layer1Frame { .. }
            | Self::Layer1Checkpoint { .. }
            | Self::Layer1Stream { .. }
            | Self::Layer1Parent
            | Self::Layer2Frame { .. }
            | Self::Capabilities => ErrorCode::LayerUnsupported,
            Self::BeforeCapabilities { .. }
            | Self::SecondCapabilities
            | Self::EarlyStream
            | Self::BidirectionalStream
            | Self::ReservedEntity
            | Self::OwnComplete
            | Self::OwnStatus { .. }
            | Self::Depth { .. }
            | Self::Cursor { .. }
            | Self::CursorRange { .. }
            | Self::NotAnnounced
            | Self::AnnouncedTwice
            | Self::LateChild
            | Self::NextEntity { .. }
            | Self::LateDehydrating
            | Self::ForeignRetrying
            | Self::NotSetAside
            | Self::IncompleteChildren
            | Self::EarlyComplete
            | Self::NoSuchChild { .. }
            | Self::ScopeDepth { .. }
            | Self::ParentDepth
            | Self::SecondBarrier
            | Self::OwnRelease
            | Self::EarlyRelease
            | Self::EarlyDigest
            | Self::StreamBehindEnd
            | Self::SecondStream
            | Self::UnknownParent
            | Self::WholeParent
            | Self::Attempt { .. }
            | Self::BeforeSession { .. }
            | Self::SecondSession
            | Self::OtherSession
            | Self::EarlyResumption
            | Self::SessionPolicy
            | Self::NoResumption
            | Self::LateResumption
            | Self::SessionReceived { .. }
            | Self::SessionSent { .. }
            | Self::BeforeResumption { .. }
            | Self::UnexpectedClaimResponse { .. }
            | Self::Quorum { .. } => ErrorCode::EntityInvalid,
            Self::ControlEnd { .. } => ErrorCode::ControlReset,
            Self::UnknownScope { .. }
            | Self::UnopenedScope { .. }
            | Self::ForeignStatus { .. }
            | Self::ChildScope { .. }
            | Self::ParentBound { .. }
            | Self::ScopeReused { .. }
            | Self::ScopeBound { .. }
            | Self::NoParent { .. }
            | Self::NoParents
            | Self::LateBarrier { .. }
            | Self::BarrierParent { .. }
            | Self::ForeignBarrier
            | Self::ReleasedScope { .. }
            | Self::ReleasedParent
            | Self::DigestScope { .. }
            | Self::CheckpointScope { .. }
            | Self::HeaderScope { .. }
            | Self::ForeignStream { .. }
            | Self::HeaderParent { .. }
            | Self::ParentScope { .. }
            | Self::ChildScopeName
            | Self::NoChildScope
            | Self::ResumeScopeId { .. }
            | Self::ResumeScope => ErrorCode::ScopeInvalid,
            Self::Digest { .. } => ErrorCode::IntegrityError,
            Self::NewScopeWindow | Self::StreamWindow => ErrorCode::WindowExceeded,
            Self::UnknownSession(_)
            | Self::ShortSession(_)
            | Self::YieldToken
            | Self::SpentToken
            | Self::UnknownClaim { .. }
            | Self::RedeemedClaim { .. }
            | Self::ForeignClaim { .. } => ErrorCode::ClaimNotFound,
            Self::Entity(error) => error.code(),
            Self::StreamReset(code) | Self::StreamStopped(code) => *code,
        }
    }
}

impl From<EntityError> for Violation {
    fn from(error: EntityError) -> Self {
        Self::Entity(error)
    }
}
