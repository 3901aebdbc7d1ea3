//! Tests of a job's limits, and of a job against a plain model.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use penstock_pimp::{Batch, Code, Error, Job, JobId, Limits, Now, Settings, State, Written};
use penstock_testkit::clock::FakeClock;
use proptest::prelude::*;
use serde_json::json;

const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";
const METADATA: &str = r#"{"contentType":"text/plain","contentEncoding":"identity"}"#;
const KIB: usize = 1 << 10;

fn start() -> Now {
    let clock = FakeClock::new();
    Now { instant: clock.instant(), unix_micros: clock.unix_micros() }
}

fn chunk(index: u32, value: &str, done: bool) -> serde_json::Value {
    let error = (index == 0 && done).then_some("why");
    json!({"jobId": JOB, "index": index, "value": value, "done": done, "error": error, "createdAt": 1})
}

fn write(job: &mut Job, limits: &Limits, chunks: &[serde_json::Value]) -> Result<Written, Code> {
    let body = json!({"chunks": chunks}).to_string();
    Batch::decode(body.as_bytes(), JobId::parse(JOB).expect("valid"), limits)
        .and_then(|batch| job.handle_write(start(), Some("w"), &batch, limits))
        .map_err(|error| error.code())
}

fn job(limits: &Limits) -> Job {
    Job::create(start(), "w", Settings::default(), limits).expect("valid")
}

#[test]
fn the_last_64_kib_are_for_a_final_chunk_only() {
    let limits = Limits { job: 160 * KIB as u64, ..Limits::default() };
    let mut job = job(&limits);
    let half = "x".repeat(48 * KIB);
    assert_eq!(write(&mut job, &limits, &[chunk(1, &half, false), chunk(2, &half, false)]).map(|_| ()), Ok(()));
    assert_eq!(write(&mut job, &limits, &[chunk(3, "x", false)]).map(|_| ()), Err(Code::TooLarge));
    let (most, more) = ("x".repeat(64 * KIB), "x".repeat(64 * KIB + 1));
    assert_eq!(write(&mut job, &limits, &[chunk(3, &more, true)]).map(|_| ()), Err(Code::TooLarge));
    assert_eq!(write(&mut job, &limits, &[chunk(3, &most, true)]).map(|_| ()), Ok(()));
}

#[test]
fn a_value_has_at_most_256_kib_and_a_request_4096_envelopes() {
    let limits = Limits::default();
    let mut job = job(&limits);
    let most = "é".repeat(128 * KIB);
    assert_eq!(write(&mut job, &limits, &[chunk(1, &most, false)]).map(|_| ()), Ok(()));
    assert_eq!(write(&mut job, &limits, &[chunk(2, &format!("{most}x"), false)]).map(|_| ()), Err(Code::TooLarge));
    let many = vec![chunk(3, "", false); 4_096];
    assert_eq!(write(&mut job, &limits, &many).map(|written| written.duplicates), Ok(4_095));
    assert_eq!(write(&mut job, &limits, &vec![chunk(3, "", false); 4_097]).map(|_| ()), Err(Code::TooLarge));
    assert_eq!(write(&mut job, &limits, &vec![chunk(3, "", false); 70_000]).map(|_| ()), Err(Code::TooLarge));
}

#[test]
fn a_body_beyond_its_limit_is_not_read() {
    let limits = Limits { body: 10, ..Limits::default() };
    let id = JobId::parse(JOB).expect("valid");
    let refused = |body: &[u8]| Batch::decode(body, id, &limits).map_err(|error| error.code()).err();
    assert_eq!(refused(b"{}        "), Some(Code::Malformed));
    assert_eq!(refused(b"{}         "), Some(Code::TooLarge));
}

#[test]
fn deep_json_costs_nothing_where_it_is_ignored_and_is_refused_where_it_is_not() {
    let limits = Limits::default();
    let id = JobId::parse(JOB).expect("valid");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let ignored = format!("{{\"chunks\":[{}],\"more\":{deep}}}", chunk(1, "x", false));
    assert!(Batch::decode(ignored.as_bytes(), id, &limits).is_ok());
    let wrong = format!("{{\"chunks\":{deep}}}");
    assert_eq!(Batch::decode(wrong.as_bytes(), id, &limits).map_err(|error| error.code()), Err(Code::Malformed));
}

#[test]
fn keys_and_lives_have_bounds() {
    let limits = Limits::default();
    let create = |key: &str, ttl| {
        let settings = Settings { ttl_ms: Some(ttl), read_key: None };
        Job::create(start(), key, settings, &limits).map(|job| job.expires_at() - job.created_at())
    };
    assert_eq!(create("k", 300_000), Ok(300_000));
    for (key, ttl) in [("", 1), ("a b", 1), ("k", 0), ("k", 300_001)] {
        assert_eq!(create(key, ttl).map_err(|error| error.code()), Err(Code::Malformed));
    }
    assert_eq!(
        Job::create(start(), "k", Settings::default(), &limits).map(|job| job.state(start())),
        Ok(State::Created)
    );
}

/// A plain model of a job: index to (bytes, done).
#[derive(Debug, Clone, Default)]
struct Model(BTreeMap<u32, (usize, bool)>);

impl Model {
    fn write(&mut self, limits: &Limits, chunks: &[(u32, usize, bool)]) -> Option<usize> {
        let mut next = self.clone();
        let mut new = 0;
        for (index, bytes, done) in chunks {
            if !next.0.contains_key(index) {
                next.0.insert(*index, (*bytes, *done));
                new += 1;
            }
        }
        let highest = next.0.keys().last().copied();
        let ends: Vec<u32> = next.0.iter().filter(|(_, (_, done))| *done).map(|(index, _)| *index).collect();
        let total: usize = next.0.values().map(|(bytes, _)| bytes).sum();
        let before: usize = next.0.values().filter(|(_, done)| !done).map(|(bytes, _)| bytes).sum();
        let fits = total as u64 <= limits.job && before as u64 <= limits.job.saturating_sub(64 << 10);
        if ends.len() > 1 || ends.first().is_some_and(|end| Some(*end) != highest) || !fits {
            return None;
        }
        *self = next;
        Some(new)
    }
}

proptest! {
    #[test]
    fn a_job_is_what_the_model_says(
        writes in prop::collection::vec(prop::collection::vec((1_u32..12, 0_usize..20, prop::bool::weighted(0.15)), 1..6), 1..12)
    ) {
        let limits = Limits { job: ((64 << 10) + 60 + METADATA.len()) as u64, ..Limits::default() };
        let (mut job, mut model) = (job(&limits), Model::default());
        prop_assert_eq!(write(&mut job, &limits, &[chunk(0, METADATA, false)]).map(|written| written.new), Ok(vec![0]));
        model.0.insert(0, (METADATA.len(), false));
        for chunks in writes {
            let bodies: Vec<_> = chunks.iter().map(|(index, bytes, done)| chunk(*index, &"x".repeat(*bytes), *done)).collect();
            let expected = model.write(&limits, &chunks);
            let found = write(&mut job, &limits, &bodies);
            prop_assert_eq!(found.as_ref().ok().map(|written| written.new.len()), expected);
            let poll = job.handle_poll(start(), None, 0, None).expect("nobody needs a key");
            prop_assert_eq!(poll.indices, model.0.keys().copied().collect::<Vec<_>>());
            let end = model.0.iter().find(|(_, (_, done))| *done).map(|(index, _)| *index as usize);
            prop_assert_eq!(job.is_whole(), end == Some(model.0.len() - 1));
            let status = job.handle_status(start(), None).expect("nobody needs a key");
            prop_assert_eq!(status.bytes, model.0.values().map(|(bytes, _)| *bytes as u64).sum::<u64>());
        }
    }
}

#[test]
fn the_record_of_a_job_has_the_names_that_earlier_buffers_wrote() {
    let limits = Limits::default();
    let mut job = job(&limits);
    write(&mut job, &limits, &[chunk(0, METADATA, false), chunk(1, "xyz", true)]).expect("fits");
    let record: serde_json::Value = serde_json::from_slice(&job.encode().expect("JSON")).expect("JSON");
    assert_eq!(record["octets"], METADATA.len() + 3);
    assert_eq!(record["done"]["octets"], 3);
}

#[test]
fn a_job_of_which_its_buffer_has_lost_something_is_refused_until_it_expires() {
    let limits = Limits::default();
    let mut job = job(&limits);
    write(&mut job, &limits, &[chunk(0, METADATA, false), chunk(1, "x", true)]).expect("fits");
    job.set_lost();
    let mut job = Job::decode(&job.encode().expect("JSON")).expect("as it was");
    let now = start();
    assert_eq!(job.state(now), State::Failed);
    let refused = [
        job.handle_poll(now, None, 0, None).map(|_| ()),
        job.handle_status(now, None).map(|_| ()),
        job.handle_follow(now, None, 0).map(|_| ()),
        job.handle_create(now, Some("w")),
        job.handle_delete(now, Some("w")),
        job.handle_cancel(now, Some("w")).map(|_| ()),
    ];
    for refused in refused {
        let error = refused.expect_err("lost");
        assert_eq!((error.code(), error.code().status()), (Code::Lost, Some(410)));
    }
    assert_eq!(write(&mut job, &limits, &[chunk(1, "x", true)]).map(|_| ()), Err(Code::Lost));
    assert_eq!(job.check_writer(now, Some("other")).map_err(|error| error.code()), Err(Code::Unauthorized));
    let body = serde_json::to_vec(&json!({"error": "why", "code": "LOST"})).expect("JSON");
    assert_eq!(Error::of_response("it", 410, &body).code(), Code::Lost);
    assert_eq!(Error::of_response("it", 410, b"<html>").code(), Code::Expired);
}
