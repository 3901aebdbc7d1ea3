//! PipeStream (draft-krickert-pipestream-00), layers 0 and 1, as state machines without IO.
//!
//! Bytes come in by `handle_*`, commands are methods, and what follows is fetched by `poll_*`; time is an argument
//! ([`Now`]). Sockets, files, threads and clocks live in `penstock-net`.
//!
//! Section numbers in the comments are those of the draft; a "decision" is a numbered point of
//! `docs/protocols/pipestream.md`.

mod error;
mod status;
mod time;

pub use error::{Error, ErrorCode, Result};
pub use status::Status;
pub use time::Now;
