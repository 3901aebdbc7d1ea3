use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_io::memory::{BeyondPermit, Overdraft};
use tokio::sync::Notify;

/// Bytes that all connections of a receiver hold together: frames that are not whole, events in columns, and batches
/// that are not safe.
///
/// A connection reads only while there is room; what it has read is counted afterwards. Where all of the room is taken by frames
/// that are not whole, [`Overdraft`] holds: one connection at a time goes on until its frame is whole.
#[derive(Debug)]
pub(super) struct Budget {
    limit: usize,
    held: AtomicUsize,
    /// Those of batches under way, which are given back without anything being read.
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

    /// Resolves when something was given back.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Leave to go on beyond the limit, if nothing else can make room.
    fn beyond(&self) -> Option<BeyondPermit> {
        let stuck = self.under_way.load(Ordering::Relaxed) == 0;
        stuck.then(|| self.beyond.try_take()).flatten()
    }
}

/// What one connection holds of it.
#[derive(Debug)]
pub(super) struct Share {
    budget: Arc<Budget>,
    held: usize,
    under_way: usize,
    beyond: Option<BeyondPermit>,
}

impl Share {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, held: 0, under_way: 0, beyond: None }
    }

    /// Says what the connection holds now, apart from what is under way.
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

    /// A batch has gone.
    pub(super) fn send(&mut self, bytes: usize) {
        self.under_way += bytes;
        self.budget.under_way.fetch_add(bytes, Ordering::Relaxed);
        self.beyond = None;
    }

    /// A batch is safe.
    pub(super) fn safe(&mut self, bytes: usize) {
        self.under_way -= bytes.min(self.under_way);
        self.budget.under_way.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether the connection may read on. Only one that has `begun` a frame may go on where there is no room: an idle
    /// one would keep that leave for itself, and use it for nothing.
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
