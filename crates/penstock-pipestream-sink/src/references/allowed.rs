use std::fs::File;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;

use object_store::path::Path;
use object_store::{GetOptions, ObjectStore};
use penstock_io::storage::{ObjectPrefix, StorageOptions};
use penstock_pipestream::reference::{ExpectedObject, Location, Provider};
use penstock_pipestream::{self as core, LimitError, ObjectError};
use tokio::task::spawn_blocking;

use crate::references::object::{Object, file_error, store_error};
use crate::{Misuse, Result};

/// A prefix below which objects may be fetched.
#[derive(Debug, Clone)]
pub(super) struct AllowedPrefix {
    prefix: Location,
    source: Source,
}

#[derive(Debug, Clone)]
enum Source {
    /// A folder, or one file.
    Files(PathBuf),
    Store(ObjectPrefix),
}

impl AllowedPrefix {
    pub(super) fn open(url: &str, storage: &StorageOptions) -> Result<Self> {
        let prefix = Location::parse(url).map_err(Misuse::ReferencePrefix)?;
        let source = match prefix.provider {
            Provider::Files => Source::Files(FilePath::new("/").join(&prefix.key)),
            Provider::S3 | Provider::Gcs | Provider::Azure => {
                Source::Store(ObjectPrefix::open(&prefix.bucket_url(), storage)?)
            }
        };
        Ok(Self { prefix, source })
    }

    pub(super) fn prefix(&self) -> &Location {
        &self.prefix
    }

    /// Return the object at `at`, which is below this prefix, if it is as expected and not longer
    /// than `max`.
    pub(super) async fn find(&self, at: &Location, expected: &ExpectedObject, max: u64) -> core::Result<Object> {
        let object = match &self.source {
            Source::Files(root) => self.find_file(root, at, expected).await,
            Source::Store(place) => find_object(place.store(), at, expected).await,
        }?;
        let length = object.len();
        if length > max {
            return Err(LimitError::ObjectLength { name: at.to_string(), length, limit: max }.into());
        }
        if let Some(size) = expected.size.filter(|size| *size != length) {
            return Err(ObjectError::Size { name: at.to_string(), length, size }.into());
        }
        Ok(object)
    }

    async fn find_file(&self, root: &FilePath, at: &Location, expected: &ExpectedObject) -> core::Result<Object> {
        if expected.etag.is_some() || expected.version.is_some() {
            return Err(ObjectError::NoTag.into());
        }
        let relative =
            at.key.strip_prefix(self.prefix.key.as_str()).unwrap_or_default().trim_start_matches('/').to_owned();
        let (root, name) = (root.to_owned(), at.to_string());
        let opened = spawn_blocking(move || {
            let file = open_below(&root, &relative)?;
            let metadata = file.metadata()?;
            if metadata.is_file() { Ok((file, metadata.len())) } else { Err(io::ErrorKind::IsADirectory.into()) }
        });
        let opened = opened.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        let (file, length) = opened.map_err(|error| file_error(&name, &error))?;
        Ok(Object::file(name, file, length, expected.sha256))
    }
}

/// Open a file below a folder. Neither the file nor a folder on the path may be a link, even if
/// another process renames them in the meantime: each step starts from the open folder. Opening a
/// pipe does not wait for its writer.
fn open_below(root: &FilePath, relative: &str) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open, openat};

    let step = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY | OFlags::NONBLOCK;
    let folder = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    let Some((folders, name)) =
        relative.rsplit_once('/').map_or((!relative.is_empty()).then_some(("", relative)), Some)
    else {
        return open(root, step, Mode::empty()).map(Into::into).map_err(no_link);
    };
    let mut at = open(root, folder, Mode::empty())?;
    for segment in folders.split('/').filter(|segment| !segment.is_empty()) {
        at = openat(&at, segment, folder | OFlags::NOFOLLOW, Mode::empty())?;
    }
    openat(&at, name, step, Mode::empty()).map(Into::into).map_err(no_link)
}

/// Return the error for a link, which is treated as a missing file.
fn no_link(error: rustix::io::Errno) -> io::Error {
    if error == rustix::io::Errno::LOOP { io::ErrorKind::NotFound.into() } else { error.into() }
}

async fn find_object(store: &Arc<dyn ObjectStore>, at: &Location, expected: &ExpectedObject) -> core::Result<Object> {
    let invalid =
        |error: object_store::path::Error| ObjectError::Key { name: at.to_string(), reason: error.to_string() };
    let path = Path::parse(&at.key).map_err(invalid)?;
    let name = at.to_string();
    let options = GetOptions { head: true, version: expected.version.clone(), ..GetOptions::default() };
    let meta = store.get_opts(&path, options).await.map_err(|error| store_error(&name, &error))?.meta;
    if let Some(etag) = &expected.etag
        && meta.e_tag.as_deref().map(bare) != Some(bare(etag))
    {
        return Err(ObjectError::Tag(at.to_string()).into());
    }
    Ok(Object::stored(name, Arc::clone(store), path, &meta, expected))
}

fn bare(etag: &str) -> &str {
    etag.trim_matches('"')
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(root: &FilePath, relative: &str) -> io::Result<String> {
        io::read_to_string(open_below(root, relative)?)
    }

    #[test]
    fn links_lead_nowhere() {
        use std::os::unix::fs::symlink;

        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::write(root.join("a/b/file"), "file").unwrap();
        symlink(dir.path(), root.join("a/up")).unwrap();
        symlink(dir.path().join("secret"), root.join("a/link")).unwrap();
        symlink("file", root.join("a/b/inside")).unwrap();
        assert_eq!(read(&root, "a/b/file").unwrap(), "file");
        assert_eq!(read(&root.join("a/b/file"), "").unwrap(), "file");
        for relative in ["a/up/secret", "a/link", "a/b/inside", "a/nothing"] {
            assert!(read(&root, relative).is_err(), "{relative}");
        }
        // The folder that the operator names may be a link itself.
        symlink(&root, dir.path().join("named")).unwrap();
        assert_eq!(read(&dir.path().join("named"), "a/b/file").unwrap(), "file");
    }
}
