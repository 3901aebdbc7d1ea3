//! Where requests come in.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Service;
use crate::metrics::{Endpoint, Source};
use crate::runtime::{PerProcess, Runtime, block_on};
use crate::tcp::listen;
use crate::tls::{ClientCertificates, Fingerprint, ServerTls};
use crate::{Error, Result};

/// Connections at a time; others wait in the system.
const CONNECTIONS: u32 = 16_384;
/// How long a handshake and a head may take (decision 3).
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests may take that still run when the server stops.
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait when the system has no more sockets.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A buffer that listens.
pub struct Buffer {
    address: SocketAddr,
    fingerprint: Option<Fingerprint>,
    stop: PerProcess<watch::Sender<bool>>,
    places: Arc<Semaphore>,
    metrics: Option<Endpoint>,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Buffer {
    /// Listens, and at `metrics` for Prometheus; port 0 picks a free one. Without TLS it listens on loopback only (decision 12).
    pub fn bind(
        service: &Arc<Service>,
        address: SocketAddr,
        tls: Option<&ServerTls>,
        metrics: Option<SocketAddr>,
    ) -> Result<Self> {
        if tls.is_none() && !address.ip().is_loopback() {
            return Err(Error::Misuse(format!("{address} is not loopback: a buffer needs TLS there")));
        }
        let tls = tls.map(|tls| tls.tcp_config(ClientCertificates::Required)).transpose()?;
        let (acceptor, fingerprint) = match tls {
            None => (None, None),
            Some((mut config, fingerprint)) => {
                config.alpn_protocols = vec![b"http/1.1".to_vec()];
                (Some(TlsAcceptor::from(Arc::new(config))), Some(fingerprint))
            }
        };
        let runtime = Runtime::current()?;
        let bound = listen(address).and_then(|listener| {
            let _entered = runtime.handle().enter();
            Ok((listener.local_addr()?, TcpListener::from_std(listener)?))
        });
        let (address, listener) =
            bound.map_err(|error| Error::io(format!("cannot serve PIMP on {address}"), &error))?;
        let source = || Arc::clone(service) as Arc<dyn Source>;
        let metrics = metrics.map(|listen| Endpoint::bind(listen, source())).transpose()?;
        let (stop, stopped) = watch::channel(false);
        let places = Arc::new(Semaphore::new(CONNECTIONS as usize));
        runtime.handle().spawn(accept(listener, acceptor, Arc::clone(service), Arc::clone(&places), stopped));
        Ok(Self { address, fingerprint, stop: PerProcess::new(stop), places, metrics })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves metrics, if it does.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Endpoint::address)
    }

    /// What clients pin; `None` without TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// Takes no more connections, waits for the requests that run, and ends.
    pub fn close(&self) -> Result<()> {
        self.stop.get()?.send_replace(true);
        let places = Arc::clone(&self.places);
        // All places are free when the last connection has ended.
        let done = block_on(async move { timeout(GRACE, places.acquire_many(CONNECTIONS)).await.is_ok() })?;
        if !done {
            tracing::warn!("requests still run {} s after the buffer was told to stop", GRACE.as_secs());
        }
        if let Some(metrics) = &self.metrics {
            metrics.stop();
        }
        Ok(())
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: Option<TlsAcceptor>,
    service: Arc<Service>,
    places: Arc<Semaphore>,
    stopped: watch::Receiver<bool>,
) {
    let mut stop = stopped.clone();
    let cleaning = Arc::clone(&service).keep_clean();
    let accepting = async {
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "no caller could be taken");
                    sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            let (acceptor, service, stopped) = (acceptor.clone(), Arc::clone(&service), stopped.clone());
            tokio::spawn(async move {
                let _place = place;
                connection(stream, peer, acceptor, service, stopped).await;
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = cleaning => {}
        // An error means that the buffer was dropped.
        _ = stop.wait_for(|stopped| *stopped) => {}
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    service: Arc<Service>,
    stopped: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return serve(stream, peer, service, stopped).await };
    match timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => serve(stream, peer, service, stopped).await,
        Ok(Err(error)) => tracing::warn!(%peer, %error, "a caller's handshake failed"),
        Err(_) => tracing::warn!(%peer, "a caller's handshake took too long"),
    }
}

async fn serve<S>(stream: S, peer: SocketAddr, service: Arc<Service>, mut stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let answering = service_fn(move |request: Request<Incoming>| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.respond(request, peer.ip()).await) }
    });
    let mut http = http1::Builder::new();
    let connection =
        http.timer(TokioTimer::new()).header_read_timeout(PATIENCE).serve_connection(TokioIo::new(stream), answering);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = told(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                // Polls that are held open and events would outlast it.
                () = sleep(GRACE) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a connection broke");
    }
}

/// Waits until the buffer is told to stop, or was dropped.
async fn told(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await.is_ok();
}
