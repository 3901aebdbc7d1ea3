//! A server's counters, for Prometheus.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use penstock_io::metrics::{Endpoint, Page, Source};
use penstock_io::{Addresses, Result, admission};

/// The counters of one server, over all its transports.
#[derive(Debug, Default)]
pub struct Counters {
    connections: AtomicU64,
    calls: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    refused: AtomicU64,
    /// Connections over sockets that were closed before they were served.
    admission: Arc<admission::Counters>,
    stopping: AtomicBool,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    /// Count a pipe or a socket that is served.
    pub fn connection(&self) {
        add(&self.connections, 1);
    }

    /// Count a call of a method, with the bytes of its parameters or its input.
    pub fn call(&self, bytes: u64) {
        add(&self.calls, 1);
        add(&self.bytes, bytes);
    }

    /// Count a call or a stream that failed.
    pub fn failure(&self) {
        add(&self.failures, 1);
    }

    /// Count a request that reached no method, or a connection that was closed before one.
    pub fn refused(&self) {
        self.refused_by(1);
    }

    /// Count a request over HTTP that was answered without a method. OPTIONS requests never count
    /// as refused.
    pub fn answered(&self, method: &str, status: u16) {
        if status >= 400 && method != "OPTIONS" {
            self.refused();
        }
    }

    /// Count several refused requests.
    pub(super) fn refused_by(&self, count: u64) {
        if count > 0 {
            add(&self.refused, count);
        }
    }

    /// Return how many requests were refused, including connections that were closed before they
    /// were served.
    pub fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed).saturating_add(self.admission.not_served())
    }

    /// Return the counters of connections that are not served.
    pub(super) const fn admission(&self) -> &Arc<admission::Counters> {
        &self.admission
    }
}

impl Source for Counters {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        page.counter("penstock_vgi_connections", "Pipes and sockets that were served.", read(&self.connections))?;
        page.counter("penstock_vgi_calls", "Calls that reached a method.", read(&self.calls))?;
        page.counter("penstock_vgi_call_bytes", "Bytes of the parameters and inputs of calls.", read(&self.bytes))?;
        page.counter("penstock_vgi_failures", "Calls and streams that failed.", read(&self.failures))?;
        page.counter(
            "penstock_vgi_refused",
            "Requests that reached no method, and connections closed before a request.",
            self.refusals(),
        )
    }

    fn is_healthy(&self) -> bool {
        !self.stopping.load(Ordering::Relaxed)
    }
}

/// An endpoint with a server's metrics, which stops when this is dropped.
#[derive(Debug)]
pub struct MetricsEndpoint {
    endpoint: Endpoint,
    counters: Arc<Counters>,
}

impl MetricsEndpoint {
    /// Listen on an address; port 0 picks a free one.
    pub fn bind(listen: Addresses, counters: Arc<Counters>) -> Result<Self> {
        let source: Arc<dyn Source> = Arc::clone(&counters) as Arc<dyn Source>;
        Ok(Self { endpoint: Endpoint::bind(listen, source)?, counters })
    }

    /// Return the address on which the endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    /// Report the server as unhealthy from now on, because it was told to stop.
    pub fn stopping(&self) {
        self.counters.stopping.store(true, Ordering::Relaxed);
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        self.endpoint.stop();
    }
}
