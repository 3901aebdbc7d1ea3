use super::*;

#[test]
fn every_entity_error_has_its_message_and_its_code() {
    check(
        ErrorKind::Violation,
        [
            (ErrorCode::EntityInvalid, EntityError::DataLayer(7).into(), "data layer 7 is above 3"),
            (ErrorCode::EntityInvalid, EntityError::ChecksumLength(5).into(), "the checksum has 5 bytes, not 32"),
            (ErrorCode::EntityInvalid, EntityError::NoChunks.into(), "total_chunks is 0"),
            (ErrorCode::EntityInvalid, EntityError::ChunkIndex { index: 7, total: 7 }.into(), "chunk 7 of 7"),
            (
                ErrorCode::EntityInvalid,
                EntityError::ChunkCount { total: 7, length: 11 }.into(),
                "7 chunks for a payload of 11 bytes",
            ),
            (
                ErrorCode::EntityInvalid,
                EntityError::ChunkOffset { offset: 11, length: 11 }.into(),
                "a chunk at 11 of a payload of 11 bytes",
            ),
            (ErrorCode::EntityInvalid, EntityError::ChunkHeaders.into(), "the headers of its streams disagree"),
            (ErrorCode::EntityInvalid, EntityError::ChunkTwice { index: 7 }.into(), "chunk 7 came twice"),
            (ErrorCode::EntityInvalid, EntityError::ChunkGaps.into(), "its chunks leave gaps"),
            (
                ErrorCode::EntityInvalid,
                EntityError::ChunkEnd { index: 7, length: 11 }.into(),
                "chunk 7 goes beyond the payload's 11 bytes",
            ),
            (ErrorCode::EntityInvalid, EntityError::ChunkOverlap { index: 7 }.into(), "chunk 7 overlaps another"),
            (
                ErrorCode::EntityInvalid,
                EntityError::PayloadOverrun { seen: 11, length: 11 }.into(),
                "the payload has 11 bytes or more, its header says 11",
            ),
            (
                ErrorCode::EntityInvalid,
                EntityError::PayloadLength { seen: 11, length: 11 }.into(),
                "the payload has 11 bytes, its header says 11",
            ),
            (ErrorCode::IntegrityError, EntityError::Checksum.into(), "the payload's checksum does not match"),
            (
                ErrorCode::EntityInvalid,
                EntityError::ClearHeader.into(),
                "its header came in the clear, and this end takes headers only that are sealed with its header key",
            ),
            (
                ErrorCode::IntegrityError,
                EntityError::HeaderKey { key_id: "x".to_owned() }.into(),
                "its header is sealed with the header key x, and no key of this end opens it",
            ),
            (ErrorCode::EntityInvalid, EntityError::SealedHeader.into(), "pipestream.sealed is malformed"),
        ],
    );
}

#[test]
fn every_document_error_has_its_message_and_its_code() {
    check(
        ErrorKind::Violation,
        [
            (ErrorCode::EntityInvalid, DocumentError::NoDocId.into(), "pipestream.doc: doc_id is missing"),
            (ErrorCode::EntityInvalid, DocumentError::NoEntityId.into(), "pipestream.doc: entity_id is missing"),
            (
                ErrorCode::EntityInvalid,
                DocumentError::Message("x".to_owned()).into(),
                "pipestream.doc: it is no PipeDoc: x",
            ),
            (
                ErrorCode::EntityInvalid,
                DocumentError::Length { bytes: 5 }.into(),
                "pipestream.doc: it has 5 bytes; the limit is 32768",
            ),
            (
                ErrorCode::EntityInvalid,
                DocumentError::Base64(base64::DecodeError::InvalidPadding).into(),
                "pipestream.doc: it is not base64: Invalid padding",
            ),
            (
                ErrorCode::EntityInvalid,
                DocumentError::OtherEntity { named: 7, entity: 7 }.into(),
                "pipestream.doc: entity_id is 7, and the entity is 7",
            ),
            (
                ErrorCode::EntityInvalid,
                DocumentError::Scopes { count: 5 }.into(),
                "pipestream.doc: ownership.scopes has 5 entries; the limit is 64",
            ),
            (
                ErrorCode::EntityInvalid,
                DocumentError::TextLength { field: "f", bytes: 5 }.into(),
                "pipestream.doc: f has 5 bytes; it has 1 to 256",
            ),
            (
                ErrorCode::EntityInvalid,
                DocumentError::TextControl { field: "f" }.into(),
                "pipestream.doc: f has control characters",
            ),
        ],
    );
}

#[test]
fn every_object_error_has_its_message_and_its_code() {
    check(
        ErrorKind::Violation,
        [
            (ErrorCode::EntityInvalid, ObjectError::Missing("x".to_owned()).into(), "there is no object x"),
            (ErrorCode::EntityInvalid, ObjectError::NoTag.into(), "a file has no entity tag and no version"),
            (
                ErrorCode::EntityInvalid,
                ObjectError::Key { name: "x".to_owned(), reason: "x".to_owned() }.into(),
                "the key of x: x",
            ),
            (
                ErrorCode::EntityInvalid,
                ObjectError::Forbidden("x".to_owned()).into(),
                "x is not below any prefix that this server fetches from",
            ),
            (
                ErrorCode::IntegrityError,
                ObjectError::Replaced("x".to_owned()).into(),
                "the object x was replaced while it was read",
            ),
            (
                ErrorCode::IntegrityError,
                ObjectError::Shortened("x".to_owned()).into(),
                "the object x became shorter while it was read",
            ),
            (
                ErrorCode::IntegrityError,
                ObjectError::Size { name: "x".to_owned(), length: 11, size: 11 }.into(),
                "the object x has 11 bytes, the reference says 11",
            ),
            (
                ErrorCode::IntegrityError,
                ObjectError::Tag("x".to_owned()).into(),
                "the object x has another entity tag than the reference says",
            ),
            (
                ErrorCode::IntegrityError,
                ObjectError::Digest.into(),
                "the object's SHA-256 is not that of the reference",
            ),
            (ErrorCode::IntegrityError, ObjectError::Length(11).into(), "the object no longer has 11 bytes"),
        ],
    );
}

#[test]
fn every_unavailable_thing_has_its_message() {
    check(
        ErrorKind::Io,
        [
            (
                ErrorCode::InternalError,
                Unavailable::Object("x".to_owned()).into(),
                "the object x cannot be fetched; the server's log says why",
            ),
            (
                ErrorCode::InternalError,
                Unavailable::Payload { reason: "x".to_owned() }.into(),
                "cannot read the payload back: x",
            ),
        ],
    );
}

#[test]
fn every_reference_error_has_its_message_and_its_code() {
    check(
        ErrorKind::Violation,
        [
            (ErrorCode::EntityInvalid, ReferenceError::Missing { field: "f" }.into(), "the reference has no f"),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::Size.into(),
                "the reference's attribute size is no number of bytes",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::Digest.into(),
                "the reference's attribute sha256 is not 64 digits of lower-case hex",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::DataKey { place: "f", name: "x".to_owned() }.into(),
                "f \"x\" has a key that is not wrapped: wrap it by an approved provider",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::Provider("x".to_owned()).into(),
                "the reference's provider \"x\" is none of s3, gcs, azure and file",
            ),
            (ErrorCode::EntityInvalid, ReferenceError::Url("x".to_owned()).into(), "\"x\" is no URL"),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::Scheme("x".to_owned()).into(),
                "\"x\" is no URL of s3, gs, abfs, abfss, az or file",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::FileHost.into(),
                "a file has no bucket, and no host: file:///PATH",
            ),
            (ErrorCode::EntityInvalid, ReferenceError::Bucket("x".to_owned()).into(), "\"x\" is no name of a bucket"),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::KeyLength { key: "x".to_owned() }.into(),
                "the key \"x\" is longer than 4096 bytes",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::KeyControl { key: "x".to_owned() }.into(),
                "the key \"x\" has control characters",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::KeySegment { key: "x".to_owned() }.into(),
                "the key \"x\" has an empty segment, \".\" or \"..\"",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::Algorithm("x".to_owned()).into(),
                "the algorithm \"x\" is none of AES-256-GCM and AES-256-CBC",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::Vector { length: 5, algorithm: "x".to_owned() }.into(),
                "an initialization vector of 5 bytes is none of x",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::BareKey { length: 5 }.into(),
                "a wrapped key of 5 bytes is not wrapped: with an approved envelope it has 40 or more",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::WrappedLength { length: 5 }.into(),
                "a wrapped key of 5 bytes is above the limit of 16384",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::KeyProvider { name: "x".to_owned(), approved: "x".to_owned() }.into(),
                "the key provider \"x\" is not approved (x)",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::KeyId { provider: "x".to_owned() }.into(),
                "the key ID names no key of x",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::OtherProvider { key: "x".to_owned(), other: "f", provider: "x".to_owned() }.into(),
                "the key ID \"x\" is one of f, not of x",
            ),
            (
                ErrorCode::EntityInvalid,
                ReferenceError::Key { key: "x".to_owned(), provider: "x".to_owned() }.into(),
                "the key \"x\" is not approved of x",
            ),
        ],
    );
}
