//! What TLS has said in an error of a stream.

use std::io;

use rustls::AlertDescription;

/// What rustls found, where it is behind an error of a stream.
pub fn rustls_of(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

/// Return the alert by which the other end has refused TLS.
pub fn alert(error: &io::Error) -> Option<AlertDescription> {
    let rustls::Error::AlertReceived(alert) = rustls_of(error)? else { return None };
    Some(*alert)
}
