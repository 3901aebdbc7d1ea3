//! TLS whose certificate may change while connections are open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::ServerConfig;
use tokio_rustls::TlsAcceptor;

use super::{ClientCertificates, Fingerprint, Identity, ServerTls};
use crate::Result;

/// Gives each new connection the certificate that the files hold now. Those that are open keep theirs.
#[derive(Debug)]
pub struct Acceptor {
    tls: ServerTls,
    speaks: Speaks,
    current: Mutex<Current>,
}

/// What is spoken over it.
#[derive(Debug, Clone, Copy)]
enum Speaks {
    /// Something of its own, with TLS 1.2 too and without a name for it.
    Tcp(ClientCertificates),
    /// What the handshake names.
    Named(&'static [u8]),
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    stamps: Vec<Stamp>,
}

/// What tells that a file is another one: its time and its length.
type Stamp = Option<(SystemTime, u64)>;

impl Acceptor {
    /// Read the files of a server's TLS.
    pub fn new(tls: ServerTls, certificates: ClientCertificates) -> Result<Self> {
        Self::speaking(tls, Speaks::Tcp(certificates))
    }

    /// For a protocol that the handshake names.
    pub fn named(tls: ServerTls, alpn: &'static [u8]) -> Result<Self> {
        Self::speaking(tls, Speaks::Named(alpn))
    }

    fn speaking(tls: ServerTls, speaks: Speaks) -> Result<Self> {
        let current = Current::read(&tls, speaks)?;
        Ok(Self { tls, speaks, current: Mutex::new(current) })
    }

    /// Return the fingerprint of the certificate that it shows.
    pub fn fingerprint(&self) -> Fingerprint {
        self.current().fingerprint
    }

    /// Return what makes handshakes with the newest certificate.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current().config))
    }

    /// Reads the files again if they have changed; says whether they had. What does not load leaves things as they are,
    /// and is tried again: a certificate and its key are two files. Blocks.
    pub fn reload(&self) -> Result<bool> {
        if stamps(&self.tls) == self.current().stamps {
            return Ok(false);
        }
        let read = Current::read(&self.tls, self.speaks)?;
        *self.current() = read;
        Ok(true)
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn read(tls: &ServerTls, speaks: Speaks) -> Result<Self> {
        // First, so that a file that changes meanwhile is read once more.
        let before = stamps(tls);
        let (config, fingerprint) = match speaks {
            Speaks::Tcp(certificates) => tls.tcp_config(certificates)?,
            Speaks::Named(alpn) => tls.config(alpn)?,
        };
        // A development certificate that was just made has no stamp from before.
        let stamps = if before.contains(&None) { stamps(tls) } else { before };
        Ok(Self { config: Arc::new(config), fingerprint, stamps })
    }
}

fn stamps(tls: &ServerTls) -> Vec<Stamp> {
    let (cert, key): (PathBuf, PathBuf) = match &tls.identity {
        Identity::Files { cert, key } => (cert.clone(), key.clone()),
        Identity::Development { dir } => (dir.join("cert.pem"), dir.join("key.pem")),
    };
    [Some(cert), Some(key), tls.client_ca.clone()].into_iter().flatten().map(|path| stamp(&path)).collect()
}

fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}
