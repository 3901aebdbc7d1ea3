//! PipeStream over QUIC: the driver of `penstock-pipestream`'s session, its client and its server.
//! Other crates store the entities; they implement the traits of [`port`].
//!
//! ```text
//!  caller ── SessionHandle ─┐                                   ┌─ entity streams, a task for each
//!                           ├─ commands ─► driver ── session ───┤
//!  consumer ─ complete/fail ┘              (one task)           └─ stream 0
//! ```
//!
//! These limits bound a session's memory: the number of streams, QUIC's windows, 64 KiB for each
//! entity that waits for its consumer, 4 MiB of very small entities that wait without a stream
//! permit, 32 MiB of payloads that wait to be sent, 4 MiB of control frames that the peer has not
//! read, and the limits of the core's session.

mod batch_channel;
mod claim_checks;
mod client;
mod clock;
mod command;
mod conceal;
mod congestion;
mod connection;
mod counters;
mod dial;
mod draft;
mod driver;
mod entity_link;
mod error;
mod events;
mod handle;
mod handle_sink;
mod incoming;
mod journal;
mod limits;
mod link;
mod liveness;
mod metrics;
mod misuse;
mod options;
mod outcomes;
mod outgoing;
mod payload;
mod pending_payload;
pub mod port;
mod pump;
mod resolutions;
mod sealer;
mod segments;
mod server;
mod settings;
mod shared;
mod sink_control;
mod ticket_reply;
mod transport;
mod types;

pub use error::{Error, Result};
pub use penstock_pipestream::claims::ClaimLimits;
pub use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction, StoppingPointValidation};
pub use penstock_pipestream::{
    Accepted, Agreement, Capabilities, Checkpoint, EntityHeader, EntityKey, ErrorCode, Event, Layer2Event, Reason,
    ResolutionState, Role, ScopeDigest, ScopeKey, SessionConfig, SessionId, Status, Ticket as SentEntity, YieldReason,
};

pub use self::claim_checks::{ClaimCheck, ClaimRow, DeferTypes, Details as ClaimDetails, life as claim_life};
pub use self::client::Client;
pub use self::clock::now;
pub use self::command::CheckpointAnswer;
pub use self::counters::CounterSnapshot;
pub use self::draft::EntityDraft;
pub use self::events::EventLog;
pub use self::handle::{EventBatch, SessionHandle};
pub use self::handle_sink::{HandleSink, IncomingSessions, channel};
pub use self::incoming::{EntityGuard, IncomingEntity, SharedEntity};
pub use self::misuse::Misuse;
pub use self::options::SessionOptions;
pub use self::payload::Payload;
pub use self::pending_payload::PendingPayload;
pub use self::server::{Server, ServerOptions};
pub use self::settings::SessionSettings;
pub use self::transport::check_mtu;
pub use self::types::{Released, Resolution};
