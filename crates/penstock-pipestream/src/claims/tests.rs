//! Claim checks under the test's clock, and their records after a restart.

use std::time::Instant;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::error::ErrorCode;

const SECOND: u64 = 1_000_000;

fn at(seconds: u64) -> Now {
    Now { instant: Instant::now(), unix_micros: seconds * SECOND }
}

fn session(byte: u8) -> SessionId {
    SessionId::new([byte; 16])
}

fn terms(entity: u32) -> ClaimTerms {
    ClaimTerms { session: session(1), scope: 2, entity, life: None, validation: None }
}

fn book() -> ClaimBook {
    let limits = ClaimLimits { max_claims: 4, life: Duration::from_secs(100), linger: Duration::from_secs(10) };
    ClaimBook::new(limits)
}

fn issue(book: &mut ClaimBook, id: u64) -> Claim {
    book.issue(at(0), &terms(id as u32), id).expect("room").expect("a free ID")
}

/// Return the book of a process that stored every record and was restarted.
fn restarted(records: &[ClaimRecord], now: Now) -> ClaimBook {
    let mut book = book();
    for record in records {
        let bytes = record.encode();
        book.restore(now, ClaimRecord::decode(&bytes).expect("our own record"));
    }
    book
}

fn code<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorCode {
    outcome.expect_err("refused").code()
}

#[test]
fn a_claim_check_is_redeemed_once_in_another_session_and_queried_to_its_end() {
    let mut book = book();
    let claim = issue(&mut book, 7);
    assert_eq!((claim.expiry_micros, claim.status()), (100 * SECOND, Status::Deferred));
    let check = book.query(at(1), 7).found.expect("found").check;
    assert_eq!((check.claim_id, check.entity_id, check.scope_id), (Some(7), Some(7), Some(2)));
    assert_eq!(book.redeem(at(1), 7, session(1), session(2)).expect("good").status(), Status::Processing);
    for by in [2, 3] {
        assert_eq!(code(book.redeem(at(2), 7, session(1), session(by))), ErrorCode::ClaimNotFound);
    }
    assert_eq!(code(book.settle(7, session(3), Status::Complete)), ErrorCode::ClaimNotFound);
    book.settle(7, session(2), Status::Complete).expect("its own");
    book.settle(7, session(2), Status::Failed).expect("the first one stands");
    assert_eq!(book.query(at(3), 7).found.map(|found| found.status), Some(Status::Complete));
    assert_eq!(book.settle(7, session(2), Status::Pending), Err(Misuse::ClaimStatus(Status::Pending).into()));
}

#[test]
fn a_claim_check_is_found_only_with_its_session() {
    let mut book = book();
    issue(&mut book, 7);
    assert_eq!(code(book.redeem(at(1), 7, session(9), session(2))), ErrorCode::ClaimNotFound);
    assert_eq!(code(book.redeem(at(1), 8, session(1), session(2))), ErrorCode::ClaimNotFound);
    assert!(book.redeem(at(1), 7, session(1), session(2)).is_ok());
}

#[test]
fn an_expired_claim_check_is_refused_as_such_then_forgotten() {
    let mut book = book();
    issue(&mut book, 7);
    assert!(book.query(at(99), 7).found.is_some() && book.query(at(100), 7).found.is_none());
    assert_eq!(code(book.redeem(at(100), 7, session(1), session(2))), ErrorCode::ClaimExpired);
    assert_eq!((book.poll_timeout(), book.handle_timeout(at(109))), (Some(110 * SECOND), 0));
    assert_eq!((book.handle_timeout(at(110)), book.len(), book.poll_timeout()), (1, 0, None));
    assert_eq!(code(book.redeem(at(110), 7, session(1), session(2))), ErrorCode::ClaimNotFound);
}

#[test]
fn what_was_redeemed_in_time_may_be_settled_after_the_expiry() {
    let mut book = book();
    issue(&mut book, 7);
    book.redeem(at(99), 7, session(1), session(2)).expect("in time");
    book.handle_timeout(at(105));
    book.settle(7, session(2), Status::Complete).expect("it lingers");
}

#[test]
fn an_id_that_is_taken_or_0_is_drawn_again_and_a_full_book_says_so() {
    let mut book = book();
    issue(&mut book, 7);
    assert_eq!(book.issue(at(0), &terms(1), 7), Ok(None));
    assert_eq!(book.issue(at(0), &terms(1), 0), Ok(None));
    for id in 8..=10 {
        issue(&mut book, id);
    }
    assert_eq!(code(book.issue(at(0), &terms(1), 11)), ErrorCode::WindowExceeded);
    assert!(book.issue(at(110), &terms(1), 11).expect("room again").is_some());
}

#[test]
fn terms_may_shorten_a_life_and_not_lengthen_it() {
    let mut book = book();
    for (id, seconds, expected) in [(1, 5, 5), (2, 1_000, 100)] {
        let terms = ClaimTerms { life: Some(Duration::from_secs(seconds)), ..terms(1) };
        let claim = book.issue(at(0), &terms, id).expect("room").expect("free");
        assert_eq!(claim.expiry_micros, expected * SECOND);
    }
}

#[test]
fn a_redemption_is_remembered_after_a_restart_until_the_claim_check_expires() {
    let mut book = book();
    issue(&mut book, 7);
    issue(&mut book, 8);
    issue(&mut book, 9);
    book.redeem(at(1), 7, session(1), session(2)).expect("good");
    book.void(9);
    let records: Vec<_> = std::iter::from_fn(|| book.poll_record()).collect();
    assert_eq!(records.len(), 5);
    let mut again = restarted(&records, at(2));
    assert_eq!(code(again.redeem(at(2), 7, session(1), session(3))), ErrorCode::ClaimNotFound);
    assert!(again.redeem(at(2), 8, session(1), session(3)).is_ok());
    assert_eq!(code(again.redeem(at(2), 9, session(1), session(3))), ErrorCode::ClaimNotFound);
    again.settle(7, session(2), Status::Complete).expect("still that session's");
    assert_eq!(restarted(&records, at(110)).len(), 0, "its records may go");
}

#[test]
fn a_voided_claim_check_that_is_unknown_writes_no_record() {
    let mut book = book();
    book.void(7);
    assert_eq!(book.poll_record(), None);
}

#[test]
fn bytes_that_are_no_record_are_refused() {
    let claim = Claim {
        id: 7,
        session: session(1),
        scope: 2,
        entity: 3,
        expiry_micros: 9,
        validation: Some(Box::new(StoppingPointValidation::default())),
        state: ClaimState::Settled { by: session(2), status: Status::Skipped },
    };
    let bytes = ClaimRecord::Issued(claim.clone()).encode();
    assert_eq!(ClaimRecord::decode(&bytes), Ok(ClaimRecord::Issued(claim)));
    for length in 0..bytes.len() - 1 {
        assert!(ClaimRecord::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    let mut longer = ClaimRecord::Voided { id: 7 }.encode();
    longer.push(0);
    let mut unsettled = ClaimRecord::Settled { id: 7, by: session(1), status: Status::Failed }.encode();
    *unsettled.last_mut().expect("a status") = Status::Pending.code();
    for bad in [longer, unsettled, vec![9; 9], vec![0; 9]] {
        assert_eq!(code(ClaimRecord::decode(&bad)), ErrorCode::EntityInvalid, "{bad:?}");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Issue(u64, u64),
    Void(u64),
    Redeem(u64, u8),
    Settle(u64, u8),
    Wait(u64),
    Restart,
    Rewrite,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..6_u64;
    prop_oneof![
        (id.clone(), 0..200_u64).prop_map(|(id, life)| Step::Issue(id, life)),
        id.clone().prop_map(Step::Void),
        (id.clone(), 1..4_u8).prop_map(|(id, by)| Step::Redeem(id, by)),
        (id, 1..4_u8).prop_map(|(id, by)| Step::Settle(id, by)),
        (0..60_u64).prop_map(Step::Wait),
        Just(Step::Restart),
        Just(Step::Rewrite),
    ]
}

proptest! {
    /// Whatever the operations and whenever the process restarts, no claim check is redeemed twice
    /// or after its expiry, and the restored book knows the same claim checks as the book before
    /// it.
    #[test]
    fn a_claim_check_is_redeemed_at_most_once_however_often_the_process_restarts(
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let (mut book, mut records, mut seconds) = (book(), Vec::new(), 0);
        // The expiry of open and of redeemed claim checks.
        let mut out: std::collections::BTreeMap<u64, (u64, bool)> = Default::default();
        for step in steps {
            let now = at(seconds);
            match step {
                Step::Issue(id, life) => {
                    let validation = (id % 2 == 0).then(|| StoppingPointValidation {
                        state_checksum: Some(Bytes::from_static(b"state")),
                        ..StoppingPointValidation::default()
                    });
                    let terms = ClaimTerms { life: Some(Duration::from_secs(life)), validation, ..terms(1) };
                    if let Ok(Some(claim)) = book.issue(now, &terms, id) {
                        prop_assert!(id != 0);
                        out.insert(id, (claim.expiry_micros, false));
                    }
                }
                Step::Void(id) => {
                    book.void(id);
                    out.remove(&id);
                }
                Step::Redeem(id, by) => {
                    let known = out.get(&id).copied();
                    let redeemed = book.redeem(now, id, session(1), session(by)).is_ok();
                    let good = known.is_some_and(|(expiry, redeemed)| !redeemed && now.unix_micros < expiry);
                    prop_assert_eq!(redeemed, good);
                    if let Some(entry) = out.get_mut(&id).filter(|_| redeemed) {
                        entry.1 = true;
                    }
                }
                Step::Settle(id, by) => drop(book.settle(id, session(by), Status::Complete)),
                Step::Wait(more) => {
                    seconds += more;
                    book.handle_timeout(at(seconds));
                    let known: std::collections::BTreeSet<u64> = book.iter().map(|claim| claim.id).collect();
                    out.retain(|id, _| known.contains(id));
                }
                Step::Restart => {
                    let again = restarted(&records, now);
                    prop_assert_eq!(&again.claims, &book.claims);
                    book = again;
                }
                Step::Rewrite => {
                    records = book.snapshot().collect();
                }
            }
            records.extend(std::iter::from_fn(|| book.poll_record()));
        }
    }
}
