//! The options of a receiver, and the state that its connections share.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use penstock_io::admission::{Admission, IDLE_TIMEOUT};
use penstock_io::tls::{Acceptor, ClientCertificates, ServerTls};
use penstock_io::{Addresses, metrics};
use penstock_lumberjack::ServerConfig;
use tokio::sync::watch;
use tokio::time::timeout;

use super::budget::Budget;
use super::connection_guard::OpenConnections;
use super::counters::Counters;
use crate::Result;
use crate::delivery::Destination;

/// The options of a receiver.
#[derive(Debug, Clone)]
pub struct ReceiverOptions {
    /// The addresses to listen on; the first one that works is used, and port 0 picks a free one.
    pub listen: Addresses,
    /// Its certificate, and the CA of clients' certificates. Default: none, so connections are
    /// plain.
    pub tls: Option<ServerTls>,
    /// Whether clients must have a certificate if there is a CA for them. Default: they must.
    pub client_certificates: ClientCertificates,
    /// The limits on writers. Default: those of the core, and 15 minutes of silence.
    pub server: ServerConfig,
    /// The most open connections; further ones are closed at once. Default: 16,384.
    pub max_connections: u64,
    /// The most open connections of one address; further ones are closed at once. An IPv6 address
    /// stands for its /64. Default: seven eighths of all, or 64 if that is more.
    pub max_connections_per_address: Option<u64>,
    /// The most bytes of all connections that are not safe yet; beyond this, the receiver stops
    /// reading. Default: 256 MiB.
    pub max_bytes: usize,
    /// The age at which a connection ends after its window, so that a load balancer can move it.
    /// Default: none.
    pub max_age: Option<Duration>,
    /// The address of metrics and `/healthz` over HTTP; port 0 picks a free one. Default: none, so
    /// they are not served.
    pub metrics: Option<Addresses>,
    /// Whether the destination outlives the receiver, so that its owner closes it. Default: the
    /// receiver closes it.
    pub shared_destination: bool,
}

impl ReceiverOptions {
    /// Return the defaults.
    pub fn new(listen: Addresses) -> Self {
        Self {
            listen,
            tls: None,
            client_certificates: ClientCertificates::Required,
            server: ServerConfig { idle_timeout: Some(IDLE_TIMEOUT), ..ServerConfig::default() },
            max_connections: 16_384,
            max_connections_per_address: None,
            max_bytes: 256 << 20,
            max_age: None,
            metrics: None,
            shared_destination: false,
        }
    }
}

/// The stage of a receiver.
///
/// ```text
///           shutdown                the grace is over
///  Running ──────────▶ Draining ─────────────────────▶ Cut
///     │                                                 ▲
///     └───────────────── the receiver is dropped ───────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Connections are accepted and read.
    Running,
    /// Nothing more is read; events that have arrived are acknowledged.
    Draining,
    /// Connections are cut off where they are.
    Cut,
}

impl Stage {
    pub(super) const fn is_stopping(self) -> bool {
        match self {
            Self::Running => false,
            Self::Draining | Self::Cut => true,
        }
    }

    pub(super) const fn is_cut(self) -> bool {
        match self {
            Self::Running | Self::Draining => false,
            Self::Cut => true,
        }
    }
}

/// State that the connections of a receiver share.
pub(super) struct Shared {
    pub(super) options: ReceiverOptions,
    pub(super) address: SocketAddr,
    pub(super) acceptor: Option<Arc<Acceptor>>,
    pub(super) destination: Arc<dyn Destination>,
    pub(super) counters: Counters,
    pub(super) admission: Arc<Admission>,
    pub(super) budget: Arc<Budget>,
    pub(super) open_connections: Arc<OpenConnections>,
    pub(super) next: AtomicU64,
    pub(super) stage: watch::Sender<Stage>,
    pub(super) metrics: OnceLock<metrics::Endpoint>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn new(
        options: ReceiverOptions,
        address: SocketAddr,
        acceptor: Option<Arc<Acceptor>>,
        destination: Arc<dyn Destination>,
        counters: Counters,
        admission: Arc<Admission>,
    ) -> Self {
        Self {
            budget: Arc::new(Budget::new(options.max_bytes)),
            open_connections: Arc::default(),
            options,
            address,
            acceptor,
            destination,
            counters,
            admission,
            next: AtomicU64::new(0),
            stage: watch::Sender::new(Stage::Running),
            metrics: OnceLock::new(),
        }
    }

    /// Stop at once: connections are cut off.
    pub(super) fn halt(&self) {
        self.stage.send_replace(Stage::Cut);
        if let Some(metrics) = self.metrics.get() {
            metrics.stop();
        }
    }

    /// Stop reading, and cut off the connections that are open after `grace`.
    pub(super) async fn shutdown(&self, grace: Duration) {
        self.stage.send_modify(|stage| *stage = (*stage).max(Stage::Draining));
        let _ = timeout(grace, self.admission.idle()).await;
        self.halt();
    }

    /// Close the destination, if it is the receiver's own. Blocks.
    pub(super) fn close_destination(&self) -> Result<()> {
        if self.options.shared_destination { Ok(()) } else { self.destination.close() }
    }

    pub(super) fn reload(&self) -> Result<bool> {
        let Some(acceptor) = &self.acceptor else { return Ok(false) };
        Ok(self.admission.reload(acceptor)?)
    }
}

impl metrics::Source for Shared {
    fn write(&self, page: &mut metrics::Page<'_>) -> fmt::Result {
        self.counters.write(page, &self.budget, &self.admission)?;
        self.destination.write(page)
    }

    fn is_healthy(&self) -> bool {
        !self.stage.borrow().is_stopping()
    }
}
