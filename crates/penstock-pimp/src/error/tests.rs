use std::time::Duration;

use penstock_wire::{ErrorKind, LimitExceeded};

use super::{Code, Conflict, Corrupt, Error, Failure, Lost, Malformed, Misuse, Stalled, Unwritable};
use crate::digest::Digest;
use crate::id::JobId;

const JOB: &str = "550e8400-e29b-41d4-a716-446655440000";

fn check<const N: usize>(code: Code, table: [(Error, &str); N]) {
    for (error, message) in table {
        assert_eq!((error.code(), error.kind(), error.to_string().as_str()), (code, code.kind(), message));
    }
}

fn why() -> String {
    "why".to_owned()
}

#[test]
fn an_error_is_small() {
    assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
}

#[test]
fn every_malformed_request_has_its_message_and_its_code() {
    #[allow(invalid_from_utf8)]
    let utf8 = std::str::from_utf8(b"\xFF").expect_err("no text");
    check(
        Code::Malformed,
        [
            (Malformed::JobId.into(), "jobId is no UUIDv4 in lower case"),
            (Malformed::OtherJob.into(), "jobId is not that of the path"),
            (Malformed::Metadata { reason: why() }.into(), "chunk 0 is no metadata: why"),
            (Malformed::ContentType.into(), "chunk 0 is no metadata: contentType is no MIME type"),
            (Malformed::Meta.into(), "chunk 0 is no metadata: meta is no object"),
            (Malformed::BodyText(utf8).into(), "the body is no UTF-8: invalid utf-8 sequence of 1 bytes from index 0"),
            (Malformed::Body { reason: why() }.into(), "the body: why"),
            (Malformed::BodyEnd.into(), "the body broke off"),
            (Malformed::NoChunks.into(), "chunks is empty"),
            (Malformed::Ttl { limit: 9 }.into(), "ttlMs is not within 1 and 9"),
            (Malformed::Key { field: "readKey" }.into(), "readKey is no key: 1 to 4096 visible ASCII characters"),
            (Malformed::JobKey.into(), "a key is 1 to 4096 visible ASCII characters"),
            (Malformed::NewKey.into(), "writeKey is missing, or no key"),
            (Malformed::NoGeneration.into(), "writeKey without If-Match"),
            (Malformed::Repeated { name: "from" }.into(), "from comes twice"),
            (Malformed::NoLimit.into(), "limit is 0"),
            (Malformed::Number { name: "wait" }.into(), "wait is no integer of 0 or more"),
            (Malformed::LastEventId.into(), "Last-Event-ID is no index"),
            (Malformed::TriggerKey.into(), "writeKey is no key: visible ASCII characters"),
            (Malformed::TriggerPayload.into(), "payload is no object"),
        ],
    );
}

#[test]
fn every_malformed_chunk_record_and_position_has_its_message_and_its_code() {
    let (job, position) = (JobId::parse(JOB).expect("an ID"), "x".to_owned());
    check(
        Code::Malformed,
        [
            (Malformed::Envelope { reason: why() }.into(), "no envelope: why"),
            (Malformed::Index.into(), "index is above 2^32 - 1"),
            (Malformed::ErrorBeforeEnd { index: 3 }.into(), "chunk 3: error is not null, but done is false"),
            (Malformed::CreatedAt { index: 3 }.into(), "chunk 3: createdAt is above 2^53 - 1"),
            (Malformed::DigestBeforeEnd { index: 3 }.into(), "chunk 3: sha256 is there, but done is false"),
            (Malformed::Digest { index: 3 }.into(), "chunk 3: sha256 is no SHA-256 in lower-case hex"),
            (
                Malformed::MetadataEnd { index: 0 }.into(),
                "chunk 0: done is true without an error, but it is the metadata",
            ),
            (Malformed::Job { reason: why() }.into(), "no record of a job: why"),
            (Malformed::Status { reason: why() }.into(), "the buffer's status is none: why"),
            (Malformed::Position { reason: why() }.into(), "no position in a job: why"),
            (
                Malformed::PositionJob { position, job }.into(),
                &format!("no position in a job: it is one in job x, and this is {JOB}"),
            ),
            (Malformed::PositionDigest.into(), "the position has no state of a SHA-256"),
            (Malformed::PositionPayload.into(), "the position is none of this payload"),
        ],
    );
}

#[test]
fn every_refusal_of_a_buffer_has_its_message_and_its_code() {
    let limit = LimitExceeded { name: "index", limit: 8, actual: 9 };
    check(Code::Unauthorized, [(Error::Unauthorized, "no key, or not this job's")]);
    check(Code::NotFound, [(Error::NotFound, "the job is not known")]);
    check(
        Code::Conflict,
        [
            (Conflict::TwoEnds { first: 3, second: 4 }.into(), "chunks 3 and 4 are both done"),
            (Conflict::BehindEnd { index: 4, done: 3 }.into(), "chunk 4 is above chunk 3, which is done"),
            (Conflict::Key.into(), "the job exists, with another key"),
            (Conflict::Writer { index: 1 }.into(), "chunk 1 is that of another writer, who had the job before"),
            (Conflict::NotCompleted.into(), "the job is not completed"),
        ],
    );
    check(Code::Expired, [(Error::Expired { ttl: 9 }, "the job has expired after 9 ms")]);
    check(
        Code::Lost,
        [
            (Lost::Part.into(), "the buffer's disk was damaged: it has lost a part of the job, which cannot go on"),
            (Lost::Chunk { index: 7 }.into(), "the buffer's store has lost chunk 7 of the job, which cannot go on"),
        ],
    );
    let generation = Error::Generation { etag: "\"2\"".to_owned() };
    check(Code::PreconditionFailed, [(generation, "the generation is \"2\", If-Match names another")]);
    check(Code::TooLarge, [(limit.into(), "index is 9, above the limit of 8")]);
    check(Code::UnsupportedMediaType, [(Error::ContentType, "Content-Type is not application/json")]);
}

#[test]
fn every_end_of_a_job_has_its_message_and_its_code() {
    let url = "http://127.0.0.1/".to_owned();
    check(
        Code::TooLarge,
        [(Error::AnswerLength { url, limit: 9 }, "http://127.0.0.1/: an answer of more than 9 bytes")],
    );
    check(
        Code::NotFound,
        [(Error::of_response("the poll", 404, b"no\nbody"), "the buffer refused the poll with 404: no body")],
    );
    check(
        Code::Failed,
        [
            (Error::Failed { reason: why() }, "the sender failed: why"),
            (Unwritable::Gzip { reason: why() }.into(), "gzip: why"),
            (Unwritable::Chunk { reason: why() }.into(), "a chunk cannot be written: why"),
            (Unwritable::Metadata { reason: why() }.into(), "the metadata cannot be written: why"),
            (Unwritable::Job { reason: why() }.into(), "a job cannot be written: why"),
        ],
    );
    check(Code::Cancelled, [(Error::Cancelled, "the consumer has cancelled the job")]);
    let (refused, busy, withheld) = (Failure::Request(why()), Failure::Status(503), Failure::Withheld { index: 1 });
    let write = |failure| Stalled::Write { index: 1, timeout: Duration::from_millis(9), failure }.into();
    let poll = |last, failure| Stalled::Poll { timeout: Duration::from_millis(9), last, failure }.into();
    check(
        Code::Stalled,
        [
            (write(refused), "chunk 1 could not be written within 9 ms: why"),
            (write(withheld), "chunk 1 could not be written within 9 ms: the buffer has chunk 1, and does not give it"),
            (poll(None, None), "no new chunk within 9 ms: none came"),
            (poll(Some(3), Some(busy)), "no new chunk within 9 ms: the last is 3; the buffer answered with 503"),
        ],
    );
}

#[test]
fn every_corrupt_payload_has_its_message_and_its_code() {
    let (expected, actual) = (Digest::of(b"a"), Digest::of(b"b"));
    let differ =
        format!("the payload is not what its job says: its SHA-256 is {actual}, and the sender said {expected}");
    check(
        Code::Corrupt,
        [
            (
                Corrupt::Base64(base64::DecodeError::InvalidPadding).into(),
                "the payload is not what its job says: no Base64: Invalid padding",
            ),
            (Corrupt::Base64End.into(), "the payload is not what its job says: the Base64 breaks off"),
            (Corrupt::Gzip { reason: why() }.into(), "the payload is not what its job says: no gzip: why"),
            (
                Corrupt::GzipEnd { reason: why() }.into(),
                "the payload is not what its job says: the gzip breaks off: why",
            ),
            (
                Corrupt::Length { expected: 5, actual: 4 }.into(),
                "the payload is not what its job says: contentLength is 5, and 4 bytes came",
            ),
            (Corrupt::Digest { expected: Box::new(expected), actual: Box::new(actual) }.into(), &differ),
        ],
    );
    assert_eq!(Code::Corrupt.kind(), ErrorKind::Violation);
}

#[test]
fn every_misuse_has_its_message_and_its_code() {
    check(
        Code::Misuse,
        [
            (Misuse::Ended.into(), "the job has ended"),
            (Misuse::NoText.into(), "the payload is not the UTF-8 that chunk 0 says it is"),
            (Misuse::CodePoint.into(), "the payload ends within a code point"),
            (Misuse::Length { expected: 5, actual: 4 }.into(), "content_length is 5, and 4 bytes were sent"),
            (Misuse::ContentType.into(), "content_type is no MIME type"),
            (Misuse::BatchLength.into(), "max_chunks_per_batch is 0"),
            (Misuse::ChunkLength.into(), "max_chunk is below 4 bytes"),
            (Misuse::GzipText.into(), "what is compressed is no text: gzip needs base64"),
            (Misuse::GzipLength.into(), "content_length of what is compressed is not known before"),
            (Misuse::Meta { reason: why() }.into(), "meta is no JSON: why"),
            (Misuse::MetaObject.into(), "meta is no JSON object"),
        ],
    );
}
