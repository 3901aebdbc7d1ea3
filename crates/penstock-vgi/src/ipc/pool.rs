//! Memory for the bodies of large messages, reused after the last array in it is dropped. Fresh
//! memory costs a page fault for every 4 KiB, which takes about as long as copying the bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow_buffer::Buffer;

/// The smallest body whose memory is kept; for smaller ones the allocator is fast.
const LEAST: usize = 64 << 10;
/// The most bytes and pieces to keep: a stream uses the last answer, the next one, and its source.
const KEPT: usize = 64 << 20;
const PIECES: usize = 4;
/// The alignment of bodies, as Arrow recommends.
const ALIGNMENT: usize = 64;

/// The free pieces. Pieces still in use when the pool is dropped do not return to it.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: Arc<Mutex<Vec<Vec<u8>>>>,
}

/// The memory of one body. All of it is initialised, at least with zeros.
#[derive(Debug)]
pub(super) struct Body {
    memory: Vec<u8>,
    start: usize,
    length: usize,
    pool: Weak<Mutex<Vec<Vec<u8>>>>,
}

impl Pool {
    /// Take memory for a body whose length was checked.
    pub(super) fn take(&self, length: usize) -> Body {
        let needed = length.saturating_add(ALIGNMENT);
        let kept = if length < LEAST { None } else { take_fitting(&mut lock(&self.idle), needed) };
        let memory = kept.unwrap_or_else(|| vec![0; needed]);
        let pool = if length < LEAST { Weak::new() } else { Arc::downgrade(&self.idle) };
        // Neither sum can overflow: `length` bytes fit after any start below the alignment.
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Body { memory, start, length, pool }
    }

    /// Return the number of free bytes.
    #[cfg(test)]
    fn idle(&self) -> usize {
        lock(&self.idle).iter().map(Vec::len).sum()
    }
}

impl Body {
    /// Return the number of bytes of the body.
    pub(super) const fn len(&self) -> usize {
        self.length
    }

    /// Return the part after the first `filled` bytes.
    pub(super) fn rest(&mut self, filled: usize) -> &mut [u8] {
        let end = self.start.saturating_add(self.length);
        self.memory.get_mut(self.start.saturating_add(filled)..end).unwrap_or_default()
    }

    /// Convert the body for arrays. Its memory returns to the pool when the last of them is
    /// dropped.
    pub(super) fn into_buffer(self) -> Buffer {
        Buffer::from(bytes::Bytes::from_owner(self))
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self.memory.get(self.start..self.start.saturating_add(self.length)).unwrap_or_default()
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut idle = lock(&pool);
        idle.push(std::mem::take(&mut self.memory));
        // The oldest pieces are dropped first, so that sizes no longer in use do not stay.
        while idle.len() > PIECES || idle.iter().map(Vec::len).sum::<usize>() > KEPT {
            idle.remove(0);
        }
    }
}

/// Take the smallest piece that is large enough, unless more than half of it would be unused.
fn take_fitting(idle: &mut Vec<Vec<u8>>, needed: usize) -> Option<Vec<u8>> {
    let fits = |piece: &Vec<u8>| piece.len() >= needed && piece.len() / 2 <= needed;
    let found = idle.iter().enumerate().filter(|(_, piece)| fits(piece)).min_by_key(|(_, piece)| piece.len());
    let index = found.map(|(index, _)| index)?;
    Some(idle.remove(index))
}

fn lock(idle: &Mutex<Vec<Vec<u8>>>) -> MutexGuard<'_, Vec<Vec<u8>>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(buffer: &Buffer) -> usize {
        buffer.as_ptr() as usize
    }

    #[test]
    fn memory_is_used_again_when_the_last_array_in_it_has_gone() {
        let pool = Pool::default();
        let first = pool.take(1 << 20).into_buffer();
        let (place, part) = (address(&first), first.slice_with_length(100, 10));
        assert_eq!((place % ALIGNMENT, first.len()), (0, 1 << 20));
        drop(first);
        assert_ne!(address(&pool.take(1 << 20).into_buffer()), place, "a part of it is still read");
        drop(part);
        assert_eq!(lock(&pool.idle).len(), 2);
        let (again, other) = (pool.take(900 << 10).into_buffer(), pool.take(1 << 20).into_buffer());
        assert!([address(&again), address(&other)].contains(&place));
        assert_eq!(again.len(), 900 << 10);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_does_not_fit_is_not_used() {
        let pool = Pool::default();
        drop((0..9).map(|_| pool.take(LEAST)).collect::<Vec<_>>());
        assert_eq!(lock(&pool.idle).len(), PIECES);
        drop(pool.take(KEPT));
        assert_eq!(pool.idle(), 0, "larger than all that may wait");
        drop(pool.take(1 << 20));
        let waiting = pool.idle();
        for other in [LEAST, 2 << 20] {
            let taken = pool.take(other);
            assert_eq!((taken.len(), pool.idle()), (other, waiting));
            std::mem::forget(taken);
        }
        drop(pool.take(LEAST - 1));
        assert_eq!(pool.idle(), waiting, "small ones are the allocator's");
        let late = pool.take(1 << 20).into_buffer();
        drop(pool);
        assert_eq!(late.len(), 1 << 20);
    }
}
