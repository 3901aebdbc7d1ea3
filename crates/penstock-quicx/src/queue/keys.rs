//! Keys of tasks that are submitted once, however often they come (SUBMIT_ONCE).

use std::collections::{HashMap, VecDeque};

use crate::{SubmitOnce, TaskId};

/// What tells a task from all others.
pub(super) type Key = [u8; SubmitOnce::KEY];

/// Whose key it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keyed {
    pub(super) id: TaskId,
    /// It was done, failed or dropped: its ID may be another one's.
    pub(super) over: bool,
}

/// The keys of all tasks that are there, and of the last ones that are over.
#[derive(Debug)]
pub(super) struct Keys {
    most: usize,
    known: HashMap<Key, Keyed>,
    /// Those that are over, in the order in which they went.
    over: VecDeque<Key>,
}

impl Keys {
    pub(super) fn new(most: usize) -> Self {
        Self { most, known: HashMap::new(), over: VecDeque::new() }
    }

    pub(super) fn find(&self, key: Key) -> Option<Keyed> {
        self.known.get(&key).copied()
    }

    /// A task has come.
    pub(super) fn remember(&mut self, key: Key, id: TaskId) {
        self.known.insert(key, Keyed { id, over: false });
    }

    /// A task is over; the oldest one of these is forgotten.
    pub(super) fn over(&mut self, key: Key) {
        if let Some(keyed) = self.known.get_mut(&key) {
            keyed.over = true;
            self.over.push_back(key);
        }
        while self.over.len() > self.most
            && let Some(oldest) = self.over.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// A task was not accepted after all.
    pub(super) fn forget(&mut self, key: Key) {
        self.known.remove(&key);
    }
}
