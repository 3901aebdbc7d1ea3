use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_io::memory::{Overdraft, OverdraftPermit};
use tokio::sync::Notify;

/// The memory of all connections of a receiver: incomplete frames, events in columns, and batches
/// that are not durable yet.
///
/// A connection reads only while there is room, and counts the bytes afterwards. If incomplete frames occupy all of it,
/// [`Overdraft`] applies: one connection at a time continues until its frame is complete.
///
/// It is not a [`MemoryBudget`](penstock_io::memory::MemoryBudget): nothing is reserved, because
/// the size to which a read inflates is not known beforehand, and no writer is refused.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    held: AtomicUsize,
    /// The bytes of batches in flight, which are released without further reads.
    under_way: AtomicUsize,
    freed: Notify,
    beyond: Overdraft,
}

impl Budget {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            held: AtomicUsize::new(0),
            under_way: AtomicUsize::new(0),
            freed: Notify::new(),
            beyond: Overdraft::default(),
        }
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(super) fn is_full(&self) -> bool {
        self.held() >= self.limit
    }

    /// Wait until memory is released.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Take the right to exceed the limit, if no memory will be released otherwise.
    fn beyond(&self) -> Option<OverdraftPermit> {
        let stuck = self.under_way.load(Ordering::Relaxed) == 0;
        stuck.then(|| self.beyond.try_take()).flatten()
    }
}

/// The share of one connection.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    held: usize,
    under_way: usize,
    beyond: Option<OverdraftPermit>,
}

impl Share {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, held: 0, under_way: 0, beyond: None }
    }

    /// Set how many bytes the connection holds, apart from batches in flight.
    pub(super) fn hold(&mut self, bytes: usize) {
        let held = bytes + self.under_way;
        if held > self.held {
            self.budget.held.fetch_add(held - self.held, Ordering::Relaxed);
        } else if held < self.held {
            self.budget.held.fetch_sub(self.held - held, Ordering::Relaxed);
            self.budget.freed.notify_waiters();
        }
        self.held = held;
    }

    /// Count a batch that was passed to the destination.
    pub(super) fn send(&mut self, bytes: usize) {
        self.under_way += bytes;
        self.budget.under_way.fetch_add(bytes, Ordering::Relaxed);
        self.beyond = None;
    }

    /// Release the bytes of a durable batch.
    pub(super) fn safe(&mut self, bytes: usize) {
        self.under_way -= bytes.min(self.under_way);
        self.budget.under_way.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Return whether the connection may read. Without room only a connection in the middle of a frame (`begun`) may:
    /// an idle one would hold the overdraft without using it.
    pub(super) fn has_room(&mut self, begun: bool) -> bool {
        let full = self.budget.is_full();
        if !full || !begun {
            self.beyond = None;
            return !full;
        }
        if self.beyond.is_none() {
            self.beyond = self.budget.beyond();
        }
        self.beyond.is_some()
    }

    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let under_way = std::mem::take(&mut self.under_way);
        self.budget.under_way.fetch_sub(under_way, Ordering::Relaxed);
        self.hold(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_only_broken_off_frames_take_the_room_one_connection_may_go_on() {
        let budget = Arc::new(Budget::new(100));
        let (mut first, mut second) = (Share::new(Arc::clone(&budget)), Share::new(Arc::clone(&budget)));
        first.hold(60);
        second.hold(60);
        let mut idle = Share::new(Arc::clone(&budget));
        assert!(!idle.has_room(false), "it has nothing to finish");
        assert_eq!((first.has_room(true), second.has_room(true)), (true, false));
        first.send(60);
        first.hold(0);
        assert!(!second.has_room(true), "what is under way makes room by itself");
        first.safe(60);
        second.hold(120);
        assert!(!first.has_room(false), "whoever has finished stands back");
        assert!(second.has_room(true));
        first.hold(0);
        second.hold(60);
        assert_eq!((budget.held(), idle.has_room(false)), (60, true));
        drop((first, second, idle));
        assert_eq!(budget.held(), 0);
    }
}
