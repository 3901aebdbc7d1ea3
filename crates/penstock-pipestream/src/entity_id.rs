//! Entity IDs: circular order, assignment, cursor and window (section 9.1, decisions 8 and 13).
//!
//! IDs run from 1 to 0xFFFFFFFC and then from 1 again. 0 and everything from 0xFFFFFFFD up is never assigned.
//! Two measures are needed, and they differ by one across the wrap:
//!
//! - [`distance`] is the specification's `(to - from) mod 0xFFFFFFFD`, which counts the unassignable 0 too; the
//!   window, the cursor check and [`is_before`] are defined by it;
//! - [`ordinal_distance`] counts assignable IDs only: how many steps of [`next_id`] lead from one to the other.
//!
//! Nothing here knows statuses or scopes: a scope owns one [`EntityIdSpace`].

use std::collections::VecDeque;

use crate::error::{Error, ErrorCode, Result};

/// All arithmetic on entity IDs is modulo this number (section 9.1).
pub const MODULUS: u32 = 0xFFFF_FFFD;
/// Names no entity: "no parent", "all assigned so far".
pub const NULL_ENTITY: u32 = 0;
/// Reserved: stands for a scope as a whole.
pub const SCOPE_MARKER: u32 = 0xFFFF_FFFE;
/// Reserved: stands for the connection, as in a heartbeat.
pub const CONNECTION_LEVEL: u32 = 0xFFFF_FFFF;
/// The largest window: circular order holds only below half of the modulus (decision 1).
pub const MAX_WINDOW: u32 = 2_147_483_646;

/// How many IDs are assignable before they start over.
const ASSIGNABLE: u64 = MODULUS as u64 - 1;
/// IDs in one word of the set of resolved IDs.
const WORD_BITS: u32 = u64::BITS;

/// Whether the ID can name an entity: neither reserved nor skipped by the modulus.
pub const fn is_assignable(id: u32) -> bool {
    id != NULL_ENTITY && id < MODULUS
}

/// The ID after `last` (rules 1 and 2 of section 9.1).
pub const fn next_id(last: u32) -> u32 {
    match (last as u64 + 1) % MODULUS as u64 {
        0 => 1,
        next => next as u32,
    }
}

/// `(to - from) mod 0xFFFFFFFD`, the measure of window and cursor.
pub const fn distance(from: u32, to: u32) -> u32 {
    let modulus = MODULUS as u64;
    ((to as u64 % modulus + modulus - from as u64 % modulus) % modulus) as u32
}

/// How many steps of [`next_id`] lead from `from` to `to`, both of them assignable.
pub const fn ordinal_distance(from: u32, to: u32) -> u32 {
    ((to as u64 % ASSIGNABLE + ASSIGNABLE - from as u64 % ASSIGNABLE) % ASSIGNABLE) as u32
}

/// Whether `a` comes before `b` or is `b`: the formula of section 9.3, in 64 bits and inclusive (decision 13).
pub const fn is_before(a: u32, b: u32) -> bool {
    2 * (distance(a, b) as u64) < MODULUS as u64
}

/// The ID that `steps` steps of [`next_id`] lead to.
pub(crate) const fn id_after(id: u32, steps: u32) -> u32 {
    ((id as u64 + ASSIGNABLE - 1 + steps as u64) % ASSIGNABLE) as u32 + 1
}

/// The IDs of one scope: which is assigned next, which are resolved, where the cursor stands.
///
/// The owner of the scope assigns from it; the receiver keeps one too and assigns whenever a PENDING names
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
    /// A bit for each ID in flight, set when it is resolved; the cursor's is bit `head` of the first word.
    resolved: VecDeque<u64>,
    head: u32,
}

impl EntityIdSpace {
    /// A space where nothing was assigned yet. A window above [`MAX_WINDOW`] is that.
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

    /// A space in the midst of its life: every ID from `cursor` to `last_assigned` is in flight and unresolved.
    pub fn with_start(max_window: u32, last_assigned: u32, cursor: u32) -> Result<Self> {
        let mut space = Self::new(max_window);
        if !is_assignable(cursor) || !(last_assigned == 0 || is_assignable(last_assigned)) {
            return Err(Error::misuse(format!("cursor {cursor} or last ID {last_assigned} is not assignable")));
        }
        let next = next_id(last_assigned);
        // The distance to the last ID, not to the next one: a full window is a legal start.
        if next != cursor && distance(cursor, last_assigned) >= space.max_window {
            return Err(Error::misuse(format!(
                "cursor {cursor} and last ID {last_assigned} are further apart than the window {max_window}"
            )));
        }
        space.in_flight = ordinal_distance(cursor, next);
        space.resolved.resize(space.in_flight.div_ceil(WORD_BITS) as usize, 0);
        (space.last_assigned, space.cursor) = (last_assigned, cursor);
        Ok(space)
    }

    /// Takes the next ID, or `None` for back-pressure (rules 1 to 3).
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

    /// Marks an ID resolved and says whether the cursor moved (rule 4). An ID that is not in flight, or resolved
    /// already, changes nothing.
    pub fn resolve(&mut self, id: u32) -> bool {
        let Some((word, bit)) = self.place(id) else { return false };
        let Some(word) = self.resolved.get_mut(word) else { return false };
        *word |= bit;
        self.settle()
    }

    /// Whether the ID is assigned and not resolved.
    pub fn is_unresolved(&self, id: u32) -> bool {
        self.place(id).and_then(|(word, bit)| self.resolved.get(word).map(|word| word & bit == 0)).unwrap_or(false)
    }

    /// Whether a peer may name `value` as this space's cursor: neither behind the cursor nor beyond the next
    /// unassigned ID (decision 8).
    pub fn check_cursor(&self, value: u32) -> Result<()> {
        if is_assignable(value) && distance(self.cursor, value) <= distance(self.cursor, self.next_id()) {
            return Ok(());
        }
        Err(Error::violation(
            ErrorCode::EntityInvalid,
            format!("cursor {value} is not within {} to {}", self.cursor, self.next_id()),
        ))
    }

    /// Moves the cursor to where the peer says it is, which resolves every ID before it, and says whether it moved.
    pub fn advance_to(&mut self, value: u32) -> Result<bool> {
        self.check_cursor(value)?;
        let steps = ordinal_distance(self.cursor, value);
        self.move_cursor(steps);
        Ok(self.settle() || steps > 0)
    }

    /// The lowest unresolved ID or, if there is none, the next unassigned one.
    pub fn cursor(&self) -> u32 {
        self.cursor
    }

    /// The ID assigned last; 0 at the start.
    pub fn last_assigned(&self) -> u32 {
        self.last_assigned
    }

    /// The ID that would be assigned next if the window allowed it.
    pub fn next_id(&self) -> u32 {
        next_id(self.last_assigned)
    }

    /// How many IDs lie from the cursor to the last assigned one, resolved ones between them included.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The window as it is kept.
    pub fn max_window(&self) -> u32 {
        self.max_window
    }

    /// Whether the window allows no further ID (rule 3).
    pub fn is_full(&self) -> bool {
        distance(self.cursor, self.next_id()) >= self.max_window
    }

    /// Where the bit of an ID in flight is.
    fn place(&self, id: u32) -> Option<(usize, u64)> {
        let ordinal = ordinal_distance(self.cursor, id);
        if !is_assignable(id) || ordinal >= self.in_flight {
            return None;
        }
        let bit = self.head + ordinal;
        Some(((bit / WORD_BITS) as usize, 1 << (bit % WORD_BITS)))
    }

    /// Moves the cursor over what is resolved, a word at a time.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LAST: u32 = MODULUS - 1;

    #[test]
    fn after_the_last_assignable_id_comes_one() {
        assert_eq!((next_id(0), next_id(1), next_id(LAST - 1), next_id(LAST)), (1, 2, LAST, 1));
        assert_eq!(LAST, 0xFFFF_FFFC);
        assert!(!is_assignable(NULL_ENTITY) && is_assignable(1) && is_assignable(LAST));
        assert!(!is_assignable(MODULUS) && !is_assignable(SCOPE_MARKER) && !is_assignable(CONNECTION_LEVEL));
    }

    #[test]
    fn distance_counts_zero_across_the_wrap_and_ordinal_distance_does_not() {
        assert_eq!((distance(LAST, 1), ordinal_distance(LAST, 1)), (2, 1));
        assert_eq!((distance(5, 9), ordinal_distance(5, 9)), (4, 4));
        assert_eq!((distance(1, LAST), ordinal_distance(1, LAST)), (MODULUS - 2, LAST - 1));
    }

    #[test]
    fn is_before_is_inclusive_and_holds_for_half_the_circle() {
        assert!(is_before(7, 7) && is_before(7, 8) && !is_before(8, 7));
        assert!(is_before(LAST, 1) && !is_before(1, LAST));
        // 2 * d < MAX in 64 bits: the last ID that counts as after 1 is 1 + (MAX - 1) / 2.
        assert!(is_before(1, 1 + (MODULUS - 1) / 2) && !is_before(1, 2 + (MODULUS - 1) / 2));
    }

    #[test]
    fn the_window_stops_assignment_until_the_cursor_moves() {
        let mut space = EntityIdSpace::new(2);
        assert_eq!((space.assign(), space.assign(), space.assign()), (Some(1), Some(2), None));
        assert!(!space.resolve(2), "1 is still unresolved");
        assert_eq!((space.in_flight(), space.is_full()), (2, true));
        assert!(space.resolve(1));
        assert_eq!((space.cursor(), space.in_flight(), space.assign()), (3, 0, Some(3)));
    }

    #[test]
    fn a_window_of_one_goes_on_across_the_wrap() {
        let mut space = EntityIdSpace::with_start(1, LAST - 1, LAST).expect("nothing in flight");
        assert_eq!((space.assign(), space.assign()), (Some(LAST), None));
        assert!(space.resolve(LAST));
        assert_eq!((space.cursor(), space.assign()), (1, Some(1)));
    }

    #[test]
    fn what_is_not_in_flight_cannot_be_resolved() {
        let mut space = EntityIdSpace::new(10);
        for id in [0, 1, LAST, MODULUS, SCOPE_MARKER, CONNECTION_LEVEL] {
            assert!(!space.resolve(id) && !space.is_unresolved(id));
        }
        assert_eq!(space.assign(), Some(1));
        assert!(space.is_unresolved(1) && space.resolve(1) && !space.resolve(1) && !space.is_unresolved(1));
    }

    #[test]
    fn a_cursor_behind_ours_or_beyond_the_next_id_is_entity_invalid() {
        let mut space = EntityIdSpace::with_start(100, 2, LAST).expect("LAST, 1 and 2 in flight");
        assert_eq!(space.in_flight(), 3);
        for value in [LAST - 1, 4, 0, MODULUS, SCOPE_MARKER, CONNECTION_LEVEL] {
            assert_eq!(space.advance_to(value).expect_err("refused").code(), ErrorCode::EntityInvalid, "{value}");
        }
        assert_eq!(space.advance_to(LAST), Ok(false));
        assert_eq!(space.advance_to(2), Ok(true));
        assert!(!space.is_unresolved(1) && space.is_unresolved(2));
        assert_eq!(space.advance_to(3), Ok(true));
        assert_eq!((space.cursor(), space.in_flight()), (3, 0));
    }

    #[test]
    fn the_cursor_passes_what_was_resolved_beyond_the_place_that_it_is_moved_to() {
        let mut space = EntityIdSpace::with_start(100, 4, 1).expect("1 to 4 in flight");
        assert!(!space.resolve(3));
        assert_eq!(space.advance_to(3), Ok(true));
        assert_eq!(space.cursor(), 4);
    }

    #[test]
    fn an_impossible_start_is_refused() {
        for (window, last, cursor) in [(5, 10, 5), (5, 3, 0), (5, MODULUS, 1), (5, 3, MODULUS), (0, 1, 1)] {
            assert!(EntityIdSpace::with_start(window, last, cursor).is_err(), "{window} {last} {cursor}");
        }
        assert!(EntityIdSpace::with_start(5, 9, 5).expect("a full window").is_full());
        assert_eq!(EntityIdSpace::new(u32::MAX).max_window(), MAX_WINDOW);
    }

    #[derive(serde::Deserialize)]
    struct Vectors {
        next_id: Vec<NextVector>,
        pairs: Vec<PairVector>,
        spaces: Vec<SpaceVector>,
    }

    #[derive(serde::Deserialize)]
    struct NextVector {
        last: u32,
        next: u32,
    }

    #[derive(serde::Deserialize)]
    struct PairVector {
        from: u32,
        to: u32,
        distance: u32,
        ordinal_distance: u32,
        is_before: bool,
    }

    #[derive(serde::Deserialize)]
    struct SpaceVector {
        name: String,
        max_window: u32,
        last_assigned: u32,
        cursor: u32,
        steps: Vec<Step>,
    }

    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Step {
        /// `["assign", ID or null]` and `["cursor", ID]`.
        Value(String, Option<u32>),
        /// `["resolve", ID, moved]` and `["advance", ID, moved or null for refused]`.
        Moved(String, u32, Option<bool>),
    }

    #[test]
    fn every_vector_holds() {
        let text = include_str!("../../../tests/vectors/pipestream/entity_id.json");
        let vectors: Vectors = serde_json::from_str(text).expect("valid JSON");
        assert!(vectors.next_id.len() >= 5 && vectors.pairs.len() >= 10 && vectors.spaces.len() >= 5);
        for vector in vectors.next_id {
            assert_eq!(next_id(vector.last), vector.next);
        }
        for PairVector { from, to, distance: d, ordinal_distance: steps, is_before: before } in vectors.pairs {
            assert_eq!((distance(from, to), ordinal_distance(from, to)), (d, steps), "{from} {to}");
            assert_eq!(is_before(from, to), before, "{from} {to}");
        }
        for SpaceVector { name, max_window, last_assigned, cursor, steps } in vectors.spaces {
            let mut space = EntityIdSpace::with_start(max_window, last_assigned, cursor).expect(&name);
            for (index, step) in steps.into_iter().enumerate() {
                let place = format!("{name}, step {index}");
                match step {
                    Step::Value(verb, value) if verb == "assign" => assert_eq!(space.assign(), value, "{place}"),
                    Step::Value(_, value) => assert_eq!(Some(space.cursor()), value, "{place}"),
                    Step::Moved(verb, id, moved) if verb == "resolve" => {
                        assert_eq!(Some(space.resolve(id)), moved, "{place}");
                    }
                    Step::Moved(_, id, moved) => assert_eq!(space.advance_to(id).ok(), moved, "{place}"),
                }
            }
        }
    }

    /// The same rules on numbers that never wrap: the n-th ID assigned is number n.
    struct Model {
        base: u32,
        next: u128,
        cursor: u128,
        unresolved: BTreeSet<u128>,
    }

    impl Model {
        fn id(&self, number: u128) -> u32 {
            let ordinal = (u128::from(self.base) - 1 + number) % (u128::from(MODULUS) - 1);
            u32::try_from(ordinal + 1).expect("fits")
        }

        fn settle(&mut self) {
            self.cursor = self.unresolved.first().copied().unwrap_or(self.next);
        }
    }

    proptest! {
        #[test]
        fn a_space_does_what_plain_numbers_do(
            window in 3_u32..200,
            before_wrap in 0_u32..300,
            operations in prop::collection::vec((0_u8..4, 0_u32..260), 1..600),
        ) {
            let base = LAST - before_wrap;
            let mut space = EntityIdSpace::with_start(window, base - 1, base).expect("empty");
            let mut model = Model { base, next: 0, cursor: 0, unresolved: BTreeSet::new() };
            for (operation, pick) in operations {
                let before = model.cursor;
                let number = model.cursor + u128::from(pick);
                let id = model.id(number);
                match operation {
                    0 | 1 => {
                        let gap = i128::from(model.id(model.next)) - i128::from(space.cursor());
                        let full = gap.rem_euclid(i128::from(MODULUS)) >= i128::from(window);
                        let expected = (!full).then(|| model.id(model.next));
                        prop_assert_eq!(space.assign(), expected);
                        if !full {
                            model.unresolved.insert(model.next);
                            model.next += 1;
                        }
                    }
                    2 => {
                        model.unresolved.remove(&number);
                        model.settle();
                        prop_assert_eq!(space.resolve(id), model.cursor != before);
                    }
                    _ if number <= model.next => {
                        model.unresolved.retain(|other| *other >= number);
                        model.settle();
                        prop_assert_eq!(space.advance_to(id), Ok(model.cursor != before));
                    }
                    _ => prop_assert!(space.advance_to(id).is_err()),
                }
                prop_assert_eq!(space.cursor(), model.id(model.cursor));
                prop_assert_eq!(space.next_id(), model.id(model.next));
                prop_assert_eq!(u128::from(space.in_flight()), model.next - model.cursor);
                prop_assert_eq!(space.is_unresolved(id), model.unresolved.contains(&number));
            }
        }

        #[test]
        fn steps_of_next_id_are_what_ordinal_distance_counts(from in 1..MODULUS, steps in 0_u32..2000) {
            let mut to = from;
            for _ in 0..steps {
                to = next_id(to);
            }
            prop_assert_eq!(ordinal_distance(from, to), steps);
            prop_assert_eq!(id_after(from, steps), to);
            let difference = (i128::from(to) - i128::from(from)).rem_euclid(i128::from(MODULUS));
            prop_assert_eq!(i128::from(distance(from, to)), difference);
        }
    }
}
