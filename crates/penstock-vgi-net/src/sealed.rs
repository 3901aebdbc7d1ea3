//! A segment without a name in the system: a sealed file in memory, passed over the connection's Unix socket.
//!
//! ```text
//!  client                                                            server
//!    request, names a segment ── descriptor of the sealed one ──────▶  adopts it
//!    uses the sealed one      ◀── the same descriptor, with the answer
//!    uses the named one       ◀── an answer without                    is another implementation
//! ```
//!
//! The seals keep both ends from truncating the file, so an access to its mapping never faults.
//! They do not prevent rewriting: data of a process that is neither parent nor child is copied
//! before it is checked, as with a named segment. The client shares nothing until the first answer
//! has arrived, and keeps its named segment for a server that does not adopt the sealed one; the
//! system closes a descriptor that is not received.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use penstock_vgi::shm_layout::{HEADER, Table};
use rustix::fs::{
    FallocateFlags, FileType, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs,
    ftruncate, memfd_create,
};

use super::peer::Peer;
use super::segment::{Segment, failed, remote};
use crate::error::{Error, Result};
use crate::faults::{SealFault, SegmentViolation};

/// The seals that keep both ends from changing the size.
const FIXED_SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// The `statfs` type of a file in memory. Accesses to a file of huge pages could still fault.
const TMPFS: i64 = 0x0102_1994;

impl Segment {
    /// Make a sealed segment for a connection to a peer, in place of the named one of this name and size.
    pub(super) fn sealed(name: &str, size: u64, peer: Peer) -> Result<Arc<Self>> {
        let table = Table::new(size)?;
        let made = || -> rustix::io::Result<OwnedFd> {
            let object = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
            ftruncate(&object, size)?;
            fallocate(&object, FallocateFlags::empty(), 0, HEADER)?;
            fcntl_add_seals(&object, FIXED_SIZE | SealFlags::SEAL)?;
            Ok(object)
        };
        let object = made().map_err(|error| failed("cannot make a sealed segment", error.into()))?;
        let segment = Self::from_object(object, name, size, peer)?;
        segment.store(&table)?;
        Ok(segment)
    }

    /// Adopt a segment that a peer has passed with a stated size.
    ///
    /// # Errors
    ///
    /// A violation if the object is not a sealed file in memory of that size.
    pub(super) fn adopt(object: OwnedFd, name: &str, size: u64, peer: Peer) -> Result<Arc<Self>> {
        let wrong = |fault| Err(Error::Segment(SegmentViolation::Passed { name: name.to_owned(), fault }));
        let system = |error: rustix::io::Errno| failed("a segment that was passed", error.into());
        let stat = fstat(&object).map_err(system)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return wrong(SealFault::NotAFile);
        }
        // This call fails for a file that cannot be sealed.
        if !fcntl_get_seals(&object).is_ok_and(|seals| seals.contains(FIXED_SIZE)) {
            return wrong(SealFault::Unsealed);
        }
        if fstatfs(&object).map_err(system)?.f_type as i64 != TMPFS {
            return wrong(SealFault::Pages);
        }
        if u64::try_from(stat.st_size) != Ok(size) || size <= HEADER {
            return wrong(SealFault::Size { actual: stat.st_size, stated: size });
        }
        let segment = Self::from_object(object, name, size, peer)?;
        segment.load()?;
        Ok(segment)
    }

    fn from_object(object: OwnedFd, name: &str, size: u64, peer: Peer) -> Result<Arc<Self>> {
        let mapping = match peer {
            Peer::Kin(_) => Some(Self::map(&object, size)?),
            Peer::Local(_) => None,
            Peer::Remote => return Err(remote()),
        };
        let segment = Self::new(name.to_owned(), size, object, mapping, false);
        segment.share_with(peer)?;
        Ok(Arc::new(segment))
    }

    /// Return another descriptor of the segment, to pass to the peer.
    pub fn duplicate(&self) -> Result<OwnedFd> {
        self.object().try_clone().map_err(|error| failed("a descriptor of a segment", error))
    }

    /// Return whether a descriptor refers to this segment.
    pub(super) fn is(&self, descriptor: &OwnedFd) -> bool {
        match (fstat(self.object()), fstat(descriptor)) {
            (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
            (Ok(_) | Err(_), _) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::geteuid;

    use super::*;

    const SIZE: u64 = 1 << 20;

    fn kin() -> Peer {
        Peer::Kin(geteuid().as_raw())
    }

    fn local() -> Peer {
        Peer::of_this_user()
    }

    #[test]
    fn a_sealed_segment_keeps_its_size() {
        for peer in [kin(), local()] {
            let segment = Segment::sealed("one", SIZE, peer).expect("a segment");
            let descriptor = segment.duplicate().expect("a descriptor");
            assert!(segment.is(&descriptor));
            for size in [0, SIZE - 1, SIZE + 1] {
                assert_eq!(ftruncate(&descriptor, size), Err(rustix::io::Errno::PERM));
            }
            assert_eq!(fcntl_add_seals(&descriptor, SealFlags::WRITE), Err(rustix::io::Errno::PERM));
            let adopted = Segment::adopt(descriptor, "one", SIZE, peer).expect("adopted");
            assert_eq!(adopted.view(), peer == kin(), "only a parent's or a child's is viewed");
        }
        assert!(Segment::sealed("one", SIZE, Peer::Remote).is_err());
    }

    #[test]
    fn what_is_no_sealed_file_in_memory_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = |flags, seals, size| {
            let object = memfd_create("x", flags).ok()?;
            ftruncate(&object, size).expect("a size");
            fcntl_add_seals(&object, seals).expect("seals");
            Some(object)
        };
        let refused = |object: OwnedFd, expected: SealFault| {
            let error = Segment::adopt(object, "x", SIZE, kin()).expect_err("refused");
            let Error::Segment(SegmentViolation::Passed { fault, .. }) = &error else { panic!("{error}") };
            assert_eq!(*fault, expected, "{error}");
        };
        for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::GROW | SealFlags::WRITE] {
            refused(made(flags, seals, SIZE).expect("a file"), SealFault::Unsealed);
        }
        refused(
            made(flags, FIXED_SIZE, SIZE + 1).expect("a file"),
            SealFault::Size { actual: 1_048_577, stated: SIZE },
        );
        refused(tempfile::tempfile().expect("a file").into(), SealFault::Unsealed);
        refused(std::io::pipe().expect("a pipe").0.into(), SealFault::NotAFile);
        // A machine without huge pages cannot make such a file.
        if let Some(huge) = made(flags | MemfdFlags::HUGETLB, FIXED_SIZE, 2 << 20) {
            refused(huge, SealFault::Pages);
        }
        let remote = made(flags, FIXED_SIZE, SIZE).expect("a file");
        assert!(Segment::adopt(remote, "x", SIZE, Peer::Remote).is_err());
        let empty = made(flags, FIXED_SIZE, SIZE).expect("a file");
        assert!(Segment::adopt(empty, "x", SIZE, kin()).is_err(), "without a header it is no segment");
    }
}
