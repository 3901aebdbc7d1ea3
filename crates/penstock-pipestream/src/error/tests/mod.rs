#![allow(clippy::too_many_lines, reason = "a table has a line for each variant")]

mod entity;
mod limit;
mod malformed;
mod misuse;
mod violation;

use penstock_wire::ErrorKind;

use super::{
    ClaimRecordError, Deadline, DocumentError, Early, EntityError, Error, ErrorCode, LimitError, Malformed, Misuse,
    ObjectError, ReferenceError, StoredError, StreamEnd, Unavailable, UriError, Violation,
};
use crate::session_id::SessionId;
use crate::status::Status;

const SESSION: SessionId = SessionId::new([0xAB; 16]);

/// Check that every error has its message, its kind and the registry's code.
fn check<const N: usize>(kind: ErrorKind, table: [(ErrorCode, Error, &str); N]) {
    for (code, error, message) in table {
        assert_eq!((error.kind(), error.code(), error.message().as_str()), (kind, code, message));
        assert_eq!(error.to_string(), format!("{code}: {message}"));
    }
}

#[test]
fn an_error_names_its_code_and_its_place() {
    let error = Error::from(Violation::SecondBarrier).at(3, 7);
    assert_eq!(error.to_string(), "PIPESTREAM_ENTITY_INVALID (0x05): a second BARRIER for a scope (scope 3, entity 7)");
    assert_eq!((error.kind(), error.scope(), error.entity()), (ErrorKind::Violation, Some(3), Some(7)));
}

#[test]
fn an_error_is_small() {
    assert!(size_of::<Error>() <= 80, "{}", size_of::<Error>());
}
