//! For tests only: what the cores' tests share. Nothing here knows a protocol.
//!
//! - [`clock`]: time that moves only when a test says so.
//! - [`link`]: streams in memory with latency, loss, splitting and reordering, the same for the same seed.
//! - [`vectors`]: the files under `tests/vectors`, which pytest reads too.

pub mod clock;
pub mod link;
pub mod vectors;
