//! Tests of chunks that an earlier writer of the job stored.

use std::time::Duration;

use penstock_pimp::{Code, Conflict, Failure, SenderEvent, Stalled, Transmit};

use crate::sender::Pair;

const HAD: &str = r#"{"written":0,"duplicates":1}"#;

#[test]
fn chunks_that_were_there_are_looked_at_and_the_same_ones_are_written() {
    let mut pair = Pair::text();
    assert_eq!(pair.request().len(), 1);
    assert_eq!(pair.answer(200, HAD), Ok(()));
    assert!(pair.sender.is_asking() && pair.events().is_empty());
    // The other writer formats JSON differently.
    let metadata = r#"{ "contentEncoding": "identity", "contentType": "text/plain", "other": 1 }"#;
    assert_eq!(pair.looks(0, &[(0, metadata, false, None)]), Ok(()));
    assert_eq!(pair.events(), [SenderEvent::Written(0)]);
    pair.send("abcdefghij");
    pair.sender.finish().expect("open");
    assert_eq!(pair.values(), ["abcdefgh"], "one at a time, where another writer was");
    assert_eq!(pair.answer(200, HAD), Ok(()));
    assert_eq!(pair.looks(1, &[(1, "abcdefgh", false, None)]), Ok(()));
    assert_eq!(pair.values(), ["ij"]);
    assert_eq!(pair.answer(201, r#"{"written":1}"#), Ok(()));
    assert_eq!(pair.events(), [SenderEvent::Written(1), SenderEvent::Written(2), SenderEvent::Finished]);
}

#[test]
fn a_buffer_may_give_what_was_there_one_at_a_time() {
    let mut pair = Pair::text().begun();
    pair.send("abcdefghij");
    pair.sender.finish().expect("open");
    assert_eq!(pair.request().len(), 2);
    assert_eq!(pair.answer(201, r#"{"written":1,"duplicates":1}"#), Ok(()));
    assert_eq!(pair.looks(1, &[(1, "abcdefgh", false, None)]), Ok(()));
    assert_eq!(pair.looks(2, &[(2, "ij", true, None)]), Ok(()));
    assert_eq!(pair.events(), [SenderEvent::Written(0), SenderEvent::Written(2), SenderEvent::Finished]);
}

#[test]
fn a_final_chunk_in_whose_place_another_one_is_fails_the_job_behind_it() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    pair.sender.finish().expect("open");
    assert_eq!(pair.request(), [(1, "abc".to_owned(), true, None)]);
    assert_eq!(pair.answer(200, HAD), Ok(()));
    assert_eq!(pair.looks(1, &[(1, "abc", false, None), (2, "d", false, None)]), Ok(()));
    assert_eq!(pair.looks(3, &[]), Ok(()));
    let last = pair.request();
    assert_eq!((last.len(), last[0].0, last[0].2), (1, 3, true));
    assert_eq!(last[0].3, Some(Conflict::Writer { index: 1 }.to_string()));
    assert_eq!(pair.answer(201, r#"{"written":1}"#), Err(Code::Conflict));
    assert_eq!(pair.events(), [SenderEvent::Written(0), SenderEvent::Written(3), SenderEvent::Finished]);
}

#[test]
fn another_value_is_found_before_the_end() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    pair.sender.flush();
    assert_eq!(pair.request().len(), 1);
    pair.send("more");
    assert_eq!(pair.answer(200, ""), Ok(()), "200 is what duplicates are answered with");
    assert_eq!(pair.looks(1, &[(1, "abd", false, None)]), Ok(()));
    assert_eq!(pair.looks(2, &[]), Ok(()));
    let now = pair.now();
    assert_eq!(pair.sender.send(now, b"x").map_err(|error| error.code()), Err(Code::Conflict));
    assert_eq!(pair.request()[0].0, 2);
    assert_eq!(pair.answer(201, "{}"), Err(Code::Conflict));
}

#[test]
fn a_job_that_another_writer_has_ended_is_a_conflict_and_nothing_is_written() {
    for stored in [(1, "abc", true, None), (1, "", true, Some("no"))] {
        let mut pair = Pair::text().begun();
        pair.send("abc");
        pair.sender.flush();
        assert_eq!(pair.request().len(), 1);
        assert_eq!(pair.answer(200, HAD), Ok(()));
        assert_eq!(pair.looks(1, &[stored]), Err(Code::Conflict));
        assert_eq!((pair.request(), pair.sender.poll_timeout()), (vec![], None));
    }
}

#[test]
fn a_failure_is_written_after_the_existing_chunks() {
    let mut pair = Pair::text().begun();
    pair.sender.fail("no more").expect("open");
    assert_eq!(pair.request()[0].0, 1);
    assert_eq!(pair.answer(200, HAD), Ok(()));
    assert_eq!(pair.looks(1, &[(1, "abc", false, None), (4, "gap", false, None)]), Ok(()));
    assert_eq!(pair.looks(5, &[]), Ok(()));
    assert_eq!(pair.request(), [(5, String::new(), true, Some("no more".to_owned()))]);
    pair.created();
    assert_eq!(pair.events().last(), Some(&SenderEvent::Finished));
}

#[test]
fn the_error_of_a_job_that_is_too_large_is_not_lost_behind_another_writers_chunks() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    pair.sender.flush();
    assert_eq!(pair.request().len(), 1);
    assert_eq!(pair.answer(413, "too large"), Ok(()));
    assert_eq!(pair.request()[0].0, 1);
    assert_eq!(pair.answer(200, HAD), Ok(()));
    assert_eq!(pair.looks(1, &[(1, "other", false, None)]), Ok(()));
    assert_eq!(pair.looks(2, &[]), Ok(()));
    let last = pair.request();
    assert_eq!((last[0].0, last[0].3.as_deref()), (2, Some("the job is larger than the buffer allows")));
    assert_eq!(pair.answer(201, r#"{"written":1}"#), Err(Code::TooLarge));
    assert_eq!(pair.events().last(), Some(&SenderEvent::Finished));
}

#[test]
fn a_final_chunk_below_a_stored_one_goes_behind_it_as_an_error() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    pair.sender.finish().expect("open");
    assert_eq!(pair.request()[0].0, 1);
    assert_eq!(pair.answer(409, "chunk 3 is above chunk 1"), Ok(()));
    assert_eq!(pair.looks(1, &[(3, "x", false, None)]), Ok(()));
    assert_eq!(pair.looks(4, &[]), Ok(()));
    assert_eq!(pair.request()[0].0, 4);
    // The sender moves the final chunk once, not repeatedly.
    assert_eq!(pair.answer(409, "again"), Err(Code::Conflict));
    assert_eq!((pair.request(), pair.sender.poll_timeout()), (vec![], None));
}

#[test]
fn a_look_that_brings_nothing_goes_again_and_ends_as_a_stall() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    pair.sender.flush();
    assert_eq!(pair.request().len(), 1);
    assert_eq!(pair.answer(200, HAD), Ok(()));
    let began = pair.clock.instant();
    assert_eq!(pair.looks(1, &[]), Ok(()));
    while let Some(due) = pair.sender.poll_timeout() {
        pair.clock.advance_to(due);
        let now = pair.now();
        if let Err(error) = pair.sender.handle_timeout(now) {
            let failure = Failure::Withheld { index: 1 };
            assert_eq!(error, Stalled::Write { index: 1, timeout: Duration::from_secs(30), failure }.into());
            assert_eq!(pair.clock.instant() - began, Duration::from_secs(30));
            return;
        }
        assert_eq!(pair.looks(1, &[]), Ok(()));
    }
    panic!("it never stalls");
}

#[test]
fn answers_to_a_look_that_are_none_are_final() {
    for (status, body, code) in [
        (200, "{", Code::Malformed),
        (200, r#"{"chunks":[{"index":1}]}"#, Code::Malformed),
        (401, "", Code::Unauthorized),
        (404, "", Code::NotFound),
        (409, "", Code::Conflict),
        (413, "", Code::TooLarge),
    ] {
        let mut pair = Pair::text().begun();
        pair.sender.finish().expect("open");
        assert_eq!(pair.request().len(), 1);
        assert_eq!(pair.answer(200, HAD), Ok(()));
        let now = pair.now();
        assert!(matches!(pair.sender.poll_transmit(now), Ok(Some(Transmit::Probe(_)))));
        assert_eq!(pair.answer(status, body), Err(code));
        assert_eq!((pair.request(), pair.sender.poll_timeout()), (vec![], None));
    }
}
