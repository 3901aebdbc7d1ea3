//! PipeStream (draft-krickert-pipestream-00), layers 0 to 2, as state machines without IO.
//!
//! `handle_*` methods take input, commands are methods, and `poll_*` methods return the results; time is an argument
//! ([`Now`]). Sockets, files, threads and clocks are in `penstock-pipestream-net`.
//!
//! Section numbers in the comments are those of the draft; a "decision" is a numbered point of
//! `docs/protocols/pipestream.md`.

mod chunk;
pub mod claims;
pub mod entity_id;
mod error;
mod frame;
pub mod header_key;
pub mod heap;
mod manifest;
mod merkle;
pub mod messages;
mod payload;
pub mod pipe_doc;
pub mod policy;
mod pseudonym;
mod receipt;
pub mod reference;
mod scope;
mod session;
mod session_id;
mod sizes;
mod status;
mod stored;
mod time;
mod uri;
pub mod yield_token;

pub use chunk::ChunkTracker;
pub use entity_id::EntityIdSpace;
pub use error::{
    ClaimRecordError, Deadline, DocumentError, Early, EntityError, Error, ErrorCode, LimitError, Malformed, Misuse,
    ObjectError, ReferenceError, Result, StoredError, StreamEnd, Subject, Unavailable, UriError, Violation,
};
pub use frame::{
    Agreement, Barrier, Capabilities, Checkpoint, ChunkInfo, ClaimResponse, EntityHeader, ErrorFrame, Extension,
    FoundClaim, Frame, FrameDecoder, HeaderDecoder, Layer2Frame, ScopeDigest, SessionFrame, StatusFrame, YieldReason,
};
pub use manifest::{
    AssemblyManifestEntry, Completion, EntryKey, Manifest, ManifestCounters, ManifestLimits, Resolution,
    ResolutionState,
};
pub use merkle::{MerkleTree, merkle_root};
pub use payload::PayloadCheck;
pub use pipe_doc::{OwnershipContext, PipeDoc};
pub use policy::Policy;
pub use pseudonym::Pseudonyms;
pub use receipt::{ContentTree, content_root, document_key, part_label};
pub use session::{
    Accepted, AcceptedChunk, Admission, Attempt, ChunkProgress, ClaimAsk, Counters, EntityKey, Event, Layer2Config,
    Layer2Event, Limit, LimitCounts, Reason, Restored, Role, STATUS_BLOCK, ScopeKey, SentOpen, Session, SessionConfig,
    Ticket, Transmit, Usage,
};
pub use session_id::SessionId;
pub use sizes::{MAX_FRAME_LENGTH, MAX_HEADER_LENGTH, MAX_LABEL};
pub use status::Status;
pub use time::Now;
pub use uri::{Authority, Host, PipestreamUri};
