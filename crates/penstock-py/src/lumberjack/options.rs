//! The options of a receiver and a sender: the attributes of two dataclasses.

use std::path::PathBuf;

use penstock_io::duration::seconds;
use penstock_io::tls::{ClientCertificates, ClientTlsOptions, ServerTlsOptions};
use penstock_io::{Addresses, DriverError as _};
use penstock_lumberjack_net::{
    ClientConfig, Error, Hosts, ReceiverOptions, Result, SenderOptions, Sequence, ServerConfig, Version,
};
use pyo3::prelude::*;

/// The attributes of the dataclass that `penstock.lumberjack.Receiver` makes.
#[derive(FromPyObject)]
pub(crate) struct ReceiveOptions {
    tls: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    development: PathBuf,
    client_ca: Option<PathBuf>,
    client_certificates: String,
    max_connections: u64,
    max_connections_per_address: Option<u64>,
    max_bytes: usize,
    max_age: Option<f64>,
    frame_timeout: f64,
    idle_timeout: Option<f64>,
    keepalive: f64,
    repeat_ack: bool,
    pause: f64,
    limits: LimitFields,
    metrics: Option<String>,
}

/// The attributes of `penstock.lumberjack.Limits`.
#[derive(FromPyObject)]
struct LimitFields {
    compressed: u64,
    inflated: u64,
    ratio: u64,
    key: u64,
    value: u64,
    pairs: u64,
    event: u64,
    window: u64,
}

/// The attributes of the dataclass that `penstock.lumberjack.Sender` makes.
#[derive(FromPyObject)]
pub(crate) struct SendOptions {
    hosts: Vec<String>,
    balance: bool,
    fingerprint: Option<String>,
    ca: Option<PathBuf>,
    system_ca: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    server_name: Option<String>,
    protocol: u8,
    sequence: String,
    window: u32,
    in_flight: usize,
    compress: u32,
    ack_timeout: f64,
    retry: Option<f64>,
}

impl ReceiveOptions {
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
    pub(crate) fn net(&self, listen: &str) -> Result<ReceiverOptions> {
        let mut options = ReceiverOptions::new(Addresses::resolve(listen)?);
        options.tls = self.tls().optional(self.tls, "which is off")?;
        options.client_certificates = ClientCertificates::parse("client_certificates", &self.client_certificates)?;
        options.max_connections = self.max_connections;
        options.max_connections_per_address = self.max_connections_per_address;
        options.max_bytes = self.max_bytes;
        options.max_age = self.max_age.map(|age| seconds("max_age", age)).transpose()?;
        options.metrics = self.metrics.as_deref().map(Addresses::resolve).transpose()?;
        options.server = ServerConfig {
            limits: self.limits.core(),
            frame_timeout: seconds("frame_timeout", self.frame_timeout)?,
            idle_timeout: self.idle_timeout.map(|idle| seconds("idle_timeout", idle)).transpose()?,
            keepalive: seconds("keepalive", self.keepalive)?,
            repeat_ack: self.repeat_ack,
            pause: seconds("pause", self.pause)?,
        };
        Ok(options)
    }
}

impl LimitFields {
    fn core(&self) -> penstock_lumberjack_net::Limits {
        penstock_lumberjack_net::Limits {
            compressed: self.compressed,
            inflated: self.inflated,
            ratio: self.ratio,
            key: self.key,
            value: self.value,
            pairs: self.pairs,
            data: self.event,
            window: self.window,
        }
    }
}

impl SendOptions {
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

    pub(crate) fn net(&self) -> Result<SenderOptions> {
        let mut options = SenderOptions::new(self.hosts.clone());
        options.mode = if self.balance { Hosts::Balance } else { Hosts::Failover };
        options.tls = self.tls().optional()?;
        options.server_name.clone_from(&self.server_name);
        options.give_up = self.retry.map(|retry| seconds("retry", retry)).transpose()?;
        options.client = ClientConfig {
            version: match self.protocol {
                1 => Version::V1,
                2 => Version::V2,
                other => return Err(Error::misuse(format!("protocol must be 1 or 2, not {other}"))),
            },
            sequence: match self.sequence.as_str() {
                "window" => Sequence::Window,
                "continue" => Sequence::Continue,
                other => return Err(Error::misuse(format!("sequence={other:?}: \"window\" or \"continue\""))),
            },
            window: self.window,
            in_flight: self.in_flight,
            compression: self.compress,
            timeout: seconds("ack_timeout", self.ack_timeout)?,
            ..ClientConfig::default()
        };
        Ok(options)
    }
}
