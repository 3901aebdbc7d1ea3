//! The options of a daemon, a producer and a worker: the attributes of dataclasses.

use std::path::PathBuf;

use penstock_io::Addresses;
use penstock_io::duration::{interval, seconds};
use penstock_io::tls::{ClientTlsOptions, ServerTlsOptions};
use penstock_quicx_net::{ConnectOptions, DaemonOptions, Policy, PoolConfig, QueueConfig, Result, Target};
use pyo3::prelude::*;

/// The attributes of the dataclass that `penstock.quicx.Daemon` makes.
#[derive(FromPyObject)]
pub(crate) struct StartOptions {
    listen: Option<String>,
    tls_listen: Option<String>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    development: PathBuf,
    client_ca: Option<PathBuf>,
    socket: Option<PathBuf>,
    journal: Option<PathBuf>,
    pool_bytes: usize,
    size_classes: Vec<usize>,
    default: PolicyFields,
    policies: Vec<(String, PolicyFields)>,
    allow_types: Option<Vec<String>>,
    heartbeat_interval: Option<f64>,
    max_connections: usize,
    max_connections_per_address: Option<u64>,
    idle_timeout: f64,
    metrics: Option<String>,
}

/// The attributes of `penstock.quicx.Policy`.
#[derive(FromPyObject)]
struct PolicyFields {
    task_timeout: f64,
    attempts: u16,
    retry_failed: bool,
    delay: f64,
    back_off: f64,
    start_delay: f64,
    priority: i32,
    rate: Option<f64>,
    unique: bool,
}

/// The attributes of the dataclass that `penstock.quicx.Producer` and `Worker` make.
#[derive(FromPyObject)]
pub(crate) struct ReachOptions {
    address: String,
    socket: Option<PathBuf>,
    fingerprint: Option<String>,
    ca: Option<PathBuf>,
    system_ca: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
    timeout: f64,
}

impl StartOptions {
    /// Return the TLS options.
    fn tls(&self) -> ServerTlsOptions {
        ServerTlsOptions {
            cert: self.cert.clone(),
            key: self.key.clone(),
            development: self.development.clone(),
            client_ca: self.client_ca.clone(),
        }
    }

    /// Convert the options. This blocks on the resolver.
    pub(crate) fn net(self) -> Result<DaemonOptions> {
        let tls = self.tls().optional(self.tls_listen.is_some(), "which is off: say where, by tls_listen")?;
        let tls_listen = self.tls_listen.as_deref().map(Addresses::resolve).transpose()?;
        let policies = self.policies.iter().map(|(kind, policy)| Ok((kind.clone(), policy.core()?)));
        let heartbeat = self.heartbeat_interval.map(|value| interval("heartbeat_interval", value)).transpose()?;
        Ok(DaemonOptions {
            listen: self.listen.as_deref().map(Addresses::resolve).transpose()?,
            tls: tls_listen.zip(tls),
            socket: self.socket,
            journal: self.journal,
            queue: QueueConfig {
                pool: PoolConfig { bytes: self.pool_bytes, classes: self.size_classes },
                default: self.default.core()?,
                policies: policies.collect::<Result<_>>()?,
                allow: self.allow_types.map(|types| types.into_iter().collect()),
                heartbeat_interval: heartbeat.flatten(),
                ..QueueConfig::default()
            },
            max_connections: self.max_connections,
            max_connections_per_address: self.max_connections_per_address,
            idle_timeout: interval("idle_timeout", self.idle_timeout)?,
            metrics: self.metrics.as_deref().map(Addresses::resolve).transpose()?,
        })
    }
}

impl PolicyFields {
    fn core(&self) -> Result<Policy> {
        Ok(Policy {
            task_timeout: interval("task_timeout", self.task_timeout)?,
            attempts: self.attempts,
            retry_failed: self.retry_failed,
            delay: seconds("delay", self.delay)?,
            back_off: self.back_off,
            start_delay: seconds("start_delay", self.start_delay)?,
            priority: self.priority,
            rate: self.rate,
            unique: self.unique,
        })
    }
}

impl ReachOptions {
    /// Return the TLS options.
    fn tls(&self) -> ClientTlsOptions {
        ClientTlsOptions {
            fingerprint: self.fingerprint.clone(),
            ca: self.ca.clone(),
            system_ca: self.system_ca,
            cert: self.cert.clone(),
            key: self.key.clone(),
        }
    }

    pub(crate) fn net(&self) -> Result<ConnectOptions> {
        let target = match &self.socket {
            Some(socket) => Target::Unix(socket.clone()),
            None => Target::Tcp(self.address.clone()),
        };
        let mut options = ConnectOptions::new(target);
        options.tls = self.tls().optional()?;
        options.server_name.clone_from(&self.server_name);
        options.timeout = seconds("timeout", self.timeout)?;
        Ok(options)
    }
}
