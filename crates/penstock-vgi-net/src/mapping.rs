//! Memory shared by two processes. This module and [`raw`](super::raw) are the only ones in the
//! workspace with unsafe code.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of a whole object, which is unmapped when this is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to no thread. The callers order concurrent accesses to the same bytes: the header is
// accessed under the lock of its segment, and a region by its owner.
unsafe impl Send for Mapping {}
// SAFETY: as above. Through a shared reference bytes are only read and written by copying, and `view` is for regions
// that are no longer written.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Map `length` bytes of an object that has at least that many.
    pub(super) fn new(object: &OwnedFd, length: usize) -> io::Result<Self> {
        if length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: a new mapping without a requested address never replaces memory in use.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, object, 0)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// Copy bytes out; return `None` if the range is not inside the mapping.
    pub(super) fn read(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        self.view(offset, length).map(<[u8]>::to_vec)
    }

    /// Copy bytes in; return `None`, without writing anything, if they do not fit.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        offset.checked_add(bytes.len()).filter(|end| *end <= self.length)?;
        // SAFETY: both ranges have this many bytes, the target by the check above. They do not overlap, because `bytes`
        // is borrowed memory of this process that no caller takes out of this range.
        unsafe {
            let target = self.start.as_ptr().add(offset);
            std::ptr::copy(bytes.as_ptr(), target, bytes.len());
        }
        Some(())
    }

    /// Return bytes in place, or `None` if the range is not inside the mapping. The caller must
    /// ensure that they are no longer written.
    pub(super) fn view(&self, offset: usize, length: usize) -> Option<&[u8]> {
        offset.checked_add(length).filter(|end| *end <= self.length)?;
        // SAFETY: the range is inside the mapping by the check above, and the mapping lives as long as `self`, which is
        // borrowed. Only a segment shared with this process's parent or child is viewed. Such a peer could end this
        // process anyway, and is trusted not to truncate the segment and not to change what it has handed over.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `mmap` returned, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be removed");
    }
}
