//! The buffer's sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::{Request, Response};
use penstock_io::http::{HTTPS, Handler, HttpServer, RequestBody, Serving};
use penstock_io::metrics::{Endpoint, Source};
use penstock_io::runtime::Runtime;
use penstock_io::tls::{Acceptor, Fingerprint, ServerTls};
use penstock_io::{Addresses, ConnectionLimits};

use super::Service;
use super::body::ResponseBody;
use crate::{Misuse, Result};

pub(super) const SERVING: Serving = Serving {
    what: "PIMP",
    connections: 16_384,
    per_address: None,
    descriptors: 1,
    keep_alive: true,
    // Decision 3.
    header_timeout: Duration::from_secs(10),
    stall: Duration::from_secs(30),
    unsent: Some(128 << 10),
    grace: Duration::from_secs(10),
};

/// A listening buffer.
#[derive(Debug)]
pub struct Buffer {
    service: Arc<Service>,
    server: HttpServer,
    metrics: Option<Endpoint>,
}

impl Handler for Service {
    type Body = ResponseBody;

    async fn answer(self: Arc<Self>, request: Request<RequestBody>, peer: SocketAddr) -> Response<ResponseBody> {
        self.respond(request, peer.ip()).await
    }
}

impl Buffer {
    /// The default limits of connections; others wait in the system's backlog.
    pub const CONNECTIONS: ConnectionLimits =
        ConnectionLimits { connections: SERVING.connections, per_address: SERVING.per_address };

    /// Listen on the first of these addresses that works, and serve metrics at `metrics`; port 0
    /// picks a free port. Without TLS the address must be loopback (decision 12).
    pub fn bind(
        service: &Arc<Service>,
        listen: Addresses,
        tls: Option<&ServerTls>,
        metrics: Option<Addresses>,
        limits: ConnectionLimits,
    ) -> Result<Self> {
        let ConnectionLimits { connections, per_address } = limits;
        Self::serve(service, listen, tls, metrics, Serving { connections, per_address, ..SERVING })
    }

    pub(super) fn serve(
        service: &Arc<Service>,
        listen: Addresses,
        tls: Option<&ServerTls>,
        metrics: Option<Addresses>,
        serving: Serving,
    ) -> Result<Self> {
        if tls.is_none() && !listen.is_loopback() {
            return Err(Misuse::PlainListener { listen: listen.to_string(), server: "a buffer" }.into());
        }
        let (acceptor, counters) = (Acceptor::optional(tls, HTTPS)?, Arc::clone(&service.admission));
        let server = HttpServer::bind(Arc::clone(service), listen, acceptor, serving, counters)?;
        let source = || Arc::clone(service) as Arc<dyn Source>;
        let metrics = metrics.map(|listen| Endpoint::bind(listen, source())).transpose()?;
        let (cleaning, mut stopping) = (Arc::clone(service).keep_clean(), server.stopping()?);
        Runtime::current()?.handle().spawn(async move {
            tokio::select! {
                () = cleaning => {}
                () = stopping.stopped() => {}
            }
        });
        Ok(Self { service: Arc::clone(service), server, metrics })
    }

    /// Return the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Return the address of its metrics, if it serves them.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().map(Endpoint::address)
    }

    /// Return the fingerprint that clients pin now; `None` without TLS.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.server.fingerprint()
    }

    /// Stop accepting connections, answer the polls that are held open, wait for running requests up to `grace`, and
    /// end.
    pub fn close(&self, grace: Duration) -> Result<()> {
        self.service.stop();
        self.server.close_within(grace)?;
        if let Some(metrics) = &self.metrics {
            metrics.stop();
        }
        Ok(())
    }
}
