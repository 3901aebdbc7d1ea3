//! Attempts at an entity, and their number.

use super::resilience::{SECOND, policy};
use super::*;
use crate::Attempt;
use crate::messages::FailureAction;

/// Return, for each of our entities, how many attempts had failed when it ended, and how many were
/// made.
fn ends(events: &[Event], keys: &[EntityKey]) -> Vec<(u32, u32)> {
    let end = |key| {
        events.iter().find_map(|event| match event {
            Event::Resolved { key: ended, failures, attempts, owned: true, .. } if ended == key => {
                Some((*failures, *attempts))
            }
            _ => None,
        })
    };
    keys.iter().map(|key| end(key).expect("an end")).collect()
}

impl Pair {
    fn attempt_at(&mut self, ticket: &Ticket) -> Attempt {
        self.drive();
        let admission = self.open(ticket, 0);
        let Admission::Accepted(accepted) = admission else { panic!("{admission:?}") };
        accepted.attempt()
    }
}

#[test]
fn an_end_counts_no_attempt_that_did_not_follow_a_failure() {
    let mut pair = Pair::resilient();
    let (_, children) = pair.parent(&policy(FailureAction::Retry), 5);
    let keys: Vec<_> = children.iter().map(|child| pair.open_plain(child)).collect();
    pair.server.complete(pair.now, keys[0]);
    keys.iter().skip(1).take(3).for_each(|key| pair.fail_at_server(*key));
    // The first failed entity is given up before a decision, the second during its delay, and the
    // third is sent again.
    pair.client.fail(pair.now, children[1].key, reason(ErrorCode::InternalError));
    pair.client.retry(pair.now, children[3].key).expect("failed");
    pair.wait(SECOND);
    pair.client.retry(pair.now, children[2].key).expect("failed");
    pair.client.fail(pair.now, children[2].key, reason(ErrorCode::InternalError));
    pair.deliver(&children[3]);
    pair.client.fail(pair.now, children[4].key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(ends(&pair.client_events, &keys), [(0, 1), (1, 1), (1, 1), (1, 2), (0, 1)]);
}

#[test]
fn a_failure_makes_what_has_arrived_of_its_attempt_void() {
    let mut pair = Pair::resilient();
    let (_, children) = pair.parent(&policy(FailureAction::Retry), 1);
    let first = pair.attempt_at(&children[0]);
    assert!(first == Attempt::first(first.key) && pair.server.is_current(first));
    pair.fail_at_server(first.key);
    // The owner has not decided yet, but the first attempt is already void.
    assert!(!pair.server.is_current(first));
    pair.client.retry(pair.now, children[0].key).expect("failed");
    pair.drive();
    pair.wait(SECOND);
    let second = pair.attempt_at(&children[0]);
    assert_eq!((second.failures, second.losses, second.voids()), (1, 0, 1));
    assert!(pair.server.is_current(second) && !pair.server.is_current(first));
}

#[test]
fn a_lost_connection_makes_what_has_not_arrived_completely_void() {
    let mut pair = Pair::lasting();
    let tickets = [pair.announce(None, false), pair.announce(None, false)];
    let [kept, lost] = tickets.map(|ticket| pair.attempt_at(&ticket));
    pair.cut_but_for(&[kept.key]);
    assert!(pair.server.is_current(kept) && !pair.server.is_current(lost));
    pair.reconnect();
    let again = pair.attempt_at(&tickets[1]);
    assert_eq!((again.failures, again.losses, again.voids()), (0, 1, 1));
    assert!(pair.server.is_current(again));
}
