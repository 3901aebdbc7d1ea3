//! Completions that arrived before their parent's entry, kept for a while (section 9.5, the restored reference notes).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::EntryKey;
use crate::status::Status;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Orphan {
    status: Status,
    #[serde(with = "crate::stored::moment")]
    kept: Instant,
}

/// Orphans by parent and child, and the order in which they expire.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Orphans {
    by_parent: BTreeMap<(EntryKey, u32), Orphan>,
    /// When each orphan was kept. Entries of adopted orphans stay here for a while; an entry is
    /// live if its time is that of an orphan which is still kept.
    #[serde(with = "crate::stored::expiries")]
    expiry: VecDeque<(Instant, EntryKey, u32)>,
}

impl Orphans {
    pub(super) fn len(&self) -> usize {
        self.by_parent.len()
    }

    pub(super) fn contains(&self, parent: EntryKey, child: u32) -> bool {
        self.by_parent.contains_key(&(parent, child))
    }

    /// Keep an orphan. The caller ensures that the orphan is not kept yet, and that time does not
    /// run backwards.
    pub(super) fn keep(&mut self, parent: EntryKey, child: u32, status: Status, now: Instant) {
        self.by_parent.insert((parent, child), Orphan { status, kept: now });
        self.expiry.push_back((now, parent, child));
    }

    /// Remove and return the orphans of a parent whose entry was opened.
    pub(super) fn adopt(&mut self, parent: EntryKey) -> Vec<(u32, Status)> {
        let range = (parent, 0)..=(parent, u32::MAX);
        let adopted: Vec<_> = self.by_parent.range(range).map(|((_, child), orphan)| (*child, orphan.status)).collect();
        for (child, _) in &adopted {
            self.by_parent.remove(&(parent, *child));
        }
        if !adopted.is_empty() {
            self.trim();
        }
        adopted
    }

    /// Drop expired orphans and return how many there were.
    pub(super) fn expire(&mut self, now: Instant, age: Duration) -> u64 {
        let mut dropped = 0;
        while let Some((kept, parent, child)) = self.expiry.front().copied() {
            let live = self.is_live(kept, parent, child);
            if live && now.saturating_duration_since(kept) < age {
                break;
            }
            self.expiry.pop_front();
            if live {
                self.by_parent.remove(&(parent, child));
                dropped += 1;
            }
        }
        dropped
    }

    /// Return when the orphan that expires next was kept.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.expiry.front().map(|(kept, ..)| *kept)
    }

    /// Keep the front of the queue live, for [`Self::oldest`], and its length proportional to the
    /// number of orphans.
    fn trim(&mut self) {
        if self.expiry.len() > 2 * self.by_parent.len() + 16 {
            let mut expiry = std::mem::take(&mut self.expiry);
            expiry.retain(|(kept, parent, child)| self.is_live(*kept, *parent, *child));
            self.expiry = expiry;
        }
        while let Some((kept, parent, child)) = self.expiry.front().copied() {
            if self.is_live(kept, parent, child) {
                break;
            }
            self.expiry.pop_front();
        }
    }

    fn is_live(&self, kept: Instant, parent: EntryKey, child: u32) -> bool {
        self.by_parent.get(&(parent, child)).is_some_and(|orphan| orphan.kept == kept)
    }
}
