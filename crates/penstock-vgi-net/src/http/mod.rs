//! vgi-rpc over HTTP: the server on hyper, the client on reqwest. Both own sockets and timers; the core decides the
//! content.

mod client;
mod pieces;
mod queue;
mod server;

use std::time::{SystemTime, UNIX_EPOCH};

pub use client::{Allowed, ClientOptions, HttpClient, HttpSender, HttpStream, Retry, Uploads};
pub use queue::{Caller, Progress, Verdict, Waiting};
pub use server::HttpListener;

/// Return the seconds since the Unix epoch, for tokens.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
