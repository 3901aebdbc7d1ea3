use crate::sizes::{MAX_DEPTH, MAX_FRAME_LENGTH, MAX_HEADER_LENGTH, MAX_LABEL, MAX_SECRETS, MIN_PSEUDONYM_KEY, SECRET};
use crate::status::Status;

/// Mistakes of the caller; nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A negotiation with capabilities that do not include layer 0.
    #[error("there is no session without layer 0")]
    NoLayer0,
    /// A configuration that does not offer layer 0.
    #[error("capabilities.layer0 must be offered")]
    Layer0Offer,
    /// A configuration that offers layer 2 without layer 1.
    #[error("capabilities.layer2 needs layer1")]
    Layer1Offer,
    /// A configuration that offers layer 2 without its settings.
    #[error("capabilities.layer2 needs what `layer2` configures")]
    Layer2Config,
    /// A configuration whose status interval is so short that STATUS frames would never pause.
    #[error("status_interval is at least 1 ms")]
    StatusInterval,
    /// A configuration that leaves too little room for unacknowledged frames.
    #[error("layer2.max_unacknowledged is at least 256 KiB")]
    MaxUnacknowledged,
    /// A configuration with a header limit above what any end reads.
    #[error("max_header is at most {MAX_HEADER_LENGTH}")]
    MaxHeader,
    /// A client's configuration that offers layer 2 without a session name.
    #[error("a client that offers layer 2 names the session")]
    NoSessionName,
    /// A command of layer 2 at an end that has no configuration for it.
    #[error("layer 2 is not configured")]
    NoLayer2,
    /// A command of layer 2 before the session has its name.
    #[error("layer 2 was not agreed on, or the session has no name yet")]
    NotNamed,
    /// A command before the capabilities have been negotiated.
    #[error("capabilities have not been negotiated yet")]
    NotAgreed,
    /// A command after the session's end.
    #[error("the session is closed")]
    Closed,
    /// An announcement before the session is open, or after its end.
    #[error("entities can be announced only while the session is open")]
    NotOpen,
    /// An announcement in a scope that is not open.
    #[error("scope {scope} is not open")]
    ScopeNotOpen {
        /// The scope.
        scope: u16,
    },
    /// An announcement after the end of the scope's announcements.
    #[error("the announcements of scope {scope} have been ended")]
    ScopeEnded {
        /// The scope.
        scope: u16,
    },
    /// A second end of a scope's announcements.
    #[error("the announcements of scope {scope} have been ended before")]
    EndedTwice {
        /// The scope.
        scope: u16,
    },
    /// A child of an entity that is not open.
    #[error("the parent is not open")]
    ParentNotOpen,
    /// A child of an entity that is not dehydrated, or whose children have been ended.
    #[error("the parent was not announced as dehydrated, or its children have been ended")]
    WholeParent,
    /// An end of children for an entity that has no children to end.
    #[error("only an open, dehydrated entity has children to end")]
    NoChildren,
    /// An end of a parent before the end of its children.
    #[error("its children are not all terminal")]
    ChildrenOpen,
    /// A label that is too long.
    #[error("a label of {length} bytes; {MAX_LABEL} are allowed")]
    LabelLength {
        /// The label's length in bytes.
        length: usize,
    },
    /// A policy for an entity that is not dehydrated.
    #[error("a policy governs the children of a dehydrated entity")]
    WholePolicy,
    /// A yield of an entity that is not being received.
    #[error("only an entity that is being received can wait")]
    NotReceiving,
    /// A retry of an entity that has not failed, or was given up.
    #[error("the entity has not failed, or was given up")]
    NotFailed,
    /// An entity of the peer that the receiver abandons.
    #[error("an entity is abandoned by its owner; a receiver fails it with IDLE_TIMEOUT")]
    NotOwner,
    /// A yield token that is returned for an entity other than an open one of this end.
    #[error("the entity is not an open one of ours")]
    NotOurs,
    /// An answer to a claim request that is not open.
    #[error("claim request {0} is not open")]
    ClaimRequest(u64),
    /// A status that is not terminal, for a claim check.
    #[error("{0} settles no claim check")]
    ClaimStatus(Status),
    /// A new connection for a session that is not suspended, or not a client's.
    #[error("only a client's session that is suspended reconnects")]
    NotSuspended,
    /// A second verification of one payload.
    #[error("verified already")]
    VerifiedTwice,
    /// A new connection whose peer does not resume a session.
    #[error("the peer of the new connection has not named a session to resume")]
    NotNamedByPeer,
    /// A new connection that resumes a session which is not suspended, or has another name.
    #[error("only a named session that a server has suspended can be resumed")]
    NotSuspendedHere,
    /// A restored session whose configuration does not store it.
    #[error("a session is restored under a configuration that stores it")]
    NotStored,
    /// A stored session of the other role, client or server.
    #[error("the session was that of the other end")]
    OtherRole,
    /// A stored session whose name is not the configured one.
    #[error("the stored session has another name than the configured one")]
    OtherName,
    /// A stored session that has ended.
    #[error("the stored session has ended")]
    SessionEnded,
    /// A second manifest entry for one parent.
    #[error("the manifest has an entry for this parent already")]
    EntryTwice,
    /// A new child in a sealed entry.
    #[error("the entry is sealed and takes no more children")]
    EntrySealed,
    /// A command about a parent that has no manifest entry.
    #[error("the manifest has no entry for this parent")]
    NoEntry,
    /// A status that is not terminal, for the completion of a child.
    #[error("{0} completes no child")]
    ChildStatus(Status),
    /// A reserved ID for a child.
    #[error("entity ID {0} is reserved and cannot be a child's")]
    ReservedChild(u32),
    /// A reserved ID for a child whose parent has no entry yet.
    #[error("a reserved ID cannot be a child's")]
    ReservedOrphan,
    /// A key that is too short.
    #[error("a key for pseudonyms has {MIN_PSEUDONYM_KEY} bytes or more, not {length}")]
    Pseudonym {
        /// The key's length in bytes.
        length: usize,
    },
    /// Bytes given to a header's decoder after the end of the header.
    #[error("what comes after a header is payload")]
    Payload,
    /// A depth that a STATUS cannot express.
    #[error("depth {0} is above {MAX_DEPTH}")]
    StatusDepth(u8),
    /// A yield token that is too long for a frame.
    #[error("a yield token of {length} bytes is above {MAX_FRAME_LENGTH}")]
    TokenLength {
        /// The token's length in bytes.
        length: usize,
    },
    /// A YIELDED or DEFERRED without its own extension.
    #[error("{0} goes with an extension of its own")]
    OtherExtension(Status),
    /// An extension of a status that has none.
    #[error("{0} has no extension")]
    Extension(Status),
    /// A header without chunk_info for a tracker of chunks.
    #[error("the header has no chunk_info")]
    NoChunk,
    /// A chunk that was not admitted, or has ended.
    #[error("chunk {index} is not open")]
    ChunkNotOpen {
        /// The chunk's index.
        index: u32,
    },
    /// A cursor or a last ID that no entity can have.
    #[error("cursor {cursor} or last ID {last} is not assignable")]
    CursorStart {
        /// The cursor.
        cursor: u32,
        /// The ID assigned last.
        last: u32,
    },
    /// A cursor and a last ID that are further apart than the window.
    #[error("cursor {cursor} and last ID {last} are further apart than the window {window}")]
    WindowStart {
        /// The cursor.
        cursor: u32,
        /// The ID assigned last.
        last: u32,
        /// The size of the window.
        window: u32,
    },
    /// A path segment whose length does not fit into its field.
    #[error("a path segment is longer than 4294967295 bytes")]
    PathSegment,
    /// A handle to an item that is no longer in the heap.
    #[error("the heap's handle is stale")]
    StaleHandle,
    /// A new key that is higher than the item's current one.
    #[error("a key in the heap can only be lowered")]
    HigherKey,
    /// A secret that is not in hex, or has the wrong length.
    #[error("line {line} of the header key is not {} hex digits", 2 * SECRET)]
    HeaderKeyLine {
        /// The line number.
        line: usize,
    },
    /// No secret, or too many of them.
    #[error("the header key has {count} lines; it has 1 to {MAX_SECRETS}")]
    HeaderKeyCount {
        /// How many secrets were given.
        count: usize,
    },
    /// A header to seal, without a key to seal it.
    #[error("no header key")]
    NoHeaderKey,
    /// A header that is too long for the cipher.
    #[error("a header is too long to be sealed")]
    HeaderLength,
    /// An entry that is malformed.
    #[error("{0:?} is no key provider: PROVIDER or PROVIDER=KEY")]
    KeyProvider(String),
}
