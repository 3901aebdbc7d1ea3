//! Real QUIC in one process: penstock's client, its server with a sink, and peers that break rules.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stand outside of the test functions that clippy.toml lets do this"
)]

mod bad_peers;
mod chunks;
#[path = "../../../penstock-pipestream-net/tests/pipestream/common.rs"]
mod common;
mod durable;
mod durable_ends;
mod layer2;
mod lifecycle;
mod logged;
mod metrics;
mod packets;
#[path = "../../../penstock-pipestream-net/tests/pipestream/raw.rs"]
mod raw;
mod readers;
mod reading;
mod round_trip;
mod sealing;
mod settings;
mod state;
mod streaming;
mod support;
mod survival;
mod trust;
