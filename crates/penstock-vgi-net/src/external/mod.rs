//! Batches in object stores (section 12): putting them there, and fetching what a peer points at.
//!
//! ```text
//!  ObjectStorage  ── upload ─▶ a URL that is signed for some time
//!  Fetcher        ◀─ fetch ── a URL of a peer's: which addresses it may lead to, how much it may cost
//!  Resolver       ── the fetch again, where it may pass, and what was fetched as a batch
//! ```

mod chunks;
mod fetch;
mod file;
mod guard;
mod resolve;
mod store;

pub use fetch::{FetchOptions, Fetcher};
pub use resolve::Resolver;
pub use store::ObjectStorage;
