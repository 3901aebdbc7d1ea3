//! The Assembly Manifest: which entities were taken apart into which children, and which parents are complete (sections
//! 9.2 and 9.5).
//!
//! ```text
//!            open ──► entry ──add_child, complete_child──► entry ──seal──► in the heap, by unresolved children
//!   orphans ──┘         │                                                    │ complete_child: decrease-key
//!                       └── remove, or expired after max_age ◄───────────────┤
//!                                                                            └─ 0 left: pop_resolved
//! ```
//!
//! Completions are idempotent and may arrive in any order: before the child was added, before the entry was sealed, and
//! even before the entry was opened, which makes them orphans. Only sealed entries are in the heap, so a key there can
//! only decrease. An entry leaves the manifest when [`Manifest::pop_resolved`] returns it.
//!
//! The entry's policy decides its outcome; without one it is STRICT, the only policy below layer 2 (decision 11).
//! Entries expire in the order in which they were opened, so a list in that order suffices for timeouts.

mod children;
mod orphans;
mod state;
#[cfg(test)]
mod tests;
mod types;

use std::time::Instant;

use penstock_wire::FastMap;
use serde::{Deserialize, Serialize};

use crate::entity_id::is_assignable;
use crate::error::{Error, LimitError, Misuse, Result, Violation};
use crate::heap::{FibonacciHeap, Handle};
use crate::policy::Policy;
use crate::status::Status;
use crate::stored::written_as;
use crate::time::Now;

use self::children::{Change, Children, is_terminal};
use self::orphans::Orphans;
pub use self::state::ResolutionState;
pub use self::types::{AssemblyManifestEntry, Completion, EntryKey, ManifestCounters, ManifestLimits, Resolution};

/// The slot number that stands for no entry.
const NIL: u32 = u32::MAX;

/// The heap's key: entries with the fewest unresolved children come first, then the oldest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HeapOrder {
    unresolved: u32,
    opened: u64,
}

#[derive(Debug, Clone)]
struct Entry {
    key: EntryKey,
    /// The entry's number, in the order in which entries were opened.
    opened: u64,
    created: Instant,
    created_at: u64,
    children: Children,
    unresolved: u32,
    /// The entry's handle in the heap, once the entry is sealed.
    sealed: Option<Handle>,
    /// The policy for the children; `None` means STRICT.
    policy: Option<Box<Policy>>,
    /// The entries opened before and after this one.
    older: u32,
    newer: u32,
}

impl Entry {
    fn order(&self) -> HeapOrder {
        HeapOrder { unresolved: self.unresolved, opened: self.opened }
    }

    fn resolution(&self) -> Resolution {
        let (mut succeeded, mut failed, mut deferred) = (0, 0, 0);
        for (_, status) in self.children.iter() {
            match status {
                Some(Status::Complete) => succeeded += 1,
                Some(Status::Failed | Status::Abandoned) => failed += 1,
                Some(Status::Deferred) => deferred += 1,
                _ => {}
            }
        }
        let children = self.children.len() as u64;
        let state = self.policy.as_deref().unwrap_or(&Policy::STRICT).outcome(children, succeeded);
        Resolution { key: self.key, state, children, succeeded, failed, deferred }
    }

    fn state(&self) -> ResolutionState {
        match self.sealed {
            Some(_) if self.unresolved == 0 => self.resolution().state,
            _ => ResolutionState::Active,
        }
    }
}

/// The manifest of one endpoint; see the module's documentation.
#[derive(Debug, Clone)]
pub struct Manifest {
    limits: ManifestLimits,
    by_key: FastMap<EntryKey, u32>,
    slots: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Both ends of the list of entries in the order in which they were opened.
    oldest: u32,
    newest: u32,
    /// Sealed entries by their number of unresolved children, and with equal numbers in the order
    /// in which they were opened.
    heap: FibonacciHeap<HeapOrder, u32>,
    /// The number of the next entry.
    next_order: u64,
    orphans: Orphans,
    counters: ManifestCounters,
}

impl Default for Manifest {
    fn default() -> Self {
        Self::new(ManifestLimits::default())
    }
}

impl Manifest {
    /// Make an empty manifest.
    pub fn new(limits: ManifestLimits) -> Self {
        Self {
            limits,
            by_key: FastMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            oldest: NIL,
            newest: NIL,
            heap: FibonacciHeap::new(),
            next_order: 0,
            orphans: Orphans::default(),
            counters: ManifestCounters::default(),
        }
    }

    /// Open the entry of a parent and apply the completions that arrived before it. WINDOW_EXCEEDED at `max_entries`; a
    /// misuse if it is already open.
    pub fn open(&mut self, now: Now, key: EntryKey) -> Result<()> {
        if self.by_key.contains_key(&key) {
            return Err(misuse(key, key.entity, Misuse::EntryTwice));
        }
        if self.by_key.len() >= self.limits.max_entries.min(NIL as usize) {
            self.counters.entries_refused += 1;
            let limit = LimitError::ManifestEntries { count: self.by_key.len() };
            return Err(Error::from(limit).at(u32::from(key.scope), key.entity));
        }
        let mut children = Children::new();
        for (child, status) in self.orphans.adopt(key) {
            children.set(child, Some(status))?;
            self.counters.orphans_adopted += 1;
        }
        self.link(Entry {
            key,
            opened: self.next_order,
            created: now.instant,
            created_at: now.unix_micros,
            children,
            unresolved: 0,
            sealed: None,
            policy: None,
            older: self.newest,
            newer: NIL,
        });
        self.counters.opened += 1;
        Ok(())
    }

    /// Add a child, or record a known one's status. This is idempotent, and a terminal status is kept. A new child of a
    /// sealed entry is a misuse.
    pub fn add_child(&mut self, key: EntryKey, child: u32, status: Option<Status>) -> Result<()> {
        let slot = self.slot(key);
        let entry = entry_mut(&mut self.slots, slot).ok_or_else(|| no_entry(key))?;
        if entry.sealed.is_some() && !entry.children.contains(child) {
            return Err(misuse(key, child, Misuse::EntrySealed));
        }
        match entry.children.set(child, status)? {
            Change::Added if !is_terminal(status) => entry.unresolved += 1,
            Change::Completed => return complete_one(entry, &mut self.heap),
            Change::Added | Change::Nothing => {}
        }
        Ok(())
    }

    /// Record a child's terminal status; the first one is kept. If the parent has no entry, the
    /// status is kept for `orphan_age`. An unknown child is added to an unsealed entry; with a
    /// sealed entry it is ENTITY_INVALID.
    pub fn complete_child(&mut self, now: Now, key: EntryKey, child: u32, status: Status) -> Result<Completion> {
        if !status.is_terminal() {
            return Err(misuse(key, child, Misuse::ChildStatus(status)));
        }
        let slot = self.slot(key);
        let Some(entry) = entry_mut(&mut self.slots, slot) else {
            return self.keep_orphan(now, key, child, status);
        };
        if entry.sealed.is_some() && !entry.children.contains(child) {
            self.counters.unknown_children_refused += 1;
            let violation = Violation::NoSuchChild { parent: key.entity };
            return Err(Error::from(violation).at(u32::from(key.scope), child));
        }
        match entry.children.set(child, Some(status))? {
            Change::Added => Ok(Completion::Applied),
            Change::Completed => complete_one(entry, &mut self.heap).map(|()| Completion::Applied),
            Change::Nothing => {
                self.counters.repeated += 1;
                Ok(Completion::Repeated)
            }
        }
    }

    /// Record that the entry has all its children. From now on the entry is resolved once all of
    /// them are terminal; without children, it is resolved immediately. Sealing again changes
    /// nothing.
    pub fn seal(&mut self, key: EntryKey) -> Result<()> {
        let slot = self.slot(key).ok_or_else(|| no_entry(key))?;
        let entry = entry_mut(&mut self.slots, Some(slot)).ok_or_else(|| no_entry(key))?;
        if entry.sealed.is_none() {
            entry.sealed = Some(self.heap.insert(entry.order(), slot)?);
        }
        Ok(())
    }

    /// Set the policy for the children of an entry, if the entry exists (layer 2). The default is
    /// STRICT.
    pub fn set_policy(&mut self, key: EntryKey, policy: Policy) {
        let slot = self.slot(key);
        if let Some(entry) = entry_mut(&mut self.slots, slot) {
            entry.policy = Some(Box::new(policy));
        }
    }

    /// Remove and return an entry all of whose children are terminal, if there is one.
    pub fn pop_resolved(&mut self) -> Option<Resolution> {
        let (order, slot) = self.heap.peek_min()?;
        if order.unresolved > 0 {
            return None;
        }
        let entry = self.unlink(slot)?;
        self.counters.resolved += 1;
        Some(entry.resolution())
    }

    /// Remove an entry, resolved or not, and return whether there was one.
    pub fn remove(&mut self, key: EntryKey) -> bool {
        let found = self.slot(key).and_then(|slot| self.unlink(slot)).is_some();
        self.counters.removed += u64::from(found);
        found
    }

    /// Return whether the parent has an entry.
    pub fn contains(&self, key: EntryKey) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Return how many entries are open.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Return whether no entry is open.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Return how many completions wait for their parent's entry.
    pub fn orphan_count(&self) -> usize {
        self.orphans.len()
    }

    /// Return the children of an entry in the order of their IDs, each with its latest status;
    /// without an entry there are none.
    pub fn children(&self, key: EntryKey) -> impl Iterator<Item = (u32, Option<Status>)> + '_ {
        self.lookup(key).into_iter().flat_map(|entry| entry.children.iter())
    }

    /// Return how many children of the entry are not terminal; 0 without an entry.
    pub fn unresolved_count(&self, key: EntryKey) -> usize {
        self.lookup(key).map_or(0, |entry| entry.unresolved as usize)
    }

    /// Return the entry as section 9.2 describes it.
    pub fn entry(&self, key: EntryKey) -> Option<AssemblyManifestEntry> {
        self.lookup(key).map(|entry| AssemblyManifestEntry {
            parent_id: key.entity,
            scope_id: u32::from(key.scope),
            children: entry.children.iter().collect(),
            created_at: entry.created_at,
            state: entry.state(),
            policy: entry.policy.as_deref().copied(),
        })
    }

    /// Return the counters.
    pub fn counters(&self) -> ManifestCounters {
        self.counters
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let entry = self.entry_at(self.oldest).and_then(|oldest| oldest.created.checked_add(self.limits.max_age));
        let orphan = self.orphans.oldest().and_then(|kept| kept.checked_add(self.limits.orphan_age));
        entry.into_iter().chain(orphan).min()
    }

    /// Drop orphans that have waited too long, and remove and return the entries that were open too long, the oldest
    /// first.
    pub fn handle_timeout(&mut self, now: Now) -> Vec<EntryKey> {
        self.counters.orphans_dropped += self.orphans.expire(now.instant, self.limits.orphan_age);
        let mut expired = Vec::new();
        while let Some(oldest) = self.entry_at(self.oldest) {
            if now.instant.saturating_duration_since(oldest.created) < self.limits.max_age {
                break;
            }
            expired.push(oldest.key);
            self.unlink(self.oldest);
        }
        self.counters.expired += expired.len() as u64;
        expired
    }

    /// Return the same manifest with other limits.
    pub(crate) fn with_limits(self, limits: ManifestLimits) -> Self {
        Self { limits, ..self }
    }

    fn keep_orphan(&mut self, now: Now, key: EntryKey, child: u32, status: Status) -> Result<Completion> {
        if !is_assignable(child) {
            return Err(misuse(key, child, Misuse::ReservedOrphan));
        }
        if self.orphans.contains(key, child) {
            self.counters.repeated += 1;
            return Ok(Completion::Repeated);
        }
        if self.orphans.len() >= self.limits.max_orphans {
            self.counters.orphans_refused += 1;
            let limit = LimitError::Orphans { count: self.orphans.len() };
            return Err(Error::from(limit).at(u32::from(key.scope), child));
        }
        self.orphans.keep(key, child, status, now.instant);
        self.counters.orphans_kept += 1;
        Ok(Completion::Orphaned)
    }

    fn slot(&self, key: EntryKey) -> Option<u32> {
        self.by_key.get(&key).copied()
    }

    fn lookup(&self, key: EntryKey) -> Option<&Entry> {
        self.entry_at(self.slot(key)?)
    }

    fn entry_at(&self, slot: u32) -> Option<&Entry> {
        self.slots.get(slot as usize)?.as_ref()
    }

    /// Put an entry into a slot and at the end of the list; `open` has ensured that there are fewer
    /// than `NIL` entries.
    fn link(&mut self, entry: Entry) {
        let (key, older) = (entry.key, entry.older);
        self.next_order += 1;
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = Some(entry),
            None => self.slots.push(Some(entry)),
        }
        match entry_mut(&mut self.slots, Some(older)) {
            Some(older) => older.newer = slot,
            None => self.oldest = slot,
        }
        self.newest = slot;
        self.by_key.insert(key, slot);
    }

    /// Remove an entry from its slot, the list, the index and the heap.
    fn unlink(&mut self, slot: u32) -> Option<Entry> {
        let entry = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        match entry_mut(&mut self.slots, Some(entry.older)) {
            Some(older) => older.newer = entry.newer,
            None => self.oldest = entry.newer,
        }
        match entry_mut(&mut self.slots, Some(entry.newer)) {
            Some(newer) => newer.older = entry.older,
            None => self.newest = entry.older,
        }
        self.by_key.remove(&entry.key);
        if let Some(handle) = entry.sealed {
            self.heap.remove(handle);
        }
        Some(entry)
    }
}

/// The stored form of an entry.
#[derive(Serialize, Deserialize)]
struct StoredEntry<C, P> {
    key: EntryKey,
    #[serde(with = "crate::stored::moment")]
    created: Instant,
    created_at: u64,
    children: C,
    unresolved: u32,
    sealed: bool,
    policy: P,
}

type StoredManifest = (ManifestCounters, Orphans, Vec<StoredEntry<Children, Option<Box<Policy>>>>);

/// The stored form: the entries, the oldest first. The limits come from the configuration.
impl Manifest {
    fn stored(&self) -> impl Serialize {
        let oldest = self.entry_at(self.oldest);
        let entries = std::iter::successors(oldest, |entry| self.entry_at(entry.newer)).map(|entry| StoredEntry {
            key: entry.key,
            created: entry.created,
            created_at: entry.created_at,
            children: &entry.children,
            unresolved: entry.unresolved,
            sealed: entry.sealed.is_some(),
            policy: &entry.policy,
        });
        (&self.counters, &self.orphans, entries.collect::<Vec<_>>())
    }

    fn restored((counters, orphans, entries): StoredManifest) -> Result<Self> {
        let mut manifest = Self { counters, orphans, ..Self::default() };
        for StoredEntry { key, created, created_at, children, unresolved, sealed, policy } in entries {
            manifest.link(Entry {
                key,
                opened: manifest.next_order,
                created,
                created_at,
                children,
                unresolved,
                sealed: None,
                policy,
                older: manifest.newest,
                newer: NIL,
            });
            if sealed {
                manifest.seal(key)?;
            }
        }
        Ok(manifest)
    }
}

written_as! {
    Manifest as StoredManifest: Self::stored, Self::restored;
}

/// Borrow only the slots, so that the heap and the counters stay usable.
fn entry_mut(slots: &mut [Option<Entry>], slot: Option<u32>) -> Option<&mut Entry> {
    slots.get_mut(slot? as usize)?.as_mut()
}

/// Decrease the number of unresolved children by one.
fn complete_one(entry: &mut Entry, heap: &mut FibonacciHeap<HeapOrder, u32>) -> Result<()> {
    entry.unresolved = entry.unresolved.saturating_sub(1);
    match entry.sealed {
        Some(handle) => heap.decrease_key(handle, entry.order()),
        None => Ok(()),
    }
}

fn misuse(key: EntryKey, entity: u32, misuse: Misuse) -> Error {
    Error::from(misuse).at(u32::from(key.scope), entity)
}

fn no_entry(key: EntryKey) -> Error {
    misuse(key, key.entity, Misuse::NoEntry)
}
