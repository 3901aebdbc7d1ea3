//! What is sent of a part, and what is said where that cannot be had.

use std::io::{self, Read as _};

use bytes::Bytes;
use penstock_documents::{Failure, FailureKind, Part, Payload as Octets};
use penstock_pipestream_net::{ErrorCode, Payload};

/// Parts of more octets go by a temporary file.
pub(super) const IN_MEMORY: u64 = 1 << 20;

/// The payload of a part; it is hashed again only if it does not stay in memory.
pub(super) fn payload(part: &Part, mut octets: Octets) -> io::Result<Payload> {
    match (part.sha256, part.bytes) {
        (Some(sha256), Some(bytes)) if bytes <= IN_MEMORY => {
            let mut memory = Vec::new();
            octets.as_mut().take(bytes.saturating_add(1)).read_to_end(&mut memory)?;
            unchanged(part, Payload::bytes_with_sha256(Bytes::from(memory), sha256))
        }
        _ => unchanged(part, Payload::reader(octets).map_err(io::Error::other)?),
    }
}

/// Refuses octets that are not those that were seen first: somebody writes to the file.
pub(super) fn unchanged(part: &Part, payload: Payload) -> io::Result<Payload> {
    if Some(payload.len()) == part.bytes && Some(payload.sha256()) == part.sha256 {
        return Ok(payload);
    }
    Err(io::Error::other("the octets have changed since they were first read"))
}

pub(super) fn unkept(error: &io::Error) -> Failure {
    Failure::new(FailureKind::Io, format!("the part cannot be kept for sending: {error}"))
}

/// The registry's code for a failure of a part.
pub(super) fn code(kind: FailureKind) -> ErrorCode {
    match kind {
        FailureKind::Limit => ErrorCode::EntityTooLarge,
        FailureKind::TooDeep => ErrorCode::DepthExceeded,
        FailureKind::Encrypted | FailureKind::Broken | FailureKind::Cycle | FailureKind::Unsupported => {
            ErrorCode::EntityInvalid
        }
        FailureKind::TimedOut | FailureKind::Io => ErrorCode::InternalError,
    }
}
