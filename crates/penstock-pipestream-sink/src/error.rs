use std::io;
use std::path::Path;

use penstock_io::DriverError as _;
use penstock_pipestream as core;
pub use penstock_pipestream_net::{Error, Misuse, Result};

/// Return the error of a sink that cannot create a place for a session.
pub(crate) fn cannot_open(place: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::AlreadyExists {
        return Error::Protocol(core::LimitError::SessionFolder { reason: error.to_string() }.into());
    }
    Error::file("cannot make the session's folder", place, error)
}
