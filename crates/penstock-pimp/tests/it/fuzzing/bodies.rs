//! The checks that the fuzz targets in `/fuzz` run on arbitrary bytes.

use std::time::{Duration, Instant};

use penstock_pimp::{
    Batch, Consumer, ConsumerConfig, ConsumerEvent, Creation, Envelope, Job, JobId, Limits, Metadata, Now, Query,
    Settings,
};

/// The job of all inputs: `01010101-0101-4101-8101-010101010101`.
const JOB: [u8; 16] = [1; 16];

/// Return limits so small that arbitrary bytes reach them.
fn limits() -> Limits {
    Limits { job: 70_000, chunks: 16, value: 2_048, error: 64, body: 1 << 16, ttl: 1_000 }
}

/// Parse the body of a write, of a PUT, metadata and a query. Accepted input must decode to the same value after it is
/// encoded again, and a job that takes it must keep consistent totals.
pub fn pimp_batch(instant: Instant, input: &[u8]) {
    let (job_id, limits) = (JobId::from_random(JOB), limits());
    let text = String::from_utf8_lossy(input);
    let _ = (Creation::decode(input, &limits), Query::decode(Some(&text)));
    if let Ok(metadata) = Metadata::decode(&text) {
        let again = metadata.encode().and_then(|text| Metadata::decode(&text));
        assert_eq!(again, Ok(metadata), "metadata reads otherwise");
    }
    let Ok(batch) = Batch::decode(input, job_id, &limits) else { return };
    for envelope in batch.envelopes() {
        let mut again = Vec::new();
        assert_eq!(envelope.encode(&mut again), Ok(()));
        let again = Envelope::decode(&String::from_utf8_lossy(&again), job_id, &limits);
        assert_eq!(again, Ok(envelope.clone()), "an envelope reads otherwise");
    }
    let now = Now { instant, unix_micros: 0 };
    let Ok(mut job) = Job::create(now, "key", Settings::default(), &limits) else { return };
    let before = job.clone();
    match job.handle_write(now, Some("key"), &batch, &limits) {
        Err(_) => assert_eq!(job, before, "a write that is refused has changed something"),
        Ok(written) => {
            assert_eq!(written.new.len() + written.duplicates, batch.envelopes().len());
            assert_eq!(usize::try_from(job.indices().count()), Ok(written.new.len()));
            let again = job.handle_write(now, Some("key"), &batch, &limits);
            assert_eq!(again.map(|again| again.new.len()), Ok(0), "a write is not idempotent");
            let record = job.encode().and_then(|bytes| Job::decode(&bytes));
            assert_eq!(record, Ok(job), "a record reads otherwise");
        }
    }
}

/// Feed a consumer with the answers of a malicious buffer, separated by zero bytes. Memory must stay bounded, and an
/// end or an error must be final.
pub fn pimp_consumer(instant: Instant, input: &[u8]) {
    let mut now = Now { instant, unix_micros: 0 };
    let config = ConsumerConfig { limits: limits(), inflated: 1 << 16, ..ConsumerConfig::default() };
    let mut consumer = Consumer::new(now, JobId::from_random(JOB), config);
    let mut received = 0;
    for answer in input.split(|byte| *byte == 0) {
        now.instant += Duration::from_secs(5);
        let ended = consumer.poll_transmit(now).is_none();
        let before = consumer.next_index();
        let result = consumer.handle_response(now, 200, answer);
        assert!(!ended || consumer.next_index() == before, "chunks are taken after the end");
        while let Some(event) = consumer.poll_event() {
            if let ConsumerEvent::Data(data) = event {
                received += data.len();
            }
        }
        // The limit is checked after each inflated step.
        assert!(received <= 70_000 + (8 << 20), "the payload is beyond its limit");
        if let Err(error) = result {
            assert_eq!(consumer.handle_response(now, 200, b"{}"), Err(error), "an error passed");
            assert_eq!(consumer.poll_timeout(), None);
        }
    }
}
