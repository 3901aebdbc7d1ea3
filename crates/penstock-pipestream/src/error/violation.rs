use std::fmt;

use super::{EntityError, ErrorCode, StreamEnd};
use crate::session_id::SessionId;
use crate::status::Status;

/// The rule that the peer broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// A peer that offers no layer.
    #[error("the peer does not have layer 0")]
    NoLayer0,
    /// A frame before the first one.
    #[error("frame type 0x{frame_type:02X} came before CAPABILITIES")]
    BeforeCapabilities {
        /// The type of the frame.
        frame_type: u8,
    },
    /// A second first frame.
    #[error("a second CAPABILITIES came")]
    SecondCapabilities,
    /// An entity before the first frame.
    #[error("an entity stream came before CAPABILITIES")]
    EarlyStream,
    /// A second control stream (decision 4).
    #[error("a bidirectional stream other than stream 0")]
    BidirectionalStream,
    /// The end of the control stream.
    #[error("stream 0 was {how}")]
    ControlEnd {
        /// How it ended.
        how: StreamEnd,
    },
    /// A status of a layer that was not agreed on.
    #[error("STATUS {status} without layer 2")]
    Layer2Status {
        /// The status.
        status: Status,
    },
    /// A scope of a layer that was not agreed on.
    #[error("STATUS with depth {depth} in scope {scope} at layer 0")]
    Layer1Status {
        /// The stated depth.
        depth: u8,
        /// The scope.
        scope: u16,
    },
    /// A frame about a scope of a layer that was not agreed on.
    #[error("{frame} for scope {scope} at layer 0")]
    Layer1Frame {
        /// The name of the frame.
        frame: &'static str,
        /// The scope.
        scope: u16,
    },
    /// A checkpoint of a layer that was not agreed on.
    #[error("CHECKPOINT for scope {scope} at layer 0")]
    Layer1Checkpoint {
        /// The scope.
        scope: u32,
    },
    /// An entity in a scope of a layer that was not agreed on.
    #[error("scope {scope} at layer 0")]
    Layer1Stream {
        /// The scope.
        scope: u16,
    },
    /// A second level at layer 0.
    #[error("DEHYDRATING of an entity with a parent at layer 0")]
    Layer1Parent,
    /// A frame of a layer that was not agreed on.
    #[error("frame type 0x{frame_type:02X} without layer 2")]
    Layer2Frame {
        /// The type of the frame.
        frame_type: u8,
    },
    /// An ID that no entity has.
    #[error("a reserved entity ID")]
    ReservedEntity,
    /// A STATUS of a scope that was never announced.
    #[error("scope {scope} is not known")]
    UnknownScope {
        /// The scope.
        scope: u16,
    },
    /// A STATUS of a scope of ours that is not there yet.
    #[error("scope {scope} has not been opened")]
    UnopenedScope {
        /// The scope.
        scope: u16,
    },
    /// A status that only an owner sends.
    #[error("STATUS {status} in scope {scope}, which is not the sender's")]
    ForeignStatus {
        /// The status.
        status: Status,
        /// The scope.
        scope: u16,
    },
    /// An owner that completes its own entity.
    #[error("COMPLETE by the entity's own owner")]
    OwnComplete,
    /// A status that only a receiver sends.
    #[error("STATUS {status} by the entity's own owner")]
    OwnStatus {
        /// The status.
        status: Status,
    },
    /// The depth in a STATUS.
    #[error("depth {depth} for a scope at depth {expected}")]
    Depth {
        /// The stated depth.
        depth: u8,
        /// The depth that it has.
        expected: u8,
    },
    /// The cursor in a STATUS.
    #[error("cursor {cursor} does not lie from {first} to {next}")]
    Cursor {
        /// The cursor.
        cursor: u32,
        /// The first ID that it may be.
        first: u32,
        /// The next one.
        next: u32,
    },
    /// A cursor before the last one, or after the next ID (decision 8).
    #[error("cursor {cursor} is not within {first} to {next}")]
    CursorRange {
        /// The cursor.
        cursor: u32,
        /// The first ID that it may be.
        first: u32,
        /// The next one.
        next: u32,
    },
    /// A STATUS of an entity that is not there yet.
    #[error("STATUS about an entity that was never announced")]
    NotAnnounced,
    /// A second PENDING of an entity.
    #[error("an entity ID was announced twice")]
    AnnouncedTwice,
    /// A PENDING after the end of a scope.
    #[error("a child was announced after its scope's BARRIER")]
    LateChild,
    /// A PENDING that leaves IDs out.
    #[error("the next entity ID is {next}")]
    NextEntity {
        /// The next one.
        next: u32,
    },
    /// An entity with children although its header states none.
    #[error("DEHYDRATING came after the stream of an entity whose header does not say so")]
    LateDehydrating,
    /// A receiver that retries an entity that it did not send.
    #[error("RETRYING by another than the entity's owner")]
    ForeignRetrying,
    /// A new attempt of an entity that needs none.
    #[error("RETRYING of an entity that was not set aside")]
    NotSetAside,
    /// A parent that ends before its children.
    #[error("COMPLETE for a parent whose children are not")]
    IncompleteChildren,
    /// A parent that ends before its scope.
    #[error("COMPLETE for a dehydrated entity before its barrier")]
    EarlyComplete,
    /// A status of a child that its parent does not have.
    #[error("the sealed entry of entity {parent} has no such child")]
    NoSuchChild {
        /// The parent.
        parent: u32,
    },
    /// The ID of a child scope.
    #[error("scope {scope} cannot be a child scope of the peer's")]
    ChildScope {
        /// The scope.
        scope: u16,
    },
    /// A second child scope of an entity.
    #[error("the parent is bound to scope {bound}, not to {scope}")]
    ParentBound {
        /// The scope that is bound already.
        bound: u16,
        /// The scope.
        scope: u16,
    },
    /// The ID of a scope that is over.
    #[error("scope {scope} was released and is used again before the IDs have wrapped")]
    ScopeReused {
        /// The scope.
        scope: u16,
    },
    /// A second parent of a scope.
    #[error("scope {scope} is bound to entity {entity} already")]
    ScopeBound {
        /// The scope.
        scope: u16,
        /// The entity.
        entity: u32,
    },
    /// The depth of a scope is not that below its parent.
    #[error("STATUS frames put scope {scope} at another depth than {depth}")]
    ScopeDepth {
        /// The scope.
        scope: u16,
        /// The stated depth.
        depth: u8,
    },
    /// A scope without a possible parent.
    #[error("no open entity{} that is DEHYDRATING is without a scope of its own", Id(*.id))]
    NoParent {
        /// The ID.
        id: Option<u32>,
    },
    /// A depth without a possible parent.
    #[error("STATUS frames put the scope at a depth at which no entity can be its parent")]
    ParentDepth,
    /// Scopes that together have too few possible parents.
    #[error("the depths that STATUS frames name and the parents that BARRIERs name leave a scope without a parent")]
    NoParents,
    /// A second end of a scope.
    #[error("a second BARRIER for a scope")]
    SecondBarrier,
    /// The end of a scope that is over.
    #[error("BARRIER for scope {scope}, which was released")]
    LateBarrier {
        /// The scope.
        scope: u16,
    },
    /// The parent of a scope that ends.
    #[error("BARRIER names entity {entity} as the parent of scope {scope}")]
    BarrierParent {
        /// The entity.
        entity: u32,
        /// The scope.
        scope: u16,
    },
    /// The end of a scope of the other end.
    #[error("BARRIER S=0 for a scope that is not the sender's")]
    ForeignBarrier,
    /// An owner that releases its own scope.
    #[error("BARRIER S=1 by the scope's own owner")]
    OwnRelease,
    /// The release of a scope that is not there.
    #[error("BARRIER S=1 for scope {scope}, which is not open")]
    ReleasedScope {
        /// The scope.
        scope: u16,
    },
    /// The parent of a scope that is released.
    #[error("BARRIER S=1 names another parent")]
    ReleasedParent,
    /// A release before the digest.
    #[error("BARRIER S=1 before the scope's SCOPE_DIGEST")]
    EarlyRelease,
    /// The digest of a scope that is not there.
    #[error("SCOPE_DIGEST for scope {scope}, which is not open")]
    DigestScope {
        /// The scope.
        scope: u16,
    },
    /// A digest of a scope that has not ended.
    #[error("SCOPE_DIGEST before every entity of the scope is terminal")]
    EarlyDigest,
    /// The digest of a scope.
    #[error("the digest of scope {scope} differs from ours")]
    Digest {
        /// The scope.
        scope: u16,
    },
    /// A checkpoint of a scope that is not there.
    #[error("CHECKPOINT for scope {scope}, which is not open")]
    CheckpointScope {
        /// The scope.
        scope: u32,
    },
    /// The scope in a header.
    #[error("scope {scope} is above 65535")]
    HeaderScope {
        /// The scope.
        scope: u32,
    },
    /// An entity in a scope of the other end.
    #[error("scope {scope} is not the sender's")]
    ForeignStream {
        /// The scope.
        scope: u16,
    },
    /// An entity whose PENDING would exceed any window.
    #[error("an entity stream outside the window of a new scope")]
    NewScopeWindow,
    /// An entity outside the window of its scope.
    #[error("an entity stream whose PENDING can no longer arrive")]
    StreamWindow,
    /// An entity after the end of its scope.
    #[error("an entity stream whose PENDING can no longer arrive")]
    StreamBehindEnd,
    /// An entity that arrives twice.
    #[error("a second stream for an entity without chunk_info")]
    SecondStream,
    /// The parent in a header.
    #[error("parent {parent} in the header, {bound} by the binding of the scope")]
    HeaderParent {
        /// The parent.
        parent: u32,
        /// The parent that is bound already.
        bound: u32,
    },
    /// The parent's scope in a header.
    #[error("pipestream.parent-scope does not name scope {scope}")]
    ParentScope {
        /// The scope.
        scope: u16,
    },
    /// The child scope in a header.
    #[error("pipestream.child-scope is malformed")]
    ChildScopeName,
    /// A dehydrated entity without a child scope in its header.
    #[error("pipestream.child-scope is missing")]
    NoChildScope,
    /// A child of an entity that is not there.
    #[error("the parent was never announced")]
    UnknownParent,
    /// A child of an entity that has none.
    #[error("the parent is not being dehydrated")]
    WholeParent,
    /// The attempt in a header.
    #[error("pipestream.attempt is {named:?}; the next attempt is {next}")]
    Attempt {
        /// The session that is named.
        named: String,
        /// The next one.
        next: u32,
    },
    /// A frame of layer 2 before the first SESSION (decision 18).
    #[error("{what} came before SESSION")]
    BeforeSession {
        /// The frame.
        what: Early,
    },
    /// A second first frame of layer 2.
    #[error("a second SESSION came")]
    SecondSession,
    /// The name in a SESSION.
    #[error("SESSION names another session than ours")]
    OtherSession,
    /// A session that has nothing to continue from.
    #[error("SESSION resumes a session that begins")]
    EarlyResumption,
    /// The policy in a SESSION.
    #[error("SESSION has another policy than ours")]
    SessionPolicy,
    /// A later connection that starts over.
    #[error("SESSION does not resume the session")]
    NoResumption,
    /// A later connection that begins with something else.
    #[error("SESSION resumes a session after other frames")]
    LateResumption,
    /// The received frames that a SESSION states.
    #[error("SESSION has received {received} frames; {sent} were sent, and {acknowledged} acknowledged")]
    SessionReceived {
        /// The stated number.
        received: u64,
        /// How many were sent.
        sent: u64,
        /// How many were acknowledged.
        acknowledged: u64,
    },
    /// The sent frames that a SESSION states.
    #[error("SESSION has sent {sent} frames, of which {received} have come before")]
    SessionSent {
        /// The stated number.
        sent: u64,
        /// How many have arrived.
        received: u64,
    },
    /// A frame before the SESSION of a later connection.
    #[error("frame type 0x{frame_type:02X} came before the session was resumed")]
    BeforeResumption {
        /// The type of the frame.
        frame_type: u8,
    },
    /// A later connection with other capabilities.
    #[error("the session's first connection agreed on other capabilities than this one")]
    Capabilities,
    /// A later connection of a session that is over.
    #[error("session {0} is not known here")]
    UnknownSession(SessionId),
    /// A later connection of a session that has only one.
    #[error("session {0} is not known here: sessions end with their connections")]
    ShortSession(SessionId),
    /// The scope in a RESUME.
    #[error("scope {scope} of a RESUME is above 65535")]
    ResumeScopeId {
        /// The scope.
        scope: u32,
    },
    /// A RESUME of an entity of the other end.
    #[error("RESUME in a scope that is not the sender's")]
    ResumeScope,
    /// A token that was made for something else.
    #[error("the yield token is not one of this entity in this session")]
    YieldToken,
    /// A token that was used twice.
    #[error("the yield token was used before, or is void")]
    SpentToken,
    /// An answer without a request.
    #[error("a CLAIM_RESPONSE for {id:016x}, which answers no request")]
    UnexpectedClaimResponse {
        /// The ID.
        id: u64,
    },
    /// A claim check that was never issued, or is forgotten.
    #[error("claim check {id:016x} is not known")]
    UnknownClaim {
        /// The ID.
        id: u64,
    },
    /// A claim check that was redeemed twice.
    #[error("claim check {id:016x} was redeemed before")]
    RedeemedClaim {
        /// The ID.
        id: u64,
    },
    /// A claim check that another session has redeemed.
    #[error("claim check {id:016x} is not this session's")]
    ForeignClaim {
        /// The ID.
        id: u64,
    },
    /// A policy without its ratio.
    #[error("QUORUM needs a min_success_ratio from 0 to 1, not {ratio}")]
    Quorum {
        /// The ratio that was given.
        ratio: String,
    },
    /// A stream that the peer has reset, with its code.
    #[error("the peer reset the entity's stream")]
    StreamReset(ErrorCode),
    /// An entity that fails while its payload arrives, with its code.
    #[error("the entity has failed meanwhile")]
    StreamStopped(ErrorCode),
    /// An entity that fails alone.
    #[error(transparent)]
    Entity(EntityError),
}

/// What arrived before SESSION.
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

/// Formats an ID after a noun, if there is one.
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
