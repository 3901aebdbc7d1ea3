//! A shared memory segment (section 11): created by the client, attached by the server.

use std::fmt;
use std::fs::{File, read_dir};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use penstock_vgi::ipc::{self, Output};
use penstock_vgi::shm_layout::{FIXED, HEADER, Region, Table, pointer};
use penstock_vgi::{Batch, Error, ErrorKind, Metadata, Result, key};
use rustix::fs::{FallocateFlags, FlockOperation, Mode, fallocate, flock, fstat, ftruncate};
use rustix::shm::{self, OFlags};

use super::mapping::Mapping;

/// Segments of ours are called so, and a sweep looks at nothing else.
const PREFIX: &str = "penstock-vgi-";
/// Where the system keeps them.
const FOLDER: &str = "/dev/shm";

/// A mapped segment.
pub struct Segment {
    name: String,
    size: u64,
    /// Held open with its lock by the owner, so that others see that it lives.
    object: OwnedFd,
    mapping: Mapping,
    owner: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Regions whose last reader has gone; they are given back at the next turn.
    freed: Vec<u64>,
    /// Up to here memory was reserved by this side.
    reserved: u64,
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment").field("name", &self.name).field("size", &self.size).finish_non_exhaustive()
    }
}

/// Octets of a region, which is given back when the last buffer into it goes.
struct Lease {
    segment: Arc<Segment>,
    region: Region,
}

impl AsRef<[u8]> for Lease {
    fn as_ref(&self) -> &[u8] {
        let Region { offset, length } = self.region;
        self.segment.mapping.view(offset as usize, length as usize).unwrap_or_default()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.segment.state().freed.push(self.region.offset);
    }
}

impl Segment {
    /// Creates a segment that no other process can open, and removes those whose owners are gone.
    pub fn create(size: u64) -> Result<Arc<Self>> {
        sweep();
        let table = Table::new(size)?;
        let name = format!("{PREFIX}{}-{:016x}", std::process::id(), fastrand::u64(..));
        let failed = |error: rustix::io::Errno| failed("cannot create a shared memory segment", &error.into());
        let mode = Mode::RUSR | Mode::WUSR;
        let object =
            shm::open(format!("/{name}"), OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, mode).map_err(failed)?;
        let made = (|| {
            flock(&object, FlockOperation::NonBlockingLockExclusive).map_err(failed)?;
            ftruncate(&object, size).map_err(failed)?;
            fallocate(&object, FallocateFlags::empty(), 0, HEADER).map_err(failed)?;
            Self::map(name.clone(), size, object, true)
        })();
        let segment = made.inspect_err(|_| unlink(&name))?;
        segment.store(&table)?;
        Ok(Arc::new(segment))
    }

    /// Attaches a segment that a client has named.
    pub fn attach(name: &str, size: u64) -> Result<Arc<Self>> {
        let legal = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
        if name.is_empty() || name.len() > 250 || name.starts_with('.') || !name.bytes().all(legal) {
            return Err(Error::new(ErrorKind::Violation, "a segment name that names no segment"));
        }
        let opened = shm::open(format!("/{name}"), OFlags::RDWR, Mode::empty());
        let object = opened.map_err(|error| failed(&format!("cannot attach the segment {name}"), &error.into()))?;
        // What the system says is larger where it rounds up.
        let actual = fstat(&object).map_err(|error| failed(&format!("the segment {name}"), &error.into()))?.st_size;
        let actual = u64::try_from(actual).unwrap_or(0);
        if actual < size || actual <= HEADER {
            let message = format!("the segment {name} has {actual} octets, not {size}");
            return Err(Error::new(ErrorKind::Violation, message));
        }
        let segment = Self::map(name.to_owned(), actual, object, false)?;
        segment.load()?;
        Ok(Arc::new(segment))
    }

    fn map(name: String, size: u64, object: OwnedFd, owner: bool) -> Result<Self> {
        let length = usize::try_from(size).map_err(|_| Error::new(ErrorKind::Limit, "a segment beyond the memory"))?;
        let mapping = Mapping::new(&object, length).map_err(|error| failed("cannot map a segment", &error))?;
        Ok(Self { name, size, object, mapping, owner: AtomicBool::new(owner), state: Mutex::default() })
    }

    /// Its name, as requests carry it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many octets it has, with the header.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// What a request says of it.
    pub fn advertise(&self, metadata: &mut Metadata) {
        metadata.set(key::SHM_SEGMENT_NAME, self.name.as_bytes());
        metadata.set(key::SHM_SEGMENT_SIZE, self.size.to_string());
    }

    /// Removes the name; who has it mapped keeps it.
    pub fn unlink(&self) {
        if self.owner.swap(false, Ordering::AcqRel) {
            unlink(&self.name);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The allocations as they stand.
    pub fn load(&self) -> Result<Table> {
        let outside = || Error::new(ErrorKind::Malformed, "a segment without a header");
        let fixed = self.mapping.read(0, FIXED).ok_or_else(outside)?;
        let octets = Table::octets(&fixed, self.size)?;
        Table::read(&self.mapping.read(0, octets).ok_or_else(outside)?, self.size)
    }

    fn store(&self, table: &Table) -> Result<()> {
        let written = self.mapping.write(0, &table.write());
        written.ok_or_else(|| Error::new(ErrorKind::Malformed, "a segment without a header"))
    }

    /// Works on the allocations, at one's turn. What was freed in the meantime is given back first.
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

    /// Gives back what was freed.
    pub fn settle(&self) -> Result<()> {
        if self.state().freed.is_empty() {
            return Ok(());
        }
        self.with_table(|_| ())
    }

    /// Writes a batch, and gives where; `None` if it does not fit, or the system has no memory left.
    pub fn write_batch(&self, batch: &Batch) -> Result<Option<Region>> {
        let mut out = Output::new();
        ipc::shared_form(batch, &mut out)?;
        let length = out.len() as u64;
        let Some(region) = self.with_table(|table| table.allocate(length))? else { return Ok(None) };
        if !self.reserve(region) {
            self.with_table(|table| table.free(region.offset))?;
            return Ok(None);
        }
        let mut at = region.offset as usize;
        for piece in out.take() {
            let written = self.mapping.write(at, &piece);
            written.ok_or_else(|| Error::new(ErrorKind::Malformed, "a region outside its segment"))?;
            at = at.saturating_add(piece.len());
        }
        Ok(Some(Region { length, ..region }))
    }

    /// Takes memory from the system before it is written: a full /dev/shm would be a fault then.
    fn reserve(&self, region: Region) -> bool {
        let mut state = self.state();
        let end = region.offset.saturating_add(region.length);
        let from = state.reserved.max(HEADER);
        if end <= from {
            return true;
        }
        let reserved = fallocate(&self.object, FallocateFlags::empty(), from, end.saturating_sub(from)).is_ok();
        if reserved {
            state.reserved = end;
        }
        reserved
    }

    /// The octets of a region, as they lie; they are given back when the last buffer into them goes.
    pub fn lease(self: &Arc<Self>, region: Region) -> Result<Bytes> {
        self.load()?.check(region)?;
        Ok(Bytes::from_owner(Lease { segment: Arc::clone(self), region }))
    }

    /// The batch instead of a pointer to it (section 11); anything else as it is.
    pub fn resolve(self: &Arc<Self>, batch: Batch) -> Result<Batch> {
        if batch.rows != 0 || !batch.metadata.contains(key::SHM_OFFSET) || batch.metadata.contains(key::LOG_LEVEL) {
            return Ok(batch);
        }
        let region = pointer(&batch.metadata)?;
        let octets = self.lease(region)?;
        let mut metadata = batch.metadata;
        metadata.remove(key::SHM_OFFSET);
        metadata.remove(key::SHM_LENGTH);
        metadata.set(key::SHM_SOURCE, self.name.as_bytes());
        ipc::read_shared(octets.into(), &batch.schema).map(|read| read.with_metadata(metadata))
    }

    /// Writes the batch, and gives a pointer to it; `None` if it does not fit.
    pub fn share(&self, batch: &Batch) -> Result<Option<Batch>> {
        let Some(region) = self.write_batch(batch)? else { return Ok(None) };
        let mut metadata = batch.metadata.clone();
        metadata.set(key::SHM_OFFSET, region.offset.to_string());
        metadata.set(key::SHM_LENGTH, region.length.to_string());
        Ok(Some(Batch::empty(&batch.schema, metadata)))
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // The peer may be at its turn; what was not given back goes with the segment.
        self.unlink();
    }
}

fn unlink(name: &str) {
    // It may be gone already.
    let _ = shm::unlink(format!("/{name}"));
}

/// Removes segments of ours whose owners are gone: nobody holds their lock.
fn sweep() {
    for entry in read_dir(FOLDER).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else { continue };
        let Ok(object) = File::open(entry.path()) else { continue };
        let locked = flock(&object, FlockOperation::NonBlockingLockExclusive).is_ok();
        // One that was just created has no header yet, and its owner is about to lock it.
        if locked && object.metadata().is_ok_and(|metadata| metadata.len() > HEADER) {
            unlink(name);
        }
    }
}

fn failed(doing: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{doing}: {error}"))
}
