//! A shared memory segment (section 11): created by the client, attached by the server.

use std::fmt;
use std::fs::read_dir;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_vgi::ipc::{self, Output};
use penstock_vgi::shm_layout::{FIXED, HEADER, Region, Table, is_pointer, pointer, set_pointer};
use penstock_vgi::{Batch, Metadata, key};
use rustix::buffer::spare_capacity;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags, fallocate, flock, fstat, ftruncate, open};
use rustix::io::{pread, pwrite, retry_on_intr};
use rustix::shm;

use super::mapping::Mapping;
use super::peer::Peer;
use crate::error::{Error, Result};
use crate::faults::{SegmentDamage, SegmentViolation, SizeLimit};
use crate::misuse::Misuse;

/// The prefix of our segments' names; the sweep ignores all others.
const PREFIX: &str = "penstock-vgi-";
/// The mode of a segment, which only its owner may open.
const OWNER: Mode = Mode::RUSR.union(Mode::WUSR);
/// The folder in which the system keeps segments.
const FOLDER: &str = "/dev/shm";
/// The unit of `st_blocks`, on every file system.
const BLOCK: u64 = 512;

/// A segment, which is mapped if its bytes may be accessed in place.
pub struct Segment {
    name: String,
    size: u64,
    /// The open segment. Its owner holds a lock on it, which shows other processes that the owner
    /// is alive.
    object: OwnedFd,
    mapping: Option<Mapping>,
    /// Set if the peer may truncate or rewrite the segment: then system calls, which survive a
    /// truncated file, read and write the bytes, and batches are copied before they are checked.
    copies: AtomicBool,
    owner: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Offsets of regions whose last reader was dropped; they are freed at the next turn.
    freed: Vec<u64>,
    /// The offset up to which this side has reserved memory.
    reserved: u64,
    /// Whether the mapping has, or may have, views; then copying can no longer begin.
    viewed: bool,
    /// The sealed segment that a server uses instead of this one.
    sealed: Option<Arc<Segment>>,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("name", &self.name).field("size", &self.size).finish_non_exhaustive()
    }
}

/// The bytes of a region, which is freed when the last buffer into it is dropped.
struct Lease {
    segment: Arc<Segment>,
    region: Region,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        let Region { offset, length } = self.region;
        let mapping = self.segment.mapping.as_ref();
        mapping.and_then(|mapping| mapping.view(offset as usize, length as usize)).unwrap_or_default()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.segment.state().freed.push(self.region.offset);
    }
}

impl Segment {
    /// Create a segment that only this user can open, and remove segments whose owners have died.
    pub fn create(size: u64) -> Result<Arc<Self>> {
        sweep();
        let table = Table::new(size)?;
        let name = format!("{PREFIX}{}-{:016x}", std::process::id(), fastrand::u64(..));
        let failed = |error: rustix::io::Errno| failed("cannot create a shared memory segment", error.into());
        let object = shm::open(format!("/{name}"), shm::OFlags::CREATE | shm::OFlags::EXCL | shm::OFlags::RDWR, OWNER)
            .map_err(failed)?;
        let made = (|| -> Result<Self> {
            flock(&object, FlockOperation::NonBlockingLockExclusive).map_err(failed)?;
            ftruncate(&object, size).map_err(failed)?;
            fallocate(&object, FallocateFlags::empty(), 0, HEADER).map_err(failed)?;
            let mapping = Some(Self::map(&object, size)?);
            Ok(Self::new(name.clone(), size, object, mapping, true))
        })();
        let segment = made.inspect_err(|_| unlink(&name))?;
        segment.store(&table)?;
        Ok(Arc::new(segment))
    }

    /// Attach a segment that a peer has named. It must belong to the peer's user, and no other user
    /// may have access.
    ///
    /// Map a segment of kin. Do not map any other, because it could be truncated or rewritten while
    /// it is read.
    pub fn attach(name: &str, size: u64, peer: Peer) -> Result<Arc<Self>> {
        let (uid, mapped) = match peer {
            Peer::Kin(uid) => (uid, true),
            Peer::Local(uid) => (uid, false),
            Peer::Remote => return Err(remote()),
        };
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > 250 || name.starts_with('.') || !name.bytes().all(legal) {
            return Err(Error::Segment(SegmentViolation::Name));
        }
        let opened = open_named(name, OFlags::RDWR);
        let object = opened.map_err(|error| failed(&format!("cannot attach the segment {name}"), error.into()))?;
        let stat = fstat(&object).map_err(|error| failed(&format!("the segment {name}"), error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Error::Segment(SegmentViolation::NotAFile { name: name.to_owned() }));
        }
        let mode = Mode::from_raw_mode(stat.st_mode);
        if stat.st_uid != uid || mode != OWNER {
            let (name, owner, mode) = (name.to_owned(), stat.st_uid, mode.as_raw_mode());
            return Err(Error::Segment(SegmentViolation::Access { name, owner, mode, user: uid }));
        }
        // The system may report a larger size, because it rounds up.
        let actual = u64::try_from(stat.st_size).unwrap_or(0);
        if actual < size || actual <= HEADER {
            return Err(Error::Segment(SegmentViolation::Size { name: name.to_owned(), actual, stated: size }));
        }
        let mapping = if mapped { Some(Self::map(&object, actual)?) } else { None };
        let segment = Self::new(name.to_owned(), actual, object, mapping, false);
        segment.load()?;
        Ok(Arc::new(segment))
    }

    pub(super) fn new(name: String, size: u64, object: OwnedFd, mapping: Option<Mapping>, owner: bool) -> Self {
        let copies = AtomicBool::new(mapping.is_none());
        Self { name, size, object, mapping, copies, owner: AtomicBool::new(owner), state: Mutex::default() }
    }

    pub(super) fn map(object: &OwnedFd, size: u64) -> Result<Mapping> {
        let length = usize::try_from(size).map_err(|_| Error::Size(SizeLimit::Mapping))?;
        Mapping::new(object, length).map_err(|error| failed("cannot map a segment", error))
    }

    /// Use the segment on a connection. From the first peer that is not kin, bytes are copied. If
    /// views may already exist, refuse such a peer, because it could truncate the memory under
    /// them.
    pub(super) fn share_with(&self, peer: Peer) -> Result<()> {
        match peer {
            Peer::Kin(_) => {
                self.view();
                Ok(())
            }
            Peer::Local(_) => {
                let state = self.state();
                if state.viewed {
                    return Err(Misuse::SharedSegment.into());
                }
                self.copies.store(true, Ordering::Release);
                Ok(())
            }
            Peer::Remote => Err(remote()),
        }
    }

    /// Return whether bytes may be viewed in place; if so, views may exist from now on.
    pub fn view(&self) -> bool {
        let mut state = self.state();
        let views = self.mapped().is_some();
        state.viewed |= views;
        views
    }

    /// Return the mapping, unless bytes must be copied.
    fn mapped(&self) -> Option<&Mapping> {
        self.mapping.as_ref().filter(|_| !self.copies.load(Ordering::Acquire))
    }

    /// Copy bytes out; fail if any of them is outside the segment.
    fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        let outside = || Error::SegmentContent(SegmentDamage::Outside);
        offset.checked_add(length).filter(|end| *end <= self.size).ok_or_else(outside)?;
        let size = usize::try_from(length).map_err(|_| beyond_memory(length))?;
        if let Some(mapping) = self.mapped() {
            let start = usize::try_from(offset).map_err(|_| beyond_memory(offset))?;
            return mapping.read(start, size).ok_or_else(outside);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| beyond_memory(length))?;
        while bytes.len() < size {
            let at = offset.saturating_add(bytes.len() as u64);
            match retry_on_intr(|| pread(&self.object, spare_capacity(&mut bytes), at)) {
                Ok(0) | Err(_) => {
                    return Err(Error::SegmentContent(SegmentDamage::Truncated { name: self.name.clone() }));
                }
                Ok(_) => {}
            }
        }
        // The allocation may be larger than requested, and the read may fill all of it.
        bytes.truncate(size);
        Ok(bytes)
    }

    /// Copy a region out. The peer states its length, so check it against the limit, and against
    /// the memory that the segment really uses, because a sparse file can claim any length.
    fn copy(&self, region: Region, limit: u64) -> Result<Vec<u8>> {
        let Region { offset, length } = region;
        if length > limit {
            return Err(Error::Size(SizeLimit::Region { bytes: length, limit }));
        }
        let stat = fstat(&self.object).map_err(|error| failed("a segment", error.into()))?;
        let present = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK);
        if present < length {
            return Err(Error::SegmentContent(SegmentDamage::Sparse { length, present }));
        }
        self.read(offset, length)
    }

    /// Return a copy of all its bytes as they are now.
    pub fn snapshot(&self, limit: u64) -> Result<Vec<u8>> {
        if self.size > limit {
            return Err(Error::Size(SizeLimit::Segment { bytes: self.size, limit }));
        }
        self.read(0, self.size)
    }

    /// Copy bytes in; return `None` if they do not fit.
    fn write(&self, offset: u64, mut bytes: &[u8]) -> Option<()> {
        offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.size)?;
        if let Some(mapping) = self.mapped() {
            return mapping.write(usize::try_from(offset).ok()?, bytes);
        }
        let mut at = offset;
        while !bytes.is_empty() {
            let count = retry_on_intr(|| pwrite(&self.object, bytes, at)).ok().filter(|count| *count > 0)?;
            bytes = bytes.get(count..)?;
            at = at.checked_add(count as u64)?;
        }
        Some(())
    }

    /// Return the segment for batches: the sealed one if the server uses it, otherwise this one.
    pub fn current(self: &Arc<Self>) -> Arc<Self> {
        let sealed = self.state().sealed.clone();
        sealed.unwrap_or_else(|| Arc::clone(self))
    }

    /// Record that the server uses a sealed segment instead of this one.
    pub(super) fn replaced_by(&self, sealed: &Arc<Self>) {
        self.state().sealed = Some(Arc::clone(sealed));
    }

    pub(super) const fn object(&self) -> &OwnedFd {
        &self.object
    }

    /// Return its name, as requests carry it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Return its number of bytes, including the header.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Set the metadata with which a request announces the segment.
    pub(super) fn advertise(&self, metadata: &mut Metadata) {
        metadata.set(key::SHM_SEGMENT_NAME, self.name.as_bytes());
        metadata.set(key::SHM_SEGMENT_SIZE, self.size.to_string());
    }

    /// Remove the name; processes that have mapped the segment keep it.
    pub fn unlink(&self) {
        if self.owner.swap(false, Ordering::AcqRel) {
            unlink(&self.name);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Return the current allocations.
    pub(super) fn load(&self) -> Result<Table> {
        let fixed = self.read(0, FIXED as u64)?;
        let bytes = Table::bytes(&fixed, self.size)?;
        Ok(Table::read(&self.read(0, bytes as u64)?, self.size)?)
    }

    pub(super) fn store(&self, table: &Table) -> Result<()> {
        let written = self.write(0, &table.write());
        written.ok_or_else(|| Error::SegmentContent(SegmentDamage::NoHeader))
    }

    /// Change the allocations, in this side's turn. First free the regions dropped in the meantime.
    pub fn with_table<T>(&self, work: impl FnOnce(&mut Table) -> T) -> Result<T> {
        let mut state = self.state();
        let mut table = self.load()?;
        let before = table.clone();
        for offset in std::mem::take(&mut state.freed) {
            table.free(offset);
        }
        let result = work(&mut table);
        if table != before {
            self.store(&table)?;
        }
        Ok(result)
    }

    /// Free the regions that were dropped.
    pub(super) fn settle(&self) -> Result<()> {
        if self.state().freed.is_empty() {
            return Ok(());
        }
        self.with_table(|_| ())
    }

    /// Write a batch, and return its region, or `None` if it does not fit or the system is out of
    /// memory.
    pub fn write_batch(&self, batch: &Batch) -> Result<Option<Region>> {
        let mut out = Output::new();
        ipc::shared_form(batch, &mut out)?;
        let length = out.len() as u64;
        let Some(region) = self.with_table(|table| table.allocate(length))? else { return Ok(None) };
        if !self.reserve(region) {
            self.with_table(|table| table.free(region.offset))?;
            return Ok(None);
        }
        let mut at = region.offset;
        for piece in out.take() {
            let written = self.write(at, &piece);
            written.ok_or_else(|| Error::SegmentContent(SegmentDamage::Region))?;
            at = at.saturating_add(piece.len() as u64);
        }
        Ok(Some(Region { length, ..region }))
    }

    /// Reserve memory in the system before it is written, because a write to a full /dev/shm would
    /// fault.
    fn reserve(&self, region: Region) -> bool {
        let mut state = self.state();
        let end = region.offset.saturating_add(region.length);
        // If bytes are copied, a hole causes an error instead of a fault, and the peer must not
        // decide how much memory is reserved.
        let least = if self.mapped().is_some() { HEADER } else { region.offset };
        let from = state.reserved.max(least);
        if end <= from {
            return true;
        }
        let reserved = fallocate(&self.object, FallocateFlags::empty(), from, end.saturating_sub(from)).is_ok();
        if reserved {
            state.reserved = end;
        }
        reserved
    }

    /// Return the bytes of a region. In place, the region is freed when the last buffer into it is
    /// dropped. Otherwise copy at most `limit` bytes, and free it immediately.
    pub fn lease(self: &Arc<Self>, region: Region, limit: u64) -> Result<Bytes> {
        self.load()?.check(region)?;
        if self.view() {
            return Ok(Bytes::from_owner(Lease { segment: Arc::clone(self), region }));
        }
        let bytes = self.copy(region, limit);
        self.state().freed.push(region.offset);
        bytes.map(Bytes::from)
    }

    /// Replace a pointer with its batch (section 11); return any other batch unchanged. A copied
    /// batch has at most `limit` bytes.
    pub fn resolve(self: &Arc<Self>, batch: Batch, limit: u64) -> Result<Batch> {
        if !is_pointer(batch.rows, &batch.metadata) {
            return Ok(batch);
        }
        let region = pointer(&batch.metadata)?;
        let bytes = self.lease(region, limit)?;
        let mut metadata = batch.metadata;
        metadata.remove(key::SHM_OFFSET);
        metadata.remove(key::SHM_LENGTH);
        metadata.set(key::SHM_SOURCE, self.name.as_bytes());
        Ok(ipc::read_shared(bytes.into(), &batch.schema)?.with_metadata(metadata))
    }

    /// Write a batch, and return a pointer to it, or `None` if it does not fit.
    pub fn share(&self, batch: &Batch) -> Result<Option<Batch>> {
        let Some(region) = self.write_batch(batch)? else { return Ok(None) };
        let mut metadata = batch.metadata.clone();
        set_pointer(&mut metadata, region);
        Ok(Some(Batch::empty(&batch.schema, metadata)))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // It may be the peer's turn, so regions that were not freed disappear only with the
        // segment.
        self.unlink();
    }
}

pub(super) fn remote() -> Error {
    Misuse::RemoteSegment.into()
}

/// Open the file with this name, without following links and without blocking on a pipe.
fn open_named(name: &str, access: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    open(format!("{FOLDER}/{name}"), flags, Mode::empty())
}

fn beyond_memory(length: u64) -> Error {
    Error::Size(SizeLimit::Copy { bytes: length })
}

fn unlink(name: &str) {
    // An error means that it no longer exists.
    let _ = shm::unlink(format!("/{name}"));
}

/// Remove our segments whose owners have died and so no longer hold the lock.
fn sweep() {
    for entry in read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let Ok(object) = open_named(name, OFlags::RDONLY) else { continue };
        let locked = flock(&object, FlockOperation::NonBlockingLockExclusive).is_ok();
        // A segment that was just created has no header yet, and its owner is about to lock it.
        if locked && fstat(&object).is_ok_and(|stat| u64::try_from(stat.st_size).is_ok_and(|size| size > HEADER)) {
            unlink(name);
        }
    }
}

pub(super) fn failed(doing: &str, error: io::Error) -> Error {
    Error::io(doing, error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use penstock_wire::ErrorKind;
    use rustix::process::geteuid;

    use super::*;

    const SIZE: u64 = 1 << 20;

    fn local() -> Peer {
        Peer::of_this_user()
    }

    fn kin() -> Peer {
        Peer::Kin(geteuid().as_raw())
    }

    fn path(name: &str) -> PathBuf {
        PathBuf::from(FOLDER).join(name)
    }

    /// Return a region that the owner has written to.
    fn region(segment: &Segment) -> Region {
        let region = segment.with_table(|table| table.allocate(4_096)).expect("a table").expect("room");
        segment.write(region.offset, &[7; 4_096]).expect("inside");
        region
    }

    #[test]
    fn a_file_with_holes_takes_no_memory_for_the_length_that_it_says() {
        let segment = Segment::create(SIZE).expect("created");
        let size = 1 << 46;
        ftruncate(&segment.object, size).expect("holes cost nothing");
        let mut table = Table::new(size).expect("large enough");
        let huge = table.allocate(size / 2).expect("room");
        segment.write(0, &table.write()).expect("a header");
        let attached = Segment::attach(segment.name(), size, local()).expect("its header is right");
        assert_eq!(attached.lease(huge, 2 << 30).expect_err("too long").kind(), ErrorKind::Limit);
        assert_eq!(attached.lease(huge, u64::MAX).expect_err("no memory").kind(), ErrorKind::Malformed);
        assert_eq!(attached.snapshot(2 << 30).expect_err("too long").kind(), ErrorKind::Limit);
    }

    #[test]
    fn a_copy_has_at_most_the_bytes_of_the_limit() {
        let segment = Segment::create(SIZE).expect("created");
        let region = region(&segment);
        let attached = Segment::attach(segment.name(), SIZE, local()).expect("attached");
        assert_eq!(attached.lease(region, 4_095).expect_err("too long").kind(), ErrorKind::Limit);
        assert_eq!(attached.lease(region, 4_096).expect("allowed"), vec![7; 4_096]);
    }

    #[test]
    fn what_is_no_regular_file_of_that_name_is_no_segment() {
        let segment = Segment::create(SIZE).expect("created");
        let link = format!("{}-link", segment.name());
        symlink(path(segment.name()), path(&link)).expect("a link");
        let linked = Segment::attach(&link, SIZE, local());
        fs::remove_file(path(&link)).expect("removed");
        assert_eq!(linked.expect_err("a link").kind(), ErrorKind::Io);

        let pipe = format!("{}-pipe", segment.name());
        rustix::fs::mkfifoat(rustix::fs::CWD, path(&pipe), OWNER).expect("a pipe");
        let opened = Segment::attach(&pipe, SIZE, local());
        // The pipe has no writer, and the sweep must not wait for one.
        sweep();
        fs::remove_file(path(&pipe)).expect("removed");
        assert!(matches!(opened, Err(Error::Segment(SegmentViolation::NotAFile { .. }))));
    }

    #[test]
    fn a_segment_that_may_be_viewed_is_for_no_other_process() {
        let viewed = Segment::create(SIZE).expect("created");
        let bytes = viewed.lease(region(&viewed), SIZE).expect("a view");
        assert!(matches!(viewed.share_with(local()), Err(Error::Misuse(Misuse::SharedSegment))));
        assert_eq!(bytes, vec![7; 4_096]);

        let shared = Segment::create(SIZE).expect("created");
        shared.share_with(kin()).expect("kin");
        assert!(matches!(shared.share_with(local()), Err(Error::Misuse(Misuse::SharedSegment))));

        // In the opposite order, all bytes are copied.
        let copied = Segment::create(SIZE).expect("created");
        copied.share_with(local()).and_then(|()| copied.share_with(kin())).expect("copied");
        assert!(copied.share_with(local()).is_ok() && !copied.view());
    }

    #[test]
    fn a_segment_is_never_opened_for_a_remote_peer() {
        // There is no segment with this name, and an attempt to open it would give another error.
        let error = Segment::attach("there-is-none", SIZE, Peer::Remote).expect_err("remote");
        assert_eq!((error.kind(), error.to_string()), (remote().kind(), remote().to_string()));
    }
}
