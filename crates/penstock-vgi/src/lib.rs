//! vgi-rpc without IO: calls into other processes, whose arguments and results are Arrow batches.

mod cast;
mod classify;
mod client;
mod describe;
mod error;
pub mod external;
mod failure;
pub mod http;
mod ids;
pub mod ipc;
mod limits;
mod metadata;
mod protocol;
mod request;
mod server;
pub mod shm_layout;
mod token;
pub mod transport;

pub use classify::{Class, classify};
pub use client::{Answer, Client};
pub use describe::{Description, description_hash, protocol_hash};
pub use error::{Error, Malformed, Misuse, Result, SegmentHeader, Violation};
pub use failure::{EXCEPTION, Failure, Log};
pub use ipc::Batch;
pub use limits::Limits;
pub use metadata::{Metadata, REQUEST_VERSION, key};
pub use penstock_wire::ErrorKind;
pub use protocol::{DESCRIBE, Dialect, Method, MethodKind, Protocol, Serialized};
pub use request::{Parsed, Rejection, Request, parse as parse_request, write as write_request};
pub use server::{Call, Event, Server, ServerConfig};
pub use token::{Identity, Refused, Signer, Token};
