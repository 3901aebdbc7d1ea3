use penstock_wire::{ErrorKind, LimitExceeded, Truncated};

use super::{Error, Malformed, Misuse, SegmentHeader, Violation};

fn check<const N: usize>(kind: ErrorKind, table: [(Error, &str); N]) {
    for (error, message) in table {
        assert_eq!((error.kind(), error.to_string().as_str()), (kind, message));
    }
}

fn text() -> String {
    "x".to_owned()
}

#[test]
fn an_error_is_small() {
    assert!(size_of::<Error>() <= 64, "{}", size_of::<Error>());
}

#[test]
fn every_malformed_stream_has_its_message_and_its_kind() {
    check(
        ErrorKind::Malformed,
        [
            (Truncated { needed: 4, available: 1 }.into(), "truncated: 4 bytes needed, 1 there"),
            (Malformed::NoAnswer.into(), "the connection ended before the answer"),
            (Malformed::StreamEnd.into(), "the connection ended within an IPC stream"),
            (Malformed::BodyEnd.into(), "a body that ends within an IPC stream"),
            (Malformed::NoBatch.into(), "a request without a batch"),
            (Malformed::Zstd { reason: text() }.into(), "a zstd body that cannot be read: x"),
            (Malformed::Prefix.into(), "half a prefix"),
            (
                Malformed::Continuation(*b"GET ").into(),
                "an IPC message begins with [47, 45, 54, 20], not with ff ff ff ff",
            ),
            (Malformed::Head { reason: text() }.into(), "the head of an IPC message: x"),
            (Malformed::BodyLength.into(), "a body of negative length"),
            (Malformed::BodyMemory.into(), "a body beyond the memory of this machine"),
            (Malformed::MessageEnd.into(), "an IPC message ends behind its memory"),
            (Malformed::MessageLength.into(), "a message that is shorter than its head says"),
            (Malformed::Table.into(), "a table outside its IPC message"),
            (Malformed::Offset.into(), "an offset leads out of its IPC message"),
            (
                Malformed::MessageType(arrow_ipc::MessageHeader::Tensor).into(),
                "an IPC stream with a message of type Tensor",
            ),
            (Malformed::UnexpectedEnd.into(), "the end of a stream that never began"),
            (Malformed::NoStream.into(), "a batch before the schema of its stream"),
            (Malformed::NoSchema.into(), "a schema message without schema"),
            (Malformed::Schema.into(), "bytes that are no schema"),
            (Malformed::Endianness.into(), "a schema that is not little-endian"),
            (Malformed::Nesting.into(), "a schema nests deeper than 32 types"),
            (
                Malformed::FieldType { field: text(), type_name: arrow_ipc::Type::Union }.into(),
                "field \"x\": type Union is not read here",
            ),
            (Malformed::KeyWidth { field: text(), bits: 7 }.into(), "field \"x\": no integer has 7 bits"),
        ],
    );
}

#[test]
fn every_malformed_batch_has_its_message_and_its_kind() {
    let column = || Error::Column { name: text(), source: Box::new(Malformed::Validity.into()) };
    check(
        ErrorKind::Malformed,
        [
            (Malformed::NoDictionary.into(), "no dictionary"),
            (Malformed::DictionaryId(7).into(), "a dictionary with the unknown ID 7"),
            (Malformed::NoValues.into(), "a dictionary without values"),
            (Malformed::DictionaryLength { reason: text() }.into(), "x"),
            (Malformed::NoRecordBatch.into(), "no record batch"),
            (Malformed::CompressedBody.into(), "compressed IPC bodies are not read here"),
            (
                Malformed::ColumnLength { column: text(), length: 1, rows: 2 }.into(),
                "column \"x\" has 1 rows, its batch 2",
            ),
            (Malformed::RowCount.into(), "a negative row count"),
            (Malformed::RowMemory.into(), "a row count beyond the memory of this machine"),
            (Malformed::FewBuffers.into(), "a batch with too few buffers"),
            (Malformed::BufferPlace.into(), "a buffer outside the body of its IPC message"),
            (Malformed::BufferLength.into(), "a buffer shorter than its array"),
            (Malformed::FewNodes.into(), "a batch with too few field nodes"),
            (Malformed::NullCount.into(), "a null count above the length of its array"),
            (Malformed::Validity.into(), "a validity bitmap shorter than its array"),
            (column(), "column \"x\": a validity bitmap shorter than its array"),
            (Malformed::NoViewCounts.into(), "a batch without the buffer counts of its views"),
            (Malformed::NoListType.into(), "a list without a type of its values"),
            (Malformed::NoStructure.into(), "not a structure"),
            (Malformed::Array { reason: text() }.into(), "x"),
            (Malformed::NoSharedBatch.into(), "shared memory without a batch"),
            (Malformed::PointerNumber { key: text() }.into(), "x is not a decimal number"),
        ],
    );
}

#[test]
fn every_malformed_segment_has_its_message_and_its_kind() {
    for (header, message) in [
        (SegmentHeader::Magic, "it does not begin with VGIS"),
        (SegmentHeader::Version(2), "version 2, expected 1"),
        (SegmentHeader::Size { data: 1, size: 2 }, "data_size is 1 in a segment of 2 bytes"),
        (SegmentHeader::Count(5_000), "5000 allocations, above the limit of 4094"),
        (SegmentHeader::Allocation(3), "allocation 3 lies outside the data region or in another one"),
    ] {
        let message = format!("the header of a shared memory segment: {message}");
        check(ErrorKind::Malformed, [(Malformed::Segment(header).into(), &message)]);
    }
}

#[test]
fn every_violation_has_its_message_and_its_kind() {
    let digest = Violation::Digest { actual: "a".to_owned(), expected: "b".to_owned() };
    check(
        ErrorKind::Violation,
        [
            (Violation::Request.into(), "the client has sent bytes outside a request or a stream"),
            (Violation::EarlyInput.into(), "the client has sent an input before the answer to the last one"),
            (Violation::UnexpectedBatch.into(), "the server has sent a batch without an open call"),
            (Violation::UnexpectedEnd.into(), "the server has ended a stream without an open call"),
            (Violation::TwoBatches.into(), "the server has sent two batches for one input"),
            (Violation::NoResult.into(), "the answer to a call has no result"),
            (Violation::NoHeader.into(), "the header of a stream has no batch"),
            (Violation::NoHttpHeader.into(), "the answer to a stream with a header lacks it"),
            (Violation::HttpPointer.into(), "an answer over HTTP points into shared memory, which HTTP does not have"),
            (Violation::Coding(text()).into(), "the answer has the coding \"x\", which the request did not accept"),
            (Violation::UploadColumns.into(), "an answer with upload URLs that has no such columns"),
            (
                Violation::Region { offset: 1, length: 2 }.into(),
                "a pointer to 2 bytes at 1 leads to no region of the segment",
            ),
            (Violation::SharedSchema.into(), "a batch in shared memory whose schema is not that of its pointer"),
            (Violation::Location.into(), "the pointer to an external batch is not UTF-8"),
            (digest.into(), "the SHA-256 of an external batch is a, and its pointer says b"),
            (Violation::ExternalStreams.into(), "an external batch must be one IPC stream, and there are more"),
            (Violation::ExternalBatches.into(), "there is more than one batch behind a pointer"),
            (Violation::NoExternalBatch.into(), "there is no batch behind a pointer"),
            (Violation::RedirectLoop.into(), "redirect loop: there is a pointer behind a pointer"),
            (
                Violation::ExternalSchema.into(),
                "Schema mismatch: the batch behind a pointer has another schema than the pointer",
            ),
        ],
    );
}

#[test]
fn every_limit_and_every_failure_of_the_machine_has_its_message_and_its_kind() {
    let exceeded = LimitExceeded { name: "the row count", limit: 8, actual: 9 };
    check(
        ErrorKind::Limit,
        [
            (exceeded.into(), "the row count is 9, above the limit of 8"),
            (Error::Inflated { limit: 8 }, "a zstd body inflates to more than 8 bytes"),
            (Error::External { limit: 8 }, "an external batch has more than 8 bytes"),
        ],
    );
    check(ErrorKind::Io, [(Error::Compression { reason: text() }, "a body cannot be compressed: x")]);
}

#[test]
fn every_misuse_has_its_message_and_its_kind() {
    check(
        ErrorKind::Misuse,
        [
            (Misuse::CallOpen.into(), "a call is still open on this connection"),
            (Misuse::NoStream.into(), "no stream is open"),
            (Misuse::EarlyInput.into(), "the last input has no answer yet, or the stream was closed"),
            (Misuse::InputSchema.into(), "all inputs of a stream have one schema"),
            (Misuse::TwoBatches.into(), "an input is answered with one batch"),
            (Misuse::NoPointer.into(), "no request waits for the batch behind a pointer"),
            (Misuse::NoReply.into(), "no call waits for a reply"),
            (Misuse::NoAnswer.into(), "no call waits for an answer"),
            (Misuse::NoStreamCall.into(), "no call waits for a stream"),
            (Misuse::Answered.into(), "the call was answered"),
            (Misuse::NoUrlCall.into(), "no URLs were requested"),
            (Misuse::NoBatch.into(), "a request without a batch"),
            (Misuse::NoSchema.into(), "a stream without a schema"),
            (Misuse::BatchSchema { reason: text() }.into(), "a batch that does not fit its schema: x"),
            (Misuse::Batch { reason: text() }.into(), "a batch that cannot be written: x"),
            (Misuse::Dialect(text()).into(), "unknown dialect \"x\"; the dialects are \"spec\" and \"0.10\""),
            (Misuse::MethodName(text()).into(), "two methods have the name \"x\""),
            (Misuse::NoColumn(text()).into(), "a description has a column x"),
            (Misuse::ColumnTypes.into(), "the columns of a description have other types"),
            (Misuse::Prefix(text()).into(), "the prefix \"x\" begins with a slash and does not end with one"),
            (Misuse::SegmentSize(7).into(), "a segment has more than 65536 bytes, not 7"),
        ],
    );
}
