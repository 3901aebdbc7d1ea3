//! What a daemon can be told: its addresses, its files and its limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use penstock_io::admission::IDLE_TIMEOUT;
use penstock_io::tls::ServerTls;
use penstock_quicx::QueueConfig;

/// The options of a daemon.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    /// Where it listens in plain text; port 0 picks a free one. Default: nowhere.
    pub listen: Option<SocketAddr>,
    /// Where it listens with TLS, and its certificate. Default: nowhere.
    pub tls: Option<(SocketAddr, ServerTls)>,
    /// A Unix socket. Default: none.
    pub socket: Option<PathBuf>,
    /// The journal's folder. Default: none, tasks are lost with the process.
    pub journal: Option<PathBuf>,
    /// The queue.
    pub queue: QueueConfig,
    /// Connections beyond this are closed at once. Default: 16,384.
    pub max_connections: usize,
    /// Connections of one address beyond this are closed at once, an IPv6 address standing for its /64. Default: seven
    /// eighths of all, or 64 where that is more.
    pub max_connections_per_address: Option<u64>,
    /// Silence after which a connection ends that has neither submitted nor taken anything. Default: 15 minutes.
    pub idle_timeout: Option<Duration>,
    /// Where metrics and `/healthz` are served by HTTP. Default: nowhere.
    pub metrics: Option<SocketAddr>,
}

impl Default for DaemonOptions {
    fn default() -> Self {
        Self {
            listen: None,
            tls: None,
            socket: None,
            journal: None,
            queue: QueueConfig::default(),
            max_connections: 16_384,
            max_connections_per_address: None,
            idle_timeout: Some(IDLE_TIMEOUT),
            metrics: None,
        }
    }
}
