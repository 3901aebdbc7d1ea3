//! Batches in object stores (section 12): uploads, and fetches of a peer's pointers.
//!
//! ```text
//!  ObjectStorage  ── upload ─▶ a URL with a signature that expires
//!  Fetcher        ◀─ fetch ── a peer's URL, with checked addresses and limited cost
//!  External       ── the policy: which batches are stored, which pointers are followed
//!  Resolver       ── retries of fetches that may succeed later, and the decoded batch
//! ```

mod chunks;
mod fetch;
mod file;
mod guard;
mod options;
mod policy;
mod resolve;
mod response;
mod store;

pub use fetch::Fetcher;
pub use options::FetchOptions;
pub use policy::{BatchStorage, External, LocationValidator};
pub use resolve::Resolver;
pub use store::ObjectStorage;

#[cfg(test)]
pub(crate) use policy::tests;
