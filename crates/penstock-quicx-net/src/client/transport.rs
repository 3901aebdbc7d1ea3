//! Connections to a daemon.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::tls::{self, ClientTls, alert, rustls_of};
use rustls::AlertDescription;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep_until, timeout};
use tokio_rustls::TlsConnector;

use crate::{Error, Misuse, Result};

/// TCP keep-alive: the silence before the first probe, the interval of further probes, and their number.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

/// The address of a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// `HOST:PORT`.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// How to connect to a daemon.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Its address.
    pub target: Target,
    /// TLS, with the trusted daemons. Default: none, so the connection is not encrypted.
    pub tls: Option<ClientTls>,
    /// The name in its certificate. Default: the host.
    pub server_name: Option<String>,
    /// The timeout of connecting. Default: 10 s.
    pub timeout: Duration,
}

impl ConnectOptions {
    /// Return the defaults.
    pub const fn new(target: Target) -> Self {
        Self { target, tls: None, server_name: None, timeout: Duration::from_secs(10) }
    }
}

/// A connection over TCP, TLS or a Unix socket.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// The peer of a connection, for error messages.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    name: String,
    protection: Protection,
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    Plain,
    /// TLS without a client certificate.
    Tls,
    /// TLS with a client certificate.
    MutualTls,
}

impl Peer {
    /// Return the error of a broken connection.
    pub(super) fn broken(&self, error: io::Error) -> Error {
        if alert(&error) == Some(AlertDescription::CertificateRequired) {
            return self.wants_certificate(error);
        }
        let mut context = format!("the connection to {} broke", self.name);
        if self.protection == Protection::Tls && error.kind() != io::ErrorKind::TimedOut {
            context.push_str(" (if it requires a client certificate, give cert and key)");
        }
        Error::io(context, error)
    }

    /// Return the error of a connection that the daemon has closed.
    pub(super) fn ended(&self) -> Error {
        Error::io(format!("the connection to {} ended", self.name), "the daemon closed it")
    }

    /// Return the error of unanswered heartbeats.
    pub(super) fn silent(&self) -> Error {
        let message = "the daemon has left three heartbeats without an answer";
        Error::io(format!("the connection to {} ended", self.name), message)
    }

    /// Return the error of bytes that break the protocol.
    pub(super) fn wrong(&self, error: penstock_quicx::Error, bytes: &[u8]) -> Error {
        // The alert of a TLS server that receives plain text.
        if self.protection == Protection::Plain && bytes.starts_with(&[0x15, 3]) {
            return Error::tls(format!(
                "{} speaks TLS, and was spoken to in plain text: say whom to trust, by fingerprint, ca or system_ca",
                self.name
            ));
        }
        Error::Peer { name: self.name.clone(), source: error }
    }

    fn handshake(&self, error: io::Error) -> Error {
        let name = &self.name;
        match (alert(&error), rustls_of(&error)) {
            (Some(AlertDescription::CertificateRequired), _) => self.wants_certificate(error),
            (_, Some(rustls::Error::InvalidMessage(_))) => {
                let hint = "name its TLS port, or leave out fingerprint, ca and system_ca";
                Error::tls_from(format!("{name} does not speak TLS there: {hint}"), error)
            }
            _ => Error::tls_from(format!("the handshake with {name} failed: {error}"), error),
        }
    }

    fn wants_certificate(&self, error: io::Error) -> Error {
        let message = format!("{} requires a client certificate signed by its CA: give cert and key", self.name);
        Error::tls_from(message, error)
    }
}

/// Connect. The TLS files are read on a thread of the pool, because reading them blocks.
pub(super) async fn connect(options: ConnectOptions) -> Result<(Box<dyn Stream>, Peer)> {
    let name = match &options.target {
        Target::Tcp(address) => address.clone(),
        Target::Unix(path) => path.display().to_string(),
    };
    let protection = match &options.tls {
        None => Protection::Plain,
        Some(tls) if tls.identity.is_none() => Protection::Tls,
        Some(_) => Protection::MutualTls,
    };
    let peer = Peer { name, protection };
    let late = || Error::deadline(format!("{} did not answer within {:?}", peer.name, options.timeout));
    let stream = timeout(options.timeout, reach(&options, &peer)).await.unwrap_or_else(|_| Err(late()))?;
    Ok((stream, peer))
}

async fn reach(options: &ConnectOptions, peer: &Peer) -> Result<Box<dyn Stream>> {
    let failed = |error| Error::io(format!("cannot connect to {}", peer.name), error);
    let address = match &options.target {
        Target::Unix(path) if options.tls.is_none() => {
            return Ok(Box::new(UnixStream::connect(path).await.map_err(failed)?));
        }
        Target::Unix(_) => return Err(Misuse::UnixTls.into()),
        Target::Tcp(address) => address,
    };
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (silence, interval, times) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(silence).with_interval(interval).with_retries(times);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(failed)?;
    let Some(tls) = options.tls.clone() else { return Ok(Box::new(stream)) };
    let config = tokio::task::spawn_blocking(move || tls.config(b"")).await;
    let mut config = config.map_err(Error::task)??;
    config.alpn_protocols.clear();
    let host = tls::server_name(options.server_name.as_deref(), address)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await;
    Ok(Box::new(stream.map_err(|error| peer.handshake(error))?))
}

/// Write some of the bytes; if there are none, never return.
pub(super) async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return std::future::pending().await;
    }
    let written = stream.write(bytes).await?;
    if written == bytes.len() {
        stream.flush().await?;
    }
    Ok(written)
}

/// Wait until a time; if there is none, never return.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// The reason why a connection has ended, for later requests.
#[derive(Debug, Clone, Default)]
pub(super) struct ClosedReason(Arc<OnceLock<Error>>);

impl ClosedReason {
    /// Set the reason; the first one is kept.
    pub(super) fn set(&self, error: &Error) {
        // An error means that a reason is set already.
        let _ = self.0.set(error.clone());
    }

    /// Return the error for callers.
    pub(super) fn error(&self) -> Error {
        let closed = || Error::io("the connection to the daemon ended", "we closed it");
        self.0.get().cloned().unwrap_or_else(closed)
    }
}
