use std::time::{Duration, Instant};

use penstock_io::runtime::wait;
use penstock_pipestream::claims::ClaimTerms;
use penstock_pipestream::{ErrorCode, SessionId, Status};
use penstock_pipestream_net::port;

use super::*;
use crate::claims::{Claims, Details, FOLDER, lock, now};

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

fn code<T: std::fmt::Debug>(outcome: Result<T>) -> Option<ErrorCode> {
    outcome.unwrap_err().code()
}

/// Return the store again, after its process has ended.
fn reopened(claims: std::sync::Arc<Claims>, folder: &Path) -> std::sync::Arc<Claims> {
    drop(claims);
    let since = Instant::now();
    loop {
        // The thread releases the folder when it has written everything.
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
    let reasons: Vec<_> = claims.page((0, 0), usize::MAX).into_iter().map(|row| row.details.reason).collect();
    assert_eq!(reasons, ["part 1", "part 2", "part 3"]);
    block(claims.settle_here(open, Status::Failed)).unwrap();
    block(claims.settle_here(open, Status::Failed)).unwrap();
    assert_eq!(code(block(claims.settle_here(redeemed, Status::Failed))), Some(ErrorCode::ClaimNotFound));
}

#[test]
fn a_record_that_was_cut_off_anywhere_is_gone_and_all_before_it_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    let first = issue(&claims, 1);
    let path = folder.path().join(NAME);
    let before = fs::metadata(&path).unwrap().len();
    issue(&claims, 2);
    drop(claims);
    let whole = fs::read(&path).unwrap();
    for length in usize::try_from(before).unwrap()..whole.len() {
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(NAME), &whole[..length]).unwrap();
        let claims = Claims::open(elsewhere.path()).unwrap();
        assert_eq!(
            claims.page((0, 0), usize::MAX).iter().map(|row| row.check.id).collect::<Vec<_>>(),
            [first],
            "{length}"
        );
        issue(&claims, 3);
        assert_eq!(port::ClaimChecks::count(&*reopened(claims, elsewhere.path())), 2, "{length}");
    }
}

#[test]
fn a_record_that_is_damaged_in_the_middle_is_an_error_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    issue(&claims, 1);
    issue(&claims, 2);
    let path = folder.path().join(NAME);
    let mut bytes = fs::read(&path).unwrap();
    bytes[MAGIC.len() + 8 + 6] ^= 1;
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join(NAME), bytes).unwrap();
    let error = Claims::open(elsewhere.path()).unwrap_err().to_string();
    assert!(error.contains("the record at byte 18 is damaged"), "{error}");
    let error = Claims::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("another server keeps its claim checks there"), "{error}");
}

#[test]
fn a_file_about_what_is_forgotten_is_started_anew() {
    let folder = tempfile::tempdir().unwrap();
    let claims = Claims::open(folder.path()).unwrap();
    let kept = issue(&claims, 7);
    let terms = |entity| ClaimTerms { session: session(1), scope: 2, entity, life: None, validation: None };
    for round in 0..3 {
        let ids: Vec<u64> = {
            let mut state = lock(&claims.state);
            let ids = (1..=2_000)
                .map(|n| state.book.issue(now(), &terms(n), u64::from(n) << 32 | round).unwrap().unwrap().id)
                .collect();
            drop(claims.save(&mut state));
            ids
        };
        ids.into_iter().for_each(|id| claims.void(id));
        // It answers when everything before it is written.
        block(claims.query(kept)).unwrap();
    }
    block(claims.query(kept)).unwrap();
    let since = Instant::now();
    while fs::metadata(folder.path().join(NAME)).unwrap().len() > 200_000 {
        assert!(since.elapsed() < Duration::from_secs(60), "it stays long");
        issue(&claims, 8);
    }
    let claims = reopened(claims, folder.path());
    assert!(claims.page((0, 0), usize::MAX).iter().any(|row| row.check.id == kept && row.details.reason == "part 7"));
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
    // A claim check that is not redeemed is not settled by an entity that names it.
    let lines = [line("FAILED", done), line("COMPLETE", done), line("COMPLETE", open), line("COMPLETE", lost)].concat();
    fs::write(list.join("entities.jsonl"), &lines[..lines.len() - 9]).unwrap();
    let since = Instant::now();
    let claims = loop {
        // The thread of the first one releases the folder when it has written everything.
        let claims = Claims::beside(sink.path());
        if port::ClaimChecks::count(&*claims) == 3 {
            break claims;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "the folder stays taken");
    };
    let status = |id| block(claims.query(id)).unwrap().found.unwrap().status;
    assert_eq!([done, lost, open].map(status), [Status::Complete, Status::Processing, Status::Deferred]);
    // The session that had redeemed it may continue in the next process.
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
