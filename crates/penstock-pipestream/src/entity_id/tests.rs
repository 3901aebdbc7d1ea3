use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::error::ErrorCode;

/// The reserved ID of a scope as a whole.
const SCOPE_MARKER: u32 = 0xFFFF_FFFE;

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
    let text = include_str!("../../../../tests/vectors/pipestream/entity_id.json");
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

/// A model of the same rules on numbers that never wrap: the n-th ID assigned is number n.
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
