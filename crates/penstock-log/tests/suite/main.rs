//! The promises of every log, tested once for all engines: on a disk in memory that fails at every
//! call and loses power at any time.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unwrap_used)]

mod crashes;
mod damage;
mod earlier;
mod faults;
mod look;
mod refused;
mod removal;
mod support;
mod system;
