//! The ports of this driver: its requirements on other crates, as traits. Adapters implement them and know nothing else
//! of the driver; the driver knows no adapter.
//!
//! ```text
//!  EntitySink ── open ──► SinkSession      where a server's sessions go, and where one session's entities go
//!       ▲                     │ SessionControl: the notifications of a sink to its session
//!       └─ RecoveredSession ◄─┘ the stored part of a session of an earlier process
//!  ClaimChecks                             the claim checks that an end has issued
//!  PortService ◄── connect_service         another protocol on a server's port, and its clients' connections
//!  SessionJournals ─ begin ─► SessionJournal   the records by which sessions outlive their process
//! ```
//!
//! The other items here are the types that the traits use: payloads as they arrive ([`Body`], [`Parts`]), and the place
//! where chunks are assembled ([`Spool`]).

mod claims;
mod journal;
mod service;
mod sink;

pub use futures_util::future::BoxFuture;
pub use penstock_pipestream::Attempt;

pub use self::claims::{ClaimChecks, ClaimCounters, no_claim_checks};
pub(crate) use self::journal::{Ended, Owner, RecordKind, SessionJournal, SessionJournals, Waiting};
pub use self::service::{PortService, connect_service};
pub use self::sink::{
    EntityBatch, EntitySink, NewSession, OpenSession, RecoveredSession, SessionControl, SessionRecovery, SinkEvent,
    SinkLimits, SinkSession,
};
pub use crate::claim_checks::{Details, PADDING};
pub use crate::conceal::{PROOF, TOKEN, TOKEN_LENGTHS, conceal};
pub use crate::draft::CLAIM;
pub use crate::entity_link::HandleSource;
pub use crate::events::LogEvent;
pub use crate::incoming::{Body, IncomingEntity, Parts, Spool, StreamBody, StreamEnd, TempFile};
pub use crate::transport::{HANDSHAKE_TIMEOUT, Intake};
pub use crate::types::{header_weight, in_words};
