//! The consumer, beside a buffer that a test plays.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use penstock_pimp::{Code, Consumer, ConsumerConfig, ConsumerEvent, Error, JobId, Now};
use penstock_testkit::clock::FakeClock;
use serde_json::{Value, json};

const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";

fn chunk(index: u32, value: &str) -> Value {
    let metadata = r#"{"contentType":"text/plain","contentEncoding":"identity"}"#;
    let value = if index == 0 { metadata } else { value };
    json!({"jobId": JOB, "index": index, "value": value, "done": false, "error": null, "createdAt": 1})
}

fn done(index: u32, value: &str, error: Option<&str>) -> Value {
    json!({"jobId": JOB, "index": index, "value": value, "done": true, "error": error, "createdAt": 1})
}

struct Pair {
    clock: FakeClock,
    consumer: Consumer,
}

impl Pair {
    fn new(config: ConsumerConfig) -> Self {
        let clock = FakeClock::new();
        let now = Now { instant: clock.instant(), unix_micros: clock.unix_micros() };
        Self { consumer: Consumer::new(now, JobId::parse(JOB).expect("valid"), config), clock }
    }

    fn now(&self) -> Now {
        Now { instant: self.clock.instant(), unix_micros: self.clock.unix_micros() }
    }

    /// Waits until the next poll is due: after how many milliseconds, and what is asked.
    fn polled(&mut self) -> (u128, String) {
        let before = self.clock.instant();
        let now = self.now();
        if let Some(poll) = self.consumer.poll_transmit(now) {
            return (0, poll.query());
        }
        self.clock.advance_to(self.consumer.poll_timeout().expect("not over"));
        let now = self.now();
        self.consumer.handle_timeout(now).expect("not stalled");
        let poll = self.consumer.poll_transmit(now).expect("due");
        ((self.clock.instant() - before).as_millis(), poll.query())
    }

    fn answer(&mut self, chunks: &[Value]) -> Result<(), Error> {
        let now = self.now();
        let body = json!({"chunks": chunks, "nextIndex": 99}).to_string();
        self.consumer.handle_response(now, 200, body.as_bytes())
    }

    /// Octets so far, and whether they are all.
    fn received(&mut self) -> (String, bool) {
        let (mut data, mut completed) = (Vec::new(), false);
        while let Some(event) = self.consumer.poll_event() {
            match event {
                ConsumerEvent::Metadata(metadata) => assert_eq!(metadata.content_type, "text/plain"),
                ConsumerEvent::Data(octets) => data.extend_from_slice(&octets),
                ConsumerEvent::Completed => completed = true,
            }
        }
        (String::from_utf8(data).expect("text"), completed)
    }
}

#[test]
fn polls_back_off_while_nothing_comes_and_begin_anew_with_data() {
    let mut pair = Pair::new(ConsumerConfig::default());
    let mut polled = |chunks: &[Value]| {
        let polled = pair.polled();
        pair.answer(chunks).expect("right");
        polled
    };
    let from = |pause, from: u32| (pause, format!("?from={from}"));
    assert_eq!(polled(&[]), from(0, 0));
    assert_eq!(polled(&[]), from(500, 0));
    assert_eq!(polled(&[chunk(0, "")]), from(1_000, 0));
    assert_eq!(polled(&[]), from(500, 1));
    for pause in [500, 1_000, 2_000, 4_000, 5_000] {
        assert_eq!(polled(&[]), from(pause, 1));
    }
    assert_eq!(polled(&[chunk(1, "a")]), from(5_000, 1));
    assert_eq!(polled(&[done(2, "b", None)]), from(500, 2));
    assert_eq!(pair.received(), ("ab".to_owned(), true));
    assert_eq!(pair.consumer.poll_timeout(), None);
}

#[test]
fn polls_that_are_held_open_have_no_pause_but_those_that_are_not_do() {
    let mut pair = Pair::new(ConsumerConfig { wait: Duration::from_secs(20), ..ConsumerConfig::default() });
    assert_eq!(pair.polled(), (0, "?from=0&wait=20000".to_owned()));
    pair.answer(&[chunk(0, "")]).expect("right");
    assert_eq!(pair.polled().0, 0);
    pair.clock.advance(Duration::from_secs(20));
    pair.answer(&[]).expect("right");
    assert_eq!(pair.polled().0, 0);
    pair.answer(&[]).expect("right");
    assert_eq!(pair.polled().0, 500, "this buffer knows no wait");
}

#[test]
fn nothing_is_taken_past_a_gap_and_the_missing_index_is_asked_for() {
    let mut pair = Pair::new(ConsumerConfig::default());
    pair.polled();
    pair.answer(&[chunk(0, ""), chunk(1, "a"), chunk(3, "c")]).expect("right");
    assert_eq!(pair.received(), ("a".to_owned(), false));
    assert_eq!(pair.polled().1, "?from=2");
    pair.answer(&[done(4, "d", None), chunk(3, "other")]).expect("right");
    assert_eq!(pair.received(), (String::new(), false));
    assert_eq!(pair.polled().1, "?from=2");
    pair.answer(&[chunk(2, "b")]).expect("right");
    assert_eq!(pair.received(), ("bcd".to_owned(), true));
}

#[test]
fn a_failed_job_gives_what_came_before_and_its_reason() {
    let mut pair = Pair::new(ConsumerConfig::default());
    pair.polled();
    let error = pair.answer(&[chunk(0, ""), chunk(1, "a"), done(2, "ignored", Some("why"))]).expect_err("failed");
    assert_eq!((error.code(), error.message().contains("why")), (Code::Failed, true));
    assert_eq!(pair.received(), ("a".to_owned(), false));
    assert_eq!(pair.answer(&[]), Err(error), "it stays");
    let mut pair = Pair::new(ConsumerConfig::default());
    pair.polled();
    let error = pair.answer(&[chunk(0, ""), done(9, "", Some("why"))]).expect_err("also behind a gap");
    assert_eq!(error.code(), Code::Failed);
}

#[test]
fn a_stall_is_an_error_that_names_the_last_index() {
    let mut pair = Pair::new(ConsumerConfig::default());
    pair.polled();
    pair.answer(&[chunk(0, ""), chunk(1, "a")]).expect("right");
    let heard = pair.clock.instant();
    loop {
        pair.clock.advance_to(pair.consumer.poll_timeout().expect("not over"));
        let now = pair.now();
        if let Err(error) = pair.consumer.handle_timeout(now) {
            assert_eq!(error.code(), Code::Stalled);
            assert!(error.message().contains("the last is 1") && error.message().contains("503"), "{error}");
            break;
        }
        if pair.consumer.poll_transmit(now).is_some() {
            pair.consumer.handle_response(now, 503, b"").expect("asked again");
        }
    }
    assert_eq!(pair.clock.instant() - heard, Duration::from_secs(30));
    assert_eq!(pair.consumer.poll_timeout(), None);
}

#[test]
fn refusals_are_final_and_troubles_are_not() {
    for (status, code) in
        [(401, Code::Unauthorized), (404, Code::NotFound), (410, Code::Expired), (418, Code::UnexpectedStatus)]
    {
        let mut pair = Pair::new(ConsumerConfig::default());
        pair.polled();
        let now = pair.now();
        let refused = pair.consumer.handle_response(now, status, b"line\r\nline");
        let error = refused.expect_err("final");
        assert_eq!((error.code(), error.message().contains('\n')), (code, false));
    }
    let mut pair = Pair::new(ConsumerConfig::default());
    pair.polled();
    let now = pair.now();
    pair.consumer.handle_failure(now, "connection refused");
    assert_eq!(pair.polled().0, 500);
    let now = pair.now();
    pair.consumer.handle_response(now, 429, b"").expect("asked again");
    assert_eq!(pair.polled().0, 1_000);
    pair.answer(&[chunk(0, ""), done(1, "a", None)]).expect("right");
    assert_eq!(pair.received(), ("a".to_owned(), true));
}

#[test]
fn an_answer_that_breaks_a_rule_ends_it() {
    let foreign = json!({"jobId": "550e8400-e29b-41d4-a716-446655440001", "index": 0, "value": "", "done": false, "error": null, "createdAt": 1});
    let metadata = json!({"jobId": JOB, "index": 0, "value": "{}", "done": false, "error": null, "createdAt": 1});
    for (chunks, code) in [
        (vec![foreign], Code::Malformed),
        (vec![metadata], Code::Malformed),
        (vec![chunk(5_000, "")], Code::TooLarge),
        (vec![chunk(1, &"x".repeat((256 << 10) + 1))], Code::TooLarge),
    ] {
        let mut pair = Pair::new(ConsumerConfig::default());
        pair.polled();
        assert_eq!(pair.answer(&chunks).map_err(|error| error.code()), Err(code));
    }
    let mut pair = Pair::new(ConsumerConfig::default());
    pair.polled();
    let now = pair.now();
    assert!(pair.consumer.handle_response(now, 200, b"<html>").is_err());
}

#[test]
fn a_job_beyond_its_limit_is_not_kept() {
    let mut pair = Pair::new(ConsumerConfig::default());
    let value = "x".repeat(256 << 10);
    for index in 0..200 {
        pair.polled();
        pair.answer(&[chunk(index + 2, &value)]).expect("50 MiB, though all of it behind a gap");
    }
    pair.polled();
    assert_eq!(pair.answer(&[chunk(300, "x")]).map_err(|error| error.code()), Err(Code::TooLarge));
}
