use std::fs;
use std::path::PathBuf;

use penstock_io::runtime::wait;
use penstock_io::{Busy, Problem};
use penstock_log::Mismatch;
use penstock_pipestream::claims::{ClaimLimits, ClaimTerms};
use penstock_pipestream::{ErrorCode, SessionId, Status};
use penstock_pipestream_net::port;

use super::*;
use crate::claims::{Claims, Details, FOLDER, now, read_claims};

fn block<F: Future>(future: F) -> F::Output {
    wait(future, Some(Instant::now() + Duration::from_secs(60)), &mut || Ok(())).expect("within a minute")
}

fn session(byte: u8) -> SessionId {
    SessionId::new([byte; 16])
}

fn issue(claims: &std::sync::Arc<Claims>, entity: u32) -> u64 {
    let terms = ClaimTerms { session: session(1), scope: 2, entity, life: None, validation: None };
    let details = Details { reason: format!("part {entity}"), ..Details::default() };
    block(claims.issue(&terms, details)).unwrap().id
}

/// Return the only segment of a folder.
fn segment(folder: &Path) -> PathBuf {
    folder.join(format!("{:020}.claims", 1))
}

fn code<T: std::fmt::Debug>(outcome: Result<T>) -> Option<ErrorCode> {
    outcome.unwrap_err().code()
}

/// Open the store again, after its process has ended.
fn reopened(claims: std::sync::Arc<Claims>, folder: &Path) -> std::sync::Arc<Claims> {
    drop(claims);
    let since = Instant::now();
    loop {
        // The thread releases the folder only after it has written everything.
        match Claims::open(folder) {
            Ok(claims) => return claims,
            Err(error) => assert!(since.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_was_answered_is_known_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    let (open, redeemed, settled, gone) = (issue(&claims, 1), issue(&claims, 2), issue(&claims, 3), issue(&claims, 4));
    for id in [redeemed, settled] {
        assert!(block(claims.redeem(id, session(1), session(9))).unwrap().found.is_some());
    }
    claims.settle(settled, session(9), Status::Complete);
    claims.void(gone);
    let claims = reopened(claims, folder.path());
    let status = |id| block(claims.query(id)).unwrap().found.map(|found| found.status);
    assert_eq!(
        [open, redeemed, settled, gone].map(status),
        [Some(Status::Deferred), Some(Status::Processing), Some(Status::Complete), None]
    );
    assert_eq!(code(block(claims.redeem(redeemed, session(1), session(8)))), Some(ErrorCode::ClaimNotFound));
    let reasons: Vec<_> = claims.page((0, 0), usize::MAX).unwrap().into_iter().map(|row| row.details.reason).collect();
    assert_eq!(reasons, ["part 1", "part 2", "part 3"]);
    block(claims.settle_here(open, Status::Failed)).unwrap();
    block(claims.settle_here(open, Status::Failed)).unwrap();
    assert_eq!(code(block(claims.settle_here(redeemed, Status::Failed))), Some(ErrorCode::ClaimNotFound));
}

#[test]
fn details_of_forgotten_claim_checks_take_no_room_from_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ClaimLimits { life: Duration::ZERO, linger: Duration::ZERO, ..ClaimLimits::default() };
    let claims = Claims::open_with(folder.path(), limits).unwrap();
    issue(&claims, 1);
    // The headers of a few entities may be that large.
    lock(&claims.state).details_bytes = usize::MAX;
    let last = issue(&claims, 2);
    let state = lock(&claims.state);
    assert_eq!(state.details.keys().collect::<Vec<_>>(), [&last]);
}

#[test]
fn a_record_that_was_cut_off_anywhere_is_gone_and_all_before_it_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    let first = issue(&claims, 1);
    let path = segment(folder.path());
    let before = usize::try_from(fs::metadata(&path).unwrap().len()).unwrap();
    let second = issue(&claims, 2);
    drop(claims);
    let whole = fs::read(&path).unwrap();
    // Each record is followed by a seal of 32 bytes.
    let end = whole.len() - 32;
    for length in before..whole.len() {
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(segment(elsewhere.path()), &whole[..length]).unwrap();
        let claims = Claims::open(elsewhere.path()).unwrap();
        let mut expected = if length < end { vec![first] } else { vec![first, second] };
        let mut found: Vec<_> = claims.page((0, 0), usize::MAX).unwrap().iter().map(|row| row.check.id).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{length}");
        issue(&claims, 3);
        let count = port::ClaimChecks::count(&*reopened(claims, elsewhere.path()));
        assert_eq!(count, expected.len() as u64 + 1, "{length}");
    }
}

/// Return a copy of a folder in which the body of the record with this text is damaged.
fn damaged(folder: &Path, text: &str) -> tempfile::TempDir {
    let mut bytes = fs::read(segment(folder)).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text.as_bytes()).unwrap();
    bytes[at] ^= 1;
    let sink = tempfile::tempdir().unwrap();
    fs::create_dir(sink.path().join(FOLDER)).unwrap();
    fs::write(segment(&sink.path().join(FOLDER)), bytes).unwrap();
    sink
}

#[test]
fn a_claim_check_whose_record_is_damaged_is_neither_unknown_nor_open_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    let (lost, other) = (issue(&claims, 1), issue(&claims, 2));
    let error = Claims::open(folder.path()).unwrap_err();
    assert!(matches!(&error, Error::Local(penstock_io::Error::Busy(Busy::Folder { .. }))), "{error}");
    drop(claims);
    let sink = damaged(folder.path(), "part 1");
    // A reader may come before the server.
    let error = read_claims(sink.path()).unwrap_err().to_string();
    assert!(error.contains("not all claim checks are known: segment 1 is damaged from byte 48 to byte "), "{error}");
    for start in 0..2 {
        let claims = Claims::beside(sink.path());
        let errors = [
            block(claims.query(lost)).map(drop),
            block(claims.redeem(lost, session(1), session(9))).map(drop),
            block(claims.settle_here(lost, Status::Failed)),
        ];
        for error in errors.map(|outcome| outcome.unwrap_err()) {
            assert_eq!(error.code(), None, "{error}");
            let named = format!("it is not known how the claim check {lost:016x} stands: segment 1 is damaged");
            assert!(error.to_string().starts_with(&named), "{error}");
        }
        assert!(claims.page((0, 0), usize::MAX).is_err() && read_claims(sink.path()).is_err());
        let counters = port::ClaimChecks::counters(&*claims);
        assert_eq!(counters.damaged.load(std::sync::atomic::Ordering::Relaxed), u64::from(start == 0));
        let open: Vec<_> = port::ClaimChecks::open_rows(&*claims).iter().map(|row| row.check.id).collect();
        let (fresh, _) = block(claims.fresh(0));
        if start == 0 {
            assert_eq!((open, fresh[0].check.id, fresh.len()), (vec![other], other, 1));
            assert!(block(claims.redeem(other, session(1), session(9))).unwrap().found.is_some());
            issue(&claims, 3);
        }
        // This claim check was never issued.
        assert_eq!(block(claims.query(lost ^ other ^ 1)).unwrap().found, None);
    }
    assert!(sink.path().join(FOLDER).join(format!("{:020}.claims.damaged", 1)).exists());
}

#[test]
fn a_redemption_that_is_lost_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    let (id, other) = (issue(&claims, 1), issue(&claims, 2));
    block(claims.redeem(id, session(1), SessionId::new(*b"0123456789abcdef"))).unwrap();
    drop(claims);
    let sink = damaged(folder.path(), "0123456789abcdef");
    for _ in 0..2 {
        let claims = Claims::beside(sink.path());
        let error = block(claims.redeem(id, session(1), session(8))).unwrap_err().to_string();
        assert!(error.contains("segment 1 is damaged"), "{error}");
        assert!(block(claims.query(id)).is_err());
        assert_eq!(block(claims.query(other)).unwrap().found.unwrap().status, Status::Deferred);
        claims.fail_left(&|_| false);
        assert!(block(claims.query(id)).is_err());
    }
}

#[test]
fn claim_checks_that_cannot_be_read_are_not_unknown_and_are_read_once_they_can_be() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    let id = issue(&claims, 1);
    drop(claims);
    let sink = damaged(folder.path(), "part 1");
    let path = sink.path().join(FOLDER).join(format!("{:020}.claims", 2));
    fs::write(&path, b"#!/bin/sh\necho and so on, with more bytes than a header has").unwrap();
    let claims = Claims::beside(sink.path());
    for _ in 0..2 {
        let error = block(claims.query(id)).unwrap_err();
        let Error::Local(penstock_io::Error::Content { problem, .. }) = &error else { panic!("{error:?}") };
        assert!(matches!(problem, Problem::Log(Mismatch::Unknown { number: 2, .. })), "{error:?}");
        assert!(block(claims.redeem(id, session(1), session(9))).is_err() && block(claims.query(7)).is_err());
        assert!(claims.page((0, 0), usize::MAX).is_err());
    }
    fs::remove_file(path).unwrap();
    fs::copy(segment(folder.path()), segment(&sink.path().join(FOLDER))).unwrap();
    assert_eq!(block(claims.query(id)).unwrap().found.unwrap().status, Status::Deferred);
}

#[test]
fn a_log_about_what_is_forgotten_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    let kept = issue(&claims, 7);
    let terms = |entity| ClaimTerms { session: session(1), scope: 2, entity, life: None, validation: None };
    let bytes = || -> u64 {
        let files = fs::read_dir(folder.path()).unwrap();
        files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    let (mut most, mut last, mut times) = (0, 0, 0);
    for round in 0..12 {
        let ids: Vec<u64> = {
            let mut state = lock(&claims.state);
            let ids = (1..=2_000)
                .map(|n| state.book.issue(now(), &terms(n), u64::from(n) << 32 | round).unwrap().unwrap().id)
                .collect();
            drop(claims.save(&mut state));
            ids
        };
        ids.into_iter().for_each(|id| claims.void(id));
        // The first query waits until all changes are written, the second until the log was
        // rewritten.
        (0..2).for_each(|_| drop(block(claims.query(kept)).unwrap()));
        let now = bytes();
        times += u32::from(now < last);
        (most, last) = (most.max(now), now);
    }
    // Each round writes at least 300 KB.
    assert!(times > 0 && most < 2_500_000, "{times} times, {most} bytes");
    let claims = reopened(claims, folder.path());
    let rows = claims.page((0, 0), usize::MAX).unwrap();
    assert!(rows.iter().any(|row| row.check.id == kept && row.details.reason == "part 7"));
}

/// Return the line of an entity for which a claim check was redeemed.
fn line(status: &str, claim: u64) -> String {
    format!(
        "{{\"scope\":0,\"entity\":1,\"parent\":null,\"layer\":0,\"content_type\":\"a/b\",\"bytes\":0,\"sha256\":\"\",\
         \"metadata\":{{\"pipestream.claim\":\"{claim:016x}\"}},\"status\":\"{status}\",\"reason\":null,\"file\":null}}\n"
    )
}

#[test]
fn what_was_complete_before_a_crash_settles_its_claim_check_after_it() {
    let sink = tempfile::tempdir().unwrap();
    let claims = Claims::beside(sink.path());
    let (done, lost, open) = (issue(&claims, 1), issue(&claims, 2), issue(&claims, 3));
    for id in [done, lost] {
        block(claims.redeem(id, session(1), session(9))).unwrap();
    }
    drop(claims);
    let list = sink.path().join(session(9).to_string());
    fs::create_dir(&list).unwrap();
    // An entity that names a claim check which is not redeemed does not settle it.
    let lines = [line("FAILED", done), line("COMPLETE", done), line("COMPLETE", open), line("COMPLETE", lost)].concat();
    fs::write(list.join("entities.jsonl"), &lines[..lines.len() - 9]).unwrap();
    let since = Instant::now();
    let claims = loop {
        // The thread of the first process releases the folder only after it has written everything.
        let claims = Claims::beside(sink.path());
        if port::ClaimChecks::count(&*claims) == 3 {
            break claims;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "the folder stays taken");
    };
    let status = |id| block(claims.query(id)).unwrap().found.unwrap().status;
    assert_eq!([done, lost, open].map(status), [Status::Complete, Status::Processing, Status::Deferred]);
    // The session that had redeemed the claim check may continue in the next process.
    for (goes_on, expected) in [(true, Status::Processing), (false, Status::Processing)] {
        claims.fail_left(&|by| goes_on && by == session(9));
        assert_eq!(status(lost), expected, "what is left is settled once");
    }
    let claims = reopened(claims, &sink.path().join(FOLDER));
    let status = |id| block(claims.query(id)).unwrap().found.unwrap().status;
    claims.fail_left(&|_| false);
    assert_eq!([done, lost, open].map(status), [Status::Complete, Status::Failed, Status::Deferred]);
}

#[test]
fn what_was_complete_in_a_session_whose_id_was_used_before_settles_its_claim_check() {
    let sink = tempfile::tempdir().unwrap();
    let claims = Claims::beside(sink.path());
    let ids: Vec<u64> = (1..=2).map(|entity| issue(&claims, entity)).collect();
    for id in &ids {
        block(claims.redeem(*id, session(1), session(9))).unwrap();
    }
    // An operator may have removed the folders of earlier sessions.
    for (name, lines) in [("", String::new()), (".1", line("COMPLETE", ids[0])), (".12", line("FAILED", ids[1]))] {
        let folder = sink.path().join(format!("{}{name}", session(9)));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("entities.jsonl"), lines).unwrap();
    }
    claims.settle_from(sink.path()).unwrap();
    let status = |id: &u64| block(claims.query(*id)).unwrap().found.unwrap().status;
    assert_eq!(ids.iter().map(status).collect::<Vec<_>>(), [Status::Complete, Status::Failed]);
}
