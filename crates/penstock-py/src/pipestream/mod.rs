//! PipeStream for Python: frames and messages, entity IDs, the manifest, sessions and servers.
//!
//! `penstock.pipestream` wraps these in typed classes. Rust code that sends for Python takes the
//! [`SessionHandle`](penstock_pipestream_net::SessionHandle) from a [`Session`](session::Session).

pub(crate) mod aio;
pub(crate) mod entity_id;
pub(crate) mod events;
pub(crate) mod fields;
pub(crate) mod frames;
pub(crate) mod incoming;
pub(crate) mod keys;
mod limits;
pub(crate) mod manifest;
pub(crate) mod options;
pub(crate) mod payload;
pub(crate) mod pipe_doc;
pub(crate) mod reader;
pub(crate) mod references;
pub(crate) mod server;
pub(crate) mod session;
pub(crate) mod waiting;
