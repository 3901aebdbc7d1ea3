//! PIMP 0.5.0, without IO: results for clients that can only poll, through a buffer that both sides call.
//!
//! - [`Batch`] is a sender's write, validated. [`Job`] is a job at the buffer and decides which requests are accepted.
//! - [`Sender`] is the state machine that writes a job; [`Consumer`] the one that reads it.
//!
//! ```text
//! PUT    /pimp/{jobId}          make a job, or take it over            POST /pimp/{jobId}/chunks  {"chunks": [envelope, ..]}
//! GET    /pimp/{jobId}?from=N   {"chunks": [envelope, ..], "nextIndex": N}
//! DELETE /pimp/{jobId}          GET .../status   GET .../raw           POST /pimp/{jobId}/cancel
//! ```
//!
//! The caller keeps all of these as values and passes the time as an argument. The crate handles only the statuses and
//! bodies of HTTP. The cited sections are the specification's; the decisions are those of `docs/protocols/pimp.md`.

mod consumer;
mod digest;
mod envelope;
mod error;
mod id;
mod indices;
mod job;
mod key;
mod limits;
mod metadata;
mod object;
mod payload;
mod response;
mod sender;
mod state;
mod time;
mod trigger;
mod validate;

pub use consumer::{Consumer, ConsumerConfig, ConsumerEvent, Poll};
pub use digest::Digest;
pub use envelope::Envelope;
pub use error::{
    Code, Conflict, Corrupt, Error, Failure, Lost, Malformed, Misuse, Rejection, Result, Stalled, Unwritable,
};
pub use id::JobId;
pub use indices::Indices;
pub use job::{FinalChunk, Job, PollResult, Settings, Written};
pub use key::{bearer, verify_jwt};
pub use limits::Limits;
pub use metadata::{Compression, ContentEncoding, Metadata, is_textual};
pub use payload::Decoder;
pub use penstock_wire::ErrorKind;
pub use response::{Answer, Refusal, StatusBody, poll_body};
pub use sender::{Encoding, Sender, SenderConfig, SenderEvent, Transmit};
pub use state::State;
pub use time::Now;
pub use trigger::Trigger;
pub use validate::{Batch, Creation, Query};
