//! Tests of the consumer, in which the test plays the buffer.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_pimp::{Code, Consumer, ConsumerConfig, ConsumerEvent, Digest, Error, Failure, JobId, Now, Stalled};
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

    /// Wait until the next poll is due; return how many milliseconds that took, and the query.
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

    /// Return the bytes since the last call, and whether the payload became complete.
    fn received(&mut self) -> (String, bool) {
        let (mut data, mut completed) = (Vec::new(), false);
        while let Some(event) = self.consumer.poll_event() {
            match event {
                ConsumerEvent::Metadata(metadata) => assert_eq!(metadata.content_type, "text/plain"),
                ConsumerEvent::Data(bytes) => data.extend_from_slice(&bytes),
                ConsumerEvent::Completed => completed = true,
            }
        }
        (String::from_utf8(data).expect("text"), completed)
    }
}

#[test]
fn polls_back_off_while_nothing_arrives_and_restart_with_data() {
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
    assert_eq!(error, Error::Failed { reason: "why".to_owned() });
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
            let (timeout, failure) = (Duration::from_secs(30), Some(Failure::Status(503)));
            assert_eq!(error, Stalled::Poll { timeout, last: Some(1), failure }.into());
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
fn waits_beyond_the_clock_never_end() {
    let (poll_interval, stall_timeout, wait) = (Duration::MAX, Duration::MAX, Duration::MAX);
    let max_poll_interval = Duration::MAX;
    let config = ConsumerConfig { poll_interval, max_poll_interval, stall_timeout, wait, ..ConsumerConfig::default() };
    let mut pair = Pair::new(config);
    pair.polled();
    pair.answer(&[]).expect("right");
    let now = pair.now();
    pair.consumer.handle_failure(now, "connection refused");
    pair.clock.advance(Duration::from_secs(1_000_000));
    let now = pair.now();
    pair.consumer.handle_timeout(now).expect("not stalled");
    assert!(pair.consumer.poll_transmit(now).is_none());
}

#[test]
fn refusals_are_final_and_failures_are_not() {
    for (status, code) in
        [(401, Code::Unauthorized), (404, Code::NotFound), (410, Code::Expired), (418, Code::UnexpectedStatus)]
    {
        let mut pair = Pair::new(ConsumerConfig::default());
        pair.polled();
        let now = pair.now();
        let refused = pair.consumer.handle_response(now, status, b"line\r\nline");
        let error = refused.expect_err("final");
        assert_eq!(error.code(), code);
        assert!(matches!(error, Error::Rejected(rejection) if rejection.excerpt == "line  line"));
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

/// Read the payload with several consumers, each of which resumes from the position of the previous one.
fn by_turns(metadata: &Value, values: &[&str], sha256: Option<&str>, turns: usize) -> Result<Vec<u8>, Code> {
    let mut pair = Pair::new(ConsumerConfig::default());
    let job = JobId::parse(JOB).expect("valid");
    let mut chunks = vec![chunk(0, "")];
    chunks[0]["value"] = json!(metadata.to_string());
    chunks.extend((1..).zip(values).map(|(index, value)| chunk(index, value)));
    let last = chunks.last_mut().expect("chunk 0");
    (last["done"], last["sha256"]) = (json!(true), json!(sha256));
    let (mut payload, mut turn) = (Vec::new(), 0);
    while !pair.consumer.is_completed() {
        let (_, query) = pair.polled();
        let from: usize = query.trim_start_matches("?from=").parse().expect("a number");
        pair.answer(&chunks[from..(from + 2).min(chunks.len())]).map_err(|error| error.code())?;
        while let Some(event) = pair.consumer.poll_event() {
            if let ConsumerEvent::Data(bytes) = event {
                payload.extend_from_slice(&bytes);
            }
        }
        if turn >= turns {
            continue;
        }
        turn += 1;
        let position = pair.consumer.position();
        pair.consumer = Consumer::resume(pair.now(), job, ConsumerConfig::default(), &position).expect("its own");
        let told = pair.consumer.poll_event();
        assert!(matches!(told, Some(ConsumerEvent::Metadata(_))), "{told:?}");
    }
    Ok(payload)
}

#[test]
fn another_consumer_goes_on_where_one_was() {
    let identity = json!({"contentType": "text/plain", "contentEncoding": "identity", "contentLength": 6});
    let sha256 = Digest::of(b"abcdef").to_string();
    assert_eq!(by_turns(&identity, &["ab", "", "cde", "f", ""], Some(&sha256), 99), Ok(b"abcdef".to_vec()));
    let wrong = Digest::of(b"abcdeg").to_string();
    assert_eq!(by_turns(&identity, &["ab", "cde", "f"], Some(&wrong), 99), Err(Code::Corrupt));
    assert_eq!(by_turns(&identity, &["ab", "cde"], None, 99), Err(Code::Corrupt), "it is shorter than was said");
    // One Base64 text, cut at any position.
    let base64 = json!({"contentType": "a/b", "contentEncoding": "base64"});
    assert_eq!(by_turns(&base64, &["Y", "WJjZ", "GV", "m"], Some(&sha256), 99), Ok(b"abcdef".to_vec()));
    // A gzip payload is read again from its beginning, but each byte is returned once.
    let text: Vec<u8> = (0..100_000_u32).flat_map(|number| number.to_string().into_bytes()).collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &text).expect("memory");
    let packed = encoder.finish().expect("memory");
    let values: Vec<String> = packed.chunks(3 * 8_000).map(|part| STANDARD.encode(part)).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    assert!(values.len() > 4);
    let gzip = json!({"contentType": "a/b", "contentEncoding": "base64", "compression": "gzip"});
    assert_eq!(by_turns(&gzip, &values, None, 2).map(|got| got == text), Ok(true));
}

#[test]
fn positions_that_are_none_are_refused() {
    let mut pair = Pair::new(ConsumerConfig::default());
    pair.polled();
    pair.answer(&[chunk(0, ""), chunk(1, "abc")]).expect("right");
    let first = pair.consumer.position();
    pair.received();
    let behind = pair.consumer.position();
    assert_ne!(first, behind, "what waits was not given");
    let resume = |job: &str, position: &str| {
        let job = JobId::parse(job).expect("valid");
        Consumer::resume(pair.now(), job, ConsumerConfig::default(), position).map_err(|error| error.code()).err()
    };
    assert_eq!((resume(JOB, &first), resume(JOB, &behind)), (None, None));
    assert_eq!(resume("550e8400-e29b-41d4-a716-446655440001", &behind), Some(Code::Malformed));
    let mut fields: Value = serde_json::from_str(&behind).expect("JSON");
    for (field, value) in [("hash", json!("AAAA")), ("hash", json!("no Base64")), ("carry", json!("abcd"))] {
        let right = std::mem::replace(&mut fields["decoder"][field], value);
        assert_eq!(resume(JOB, &fields.to_string()), Some(Code::Malformed), "{fields}");
        fields["decoder"][field] = right;
    }
    for wrong in ["", "{}", "[]", "7", &behind[1..]] {
        assert_eq!(resume(JOB, wrong), Some(Code::Malformed), "{wrong}");
    }
}

#[test]
fn a_payload_and_what_waits_behind_a_gap_have_bounds() {
    let mut pair = Pair::new(ConsumerConfig { inflated: 5, ..ConsumerConfig::default() });
    pair.polled();
    let large = pair.answer(&[chunk(0, ""), chunk(1, "abc"), chunk(2, "def")]);
    assert_eq!(large.map_err(|error| error.code()), Err(Code::TooLarge));
    let mut pair = Pair::new(ConsumerConfig { held: 5, ..ConsumerConfig::default() });
    pair.polled();
    pair.answer(&[chunk(0, ""), chunk(1, "abcdefgh"), chunk(3, "abc")]).expect("few wait");
    pair.polled();
    assert_eq!(pair.answer(&[chunk(4, "def")]).map_err(|error| error.code()), Err(Code::TooLarge));
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

#[test]
fn a_full_answer_is_followed_by_the_next_poll_at_once() {
    let mut pair = Pair::new(ConsumerConfig { limit: 2, ..ConsumerConfig::default() });
    assert_eq!(pair.polled(), (0, "?from=0&limit=2".to_owned()));
    pair.answer(&[chunk(0, ""), chunk(1, "a")]).expect("taken");
    assert_eq!(pair.polled(), (0, "?from=2&limit=2".to_owned()));
    pair.answer(&[chunk(2, "b")]).expect("taken");
    assert_eq!(pair.polled(), (500, "?from=3&limit=2".to_owned()));
}

#[test]
fn after_answers_that_a_gateway_has_cut_fewer_chunks_are_asked_for() {
    let mut pair = Pair::new(ConsumerConfig { limit: 5, ..ConsumerConfig::default() });
    let mut asked = Vec::new();
    for status in [429, 502, 502, 503, 200] {
        asked.push(pair.polled().1.trim_start_matches("?from=0&limit=").to_owned());
        let now = pair.now();
        pair.consumer.handle_response(now, status, b"{\"chunks\":[],\"nextIndex\":0}").expect("asked again");
    }
    assert_eq!(asked, ["5", "5", "2", "1", "1"]);
}

#[test]
fn the_time_in_which_the_application_was_away_is_no_stall() {
    let mut pair = Pair::new(ConsumerConfig::default());
    pair.polled();
    pair.answer(&[chunk(0, "")]).expect("taken");
    let minute = Duration::from_secs(60);
    pair.clock.advance_to(pair.clock.instant() + minute);
    pair.consumer.handle_absence(minute);
    let now = pair.now();
    pair.consumer.handle_timeout(now).expect("not stalled");
    pair.clock.advance_to(pair.clock.instant() + Duration::from_secs(30));
    let now = pair.now();
    assert_eq!(pair.consumer.handle_timeout(now).map_err(|error| error.code()), Err(Code::Stalled));
}
