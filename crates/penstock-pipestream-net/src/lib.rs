//! PipeStream over QUIC: the driver of `penstock-pipestream`'s session, its client, its server, and the folder sink.
//!
//! ```text
//!  caller ── SessionHandle ─┐                                   ┌─ entity streams, a task for each
//!                           ├─ commands ─► driver ── session ───┤
//!  consumer ─ complete/fail ┘              (one task)           └─ stream 0
//! ```
//!
//! Memory is bounded by: the number of streams, the windows of QUIC, 64 KiB for each entity that waits for its
//! consumer, and 4 MiB for very small ones that wait besides, 32 MiB of payloads that wait to be sent, 4 MiB of control frames that the peer does not read, and the
//! session's own limits.

mod claims;
mod client;
mod command;
mod connection;
mod consumer;
mod counters;
mod driver;
mod error;
mod events;
mod handle;
mod handover;
mod incoming;
mod journal;
mod liveness;
mod metrics;
mod outcomes;
mod outgoing;
mod payload;
mod pump;
pub mod reading;
mod references;
mod resolutions;
mod segments;
mod server;
mod shared;
mod sink;
mod transport;

pub use error::{Error, Result};
pub use penstock_pipestream::claims::ClaimLimits;
pub use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction, StoppingPointValidation};
pub use penstock_pipestream::{
    Accepted, Agreement, Capabilities, Checkpoint, EntityHeader, EntityKey, ErrorCode, Event, Layer2Event, Reason,
    ResolutionState, Role, ScopeDigest, ScopeKey, SessionConfig, SessionId, Status, Ticket as SentEntity, YieldReason,
};

pub use self::claims::{
    ClaimCheck, ClaimRow, Claims, DeferTypes, Details as ClaimDetails, life as claim_life, read_claims, read_claims_in,
};
pub use self::client::Client;
pub use self::command::{CheckpointAnswer, EntityDraft};
pub use self::consumer::{ChannelConsumer, Consumer, IncomingSessions, channel};
pub use self::counters::CounterSnapshot;
pub use self::events::EventLog;
pub use self::handle::{EventBatch, SessionHandle};
pub use self::incoming::IncomingEntity;
pub use self::payload::Payload;
pub use self::references::References;
pub use self::server::{Reading, Server, ServerOptions};
pub use self::shared::{Released, Resolution, SessionOptions};
pub use self::sink::{FolderSink, ObjectSink};
pub use self::transport::check_mtu;
