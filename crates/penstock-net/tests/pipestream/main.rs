//! Real QUIC in one process: our client, our server, and peers that break rules.

mod dbg;
mod round_trip;
mod support;
