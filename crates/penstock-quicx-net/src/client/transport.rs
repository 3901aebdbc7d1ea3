//! How a daemon is reached.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::tls::{ClientTls, alert, rustls_of};
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep_until, timeout};
use tokio_rustls::TlsConnector;

use crate::{Error, Result};

/// After so long a silence the system asks whether the daemon's machine is there, so often, and gives up after so many times.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);

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

/// Whom a connection goes to, for its errors.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    name: String,
    protection: Protection,
}

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protection {
    Plain,
    /// TLS, without a certificate of ours.
    Tls,
    /// TLS, with a certificate of ours.
    MutualTls,
}

impl Peer {
    /// The connection is broken.
    pub(super) fn broken(&self, error: io::Error) -> Error {
        if alert(&error) == Some(AlertDescription::CertificateRequired) {
            return self.wants_certificate();
        }
        let mut context = format!("the connection to {} broke", self.name);
        if self.protection == Protection::Tls && error.kind() != io::ErrorKind::TimedOut {
            context.push_str(" (if it takes only clients with a certificate, give ours: cert and key)");
        }
        Error::io(context, error)
    }

    /// The daemon has closed it.
    pub(super) fn ended(&self) -> Error {
        Error::io(format!("the connection to {} ended", self.name), "the daemon closed it")
    }

    /// The daemon has not answered heartbeats.
    pub(super) fn silent(&self) -> Error {
        let message = "the daemon has left three heartbeats without an answer";
        Error::io(format!("the connection to {} ended", self.name), message)
    }

    /// What came is not what a daemon says.
    pub(super) fn wrong(&self, error: penstock_quicx::Error, bytes: &[u8]) -> Error {
        // How a server of TLS tells that it is spoken to in plain text.
        if self.protection == Protection::Plain && bytes.starts_with(&[0x15, 3]) {
            return Error::tls(format!(
                "{} speaks TLS, and was spoken to in plain text: say whom to trust, by fingerprint, ca or system_ca",
                self.name
            ));
        }
        Error::Peer { name: self.name.clone(), source: error }
    }

    fn handshake(&self, error: &io::Error) -> Error {
        let name = &self.name;
        match (alert(error), rustls_of(error)) {
            (Some(AlertDescription::CertificateRequired), _) => self.wants_certificate(),
            (_, Some(rustls::Error::InvalidMessage(_))) => Error::tls(format!(
                "{name} does not speak TLS there: name its TLS port, or leave out fingerprint, ca and system_ca"
            )),
            _ => Error::tls(format!("the handshake with {name} failed: {error}")),
        }
    }

    fn wants_certificate(&self) -> Error {
        Error::tls(format!(
            "{} takes only clients with a certificate that its authority has signed: give ours, by cert and key",
            self.name
        ))
    }
}

/// Connects. Reads the trust, which blocks, on a thread of the pool.
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
        Target::Unix(_) => return Err(Error::misuse("a Unix socket has no TLS: it is this machine's".into())),
        Target::Tcp(address) => address,
    };
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (silence, interval, times) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(silence).with_interval(interval).with_retries(times);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive).map_err(failed)?;
    let Some(tls) = options.tls.clone() else { return Ok(Box::new(stream)) };
    let config = tokio::task::spawn_blocking(move || tls.config(b"")).await;
    let mut config = config.map_err(|died| Error::task(&died))??;
    config.alpn_protocols.clear();
    let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
    let host = options.server_name.as_deref().unwrap_or(host).trim_matches(['[', ']']);
    let wrong = |_| Error::misuse(format!("{host:?} is no name that a certificate could have"));
    let host = ServerName::try_from(host.to_owned()).map_err(wrong)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(host, stream).await;
    Ok(Box::new(stream.map_err(|error| peer.handshake(&error))?))
}

/// Writes some of what there is; never ends where there is nothing.
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

/// Waits for a moment; without one it never ends.
pub(super) async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

/// Why a connection is over, for whoever asks for something when it is.
#[derive(Debug, Clone, Default)]
pub(super) struct Over(Arc<OnceLock<Error>>);

impl Over {
    /// It is over. The first reason stands.
    pub(super) fn because(&self, error: &Error) {
        // An error means that there is a reason already.
        let _ = self.0.set(error.clone());
    }

    /// What to tell.
    pub(super) fn error(&self) -> Error {
        let closed = || Error::io("the connection to the daemon ended", "we closed it");
        self.0.get().cloned().unwrap_or_else(closed)
    }
}
