//! PIMP 0.5.0, without IO: results to whoever can only poll, through a buffer that both sides call.
//!
//! - [`Batch`] is what a sender posts, validated; [`Job`] is what the buffer knows about a job, and decides what is taken.
//! - [`Sender`] is the machine of who writes a job; [`Consumer`] that of who reads it.
//!
//! ```text
//! PUT    /pimp/{jobId}          make a job, or take it over            POST /pimp/{jobId}/chunks  {"chunks": [envelope, ..]}
//! GET    /pimp/{jobId}?from=N   {"chunks": [envelope, ..], "nextIndex": N}
//! DELETE /pimp/{jobId}          GET .../status   GET .../raw           POST /pimp/{jobId}/cancel
//! ```
//!
//! All three are values that the caller keeps, with the time as an argument. Nothing here knows HTTP but for its statuses and the
//! texts of its bodies. The sections cited are the specification's, the decisions those of `docs/protocols/pimp.md`.

mod consumer;
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
mod time;
mod trigger;
mod validate;

pub use consumer::{Consumer, ConsumerConfig, ConsumerEvent, Poll};
pub use envelope::Envelope;
pub use error::{
    Code, Conflict, Corrupt, Error, Lost, Malformed, Misuse, Rejection, Result, Stalled, Trouble, Unwritable,
};
pub use id::JobId;
pub use indices::Indices;
pub use job::{Done, Found, Job, Settings, State, Written};
pub use key::{Digest, bearer, verify_jwt};
pub use limits::Limits;
pub use metadata::{Compression, ContentEncoding, Metadata, is_textual};
pub use payload::Decoder;
pub use penstock_wire::ErrorKind;
pub use response::{Answer, Refusal, StatusBody, poll_body};
pub use sender::{Encoding, Sender, SenderConfig, SenderEvent, Transmit};
pub use time::Now;
pub use trigger::Trigger;
pub use validate::{Batch, Creation, Query};
