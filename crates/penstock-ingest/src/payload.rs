//! The payload of a part, and the failures that may occur while it is made.

use std::io::{self, Read as _};

use bytes::Bytes;
use penstock_documents::{Failure, FailureKind, Part, Payload as PartBytes};
use penstock_pipestream_net::{ErrorCode, Payload};

/// The size in bytes beyond which a part goes through a temporary file.
pub(crate) const IN_MEMORY: u64 = 1 << 20;

/// Make the payload of a part; it is hashed again only if it does not stay in memory.
pub(crate) fn payload(part: &Part, mut bytes: PartBytes) -> io::Result<Payload> {
    match (part.sha256, part.bytes) {
        (Some(sha256), Some(length)) if length <= IN_MEMORY => {
            let mut memory = Vec::new();
            bytes.as_mut().take(length.saturating_add(1)).read_to_end(&mut memory)?;
            unchanged(part, Payload::bytes_with_sha256(Bytes::from(memory), sha256))
        }
        _ => unchanged(part, Payload::reader(bytes).map_err(io::Error::other)?),
    }
}

/// Reject bytes that differ from those seen first, because the file is being written to.
pub(crate) fn unchanged(part: &Part, payload: Payload) -> io::Result<Payload> {
    if Some(payload.len()) == part.bytes && Some(payload.sha256()) == part.sha256 {
        return Ok(payload);
    }
    Err(io::Error::other("the bytes have changed since they were first read"))
}

/// Return the failure of a part whose payload cannot be stored on this machine.
pub(crate) fn io_failure(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Io, format!("the part cannot be stored for sending: {error}"))
}

/// Return the registry's code for a failure of a part.
pub(crate) fn error_code(kind: FailureKind) -> ErrorCode {
    match kind {
        FailureKind::Limit => ErrorCode::EntityTooLarge,
        FailureKind::TooDeep => ErrorCode::DepthExceeded,
        FailureKind::Encrypted | FailureKind::Broken | FailureKind::Cycle | FailureKind::Unsupported => {
            ErrorCode::EntityInvalid
        }
        FailureKind::TimedOut | FailureKind::Io => ErrorCode::InternalError,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::testing::part;

    fn read(part: &Part, bytes: &[u8]) -> io::Result<Payload> {
        payload(part, Box::new(Cursor::new(bytes.to_vec())))
    }

    #[test]
    fn a_payload_has_the_bytes_that_were_seen_first() {
        for length in [0, 5, IN_MEMORY as usize, IN_MEMORY as usize + 1] {
            let bytes = vec![7; length];
            let part = part(&[], "x/y", &bytes);
            let payload = read(&part, &bytes).unwrap();
            assert_eq!((Some(payload.len()), Some(payload.sha256())), (part.bytes, part.sha256));
        }
    }

    #[test]
    fn bytes_that_changed_between_two_reads_are_refused() {
        let large = vec![7; IN_MEMORY as usize + 1];
        let mut changed = large.clone();
        changed[1000] = 8;
        let longer = [large.as_slice(), b"x"].concat();
        for (first, second) in
            [(&b"hello"[..], &b"hello!"[..]), (b"hello", b"hell"), (&large, &changed), (&large, &longer)]
        {
            let error = read(&part(&[], "x/y", first), second).unwrap_err();
            assert_eq!(error.to_string(), "the bytes have changed since they were first read");
        }
    }

    #[test]
    fn a_part_that_was_never_read_has_no_payload() {
        assert!(read(&Part::default(), b"").is_err());
    }

    #[test]
    fn each_kind_of_failure_has_its_code() {
        let codes = [
            (FailureKind::Limit, ErrorCode::EntityTooLarge),
            (FailureKind::TooDeep, ErrorCode::DepthExceeded),
            (FailureKind::Encrypted, ErrorCode::EntityInvalid),
            (FailureKind::TimedOut, ErrorCode::InternalError),
            (io_failure(&io::ErrorKind::StorageFull.into()).kind, ErrorCode::InternalError),
        ];
        for (kind, code) in codes {
            assert_eq!(error_code(kind), code, "{kind}");
        }
    }
}
