//! Entity IDs: circular order, assignment, cursor and window (section 9.1, decisions 8 and 13).
//!
//! IDs run from 1 to 0xFFFFFFFC and then from 1 again. 0 and all values from 0xFFFFFFFD up are never assigned. Two
//! measures are needed, which differ by one across the wrap:
//!
//! - [`distance`] is the specification's `(to - from) mod 0xFFFFFFFD`, which counts the unassignable 0 too; the
//!   window, the cursor check and [`is_before`] are defined by it;
//! - [`ordinal_distance`] counts assignable IDs only: how many steps of [`next_id`] lead from one to the other.
//!
//! This module does not know statuses or scopes: a scope owns one [`EntityIdSpace`].

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::error::{Misuse, Result, Violation};

/// All arithmetic on entity IDs is modulo this number (section 9.1).
pub const MODULUS: u32 = 0xFFFF_FFFD;
/// The ID that names no entity: "no parent", "all assigned so far".
const NULL_ENTITY: u32 = 0;
/// The reserved ID of the connection, as in a heartbeat.
pub const CONNECTION_LEVEL: u32 = 0xFFFF_FFFF;
/// The largest window: circular order holds only below half of the modulus (decision 1).
pub const MAX_WINDOW: u32 = 2_147_483_646;

/// How many IDs are assignable before they start over.
const ASSIGNABLE: u64 = MODULUS as u64 - 1;
/// IDs in one word of the set of resolved IDs.
const WORD_BITS: u32 = u64::BITS;

/// Return whether the ID can name an entity: neither reserved nor skipped by the modulus.
pub const fn is_assignable(id: u32) -> bool {
    id != NULL_ENTITY && id < MODULUS
}

/// Return the ID after `last` (rules 1 and 2 of section 9.1).
pub const fn next_id(last: u32) -> u32 {
    match (last as u64 + 1) % MODULUS as u64 {
        0 => 1,
        next => next as u32,
    }
}

/// Return `(to - from) mod 0xFFFFFFFD`, the measure of window and cursor.
pub const fn distance(from: u32, to: u32) -> u32 {
    let modulus = MODULUS as u64;
    ((to as u64 % modulus + modulus - from as u64 % modulus) % modulus) as u32
}

/// Return how many steps of [`next_id`] lead from `from` to `to`, both of which are assignable.
pub const fn ordinal_distance(from: u32, to: u32) -> u32 {
    ((to as u64 % ASSIGNABLE + ASSIGNABLE - from as u64 % ASSIGNABLE) % ASSIGNABLE) as u32
}

/// Return whether `a` comes before `b` or equals it: the formula of section 9.3, in 64 bits and inclusive (decision
/// 13).
pub const fn is_before(a: u32, b: u32) -> bool {
    2 * (distance(a, b) as u64) < MODULUS as u64
}

/// Return whether a peer may send `value` as its cursor, if ours is `cursor` and the next unassigned ID is `next`: an
/// ID neither before the cursor nor after the next one (decision 8). Reserved IDs are excluded explicitly, because
/// their distances are those of valid ones.
pub(crate) const fn is_cursor(value: u32, cursor: u32, next: u32) -> bool {
    is_assignable(value) && distance(cursor, value) <= distance(cursor, next)
}

/// Return the ID that `steps` steps of [`next_id`] lead to.
pub(crate) const fn id_after(id: u32, steps: u32) -> u32 {
    ((id as u64 + ASSIGNABLE - 1 + steps as u64) % ASSIGNABLE) as u32 + 1
}

/// The IDs of one scope: the next ID to assign, the resolved ones, and the cursor.
///
/// The owner of the scope assigns from it. The receiver keeps one too and assigns whenever a PENDING names
/// [`next_id`](Self::next_id). The memory is one bit for each ID from the cursor to the last assigned one.
///
/// ```text
///   recyclable      │ in flight: cursor ..= last assigned │ free
///   behind the cursor │  resolved or not, one bit each      │ back-pressure where distance reaches the window
/// ```
#[derive(Debug, Clone)]
pub struct EntityIdSpace {
    max_window: u32,
    last_assigned: u32,
    cursor: u32,
    in_flight: u32,
    /// A bit for each ID in flight, set once it is resolved; the cursor's is bit `head` of the first word.
    resolved: VecDeque<u64>,
    head: u32,
}

impl EntityIdSpace {
    /// Make a space without assigned IDs. A window above [`MAX_WINDOW`] is reduced to it.
    pub fn new(max_window: u32) -> Self {
        Self {
            max_window: max_window.min(MAX_WINDOW),
            last_assigned: 0,
            cursor: 1,
            in_flight: 0,
            resolved: VecDeque::new(),
            head: 0,
        }
    }

    /// Make a space that is in use: every ID from `cursor` to `last_assigned` is in flight and unresolved.
    pub fn with_start(max_window: u32, last_assigned: u32, cursor: u32) -> Result<Self> {
        let mut space = Self::new(max_window);
        if !is_assignable(cursor) || !(last_assigned == 0 || is_assignable(last_assigned)) {
            return Err(Misuse::CursorStart { cursor, last: last_assigned }.into());
        }
        let next = next_id(last_assigned);
        // This checks the distance to the last ID, not to the next one, because a full window is a
        // valid start.
        if next != cursor && distance(cursor, last_assigned) >= space.max_window {
            return Err(Misuse::WindowStart { cursor, last: last_assigned, window: max_window }.into());
        }
        space.in_flight = ordinal_distance(cursor, next);
        space.resolved.resize(space.in_flight.div_ceil(WORD_BITS) as usize, 0);
        (space.last_assigned, space.cursor) = (last_assigned, cursor);
        Ok(space)
    }

    /// Take the next ID, or `None` for back-pressure (rules 1 to 3).
    pub fn assign(&mut self) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        if ((self.head + self.in_flight) / WORD_BITS) as usize >= self.resolved.len() {
            self.resolved.push_back(0);
        }
        self.last_assigned = self.next_id();
        self.in_flight += 1;
        Some(self.last_assigned)
    }

    /// Mark an ID as resolved and return whether the cursor moved (rule 4). An ID that is not in flight, or is already
    /// resolved, changes nothing.
    pub fn resolve(&mut self, id: u32) -> bool {
        let Some((word, bit)) = self.place(id) else { return false };
        let Some(word) = self.resolved.get_mut(word) else { return false };
        *word |= bit;
        self.settle()
    }

    /// Return whether the ID is assigned and not resolved.
    pub fn is_unresolved(&self, id: u32) -> bool {
        self.place(id).and_then(|(word, bit)| self.resolved.get(word).map(|word| word & bit == 0)).unwrap_or(false)
    }

    /// Check that a peer may send `value` as this space's cursor.
    fn check_cursor(&self, value: u32) -> Result<()> {
        if is_cursor(value, self.cursor, self.next_id()) {
            return Ok(());
        }
        Err(Violation::CursorRange { cursor: value, first: self.cursor, next: self.next_id() }.into())
    }

    /// Move the cursor to the peer's, which resolves every ID before that, and return whether the
    /// cursor moved.
    pub fn advance_to(&mut self, value: u32) -> Result<bool> {
        self.check_cursor(value)?;
        let steps = ordinal_distance(self.cursor, value);
        self.move_cursor(steps);
        Ok(self.settle() || steps > 0)
    }

    /// Return the lowest unresolved ID or, if there is none, the next unassigned one.
    pub fn cursor(&self) -> u32 {
        self.cursor
    }

    /// Return the ID assigned last; 0 at the start.
    pub fn last_assigned(&self) -> u32 {
        self.last_assigned
    }

    /// Return the ID that would be assigned next if the window allowed it.
    pub fn next_id(&self) -> u32 {
        next_id(self.last_assigned)
    }

    /// Return how many IDs lie from the cursor to the last assigned one, including resolved ones between them.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Return the size of the window.
    pub fn max_window(&self) -> u32 {
        self.max_window
    }

    /// Return whether the window allows no further ID (rule 3).
    pub fn is_full(&self) -> bool {
        distance(self.cursor, self.next_id()) >= self.max_window
    }

    /// Return the word and the bit of an ID in flight.
    fn place(&self, id: u32) -> Option<(usize, u64)> {
        let ordinal = ordinal_distance(self.cursor, id);
        if !is_assignable(id) || ordinal >= self.in_flight {
            return None;
        }
        let bit = self.head + ordinal;
        Some(((bit / WORD_BITS) as usize, 1 << (bit % WORD_BITS)))
    }

    /// Move the cursor past resolved IDs, a word at a time.
    fn settle(&mut self) -> bool {
        let before = self.cursor;
        while let Some(word) = self.resolved.front() {
            // Bits beyond the last assigned ID are never set, so this cannot overrun.
            let steps = (word >> self.head).trailing_ones();
            if steps == 0 {
                break;
            }
            self.move_cursor(steps);
        }
        self.cursor != before
    }

    fn move_cursor(&mut self, steps: u32) {
        let bits = self.head + steps;
        let words = ((bits / WORD_BITS) as usize).min(self.resolved.len());
        self.resolved.drain(..words);
        self.head = bits % WORD_BITS;
        self.in_flight -= steps;
        self.cursor = id_after(self.cursor, steps);
    }
}
