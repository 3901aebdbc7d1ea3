//! The disk that a log needs, as a trait. Tests use a disk in memory that loses power at every call
//! (`penstock-testkit`).

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

/// Folders and the names in them. A name is durable once its folder was synced.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Make a file for reading and appending. Fails if the name exists.
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Open a file for reading and appending.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// Open a file for reading only: a reader of another process's file may not have the right to
    /// write it.
    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        self.open(path)
    }

    /// Return the names in a folder, in any order.
    fn list(&self, folder: &Path) -> io::Result<Vec<String>>;

    /// Rename a file, replacing a file of the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Give a file a second name. Fails if that name exists.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Remove a name.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Make a folder. Fails if it exists.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Make the names in a folder durable.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The bytes of a file.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Return the number of bytes.
    fn length(&self) -> io::Result<u64>;

    /// Fill the buffer; fails if the file has fewer bytes.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Write all parts after the last byte. A failed call may leave some of them in the file.
    fn append(&self, parts: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Shorten the file to this length.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Make the bytes durable.
    fn sync(&self) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

/// The disk of this machine, for secrets: only the owner may read the files and folders that it makes.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrivateDisk;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    options
}

impl Disk for SystemDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(options().create_new(true).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(options().open(path)?))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(File::open(path)?))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            // The names in a log's folder are UTF-8.
            names.extend(entry?.file_name().into_string().ok());
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

impl Disk for PrivateDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(options().create_new(true).mode(0o600).open(path)?))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        SystemDisk.open(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        SystemDisk.list(folder)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        SystemDisk.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        SystemDisk.sync_folder(folder)
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn append(&self, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
        // Skip leading empty parts, which would look like a write of 0 bytes.
        IoSlice::advance_slices(&mut parts, 0);
        let mut file = self;
        while !parts.is_empty() {
            match file.write_vectored(parts) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => IoSlice::advance_slices(&mut parts, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Read a range of a file. If the file is shorter, read nothing and allocate nothing.
pub fn read_range(file: &dyn DiskFile, range: Range<u64>) -> io::Result<Vec<u8>> {
    if range.start > range.end || range.end > file.length()? {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; usize::try_from(range.end - range.start).map_err(io::Error::other)?];
    file.read_at(&mut bytes, range.start)?;
    Ok(bytes)
}

/// Read a whole file.
pub fn read(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    read_range(file, 0..file.length()?)
}

/// Read at most this many bytes from the beginning.
pub(crate) fn read_start(file: &dyn DiskFile, most: usize) -> io::Result<Vec<u8>> {
    read_range(file, 0..file.length()?.min(most as u64))
}

/// Return whether an error means that the disk is full, or the quota used up.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
