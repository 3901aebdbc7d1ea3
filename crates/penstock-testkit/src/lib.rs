//! Helpers that the tests of the cores share, for tests only. No module here depends on a protocol.
//!
//! - [`clock`]: time that moves only when a test moves it.
//! - [`cores`]: many checks, divided among the cores.
//! - [`disk`]: a disk in memory that fails at any call and loses power at any time.
//! - [`link`]: streams in memory with latency, loss, splitting and reordering, the same for the same seed.
//! - [`pair`]: two machines and the network between them, driven until nothing moves.
//! - [`vectors`]: the files under `tests/vectors`, which pytest reads too.

pub mod clock;
pub mod cores;
pub mod disk;
pub mod link;
pub mod pair;
pub mod vectors;
