//! Errors about a receiver: which one, what happened, and a remedy.

use std::io;

use penstock_io::DriverError as _;
use penstock_io::tls::{ClientTls, alert};
use rustls::AlertDescription;

use crate::{Error, Result};

/// A connected receiver.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host<'a> {
    name: &'a str,
    tls: Option<&'a ClientTls>,
    has_received: bool,
}

const WANTS_TLS: &str = "if it speaks TLS, say whom to trust: fingerprint, ca or system_ca";

impl<'a> Host<'a> {
    pub(super) fn new(name: &'a str, tls: Option<&'a ClientTls>) -> Self {
        Self { name, tls, has_received: false }
    }

    /// Check received bytes: the first ones show whether the peer speaks another protocol.
    pub(super) fn on_receive(&mut self, bytes: &[u8]) -> Result<()> {
        if std::mem::replace(&mut self.has_received, true) {
            return Ok(());
        }
        match bytes {
            [0x15 | 0x16, ..] if self.tls.is_none() => Err(Error::tls(format!(
                "{} answers in TLS; say whom to trust: fingerprint, ca or system_ca",
                self.name
            ))),
            [b'H', b'T', b'T', b'P', ..] => {
                Err(self.error("it answers in HTTP, not in Lumberjack; is this the receiver's port?".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Return the error of a broken connection.
    pub(super) fn connection_error(&self, error: &io::Error) -> Error {
        let what = format!("the connection broke: {error}");
        match (alert(error), self.tls) {
            (Some(AlertDescription::CertificateRequired), _) => {
                self.error(format!("{what}; it wants a client certificate: cert and key"))
            }
            (Some(_), Some(ClientTls { identity: Some(_), .. })) => {
                self.error(format!("{what}; it accepts client certificates (cert and key) of its own CA only"))
            }
            (Some(_), Some(_)) => self.error(format!("{what}; if it wants a client certificate: cert and key")),
            (None, None) if !self.has_received => self.error(format!("{what}; {WANTS_TLS}")),
            (Some(_) | None, None) | (None, Some(_)) => self.error(what),
        }
    }

    /// Return the error of a connection that was closed before everything was acknowledged.
    pub(super) fn closed_early(&self) -> Error {
        let what = "it closed the connection before everything was acknowledged; its log says why";
        if self.tls.is_none() && !self.has_received {
            return self.error(format!("{what}; {WANTS_TLS}"));
        }
        self.error(what.to_owned())
    }

    /// Return the error of a failed TLS handshake.
    pub(super) fn handshake_error(&self, error: io::Error) -> Error {
        let what = format!("{}: the handshake failed: {error}", self.name);
        let plain = match error.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(rustls::Error::InvalidMessage(_)) => true,
            Some(_) => false,
            None => matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset),
        };
        let hint = if plain { "; if it does not speak TLS, leave fingerprint, ca and system_ca out" } else { "" };
        Error::tls_from(format!("{what}{hint}"), error)
    }

    /// Return the error of a receiver that broke a rule or a time limit of the protocol.
    pub(super) fn protocol_error(&self, error: penstock_lumberjack::Error) -> Error {
        Error::Peer { name: self.name.to_owned(), source: error }
    }

    fn error(&self, message: String) -> Error {
        Error::io(self.name.to_owned(), message)
    }
}
