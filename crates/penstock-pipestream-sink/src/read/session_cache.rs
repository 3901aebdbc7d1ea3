//! A cache of examined closed sessions, so that dividing a session into pieces does not read its
//! list twice.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::read::session::ClosedSession;

/// Memory for examined sessions, enough for about 60,000. Dividing any other session into pieces
/// reads its list twice instead of once.
pub(super) const MAX_BYTES: usize = 16 << 20;
/// Bytes of a session in addition to its ID and offsets: the structs, and an entry in both
/// collections.
const OVERHEAD: usize = 192;

/// Examined sessions within a memory limit; a new one evicts the oldest.
#[derive(Debug)]
pub(super) struct SessionCache {
    sessions: HashMap<String, Arc<ClosedSession>>,
    /// The sessions' IDs, oldest first.
    order: VecDeque<String>,
    bytes: usize,
    max_bytes: usize,
}

impl SessionCache {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { sessions: HashMap::new(), order: VecDeque::new(), bytes: 0, max_bytes }
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<ClosedSession>> {
        self.sessions.get(id).map(Arc::clone)
    }

    /// Replace the cache's content by the first sessions of a list, as many as fit. Callers divide
    /// sessions in this order, so later ones must not evict those that are needed first.
    pub(super) fn fill(&mut self, sessions: &[ClosedSession]) {
        self.sessions.clear();
        self.order.clear();
        self.bytes = 0;
        for session in sessions {
            if self.bytes.saturating_add(weight(session)) > self.max_bytes {
                break;
            }
            self.add(Arc::new(session.clone()));
        }
    }

    /// Add a session, and evict the oldest ones that no longer fit. The new session stays whatever
    /// its size, because the next request is likely to need it.
    pub(super) fn insert(&mut self, session: Arc<ClosedSession>) {
        if self.sessions.contains_key(&session.id) {
            return;
        }
        self.add(session);
        while self.bytes > self.max_bytes && self.order.len() > 1 {
            let Some(gone) = self.order.pop_front().and_then(|id| self.sessions.remove(&id)) else { return };
            self.bytes = self.bytes.saturating_sub(weight(&gone));
        }
    }

    fn add(&mut self, session: Arc<ClosedSession>) {
        self.bytes = self.bytes.saturating_add(weight(&session));
        self.order.push_back(session.id.clone());
        self.sessions.insert(session.id.clone(), session);
    }
}

/// Return the approximate memory of a session in bytes; the cache holds its ID three times.
fn weight(session: &ClosedSession) -> usize {
    OVERHEAD
        .saturating_add(session.id.len().saturating_mul(3))
        .saturating_add(session.superseded.len().saturating_mul(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: usize, superseded: usize) -> ClosedSession {
        ClosedSession { id: format!("{number:032x}"), rows: 1, bytes: 1, superseded: vec![0; superseded] }
    }

    fn kept(cache: &SessionCache) -> Vec<usize> {
        (0..100).filter(|number| cache.get(&format!("{number:032x}")).is_some()).collect()
    }

    #[test]
    fn sessions_beyond_the_limit_push_out_the_oldest() {
        let mut cache = SessionCache::new(3 * weight(&session(0, 0)));
        for number in 0..100 {
            cache.insert(Arc::new(session(number, 0)));
            cache.insert(Arc::new(session(number, 0)));
            assert!(cache.bytes <= cache.max_bytes && cache.sessions.len() == cache.order.len());
        }
        assert_eq!(kept(&cache), [97, 98, 99]);
        // A session with many replaced lines evicts others, and stays even if it alone exceeds the
        // limit.
        cache.insert(Arc::new(session(1, 30)));
        assert_eq!(kept(&cache), [1, 99]);
        cache.insert(Arc::new(session(2, 1_000)));
        assert_eq!(kept(&cache), [2]);
        cache.insert(Arc::new(session(3, 0)));
        assert_eq!(kept(&cache), [3]);
    }

    #[test]
    fn of_a_list_the_first_sessions_are_kept_and_nothing_that_it_does_not_name() {
        let mut cache = SessionCache::new(3 * weight(&session(0, 0)));
        cache.insert(Arc::new(session(99, 0)));
        cache.fill(&(0..50).map(|number| session(number, 0)).collect::<Vec<_>>());
        assert_eq!(kept(&cache), [0, 1, 2]);
        cache.fill(&[]);
        assert_eq!((kept(&cache), cache.bytes), (vec![], 0));
    }
}
