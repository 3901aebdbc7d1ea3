//! The TLS options that every server and every client has, and which of them go together.
//!
//! ```text
//! server   cert and key, or the development certificate     client_ca     none of them without TLS
//! client   exactly one of fingerprint, ca, system_ca        cert and key  none of them without TLS
//! ```

use std::path::PathBuf;

use super::{ClientCertificates, ClientTls, Fingerprint, Identity, ServerTls, Trust};
use crate::{Misuse, Result};

/// The TLS options of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTlsOptions {
    /// The server's certificate, in PEM.
    pub cert: Option<PathBuf>,
    /// The certificate's key.
    pub key: Option<PathBuf>,
    /// The folder of the development certificate, which a server without `cert` shows.
    pub development: PathBuf,
    /// The CA of the clients' certificates.
    pub client_ca: Option<PathBuf>,
}

impl ServerTlsOptions {
    /// Return the TLS of a server that always speaks TLS.
    pub fn required(self) -> Result<ServerTls> {
        let Self { cert, key, development, client_ca } = self;
        let identity = match pair(cert, key)? {
            Some((cert, key)) => Identity::Files { cert, key },
            None => Identity::Development { dir: development },
        };
        Ok(ServerTls { identity, client_ca })
    }

    /// Return the TLS of a server that speaks TLS if `tls` is set. `off` ends the message about
    /// options that need TLS.
    pub fn optional(self, tls: bool, off: &str) -> Result<Option<ServerTls>> {
        if tls {
            return self.required().map(Some);
        }
        match (pair(self.cert, self.key)?, self.client_ca) {
            (None, None) => Ok(None),
            (Some(_), _) | (_, Some(_)) => Err(Misuse::ServerTls { off: off.to_owned() }.into()),
        }
    }
}

/// The TLS options of a client.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTlsOptions {
    /// The fingerprint of the server's certificate.
    pub fingerprint: Option<String>,
    /// A file with the CAs of servers.
    pub ca: Option<PathBuf>,
    /// Whether the system's CAs are trusted.
    pub system_ca: bool,
    /// The client's own certificate, in PEM.
    pub cert: Option<PathBuf>,
    /// The certificate's key.
    pub key: Option<PathBuf>,
}

impl ClientTlsOptions {
    /// Return the TLS of a client that always speaks TLS.
    pub fn required(self) -> Result<ClientTls> {
        let Self { fingerprint, ca, system_ca, cert, key } = self;
        Ok(ClientTls { trust: trust(fingerprint.as_deref(), ca, system_ca)?, identity: pair(cert, key)? })
    }

    /// Return the TLS of a client that speaks TLS if an option says which servers to trust.
    pub fn optional(self) -> Result<Option<ClientTls>> {
        if self.names_trust() {
            return self.required().map(Some);
        }
        match pair(self.cert, self.key)? {
            None => Ok(None),
            Some(_) => Err(Misuse::ClientTls.into()),
        }
    }

    /// Return the TLS of a client of a URL: for `https://`, or if any option is given. Without an option that says
    /// which servers to trust, the system's CAs are trusted.
    pub fn for_url(self, url: &str) -> Result<Option<ClientTls>> {
        let secure = url.trim_start().get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        if !self.names_trust() && pair(self.cert.as_ref(), self.key.as_ref())?.is_none() && !secure {
            return Ok(None);
        }
        let system_ca = self.system_ca || !self.names_trust();
        Self { system_ca, ..self }.required().map(Some)
    }

    /// Return whether an option says which servers to trust.
    const fn names_trust(&self) -> bool {
        self.fingerprint.is_some() || self.ca.is_some() || self.system_ca
    }
}

/// Return which servers to trust: exactly one option must be set, because nothing turns verification off (decision 21).
fn trust(fingerprint: Option<&str>, ca: Option<PathBuf>, system_ca: bool) -> Result<Trust> {
    match (fingerprint, ca, system_ca) {
        (Some(fingerprint), None, false) => {
            let parsed = fingerprint.parse::<Fingerprint>();
            Ok(Trust::Fingerprint(parsed.map_err(|error| Misuse::Fingerprint { reason: error.to_string() })?))
        }
        (None, Some(ca), false) => Ok(Trust::Ca(ca)),
        (None, None, true) => Ok(Trust::System),
        (None, None, false) | (Some(_), Some(_), _) | (Some(_), _, true) | (_, Some(_), true) => {
            Err(Misuse::Trust.into())
        }
    }
}

/// Return a certificate with its key; `None` if neither is given.
pub fn pair<P>(cert: Option<P>, key: Option<P>) -> Result<Option<(P, P)>> {
    match (cert, key) {
        (Some(cert), Some(key)) => Ok(Some((cert, key))),
        (None, None) => Ok(None),
        (Some(_), None) | (None, Some(_)) => Err(Misuse::CertificatePair.into()),
    }
}

impl ClientCertificates {
    /// Parse the value of the option with this name.
    pub fn parse(option: &str, value: &str) -> Result<Self> {
        match value {
            "required" => Ok(Self::Required),
            "optional" => Ok(Self::Optional),
            other => Err(Misuse::ClientCertificates { option: option.to_owned(), value: other.to_owned() }.into()),
        }
    }
}

#[cfg(test)]
mod tests;
