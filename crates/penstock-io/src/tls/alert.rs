//! The TLS errors inside a stream's errors.

use std::io;

use rustls::AlertDescription;

/// Return the rustls error inside a stream's error, if there is one.
pub fn rustls_of(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Return the alert with which the other end refused TLS.
pub fn alert(error: &io::Error) -> Option<AlertDescription> {
    let rustls::Error::AlertReceived(alert) = rustls_of(error)? else { return None };
    Some(*alert)
}
