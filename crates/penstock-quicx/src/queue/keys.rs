//! Keys of unique tasks (SUBMIT_ONCE).

use std::collections::{HashMap, VecDeque};

use penstock_wire::FastMap;

use crate::{SubmitOnce, TaskId};

/// The key of a task.
pub(super) type Key = [u8; SubmitOnce::KEY];

/// The owner of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyOwner {
    pub(super) id: TaskId,
    pub(super) state: KeyState,
}

/// The relation of a key to its task:
///
/// ```text
///  remember ─▶ Own ────────┐  the task ends
///                          ├───────────────▶ Ended
///  merged ───▶ Merged ─────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyState {
    /// The task has the key in its block.
    Own,
    /// A submit with the key was merged into the task.
    Merged,
    /// The task has ended: its ID may belong to another task.
    Ended,
}

/// The keys of all live tasks, and the most recent keys of ended tasks and of merged submits.
#[derive(Debug)]
pub(super) struct Keys {
    most: usize,
    known: HashMap<Key, KeyOwner>,
    /// The loose keys, which no live task has in its block, in the order in which they became
    /// loose. Each is known, and is here once.
    loose: VecDeque<Key>,
    /// The keys of merged submits by the ID of the task, oldest first.
    merged: FastMap<u32, VecDeque<Key>>,
}

impl Keys {
    pub(super) fn new(most: usize) -> Self {
        Self { most, known: HashMap::new(), loose: VecDeque::new(), merged: FastMap::default() }
    }

    pub(super) fn find(&self, key: Key) -> Option<KeyOwner> {
        self.known.get(&key).copied()
    }

    /// Add a task's key.
    pub(super) fn remember(&mut self, key: Key, id: TaskId) {
        self.known.insert(key, KeyOwner { id, state: KeyState::Own });
    }

    /// Add the key of a submit that was merged into this task.
    pub(super) fn merged(&mut self, key: Key, id: TaskId) {
        self.known.insert(key, KeyOwner { id, state: KeyState::Merged });
        self.merged.entry(id.0).or_default().push_back(key);
        self.add_loose(key);
    }

    /// Handle the end of a task.
    pub(super) fn over(&mut self, id: TaskId, own: Option<Key>) {
        for key in self.take_merged(id) {
            if let Some(keyed) = self.known.get_mut(&key) {
                keyed.state = KeyState::Ended;
            }
        }
        if let Some(key) = own
            && let Some(keyed) = self.known.get_mut(&key)
        {
            keyed.state = KeyState::Ended;
            self.add_loose(key);
        }
    }

    /// Remove the keys of tasks that were not accepted: of each task, its ID and its own key.
    pub(super) fn forget(&mut self, tasks: Vec<(TaskId, Option<Key>)>) {
        let mut was_loose = false;
        for (id, own) in tasks {
            let merged = self.take_merged(id);
            was_loose |= !merged.is_empty();
            for key in merged.into_iter().chain(own) {
                self.known.remove(&key);
            }
        }
        if was_loose {
            self.loose.retain(|key| self.known.contains_key(key));
        }
    }

    /// Take the keys of submits that were merged into a task.
    fn take_merged(&mut self, id: TaskId) -> VecDeque<Key> {
        if self.merged.is_empty() { VecDeque::new() } else { self.merged.remove(&id.0).unwrap_or_default() }
    }

    /// Add a loose key; the oldest one is forgotten if there are too many.
    fn add_loose(&mut self, key: Key) {
        self.loose.push_back(key);
        while self.loose.len() > self.most
            && let Some(oldest) = self.loose.pop_front()
        {
            let Some(keyed) = self.known.remove(&oldest) else { continue };
            if let Some(merged) = self.merged.get_mut(&keyed.id.0) {
                if merged.front() == Some(&oldest) {
                    merged.pop_front();
                } else {
                    merged.retain(|other| *other != oldest);
                }
                if merged.is_empty() {
                    self.merged.remove(&keyed.id.0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(keys: &Keys, bytes: impl IntoIterator<Item = u8>) -> Vec<Option<u32>> {
        bytes.into_iter().map(|byte| keys.find([byte; 16]).map(|keyed| keyed.id.0)).collect()
    }

    #[test]
    fn the_last_loose_ones_are_known_and_those_of_tasks_always() {
        let mut keys = Keys::new(2);
        keys.remember([1; 16], TaskId(1));
        (2..6).for_each(|byte| keys.merged([byte; 16], TaskId(1)));
        assert_eq!(ids(&keys, 1..6), [Some(1), None, None, Some(1), Some(1)]);
        keys.over(TaskId(1), Some([1; 16]));
        assert_eq!(ids(&keys, 1..6), [Some(1), None, None, None, Some(1)]);
        assert!(keys.find([5; 16]).is_some_and(|keyed| keyed.state == KeyState::Ended));
        assert!(keys.merged.is_empty());
    }

    #[test]
    fn what_was_not_accepted_leaves_nothing_that_hurts_a_later_one() {
        let mut keys = Keys::new(2);
        keys.remember([1; 16], TaskId(1));
        keys.merged([2; 16], TaskId(1));
        keys.forget(vec![(TaskId(1), Some([1; 16]))]);
        assert_eq!(ids(&keys, 1..3), [None, None]);
        keys.remember([2; 16], TaskId(2));
        (3..6).for_each(|byte| keys.merged([byte; 16], TaskId(2)));
        assert_eq!(ids(&keys, 2..6), [Some(2), None, Some(2), Some(2)]);
    }

    #[test]
    fn a_key_that_was_not_accepted_is_the_last_to_be_forgotten_once_it_is_merged_again() {
        let mut keys = Keys::new(2);
        keys.remember([1; 16], TaskId(1));
        keys.merged([2; 16], TaskId(1));
        keys.forget(vec![(TaskId(1), Some([1; 16]))]);
        keys.remember([1; 16], TaskId(2));
        [3, 2].into_iter().for_each(|byte| keys.merged([byte; 16], TaskId(2)));
        assert_eq!(ids(&keys, 1..4), [Some(2), Some(2), Some(2)]);
        keys.merged([4; 16], TaskId(2));
        assert_eq!(ids(&keys, 1..5), [Some(2), Some(2), None, Some(2)]);
    }
}
