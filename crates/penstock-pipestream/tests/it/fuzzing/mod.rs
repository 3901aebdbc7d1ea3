//! The bodies of the fuzz targets in `/fuzz`, which `frames.rs` and `sessions.rs` run.

#[allow(unreachable_pub)]
pub(crate) mod bytes;
#[allow(unreachable_pub)]
pub(crate) mod session;
