//! TLS with a certificate that may change while connections are open.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use rustls::ServerConfig;

use super::{Fingerprint, Identity, Offer, ServerTls};
use crate::Result;
use crate::sync::lock;

/// The TLS of a server. New connections use the certificate that was read last, and open ones keep
/// theirs.
#[derive(Debug)]
pub struct Acceptor {
    tls: ServerTls,
    offer: Offer,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    config: Arc<ServerConfig>,
    fingerprint: Fingerprint,
    stamps: Vec<Stamp>,
}

/// The version of a file: its time and its length, and its inode, because a renamed file may have
/// the same time and length.
type Stamp = Option<(SystemTime, u64, u64)>;

impl Acceptor {
    /// Read the files of a server's TLS.
    pub fn new(tls: ServerTls, offer: Offer) -> Result<Self> {
        let current = Current::read(&tls, offer)?;
        Ok(Self { tls, offer, current: Mutex::new(current) })
    }

    /// Read the files of a server's TLS, if it has any.
    pub fn optional(tls: Option<&ServerTls>, offer: Offer) -> Result<Option<Arc<Self>>> {
        tls.map(|tls| Self::new(tls.clone(), offer).map(Arc::new)).transpose()
    }

    /// Return the fingerprint of the current certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.current().fingerprint
    }

    /// Return the configuration with the current certificate.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current().config)
    }

    /// Read the files again if they have changed; return whether they had. If they cannot be
    /// loaded, keep the old certificate, and let a later call try again: a certificate and its key
    /// are two files, which may change one after the other. Blocks.
    pub fn reload(&self) -> Result<bool> {
        if stamps(&self.tls) == self.current().stamps {
            return Ok(false);
        }
        let read = Current::read(&self.tls, self.offer)?;
        *self.current() = read;
        Ok(true)
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Current> {
        lock(&self.current)
    }
}

impl Current {
    fn read(tls: &ServerTls, offer: Offer) -> Result<Self> {
        // Take the stamps before reading, so that a file that changes meanwhile is read once more.
        let before = stamps(tls);
        let (config, fingerprint) = tls.config(offer)?;
        // A development certificate that was just made had no stamps before.
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
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
