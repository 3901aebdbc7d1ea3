//! Tests of the vectors under `tests/vectors/pimp`: valid input is stored as the file says, invalid input gets its
//! status, jobs behave as the dialogues say, and values decode to their payloads wherever they are cut.
// A vector that does not match its expectation fails the test that reads it.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use penstock_pimp::{
    Batch, Code, Creation, Decoder, Digest, Envelope, Error, Job, JobId, Limits, Metadata, Query, Settings,
};
use penstock_testkit::clock::FakeClock;
use penstock_testkit::vectors::{Hex, load};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";
const METADATA: &str = r#"{"contentType":"text/plain","contentEncoding":"identity"}"#;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Write {
    name: String,
    body: String,
    stored: Vec<Value>,
    duplicates: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Invalid {
    name: String,
    body: Option<String>,
    hex: Option<Hex>,
    status: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Dialogue {
    name: String,
    read_key: Option<String>,
    steps: Vec<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    name: String,
    metadata: Value,
    values: Vec<String>,
    sha256: Option<String>,
    payload: Option<Hex>,
    code: Option<String>,
}

fn now(clock: &FakeClock) -> penstock_pimp::Now {
    penstock_pimp::Now { instant: clock.instant(), unix_micros: clock.unix_micros() }
}

fn id() -> JobId {
    JobId::parse(JOB).expect("valid")
}

#[test]
fn a_write_is_stored_as_it_stands() {
    let (clock, limits) = (FakeClock::new(), Limits::default());
    let vectors: Vec<Write> = load("pimp", "writes").expect("readable");
    assert!(vectors.len() >= 17);
    for Write { name, body, stored, duplicates } in vectors {
        let batch = Batch::decode(body.as_bytes(), id(), &limits).expect(&name);
        let mut job = Job::create(now(&clock), "w", Settings::default(), &limits).expect("valid");
        let written = job.handle_write(now(&clock), Some("w"), &batch, &limits).expect(&name);
        assert_eq!(written.duplicates, duplicates, "{name}");
        let mut found = Vec::new();
        for place in written.new {
            let envelope = &batch.envelopes()[place];
            let mut bytes = Vec::new();
            envelope.encode(&mut bytes).expect("memory");
            let text = String::from_utf8(bytes).expect("text");
            assert_eq!(Envelope::decode(&text, id(), &limits).as_ref(), Ok(envelope), "{name}");
            found.push(serde_json::from_str::<Value>(&text).expect("JSON"));
        }
        assert_eq!(found, stored, "{name}");
    }
}

#[test]
fn a_write_that_is_wrong_has_its_status() {
    let vectors: Vec<Invalid> = load("pimp", "writes-invalid").expect("readable");
    assert!(vectors.len() >= 85);
    for Invalid { name, body, hex, status } in vectors {
        let bytes = hex.map_or_else(|| body.expect("body or hex").into_bytes(), |hex| hex.0);
        let result = Batch::decode(&bytes, id(), &Limits::default());
        assert_eq!(result.map_err(|error| error.code().status()), Err(Some(status)), "{name}");
    }
}

/// A buffer with one job. The key of a caller is "w" unless a step names another.
struct Buffer {
    clock: FakeClock,
    job: Job,
    limits: Limits,
}

impl Buffer {
    fn new(read_key: Option<&str>) -> Self {
        let (clock, limits) = (FakeClock::new(), Limits::default());
        let settings = Settings { ttl_ms: Some(1_000), read_key };
        let job = Job::create(now(&clock), "w", settings, &limits).expect("valid");
        Self { clock, job, limits }
    }

    /// Return the answer to a step, and its status.
    fn answer(&mut self, step: &Map<String, Value>) -> Result<(u16, Value), Error> {
        let now = now(&self.clock);
        let key = step.get("key").map_or(Some("w"), Value::as_str);
        if let Some(chunks) = step.get("write").and_then(Value::as_array) {
            let body = json!({"chunks": chunks.iter().map(envelope).collect::<Vec<_>>()}).to_string();
            let batch = Batch::decode(body.as_bytes(), id(), &self.limits)?;
            let written = self.job.handle_write(now, key, &batch, &self.limits)?;
            let status = if written.new.is_empty() { 200 } else { 201 };
            let count = (written.new.len(), written.duplicates);
            return Ok((status, json!({"written": count.0, "duplicates": count.1, "cancelled": written.cancelled})));
        }
        if let Some(query) = step.get("poll").and_then(Value::as_str) {
            let query = Query::decode(Some(query))?;
            let found = self.job.handle_poll(now, key, query.from, query.limit)?;
            let (indices, next, finished) = (found.indices, found.next_index, found.finished);
            return Ok((200, json!({"indices": indices, "nextIndex": next, "finished": finished})));
        }
        if step.contains_key("create") {
            return self.job.handle_create(now, key).map(|()| (200, json!({})));
        }
        if let Some(body) = step.get("take_over") {
            let creation = Creation::decode(body.to_string().as_bytes(), &self.limits)?;
            let generation = step.get("if_match").and_then(Value::as_str).expect("if_match");
            self.job.handle_take_over(now, key, generation, creation.write_key.as_deref())?;
            return Ok((200, json!({"etag": self.job.etag()})));
        }
        if step.contains_key("cancel") {
            return self.job.handle_cancel(now, key).map(|cancelled| (200, json!({"cancelled": cancelled})));
        }
        assert!(step.contains_key("delete"), "a step that nobody knows");
        self.job.handle_delete(now, key).map(|()| (204, json!({})))
    }
}

fn envelope(chunk: &Value) -> Value {
    let index = chunk["index"].as_u64().expect("index");
    let value = chunk["value"].as_str().unwrap_or(METADATA);
    let done = chunk["done"].as_bool().unwrap_or(false);
    json!({"jobId": JOB, "index": index, "value": value, "done": done, "error": chunk["error"], "createdAt": 1})
}

#[test]
fn jobs_answer_as_the_dialogues_say() {
    let dialogues: Vec<Dialogue> = load("pimp", "jobs").expect("readable");
    assert!(dialogues.len() >= 15);
    for Dialogue { name, read_key, steps } in dialogues {
        let mut buffer = Buffer::new(read_key.as_deref());
        let start = buffer.clock.instant();
        for (number, step) in steps.iter().enumerate() {
            let place = format!("{name}, step {number}");
            let at = step.get("at").and_then(Value::as_u64).unwrap_or(0);
            buffer.clock.advance_to(start + Duration::from_millis(at));
            let before = buffer.job.clone();
            let (status, body) = buffer.answer(step).unwrap_or_else(|error| {
                assert_eq!(buffer.job, before, "{place}: what is refused has changed something");
                (error.code().status().expect("an answer of a buffer"), json!({}))
            });
            assert_eq!(Some(u64::from(status)), step["status"].as_u64(), "{place}");
            for field in ["written", "duplicates", "cancelled", "indices", "nextIndex", "finished", "etag"] {
                let implied = if status > 201 || body.get(field).is_none() {
                    Value::Null
                } else {
                    match field {
                        "written" | "duplicates" => json!(0),
                        "cancelled" | "finished" => json!(false),
                        _ => Value::Null,
                    }
                };
                let expected = step.get(field).unwrap_or(&implied);
                assert_eq!(body.get(field).unwrap_or(&Value::Null), expected, "{place}: {field}");
            }
            if let Some(state) = step.get("state") {
                assert_eq!(buffer.job.state(now(&buffer.clock)).name(), state, "{place}");
            }
            let record = buffer.job.encode().and_then(|bytes| Job::decode(&bytes));
            assert_eq!(record.as_ref(), Ok(&buffer.job), "{place}");
        }
    }
}

fn decode(metadata: &Metadata, values: &[String], sha256: Option<&Digest>) -> Result<Vec<u8>, Code> {
    let (mut decoder, mut out) = (Decoder::new(metadata, 1 << 20), Vec::new());
    values
        .iter()
        .try_for_each(|value| decoder.push(value, &mut out))
        .and_then(|()| decoder.finish(sha256, &mut out))
        .map(|()| out)
        .map_err(|error| error.code())
}

#[test]
fn payloads_come_out_of_their_values() {
    let vectors: Vec<Payload> = load("pimp", "payloads").expect("readable");
    assert!(vectors.len() >= 18);
    for Payload { name, metadata, values, sha256, payload, code } in vectors {
        let metadata = Metadata::decode(&metadata.to_string()).expect(&name);
        let sha256 = sha256.map(|text| Digest::parse(&text).expect(&name));
        let found = decode(&metadata, &values, sha256.as_ref()).map(Hex).map_err(Code::name);
        let expected = payload.ok_or_else(|| code.expect("payload or code"));
        assert_eq!(
            found.as_ref().map_err(|code| (*code).to_owned()),
            expected.as_ref().map_err(Clone::clone),
            "{name}"
        );
    }
}
