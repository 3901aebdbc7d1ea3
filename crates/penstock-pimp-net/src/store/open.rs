//! Stores by name, as users write them.

use std::path::Path;
use std::sync::Arc;

use super::{DiskStore, MemoryStore, RedisStore, Store};
use crate::{Misuse, Result};

/// Open a store: a folder, `memory:`, or `redis://`, with TLS `rediss://`.
pub fn open_store(place: &str) -> Result<Arc<dyn Store>> {
    if place == "memory:" {
        return Ok(Arc::new(MemoryStore::new()));
    }
    if place.starts_with("redis://") || place.starts_with("rediss://") {
        return Ok(Arc::new(RedisStore::open(place)?));
    }
    if place.contains("://") {
        return Err(Misuse::Store { place: place.to_owned() }.into());
    }
    Ok(Arc::new(DiskStore::open(Path::new(place))?))
}
