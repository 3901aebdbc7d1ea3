//! TLS for every protocol: the certificate of this end, and the peers that it trusts (decision 21).
//!
//! TLS 1.3 only, unless an [`Offer`] allows 1.2 for old clients. A server shows a certificate from files or a
//! development certificate that is made once and kept; a client trusts a CA file, the system's store or one pinned
//! certificate. No option turns verification off.

mod acceptor;
mod alert;
mod certificate;
mod fingerprint;
mod options;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

pub use self::acceptor::Acceptor;
pub use self::alert::{alert, rustls_of};
pub use self::certificate::write_certificates;
use self::certificate::{CertifiedKey, load_certificates};
pub use self::fingerprint::Fingerprint;
use self::fingerprint::PinnedCertificate;
pub use self::options::{ClientTlsOptions, ServerTlsOptions, pair};
use crate::address::host;
use crate::{DriverError as _, Error, Misuse, Result};

/// Return the name that the certificate of a server at `HOST:PORT` must have: the one that is given, or else HOST.
///
/// # Errors
///
/// Misuse for a name that no certificate could have.
pub fn server_name(given: Option<&str>, address: &str) -> Result<ServerName<'static>> {
    let name = given.unwrap_or_else(|| host(address)).trim_matches(['[', ']']);
    ServerName::try_from(name.to_owned()).map_err(|_| Misuse::ServerName { name: name.to_owned() }.into())
}

/// Which certificate a server shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// PEM files: the certificate with its intermediates, and its key.
    Files {
        /// The certificate, the leaf first.
        cert: PathBuf,
        /// The certificate's private key.
        key: PathBuf,
    },
    /// A certificate for localhost, made in this folder at the first use and kept there.
    Development {
        /// The folder.
        dir: PathBuf,
    },
}

/// The TLS of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate that the server shows.
    pub identity: Identity,
    /// The CA that must have signed the certificates of clients; whether they need one depends on
    /// [`Offer::certificates`].
    pub client_ca: Option<PathBuf>,
}

/// Whether clients must have a certificate if a server has a CA for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientCertificates {
    /// A client without a certificate is refused.
    #[default]
    Required,
    /// A client without a certificate is anonymous; one with a certificate that the CA did not sign is refused.
    Optional,
}

/// Which servers a client trusts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Servers with a certificate for their name, signed by a CA of this PEM file.
    Ca(PathBuf),
    /// Servers with a certificate for their name, signed by a CA of the system's store.
    System,
    /// The owner of exactly this certificate, whatever its name.
    Fingerprint(Fingerprint),
}

/// The TLS of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientTls {
    /// The servers that the client trusts.
    pub trust: Trust,
    /// The client's own certificate and key, for servers that request one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// What a server offers in the handshake.
#[derive(Debug, Clone, Copy)]
pub struct Offer {
    /// The names of the server's protocols; if there are none, the handshake names no protocol.
    pub alpn: &'static [&'static [u8]],
    /// Whether the server also accepts TLS 1.2, for old clients.
    pub tls12: bool,
    /// Whether clients must have a certificate if there is a CA for them.
    pub certificates: ClientCertificates,
}

impl Offer {
    /// Make an offer of one protocol by its name, over TLS 1.3.
    pub const fn named(alpn: &'static [&'static [u8]]) -> Self {
        Self { alpn, tls12: false, certificates: ClientCertificates::Required }
    }

    /// Make an offer of a protocol over TCP that also accepts TLS 1.2 for old clients.
    pub const fn tcp(alpn: &'static [&'static [u8]]) -> Self {
        Self { alpn, tls12: true, certificates: ClientCertificates::Required }
    }

    /// Return the offer with another rule for the clients' certificates.
    pub const fn with_certificates(self, certificates: ClientCertificates) -> Self {
        Self { certificates, ..self }
    }
}

impl ServerTls {
    /// Read the files, and return the configuration for rustls and the fingerprint that clients
    /// pin.
    pub fn config(&self, offer: Offer) -> Result<(ServerConfig, Fingerprint)> {
        let certified = match &self.identity {
            Identity::Files { cert, key } => CertifiedKey::load(cert, key)?,
            Identity::Development { dir } => CertifiedKey::development(dir)?,
        };
        let versions: &[&SupportedProtocolVersion] =
            if offer.tls12 { &[&rustls::version::TLS13, &rustls::version::TLS12] } else { &[&rustls::version::TLS13] };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .map_err(|error| Error::tls_from(error.to_string(), error))?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(roots_from(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = match offer.certificates {
                    ClientCertificates::Required => verifier,
                    ClientCertificates::Optional => verifier.allow_unauthenticated(),
                };
                let verifier = verifier
                    .build()
                    .map_err(|error| Error::tls_from(format!("client CA {}: {error}", path.display()), error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let fingerprint = certified.fingerprint()?;
        let from = certified.describe();
        let mut config = builder
            .with_single_cert(certified.chain, certified.key)
            .map_err(|error| Error::tls_from(format!("{from}: {error}"), error))?;
        config.alpn_protocols = offer.alpn.iter().map(|name| name.to_vec()).collect();
        // Connections are long: resumption would save little, and would keep an old client certificate alive.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok((config, fingerprint))
    }
}

impl ClientTls {
    /// Read the files of the trust and of the certificate, and return the configuration for rustls.
    pub fn config(&self, alpn: &[u8]) -> Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| Error::tls_from(error.to_string(), error))?;
        let builder = match &self.trust {
            Trust::Ca(path) => builder.with_root_certificates(roots_from(path)?),
            Trust::System => builder.with_root_certificates(system_roots()?),
            // "dangerous" is rustls's word for any custom verifier; this one is stricter than a CA.
            Trust::Fingerprint(fingerprint) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(PinnedCertificate::new(*fingerprint, provider()))),
        };
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let certified = CertifiedKey::load(cert, key)?;
                let from = certified.describe();
                builder
                    .with_client_auth_cert(certified.chain, certified.key)
                    .map_err(|error| Error::tls_from(format!("{from}: {error}"), error))?
            }
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }
}

/// Make the configuration of a client that speaks plain text, and trusts no server to which it may be redirected.
pub fn plaintext() -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| Error::tls_from(error.to_string(), error))?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

/// Make the configuration of a client of public servers, which trusts the CAs of the system and
/// speaks TLS 1.3 and 1.2. On a system without a store it trusts no server.
pub fn public() -> Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(|error| Error::tls_from(error.to_string(), error))?;
    let roots = system_roots().unwrap_or_else(|error| {
        tracing::warn!(%error, "no CA of the system is trusted; fetches over https:// will fail");
        RootCertStore::empty()
    });
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Return the cryptography provider. TLS here does not depend on a process-wide default; only the
/// clients of object stores need one.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Return bytes from the secure random source.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    provider().secure_random.fill(&mut bytes).map_err(|_| Error::tls("the system has no random numbers".to_owned()))?;
    Ok(bytes)
}

fn roots_from(path: &Path) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in load_certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| Error::tls_from(format!("CA file {}: {error}", path.display()), error))?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A store may contain certificates that cannot be parsed; they must not make this fail.
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let message = |why: &str| format!("the system's certificate store cannot be used: {why}");
        return Err(match found.errors.into_iter().next() {
            Some(error) => Error::tls_from(message(&error.to_string()), error),
            None => Error::tls(message("it is empty")),
        });
    }
    Ok(roots)
}

#[cfg(test)]
mod tests;
