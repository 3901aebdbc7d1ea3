//! The place of a sink: a folder, or a prefix in an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_io::storage::{ObjectPrefix, StorageOptions};
use penstock_pipestream_net::ClaimRow;

use crate::Result;
use crate::claims::{read_claims, read_claims_in};
use crate::read::{FolderStore, ObjectReader, Store};

/// The place of a sink.
#[derive(Debug, Clone)]
pub enum SinkPlace {
    /// A folder.
    Folder(PathBuf),
    /// A prefix in an object store.
    Objects(ObjectPrefix),
}

impl SinkPlace {
    /// Parse a sink: a folder, or the URI of a prefix in an object store, to which `storage`
    /// belongs.
    ///
    /// # Errors
    ///
    /// Misuse if the URI is of no known store, or if there are options of a store without one.
    pub fn of(sink: Option<&Path>, storage: &StorageOptions) -> Result<Option<Self>> {
        let prefix = ObjectPrefix::of_sink(sink, storage)?.map(Self::Objects);
        Ok(prefix.or_else(|| sink.map(|folder| Self::Folder(folder.to_owned()))))
    }

    /// Open the store of the sink's sessions. Blocks.
    ///
    /// # Errors
    ///
    /// IO if there is no such folder, or the store does not answer.
    pub fn store(&self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Self::Folder(folder) => Arc::new(FolderStore::open(folder)?),
            Self::Objects(prefix) => Arc::new(ObjectReader::open(prefix.clone())?),
        })
    }

    /// Return the claim checks of the sink's servers, by their expiry. Blocks.
    pub fn claims(&self) -> Result<Vec<ClaimRow>> {
        match self {
            Self::Folder(folder) => read_claims(folder),
            Self::Objects(prefix) => read_claims_in(prefix),
        }
    }
}
