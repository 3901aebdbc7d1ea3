use std::fs::File;
use std::io::{self, Read as _};
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore};
use penstock_io::storage::plain;
use penstock_pipestream::reference::ExpectedObject;
use penstock_pipestream::{self as core, ObjectError, Unavailable};
use tokio::task::spawn_blocking;

use crate::references::check::Check;

/// Number of bytes that one request to a store asks for: a request has a timeout of a minute.
const RANGE: u64 = 8 << 20;
const READ_SIZE: u64 = 128 << 10;

/// An object that may be fetched, and how much of it was fetched.
pub(crate) struct Object {
    name: String,
    source: Source,
    length: u64,
    offset: u64,
    sha256: Option<[u8; 32]>,
}

enum Source {
    /// `None` while the file is being read.
    File(Option<File>),
    Store {
        store: Arc<dyn ObjectStore>,
        path: Path,
        etag: Option<String>,
        version: Option<String>,
    },
}

impl Object {
    pub(super) fn file(name: String, file: File, length: u64, sha256: Option<[u8; 32]>) -> Self {
        Self { name, source: Source::File(Some(file)), length, offset: 0, sha256 }
    }

    pub(super) fn stored(
        name: String,
        store: Arc<dyn ObjectStore>,
        path: Path,
        meta: &ObjectMeta,
        expected: &ExpectedObject,
    ) -> Self {
        let source = Source::Store { store, path, etag: meta.e_tag.clone(), version: expected.version.clone() };
        Self { name, source, length: meta.size, offset: 0, sha256: expected.sha256 }
    }

    /// Return the object's length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.length
    }

    /// Return the check that the object's bytes must pass.
    pub(crate) fn check(&self) -> Check {
        Check::object(self.length, self.sha256)
    }

    /// Return the next bytes, or `None` at the end. All of them belong to the same object of a
    /// store: if it is replaced in the meantime, this fails.
    pub(crate) async fn next(&mut self) -> core::Result<Option<Bytes>> {
        if self.offset >= self.length {
            return Ok(None);
        }
        let piece = match &mut self.source {
            Source::File(file) => read(file).await.map_err(|error| file_error(&self.name, &error))?,
            Source::Store { store, path, etag, version } => {
                let end = self.offset.saturating_add(RANGE).min(self.length);
                let options = GetOptions {
                    range: Some(GetRange::Bounded(self.offset..end)),
                    if_match: etag.clone(),
                    version: version.clone(),
                    ..GetOptions::default()
                };
                let fetched = async { store.get_opts(path, options).await?.bytes().await };
                fetched.await.map_err(|error| store_error(&self.name, &error))?
            }
        };
        if piece.is_empty() {
            return Err(ObjectError::Shortened(self.name.to_string()).into());
        }
        self.offset = self.offset.saturating_add(piece.len() as u64);
        Ok(Some(piece))
    }
}

async fn read(slot: &mut Option<File>) -> io::Result<Bytes> {
    let Some(file) = slot.take() else { return Err(io::ErrorKind::NotFound.into()) };
    let reading = spawn_blocking(move || {
        let mut piece = Vec::new();
        (&file).take(READ_SIZE).read_to_end(&mut piece).map(|_| (file, piece))
    });
    let (file, piece) = reading.await.unwrap_or_else(|error| Err(io::Error::other(error)))?;
    *slot = Some(file);
    Ok(piece.into())
}

/// Return the error to send to a peer for a store's error, without internal details. The log has
/// the rest.
pub(super) fn store_error(name: &str, error: &object_store::Error) -> core::Error {
    if matches!(error, object_store::Error::NotFound { .. }) {
        return missing(name);
    }
    if matches!(error, object_store::Error::Precondition { .. }) {
        return ObjectError::Replaced(name.to_owned()).into();
    }
    tracing::warn!(object = name, error = plain(error), "cannot fetch an object that an entity refers to");
    unavailable(name)
}

pub(super) fn file_error(name: &str, error: &io::Error) -> core::Error {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};

    if matches!(error.kind(), NotFound | NotADirectory | IsADirectory) {
        return missing(name);
    }
    tracing::warn!(file = name, %error, "cannot read a file that an entity refers to");
    unavailable(name)
}

fn missing(name: &str) -> core::Error {
    ObjectError::Missing(name.to_owned()).into()
}

fn unavailable(name: &str) -> core::Error {
    Unavailable::Object(name.to_owned()).into()
}
