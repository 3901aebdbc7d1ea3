//! Tests of the sender, in which the test plays the buffer.
#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod conflicts;

use std::time::Duration;

use penstock_pimp::{
    Code, Digest, Encoding, Error, Failure, JobId, Misuse, Now, Sender, SenderConfig, SenderEvent, Stalled, Transmit,
};
use penstock_testkit::clock::FakeClock;
use serde_json::{Value, json};

const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";

struct Pair {
    clock: FakeClock,
    sender: Sender,
}

impl Pair {
    fn new(config: SenderConfig) -> Self {
        let sender = Sender::new(JobId::parse(JOB).expect("valid"), config).expect("valid");
        Self { clock: FakeClock::new(), sender }
    }

    fn text() -> Self {
        Self::new(SenderConfig { content_type: "text/plain".to_owned(), max_chunk: 8, ..SenderConfig::default() })
    }

    fn now(&self) -> Now {
        Now { instant: self.clock.instant(), unix_micros: self.clock.unix_micros() }
    }

    fn wait(&mut self, millis: u64) {
        self.clock.advance(Duration::from_millis(millis));
    }

    fn send(&mut self, text: &str) {
        let now = self.now();
        self.sender.send(now, text.as_bytes()).expect("open");
    }

    /// Return the next request: (index, value, done, error) of each envelope.
    fn request(&mut self) -> Vec<(u64, String, bool, Option<String>)> {
        let now = self.now();
        let Some(request) = self.sender.poll_transmit(now).expect("writable") else { return Vec::new() };
        let Transmit::Write(body) = request else { panic!("no write: {request:?}") };
        let body: Value = serde_json::from_slice(&body).expect("JSON");
        let chunk = |chunk: &Value| {
            let error = chunk["error"].as_str().map(str::to_owned);
            let value = chunk["value"].as_str().expect("text").to_owned();
            (chunk["index"].as_u64().expect("index"), value, chunk["done"] == true, error)
        };
        body["chunks"].as_array().expect("array").iter().map(chunk).collect()
    }

    fn values(&mut self) -> Vec<String> {
        self.request().into_iter().map(|(_, value, _, _)| value).collect()
    }

    fn answer(&mut self, status: u16, body: &str) -> Result<(), Code> {
        let now = self.now();
        self.sender.handle_response(now, status, body.as_bytes()).map_err(|error| error.code())
    }

    /// Answer a probe from index `from` with these chunks: (index, value, done, error).
    fn looks(&mut self, from: u32, stored: &[(u32, &str, bool, Option<&str>)]) -> Result<(), Code> {
        let now = self.now();
        let request = self.sender.poll_transmit(now).expect("writable");
        let Some(Transmit::Probe(poll)) = request else { panic!("no look: {request:?}") };
        assert_eq!((poll.from, poll.query()), (from, format!("?from={from}&limit=32")));
        let chunk = |&(index, value, done, error): &(u32, &str, bool, Option<&str>)| json!({"jobId": JOB, "index": index, "value": value, "done": done, "error": error, "createdAt": 7});
        let chunks: Vec<Value> = stored.iter().map(chunk).collect();
        self.answer(200, &json!({"chunks": chunks, "nextIndex": 0}).to_string())
    }

    fn created(&mut self) {
        assert_eq!(self.answer(201, r#"{"written":1}"#), Ok(()));
    }

    /// Send chunk 0, and have it accepted.
    fn begun(mut self) -> Self {
        assert_eq!(self.request().len(), 1);
        self.created();
        self
    }

    fn events(&mut self) -> Vec<SenderEvent> {
        std::iter::from_fn(|| self.sender.poll_event()).collect()
    }
}

#[test]
fn the_metadata_goes_at_once_and_alone() {
    let mut pair = Pair::text();
    pair.send("data");
    let first = pair.request();
    assert_eq!(first.len(), 1);
    assert!(first[0].0 == 0 && first[0].1.contains(r#""contentEncoding":"identity""#), "{first:?}");
    pair.wait(1_000);
    assert_eq!(pair.request(), [], "one request at a time");
    pair.created();
    assert_eq!(pair.request(), [(1, "data".to_owned(), false, None)]);
}

#[test]
fn what_waits_goes_after_the_interval_or_when_enough_chunks_are_whole() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    assert_eq!(pair.request(), []);
    let due = pair.clock.instant() + Duration::from_millis(250);
    assert_eq!(pair.sender.poll_timeout(), Some(due));
    pair.wait(200);
    pair.send("de");
    pair.wait(50);
    assert_eq!(pair.values(), ["abcde"]);
    pair.created();
    assert_eq!(pair.sender.poll_timeout(), None);
    pair.send(&"x".repeat(82));
    assert_eq!(pair.values(), Vec::<String>::new());
    pair.send("yy");
    assert_eq!(pair.values(), ["xxxxxxxx"; 10]);
    pair.created();
    assert_eq!(pair.values(), Vec::<String>::new());
    pair.sender.flush();
    assert_eq!(pair.values(), ["xxyy"]);
}

#[test]
fn the_last_chunk_is_done_or_an_empty_one_behind_it() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    assert_eq!(pair.sender.finish(), Ok(()));
    assert_eq!(pair.request(), [(1, "abc".to_owned(), true, None)]);
    pair.created();
    assert_eq!(pair.events(), [SenderEvent::Written(0), SenderEvent::Written(1), SenderEvent::Finished]);
    assert!(pair.sender.poll_timeout().is_none());
    let mut pair = Pair::text().begun();
    pair.send("abc");
    pair.sender.flush();
    assert_eq!(pair.values(), ["abc"]);
    pair.created();
    assert_eq!(pair.sender.finish(), Ok(()));
    assert_eq!(pair.request(), [(2, String::new(), true, None)]);
    assert_eq!(pair.sender.finish().map_err(|error| error.code()), Err(Code::Misuse));
}

#[test]
fn the_done_chunk_has_the_checksum_of_the_payload() {
    let mut pair = Pair::text().begun();
    pair.send("0123456789");
    pair.sender.finish().expect("open");
    let now = pair.now();
    let request = pair.sender.poll_transmit(now).expect("writable").expect("a request");
    let Transmit::Write(body) = request else { panic!("no write: {request:?}") };
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(body["chunks"][0].get("sha256"), None);
    assert_eq!(body["chunks"][1]["sha256"], Digest::of(b"0123456789").to_string());
}

#[test]
fn the_encoding_is_that_of_the_type_or_of_what_is_sent_first() {
    let encoding = |content_type: &str, encoding, first: &[u8], gzip| {
        let content_type = content_type.to_owned();
        let mut pair = Pair::new(SenderConfig { content_type, encoding, gzip, ..SenderConfig::default() });
        let now = pair.now();
        pair.sender.send(now, first).expect("open");
        let metadata: Value = serde_json::from_str(&pair.request()[0].1).expect("JSON");
        metadata["contentEncoding"].as_str().expect("text").to_owned()
    };
    let bytes = "application/octet-stream";
    assert_eq!(encoding("text/csv", Encoding::Auto, b"a", false), "identity");
    assert_eq!(encoding("application/x+json", Encoding::Auto, b"", false), "identity");
    assert_eq!(encoding(bytes, Encoding::Auto, b"a", false), "base64");
    assert_eq!(encoding("text/csv", Encoding::Base64, b"a", false), "base64");
    assert_eq!(encoding("text/csv", Encoding::Auto, b"\xFF", false), "base64");
    assert_eq!(encoding(bytes, Encoding::Identity, b"\xC3", false), "identity", "more may come");
    assert_eq!(encoding(bytes, Encoding::Identity, b"\xFF", false), "base64");
    assert_eq!(encoding("text/csv", Encoding::Auto, b"a", true), "base64");
}

#[test]
fn what_turns_out_to_be_no_text_fails_the_job() {
    let mut pair = Pair::text().begun();
    let now = pair.now();
    pair.sender.send(now, b"caf\xC3").expect("a code point may be cut");
    pair.sender.flush();
    assert_eq!(pair.values(), ["caf"]);
    pair.created();
    pair.sender.send(now, b"\xA9").expect("its rest");
    assert_eq!(pair.sender.send(now, b"\xFF").map_err(|error| error.code()), Err(Code::Misuse));
    let last = pair.request();
    assert_eq!((last[0].0, last[0].2), (2, true));
    assert_eq!(last[0].3, Some(Misuse::NoText.to_string()));
    assert_eq!(pair.answer(201, "{}"), Err(Code::Misuse), "and the caller learns it again");
}

#[test]
fn a_payload_that_ends_within_a_code_point_or_too_early_fails_the_job() {
    let mut pair = Pair::text().begun();
    let now = pair.now();
    pair.sender.send(now, b"caf\xC3").expect("open");
    assert_eq!(pair.sender.finish().map_err(|error| error.code()), Err(Code::Misuse));
    assert!(pair.request()[0].3.is_some());
    let mut pair = Pair::new(SenderConfig { content_length: Some(2), ..SenderConfig::default() });
    pair.send("a");
    assert_eq!(pair.sender.finish().map_err(|error| error.code()), Err(Code::Misuse));
    assert_eq!(pair.request()[0].0, 0);
    pair.created();
    assert_eq!(pair.request()[0].3, Some(Misuse::Length { expected: 2, actual: 1 }.to_string()));
}

#[test]
fn base64_chunks_hold_threes_until_the_end() {
    let mut pair = Pair::new(SenderConfig { max_chunk: 8, ..SenderConfig::default() }).begun();
    let now = pair.now();
    pair.sender.send(now, b"abcde").expect("open");
    pair.wait(250);
    assert_eq!(pair.values(), ["YWJj"]);
    pair.created();
    pair.sender.send(now, b"fghijk").expect("open");
    pair.sender.finish().expect("open");
    assert_eq!(pair.values(), ["ZGVmZ2hp", "ams="]);
}

#[test]
fn a_job_fails_with_its_reason() {
    let mut pair = Pair::text();
    pair.send("abc");
    assert_eq!(pair.sender.fail("upstream timeout after 30s"), Ok(()));
    assert_eq!(pair.request()[0].0, 0);
    pair.created();
    assert_eq!(pair.request(), [(1, String::new(), true, Some("upstream timeout after 30s".to_owned()))]);
    pair.created();
    assert_eq!(pair.events().last(), Some(&SenderEvent::Finished));
}

#[test]
fn a_reason_is_cut_where_buffers_would_refuse_it() {
    let mut pair = Pair::text().begun();
    assert_eq!(pair.sender.fail(&"é".repeat(70_000)), Ok(()));
    assert_eq!(pair.request()[0].3.as_ref().map(String::len), Some(64 << 10));
}

#[test]
fn a_write_goes_again_after_growing_pauses_and_is_the_same() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    pair.wait(250);
    let first = pair.request();
    for (pause, status) in [(250, 503), (500, 429), (1_000, 500), (2_000, 0), (4_000, 599), (5_000, 503), (5_000, 503)]
    {
        match status {
            0 => {
                let now = pair.now();
                pair.sender.handle_failure(now, "connection reset");
            }
            status => assert_eq!(pair.answer(status, ""), Ok(())),
        }
        pair.wait(pause - 1);
        assert_eq!(pair.request(), []);
        pair.wait(1);
        assert_eq!(pair.request(), first);
    }
    pair.created();
    pair.wait(40_000);
    let now = pair.now();
    assert_eq!(pair.sender.handle_timeout(now), Ok(()), "what has succeeded is no failure");
}

#[test]
fn waits_beyond_the_clock_never_end() {
    let (flush_interval, stall_timeout) = (Duration::MAX, Duration::MAX);
    let (retry_interval, max_retry_interval) = (Duration::MAX, Duration::MAX);
    let waits = SenderConfig {
        flush_interval,
        stall_timeout,
        retry_interval,
        max_retry_interval,
        content_type: "text/plain".to_owned(),
        ..SenderConfig::default()
    };
    let mut pair = Pair::new(waits).begun();
    pair.send("abc");
    pair.wait(1_000_000_000);
    assert!(pair.request().is_empty());
    pair.sender.flush();
    assert_eq!(pair.request().len(), 1);
    let now = pair.now();
    pair.sender.handle_failure(now, "connection refused");
    pair.wait(1_000_000_000);
    let now = pair.now();
    pair.sender.handle_timeout(now).expect("no stall");
    assert!(pair.request().is_empty());
}

#[test]
fn writes_that_fail_for_too_long_are_a_stall() {
    let mut pair = Pair::text().begun();
    pair.send("abc");
    pair.wait(250);
    let began = pair.clock.instant();
    assert_eq!(pair.request().len(), 1);
    let now = pair.now();
    pair.sender.handle_failure(now, "connection refused");
    while let Some(due) = pair.sender.poll_timeout() {
        pair.clock.advance_to(due);
        let now = pair.now();
        if let Err(error) = pair.sender.handle_timeout(now) {
            let failure = Failure::Request("connection refused".to_owned());
            assert_eq!(error, Stalled::Write { index: 1, timeout: Duration::from_secs(30), failure }.into());
            assert_eq!(pair.clock.instant() - began, Duration::from_secs(30));
            return;
        }
        if !pair.request().is_empty() {
            let now = pair.now();
            pair.sender.handle_failure(now, "connection refused");
        }
    }
    panic!("it never stalls");
}

#[test]
fn refusals_are_final() {
    for (status, code) in [
        (400, Code::Malformed),
        (401, Code::Unauthorized),
        (404, Code::NotFound),
        (410, Code::Expired),
        (302, Code::UnexpectedStatus),
    ] {
        let mut pair = Pair::text();
        assert_eq!(pair.request().len(), 1);
        assert_eq!(pair.answer(status, "why"), Err(code));
        let now = pair.now();
        assert_eq!(pair.sender.send(now, b"x").map_err(|error| error.code()), Err(code));
        assert_eq!((pair.request(), pair.sender.poll_timeout()), (vec![], None));
    }
}

#[test]
fn a_job_that_is_too_large_ends_with_an_error_in_the_place_of_what_was_refused() {
    let mut pair = Pair::text().begun();
    pair.send("abcdefghij");
    pair.sender.flush();
    assert_eq!(pair.request().len(), 2);
    assert_eq!(pair.answer(413, "too large"), Ok(()));
    assert_eq!(pair.values(), ["abcdefgh"]);
    assert_eq!(pair.answer(413, "too large"), Ok(()));
    let last = pair.request();
    assert_eq!((last.len(), last[0].0, last[0].2, last[0].3.is_some()), (1, 1, true, true));
    assert_eq!(pair.answer(201, "{}"), Err(Code::TooLarge));
    assert_eq!(pair.events().last(), Some(&SenderEvent::Finished));
}

#[test]
fn a_batch_that_is_too_large_goes_again_in_smaller_ones() {
    let mut pair = Pair::text().begun();
    pair.send("aaaaaaaabbbbbbbbccccccccddddddddeeeeeeee");
    pair.sender.finish().expect("open");
    assert_eq!(pair.request().len(), 5);
    assert_eq!(pair.answer(413, "<html>"), Ok(()));
    assert_eq!(pair.values(), ["aaaaaaaa", "bbbbbbbb"]);
    assert!(pair.sender.is_split());
    let no_network = pair.now();
    pair.sender.handle_failure(no_network, "no network");
    pair.wait(250);
    assert_eq!(pair.values(), ["aaaaaaaa", "bbbbbbbb"]);
    assert_eq!(pair.answer(201, r#"{"written":2}"#), Ok(()));
    assert_eq!(pair.events().last(), Some(&SenderEvent::Written(2)));
    assert_eq!(pair.values(), ["cccccccc", "dddddddd"]);
    assert_eq!(pair.answer(413, ""), Ok(()));
    assert_eq!(pair.values(), ["cccccccc"]);
    assert_eq!(pair.answer(201, r#"{"written":1}"#), Ok(()));
    assert_eq!(pair.request(), [(4, "dddddddd".to_owned(), false, None)]);
    assert_eq!(pair.answer(201, r#"{"written":1}"#), Ok(()));
    assert!(!pair.events().contains(&SenderEvent::Finished));
    assert_eq!(pair.request(), [(5, "eeeeeeee".to_owned(), true, None)]);
    assert_eq!(pair.answer(201, r#"{"written":1}"#), Ok(()));
    assert_eq!(pair.events().last(), Some(&SenderEvent::Finished));
}

#[test]
fn what_was_cut_off_a_batch_ends_with_a_job_that_is_too_large_or_cancelled() {
    for (status, body) in [(413, ""), (201, r#"{"written":2,"cancelled":true}"#)] {
        let mut pair = Pair::text().begun();
        pair.send("aaaaaaaabbbbbbbbccccccccdddddddd");
        pair.sender.finish().expect("open");
        assert_eq!(pair.request().len(), 4);
        assert_eq!(pair.answer(413, ""), Ok(()));
        assert_eq!(pair.request().len(), 2);
        assert_eq!(pair.answer(status, body), Ok(()));
        if status == 413 {
            assert_eq!(pair.values(), ["aaaaaaaa"]);
            assert_eq!(pair.answer(413, ""), Ok(()));
        }
        let last = pair.request();
        let index = if status == 413 { 1 } else { 3 };
        assert_eq!((last.len(), last[0].0, last[0].2, last[0].3.is_some()), (1, index, true, true));
        assert!(pair.answer(201, r#"{"written":1}"#).is_err());
        assert_eq!(pair.events().last(), Some(&SenderEvent::Finished));
    }
}

#[test]
fn a_cancelled_job_ends_with_an_error_and_takes_no_more() {
    let mut pair = Pair::text().begun();
    pair.send("abcdefghij");
    pair.sender.flush();
    assert_eq!(pair.request().len(), 2);
    pair.send("more");
    assert_eq!(pair.answer(201, r#"{"written":2,"cancelled":true}"#), Ok(()));
    assert_eq!(pair.events().last(), Some(&SenderEvent::Cancelled));
    let now = pair.now();
    assert_eq!(pair.sender.send(now, b"x").map_err(|error| error.code()), Err(Code::Cancelled));
    assert_eq!(pair.request(), [(3, String::new(), true, Some("cancelled by the consumer".to_owned()))]);
    assert_eq!(pair.answer(201, r#"{"written":1,"cancelled":true}"#), Err(Code::Cancelled));
    assert_eq!(pair.events(), [SenderEvent::Written(3), SenderEvent::Finished]);
}

#[test]
fn calls_behind_the_end_are_refused_and_answers_to_no_request_are_ignored() {
    let mut pair = Pair::text().begun();
    let now = pair.now();
    assert_eq!(pair.answer(503, ""), Ok(()));
    pair.sender.handle_failure(now, "late");
    assert_eq!((pair.request(), pair.sender.poll_timeout()), (vec![], None));
    pair.sender.finish().expect("open");
    for requests in [1, 0] {
        let refused = [pair.sender.send(now, b"x"), pair.sender.finish(), pair.sender.fail("no")];
        assert!(refused.iter().all(|refused| refused.as_ref().is_err_and(|error| error.code() == Code::Misuse)));
        assert_eq!(pair.request().len(), requests);
        assert_eq!(pair.answer(201, r#"{"written":1}"#), Ok(()));
    }
    assert_eq!(pair.events(), [SenderEvent::Written(0), SenderEvent::Written(1), SenderEvent::Finished]);
}

#[test]
fn a_compressed_payload_that_fails_says_why() {
    let config = SenderConfig { gzip: true, ..SenderConfig::default() };
    let mut pair = Pair::new(config).begun();
    pair.send("abc");
    pair.sender.fail("no such page").expect("open");
    assert_eq!(pair.request(), [(1, String::new(), true, Some("no such page".to_owned()))]);
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let wrong = [
        (SenderConfig { content_type: "text".to_owned(), ..SenderConfig::default() }, Misuse::ContentType),
        (SenderConfig { max_chunk: 3, ..SenderConfig::default() }, Misuse::ChunkLength),
        (SenderConfig { max_chunks_per_batch: 0, ..SenderConfig::default() }, Misuse::BatchLength),
        (SenderConfig { gzip: true, encoding: Encoding::Identity, ..SenderConfig::default() }, Misuse::GzipText),
        (SenderConfig { gzip: true, content_length: Some(1), ..SenderConfig::default() }, Misuse::GzipLength),
        (SenderConfig { meta: Some("[]".to_owned()), ..SenderConfig::default() }, Misuse::MetaObject),
    ];
    let made = |config| Sender::new(JobId::parse(JOB).expect("valid"), config).err();
    for (config, misuse) in wrong {
        assert_eq!(made(config), Some(misuse.into()));
    }
    let broken = made(SenderConfig { meta: Some("{".to_owned()), ..SenderConfig::default() });
    assert!(matches!(broken, Some(Error::Misuse(Misuse::Meta { .. }))), "{broken:?}");
}
