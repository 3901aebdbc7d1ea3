//! The driver of vgi-rpc: pipes and sockets, and HTTP in [`http`]. Calls over pipes and sockets are
//! lockstep, so one thread at a time uses a connection, and waits in the system instead of in a
//! runtime: this is the fastest way to make calls that take microseconds.

mod byte_stream;
mod channel;
mod client;
mod client_calls;
mod counters;
mod descriptor;
mod error;
pub mod external;
mod faults;
pub mod http;
mod listening;
mod mapping;
mod misuse;
mod peer;
mod port;
mod raw;
mod sealed;
mod segment;
mod server;
mod server_calls;
mod shm_link;
mod tls;
mod turn;

pub use byte_stream::{Sink, Source};
pub use channel::{Channel, Check, Interrupted};
pub use client::ClientConnection;
pub use client_calls::{ClientCalls, ClientStream, LogSink, Receiver};
pub use counters::{Counters, MetricsEndpoint};
pub use error::{Error, Result};
pub use faults::{LocationFault, SealFault, SegmentDamage, SegmentViolation, SizeLimit};
pub use listening::{AdmittedConnection, GRACE, ListeningOptions, RpcListener};
pub use misuse::Misuse;
pub use peer::Peer;
pub use port::{ApplicationError, PortError};
pub use raw::duplicate;
pub use segment::Segment;
pub use server::ServerConnection;
pub use server_calls::{ServerCall, ServerCalls};
pub use tls::Tls;

/// Return a random start for the IDs of requests, which should differ between connections but need not be secret.
pub fn seed() -> u64 {
    fastrand::u64(..)
}
