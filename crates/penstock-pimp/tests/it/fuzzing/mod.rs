//! The bodies of the fuzz targets, on inputs that are nearly valid.

#[allow(unreachable_pub)]
mod bodies;

use std::time::Instant;

use proptest::prelude::*;

use crate::fuzzing::bodies::{pimp_batch, pimp_consumer};

const JOB: &str = "01010101-0101-4101-8101-010101010101";
const METADATA: [&str; 4] = [
    r#"{\"contentType\":\"a/b\",\"contentEncoding\":\"base64\"}"#,
    r#"{\"contentType\":\"a/b\",\"contentEncoding\":\"identity\",\"contentLength\":3}"#,
    r#"{\"contentType\":\"a/b\",\"contentEncoding\":\"base64\",\"compression\":\"gzip\"}"#,
    r#"{\"contentType\":\"a/b\",\"contentEncoding\":\"hex\"}"#,
];

fn envelope() -> impl Strategy<Value = String> {
    let job = prop_oneof![30 => Just(JOB), 1 => Just("01010101-0101-4101-8101-010101010100")];
    let value = prop_oneof![6 => "[A-Z]{0,8}", 3 => Just("YWJj".to_owned()), 1 => Just("H4sIAAAAAAAA/0vMSQYAwkEkNQMAAAA=".to_owned()), 1 => "[\\\\ud8-]{0,6}"];
    let index = prop_oneof![4 => 0_u64..4, 2 => 0_u64..20, 1 => any::<u64>()];
    let meta = prop::sample::select(METADATA.to_vec());
    let error = prop_oneof![8 => Just("null"), 1 => Just("\"why\""), 1 => Just("7")];
    (job, value, index, meta, prop::bool::weighted(0.1), error).prop_map(|(job, value, index, meta, done, error)| {
        let value = if index == 0 && !done { meta.to_owned() } else { value };
        format!(
            "{{\"jobId\":\"{job}\",\"index\":{index},\"value\":\"{value}\",\"done\":{done},\"error\":{error},\"createdAt\":1}}"
        )
    })
}

fn body() -> impl Strategy<Value = String> {
    let cut = prop_oneof![12 => Just(0_usize), 1 => 1_usize..20];
    (prop::collection::vec(envelope(), 0..8), cut).prop_map(|(envelopes, cut)| {
        let mut body = format!("{{\"chunks\":[{}],\"nextIndex\":1}}", envelopes.join(","));
        body.truncate(body.len().saturating_sub(cut));
        body
    })
}

proptest! {
    #[test]
    fn a_write_that_passes_is_stored_as_it_was(body in body(), metadata in prop::sample::select(METADATA.to_vec())) {
        pimp_batch(Instant::now(), body.as_bytes());
        pimp_batch(Instant::now(), metadata.replace('\\', "").as_bytes());
    }

    #[test]
    fn an_evil_buffer_gets_nowhere(bodies in prop::collection::vec(body(), 1..8)) {
        pimp_consumer(Instant::now(), bodies.join("\0").as_bytes());
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(input in prop::collection::vec(any::<u8>(), 0..200)) {
        pimp_batch(Instant::now(), &input);
        pimp_consumer(Instant::now(), &input);
    }
}
