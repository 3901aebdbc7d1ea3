use std::io;
use std::path::Path;

use penstock_io::DriverError as _;
use penstock_pipestream::{self as core, ErrorCode};
pub use penstock_pipestream_net::{Error, Result};

/// Why a sink has no place for a session.
pub(crate) fn cannot_open(place: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        let message = error.to_string();
        return Error::Protocol(core::Error::limit(ErrorCode::EntityInvalid, message));
    }
    Error::file("cannot make the session's folder", place, error)
}
