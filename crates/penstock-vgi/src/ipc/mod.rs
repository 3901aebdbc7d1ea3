//! Arrow IPC streams with custom metadata for each batch: decoder and encoder (section 2).

mod batch;
mod columns;
mod decoder;
mod encoder;
mod flat;
mod pool;
mod schema;
mod shared;
#[cfg(test)]
mod tests;

pub use batch::Batch;
pub use decoder::{Decoder, Item};
pub use encoder::{END, Encoder, Output, stream};
pub use shared::{read_schema, read_shared, read_streams, shared_form, write_schema};
