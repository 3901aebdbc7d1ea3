//! Lumberjack, versions 1 and 2, without IO: the protocol of Filebeat and its relatives.
//!
//! - [`Decoder`] takes bytes as they arrive and returns frames that borrow them; [`encoder`] writes frames.
//! - [`Server`] is the reader of events: windows, acknowledgements, back-pressure, timeouts.
//! - [`Client`] is the writer: windows in flight, compression, and retransmission after a disconnect.
//!
//! ```text
//! frame   version ('1' or '2')  type  payload
//! W 0x57  window size (4)                                        writer → reader
//! D 0x44  sequence (4)  pairs (4)  { length (4) key  length (4) value } × pairs
//! J 0x4A  sequence (4)  length (4)  JSON
//! C 0x43  length (4)  zlib of whole frames
//! A 0x41  sequence (4)                                           reader → writer
//! ```
//!
//! All integers are big-endian. The decisions cited are those of `docs/protocols/lumberjack.md`.

mod accepts;
mod client;
mod decoder;
pub mod encoder;
mod error;
mod frame;
mod limits;
mod server;

pub use accepts::Accepts;
pub use client::{Acknowledged, Client, ClientConfig, Sequence};
pub use decoder::Decoder;
pub use error::{Deadline, Error, Malformed, Misuse, Result, Violation};
pub use frame::{Ack, Data, Frame, Json, Pair, Pairs, Version, Window};
pub use limits::Limits;
pub use penstock_wire::ErrorKind;
pub use server::{Event, Events, Progress, Server, ServerConfig};
