//! The policy about external batches (section 12): which batches are stored, which pointers are
//! followed, and how a failure is reported.
//!
//! ```text
//!  to send   ── large enough, and there is a storage? ─▶ BatchStorage ─▶ a pointer goes in its place
//!  received  ── a pointer? ─▶ LocationValidator ─▶ Resolver ─▶ the batch, with its log messages
//!                                    └────────────────┴─▶ a failure for the peer, or an error for the caller
//! ```
//!
//! The storage and the validator belong to the application. They may be slow and may raise, so no
//! lock is held while they run.

use std::fmt;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use penstock_vgi::external::{Parcel, Pointer, StoredBatch, pointer};
use penstock_vgi::{Batch, Failure};

use super::resolve::Resolver;
use crate::port::PortError;
use crate::{Check, Error, Result};

/// The type of the failure that a peer gets when its batch cannot be fetched.
const FAILURE: &str = "ExternalLocationError";

/// The application's storage of large batches. Several threads may call it.
pub trait BatchStorage: Send + Sync {
    /// Store the bytes of a batch with this schema, and return the URL for fetching them.
    fn upload(&self, parcel: &Parcel, schema: &SchemaRef) -> Result<String, PortError>;
}

/// The application's rule about the URLs of peers. Several threads may call it.
pub trait LocationValidator: Send + Sync {
    /// Refuse a URL that may not be used.
    fn validate(&self, url: &str) -> Result<(), PortError>;
}

/// The policy of one end of a connection about external batches.
pub struct External {
    resolver: Resolver,
    validator: Option<Box<dyn LocationValidator>>,
    storage: Option<Box<dyn BatchStorage>>,
    threshold: Option<u64>,
    level: Option<i32>,
}

impl fmt::Debug for External {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("External").field("resolver", &self.resolver).finish_non_exhaustive()
    }
}

impl External {
    /// Make a policy that follows every pointer that the resolver's fetcher accepts, and stores
    /// nothing.
    pub const fn new(resolver: Resolver) -> Self {
        Self { resolver, validator: None, storage: None, threshold: None, level: None }
    }

    /// Follow only pointers that the application allows. Files below the fetcher's folder skip this
    /// check, because setting the folder allows them.
    #[must_use]
    pub fn with_validator(self, validator: Box<dyn LocationValidator>) -> Self {
        Self { validator: Some(validator), ..self }
    }

    /// Store batches that reach the threshold, compressed with zstd if there is a level.
    #[must_use]
    pub fn with_storage(self, storage: Box<dyn BatchStorage>, level: Option<i32>) -> Self {
        Self { storage: Some(storage), level, ..self }
    }

    /// Set the size from which a batch is stored, and above which a request over HTTP is uploaded.
    #[must_use]
    pub fn with_threshold(self, bytes: u64) -> Self {
        Self { threshold: Some(bytes), ..self }
    }

    /// Return the resolver of pointers.
    pub(crate) const fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Return the size above which a request over HTTP is uploaded.
    pub(crate) const fn threshold(&self) -> Option<u64> {
        self.threshold
    }

    /// Return whether to store a batch: it has rows, and its size reaches the threshold.
    pub(crate) fn stores(&self, batch: &Batch) -> bool {
        let large = |threshold| batch.rows > 0 && batch.memory() as u64 >= threshold;
        self.storage.is_some() && self.threshold.is_some_and(large)
    }

    /// Store a batch with the log messages before it, and return the pointer to send in its place.
    pub(crate) fn store(&self, mut cycle: Vec<Batch>, batch: Batch) -> Result<Batch> {
        let Some(storage) = &self.storage else { return Ok(batch) };
        let schema = Arc::clone(&batch.schema);
        cycle.push(batch);
        let parcel = Parcel::pack(&schema, &cycle, self.level)?;
        let url = storage.upload(&parcel, &schema).map_err(|error| match error {
            PortError::Failed(cause) => Error::Storage(cause),
            PortError::Raised(cause) => Error::Raised(cause),
        })?;
        Ok(pointer(&schema, &url, Some(&parcel.sha256)))
    }

    /// Check that a URL of the peer may be used.
    pub(crate) fn validate(&self, url: &str) -> Result<()> {
        let named = self.resolver.fetcher.options().root.is_some() && url.starts_with("file:");
        let Some(validator) = self.validator.as_ref().filter(|_| !named) else { return Ok(()) };
        validator.validate(url).map_err(|error| match error {
            PortError::Failed(cause) => Error::Refused(cause),
            PortError::Raised(cause) => Error::Raised(cause),
        })
    }

    /// Fetch the batch behind a pointer; return `None` for any other batch.
    ///
    /// # Errors
    ///
    /// [`Error::Unfetched`] if the pointer does not lead to a batch; any other error ends the wait.
    fn resolve(&self, batch: &Batch, check: Check<'_>) -> Result<Option<StoredBatch>> {
        let Some(pointer) = Pointer::of(batch) else { return Ok(None) };
        let opened = pointer.map_err(Error::from).and_then(|pointer| {
            self.validate(&pointer.url)?;
            self.resolver.resolve(&pointer, check)
        });
        opened.map(Some).map_err(|error| if error.ends_wait() { error } else { Error::Unfetched(Box::new(error)) })
    }

    /// Return the batch for a method: the one behind a pointer, without the sender's log messages.
    /// The inner error is for the peer.
    pub(crate) fn fetch(&self, batch: Batch, check: Check<'_>) -> Result<Result<Batch, Failure>> {
        match self.resolve(&batch, check) {
            Ok(None) => Ok(Ok(batch)),
            Ok(Some(stored)) => Ok(stored.batch),
            Err(Error::Unfetched(why)) => Ok(Err(Failure::new(FAILURE, &why.to_string()))),
            Err(error) => Err(error),
        }
    }

    /// Return the batch for a caller: the one behind a pointer, with the log messages before it.
    pub(crate) fn receive(&self, batch: Batch, check: Check<'_>) -> Result<StoredBatch> {
        let stored = self.resolve(&batch, check)?;
        Ok(stored.unwrap_or_else(|| StoredBatch { logs: Vec::new(), batch: Ok(batch) }))
    }
}

#[cfg(test)]
pub(crate) mod tests;
