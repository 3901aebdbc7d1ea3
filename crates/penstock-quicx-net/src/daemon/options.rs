//! The options of a daemon: its addresses, its files and its limits.

use std::path::PathBuf;
use std::time::Duration;

use penstock_io::Addresses;
use penstock_io::admission::IDLE_TIMEOUT;
use penstock_io::tls::ServerTls;
use penstock_quicx::QueueConfig;

/// The options of a daemon.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    /// The plain-text address; port 0 picks a free one. Default: none.
    pub listen: Option<Addresses>,
    /// The TLS address, and the certificate. Default: none.
    pub tls: Option<(Addresses, ServerTls)>,
    /// The path of a Unix socket. Default: none.
    pub socket: Option<PathBuf>,
    /// The journal's folder. Default: none, so tasks are lost with the process.
    pub journal: Option<PathBuf>,
    /// The configuration of the queue.
    pub queue: QueueConfig,
    /// The most connections; further ones are closed at once. Default: 16,384.
    pub max_connections: usize,
    /// The most connections from one IPv4 address or one IPv6 /64; further ones are closed at once.
    /// Default: seven eighths of all, or 64 if that is more.
    pub max_connections_per_address: Option<u64>,
    /// The silence after which a connection that is neither a producer nor a worker ends. Default: 15 minutes.
    pub idle_timeout: Option<Duration>,
    /// The HTTP address of metrics and `/healthz`. Default: none.
    pub metrics: Option<Addresses>,
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
