//! The payload that is sent of a part, and what is said where it cannot be had.

use std::io::{self, Read as _};

use bytes::Bytes;
use penstock_documents::{Failure, FailureKind, Part, Payload as PartBytes};
use penstock_pipestream_net::{ErrorCode, Payload};

/// Parts of more bytes go by a temporary file.
pub(crate) const IN_MEMORY: u64 = 1 << 20;

/// Make the payload of a part; it is hashed again only where it does not stay in memory.
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

/// Refuse bytes that are not those that were seen first: somebody writes to the file.
pub(crate) fn unchanged(part: &Part, payload: Payload) -> io::Result<Payload> {
    if Some(payload.len()) == part.bytes && Some(payload.sha256()) == part.sha256 {
        return Ok(payload);
    }
    Err(io::Error::other("the octets have changed since they were first read"))
}

/// Return the failure of a part whose payload this machine cannot keep.
pub(crate) fn io_failure(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Io, format!("the part cannot be kept for sending: {error}"))
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
