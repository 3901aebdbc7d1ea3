use crate::sizes::{MAX_DEPTH, MAX_FRAME_LENGTH, MAX_HEADER_LENGTH, MAX_LABEL, MAX_SECRETS, MIN_PSEUDONYM_KEY, SECRET};
use crate::status::Status;

/// Mistakes of the caller; nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// Capabilities without a layer.
    #[error("there is no session without layer 0")]
    NoLayer0,
    /// A configuration without layer 0.
    #[error("capabilities.layer0 must be offered")]
    Layer0Offer,
    /// A configuration of layer 2 without layer 1.
    #[error("capabilities.layer2 needs layer1")]
    Layer1Offer,
    /// A configuration of layer 2 without its settings.
    #[error("capabilities.layer2 needs what `layer2` configures")]
    Layer2Config,
    /// A configuration that would send without a pause.
    #[error("status_interval is at least 1 ms")]
    StatusInterval,
    /// A configuration that would hardly send.
    #[error("layer2.max_unacknowledged is at least 256 KiB")]
    MaxUnacknowledged,
    /// A limit of headers with which none could be read.
    #[error("max_header is at most {MAX_HEADER_LENGTH}")]
    MaxHeader,
    /// A configuration of layer 2 without a name.
    #[error("a client that offers layer 2 names the session")]
    NoSessionName,
    /// A call of layer 2 without it.
    #[error("layer 2 is not configured")]
    NoLayer2,
    /// A call of layer 2 before it is agreed on.
    #[error("layer 2 was not agreed on, or the session has no name yet")]
    NotNamed,
    /// A call before the first frame.
    #[error("capabilities have not been negotiated yet")]
    NotAgreed,
    /// A call after the end.
    #[error("the session is closed")]
    Closed,
    /// An announcement after the end.
    #[error("entities can be announced only while the session is open")]
    NotOpen,
    /// An announcement in a scope that is not there.
    #[error("scope {scope} is not open")]
    ScopeNotOpen {
        /// The scope.
        scope: u16,
    },
    /// An announcement after the end of a scope.
    #[error("the announcements of scope {scope} have been ended")]
    ScopeEnded {
        /// The scope.
        scope: u16,
    },
    /// A second end of a scope.
    #[error("the announcements of scope {scope} have been ended before")]
    EndedTwice {
        /// The scope.
        scope: u16,
    },
    /// A child of an entity that is over.
    #[error("the parent is not open")]
    ParentNotOpen,
    /// A child of an entity that has none.
    #[error("the parent was not announced as dehydrated, or its children have been ended")]
    WholeParent,
    /// The end of children that there are not.
    #[error("only an open, dehydrated entity has children to end")]
    NoChildren,
    /// The end of a parent before its children.
    #[error("its children are not all terminal")]
    ChildrenOpen,
    /// A label that is too long.
    #[error("a label of {length} bytes; {MAX_LABEL} are allowed")]
    LabelLength {
        /// Bytes that it has.
        length: usize,
    },
    /// A policy of an entity that has no children.
    #[error("a policy governs the children of a dehydrated entity")]
    WholePolicy,
    /// A yield of an entity that is over.
    #[error("only an entity that is being received can wait")]
    NotReceiving,
    /// A new attempt of an entity that needs none.
    #[error("the entity has not failed, or was given up")]
    NotFailed,
    /// A receiver that abandons an entity.
    #[error("an entity is abandoned by its owner; a receiver fails it with IDLE_TIMEOUT")]
    NotOwner,
    /// A token of an entity of the peer.
    #[error("the entity is not an open one of ours")]
    NotOurs,
    /// An answer without a request.
    #[error("claim request {0} is not open")]
    ClaimRequest(u64),
    /// A status that is not terminal.
    #[error("{0} settles no claim check")]
    ClaimStatus(Status),
    /// A second connection in addition to the first one.
    #[error("only a client's session that is suspended reconnects")]
    NotSuspended,
    /// The end of a payload that has ended.
    #[error("verified already")]
    VerifiedTwice,
    /// A connection that resumes nothing.
    #[error("the peer of the new connection has not named a session to resume")]
    NotNamedByPeer,
    /// A connection that resumes another session.
    #[error("only a named session that a server has suspended can be resumed")]
    NotSuspendedHere,
    /// A restored session that would not be stored.
    #[error("a session is restored under a configuration that stores it")]
    NotStored,
    /// A session of a client that a server restores, or the other way about.
    #[error("the session was that of the other end")]
    OtherRole,
    /// A session of another name.
    #[error("the stored session has another name than the configured one")]
    OtherName,
    /// A session that is over.
    #[error("the stored session has ended")]
    SessionEnded,
    /// A second entry of a parent.
    #[error("the manifest has an entry for this parent already")]
    EntryTwice,
    /// A child after the end.
    #[error("the entry is sealed and takes no more children")]
    EntrySealed,
    /// A call about a parent that has none.
    #[error("the manifest has no entry for this parent")]
    NoEntry,
    /// A status that is not terminal.
    #[error("{0} completes no child")]
    ChildStatus(Status),
    /// An ID that no child has.
    #[error("entity ID {0} is reserved and cannot be a child's")]
    ReservedChild(u32),
    /// An ID that no orphan has.
    #[error("a reserved ID cannot be a child's")]
    ReservedOrphan,
    /// A key that is too short.
    #[error("a key for pseudonyms has {MIN_PSEUDONYM_KEY} bytes or more, not {length}")]
    Pseudonym {
        /// Bytes that it has.
        length: usize,
    },
    /// Bytes that are not a header.
    #[error("what comes after a header is payload")]
    Payload,
    /// A depth that no STATUS can express.
    #[error("depth {0} is above {MAX_DEPTH}")]
    StatusDepth(u8),
    /// A token that no frame can hold.
    #[error("a yield token of {length} bytes is above {MAX_FRAME_LENGTH}")]
    TokenLength {
        /// Bytes that it has.
        length: usize,
    },
    /// The extension of another status.
    #[error("{0} goes with an extension of its own")]
    OtherExtension(Status),
    /// A status that has none.
    #[error("{0} has no extension")]
    Extension(Status),
    /// Chunks of an entity without chunks.
    #[error("the header has no chunk_info")]
    NoChunk,
    /// A chunk that was not admitted.
    #[error("chunk {index} is not open")]
    ChunkNotOpen {
        /// The number of the chunk.
        index: u32,
    },
    /// Invalid entity IDs for a cursor.
    #[error("cursor {cursor} or last ID {last} is not assignable")]
    CursorStart {
        /// The cursor.
        cursor: u32,
        /// The last ID.
        last: u32,
    },
    /// IDs outside any window.
    #[error("cursor {cursor} and last ID {last} are further apart than the window {window}")]
    WindowStart {
        /// The cursor.
        cursor: u32,
        /// The last ID.
        last: u32,
        /// The size of the window.
        window: u32,
    },
    /// A segment whose length does not fit into its field.
    #[error("a path segment is longer than 4294967295 bytes")]
    PathSegment,
    /// A timer that is over.
    #[error("the heap's handle is stale")]
    StaleHandle,
    /// A key that would be raised.
    #[error("a key in the heap can only be lowered")]
    HigherKey,
    /// A secret of another form.
    #[error("line {line} of the header key is not {} hex digits", 2 * SECRET)]
    HeaderKeyLine {
        /// The line number.
        line: usize,
    },
    /// No secret, or too many.
    #[error("the header key has {count} lines; it has 1 to {MAX_SECRETS}")]
    HeaderKeyCount {
        /// How many there are.
        count: usize,
    },
    /// A seal without a key.
    #[error("no header key")]
    NoHeaderKey,
    /// A header that no cipher takes.
    #[error("a header is too long to be sealed")]
    HeaderLength,
    /// An entry of another form.
    #[error("{0:?} is no key provider: PROVIDER or PROVIDER=KEY")]
    KeyProvider(String),
}
