//! vgi-rpc over HTTP: the server on hyper, the client on reqwest. Both own sockets and timers; the
//! core decides the content.

mod call;
mod calls;
mod capabilities;
mod client;
mod pieces;
mod queue;
mod server;

use std::time::{SystemTime, UNIX_EPOCH};

pub use call::{HttpCall, RequestHead};
pub use calls::HttpCalls;
pub use capabilities::Capabilities;
pub use client::{ClientOptions, HttpClient, HttpSender, HttpStream, Retry};
pub use queue::{Caller, Waiting};
pub use server::HttpListener;

/// Return the seconds since the Unix epoch, for tokens.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
