//! Real QUIC in one process: our client, our server, and peers that break rules.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stand outside of the test functions that clippy.toml lets do this"
)]

mod channel;
mod closing;
#[allow(dead_code, reason = "the tests of the sinks use the rest")]
mod common;
mod port;
#[allow(dead_code, reason = "the tests of the sinks use the rest")]
mod raw;
mod recovery;
mod shared_entity;
mod support;
