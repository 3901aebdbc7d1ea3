//! Memory that two processes share. This and [`raw`](super::raw) are the places of the workspace with unsafe code.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping of a whole object, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to no thread. What two threads do with the same bytes at a time is ordered by the callers:
// the header is touched under the lock of its segment, and a region by who owns it.
unsafe impl Send for Mapping {}
// SAFETY: as above; through a shared reference bytes are read and written by copies alone, and `view` is for regions
// that nobody writes any more.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of an object that has at least so many.
    pub(super) fn new(object: &OwnedFd, length: usize) -> io::Result<Self> {
        if length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: without an address that is asked for, a new mapping never replaces memory in use.
        let start = unsafe {
            mmap(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, object, 0)
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// Copy bytes out; `None` if they are not all inside.
    pub(super) fn read(&self, offset: usize, length: usize) -> Option<Vec<u8>> {
        self.view(offset, length).map(<[u8]>::to_vec)
    }

    /// Copy bytes in; `None`, and nothing is written, if they do not fit.
    pub(super) fn write(&self, offset: usize, bytes: &[u8]) -> Option<()> {
        offset.checked_add(bytes.len()).filter(|end| *end <= self.length)?;
        // SAFETY: both ranges have so many bytes, the target by the check above, and they do not overlap: `bytes` is
        // borrowed memory of this process that no caller takes out of this range.
        unsafe {
            let target = self.start.as_ptr().add(offset);
            std::ptr::copy(bytes.as_ptr(), target, bytes.len());
        }
        Some(())
    }

    /// Bytes where they lie; `None` if they are not all inside. Who asks has seen to it that they are written no more.
    pub(super) fn view(&self, offset: usize, length: usize) -> Option<&[u8]> {
        offset.checked_add(length).filter(|end| *end <= self.length)?;
        // SAFETY: the range is inside of the mapping by the check above, and the mapping lives as long as `self`, which is
        // borrowed. Only a segment that is shared with this process's parent or child is viewed: such a peer, which could end
        // this process anyhow, is trusted not to truncate it and not to change what it has handed over.
        Some(unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset), length) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one that `mmap` gave, and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.length) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be removed");
    }
}
