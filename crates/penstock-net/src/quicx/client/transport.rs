//! How a daemon is reached.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::tls::ClientTls;
use crate::{Error, Result};

/// Where a daemon is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `HOST:PORT`.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// How a daemon is reached.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Where it is.
    pub target: Target,
    /// Whom we trust. Default: nobody, it is plain.
    pub tls: Option<ClientTls>,
    /// What its certificate must be for. Default: the host.
    pub server_name: Option<String>,
    /// How long it may take. Default: 10 s.
    pub timeout: Duration,
}

impl ConnectOptions {
    /// The defaults.
    pub const fn new(target: Target) -> Self {
        Self { target, tls: None, server_name: None, timeout: Duration::from_secs(10) }
    }
}

/// A connection of any kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects. Reads the trust, which blocks, on a thread of the pool.
pub(super) async fn connect(options: ConnectOptions) -> Result<Box<dyn Stream>> {
    let late = || Error::Deadline(format!("{} did not answer within {:?}", name(&options.target), options.timeout));
    timeout(options.timeout, reach(&options)).await.unwrap_or_else(|_| Err(late()))
}

fn name(target: &Target) -> String {
    match target {
        Target::Tcp(address) => address.clone(),
        Target::Unix(path) => path.display().to_string(),
    }
}

async fn reach(options: &ConnectOptions) -> Result<Box<dyn Stream>> {
    let failed = |error| Error::io(format!("cannot connect to {}", name(&options.target)), &error);
    let address = match &options.target {
        Target::Unix(path) if options.tls.is_none() => {
            return Ok(Box::new(UnixStream::connect(path).await.map_err(failed)?));
        }
        Target::Unix(_) => return Err(Error::Misuse("a Unix socket has no TLS: it is this machine's".into())),
        Target::Tcp(address) => address,
    };
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let Some(tls) = options.tls.clone() else { return Ok(Box::new(stream)) };
    let config = tokio::task::spawn_blocking(move || tls.config(b"")).await;
    let mut config = config.map_err(|error| Error::Misuse(error.to_string()))??;
    config.alpn_protocols.clear();
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let host = options.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']);
    let wrong = |_| Error::Misuse(format!("{host:?} is no name that a certificate could have"));
    let host = ServerName::try_from(host.to_owned()).map_err(wrong)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await;
    Ok(Box::new(stream.map_err(|error| Error::Tls(format!("the handshake with {address} failed: {error}")))?))
}

/// Writes some of what there is; never ends where there is nothing.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), octets: &[u8]) -> Result<usize> {
    if octets.is_empty() {
        return std::future::pending().await;
    }
    let written = stream.write(octets).await.map_err(|error| broken(&error))?;
    if written == octets.len() {
        stream.flush().await.map_err(|error| broken(&error))?;
    }
    Ok(written)
}

pub(super) fn broken(error: &std::io::Error) -> Error {
    Error::io("the connection to the daemon broke", error)
}

pub(super) fn ended() -> Error {
    Error::Io { context: "the connection to the daemon ended".into(), message: "the daemon closed it".into() }
}
