//! The options of a buffer, a job, a sender and a consumer: the attributes of dataclasses.

use std::path::PathBuf;

use penstock_io::tls::{ClientTlsOptions, ServerTls, ServerTlsOptions};
use penstock_io::{Addresses, ConnectionLimits, DriverError as _};
use penstock_pimp_net::options::{any_buffer, flush_interval, seconds};
use penstock_pimp_net::{ClientOptions, ConsumerConfig, Encoding, Error, Limits, Result, SenderConfig};
use pyo3::prelude::*;

/// The attributes of the dataclass that `penstock.pimp.Buffer` makes.
#[derive(FromPyObject)]
pub(crate) struct ServeOptions {
    pub(crate) store: String,
    pub(crate) tls: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    development: PathBuf,
    client_ca: Option<PathBuf>,
    pub(crate) jwt_secret: Option<Vec<u8>>,
    pub(crate) allow_origin: Option<String>,
    pub(crate) limits: LimitFields,
    max_connections: u64,
    max_connections_per_address: Option<u64>,
    metrics: Option<String>,
}

/// The attributes of the dataclass that `penstock.pimp.TriggerServer` makes.
#[derive(FromPyObject)]
pub(crate) struct TriggerOptions {
    tls: bool,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    development: PathBuf,
    client_ca: Option<PathBuf>,
    pub(crate) max_body: u64,
}

/// The attributes of `penstock.pimp.Limits`.
#[derive(FromPyObject)]
pub(crate) struct LimitFields {
    job: u64,
    chunks: u32,
    value: u64,
    ttl_ms: u64,
}

/// The attributes of the dataclass that `penstock.pimp.Job` makes.
#[derive(FromPyObject)]
pub(crate) struct ReachOptions {
    fingerprint: Option<String>,
    ca: Option<PathBuf>,
    system_ca: bool,
    cert: Option<PathBuf>,
    cert_key: Option<PathBuf>,
    allowed_hosts: Option<Vec<String>>,
    retry: f64,
}

/// The attributes of the dataclass that `penstock.pimp.Sender` makes.
#[derive(FromPyObject)]
pub(crate) struct WriteOptions {
    pub(crate) content_type: Option<String>,
    encoding: String,
    gzip: bool,
    content_length: Option<u64>,
    meta: Option<String>,
    chunk_bytes: usize,
    max_chunks_per_batch: usize,
    flush_interval: Option<f64>,
    stall_timeout: f64,
}

/// The attributes of the dataclass that `penstock.pimp.Consumer` makes.
#[derive(FromPyObject)]
pub(crate) struct ReadOptions {
    wait: f64,
    poll_interval: f64,
    max_poll_interval: f64,
    stall_timeout: f64,
    max_bytes: u64,
}

impl ServeOptions {
    pub(crate) fn server_tls(&self) -> Result<Option<ServerTls>> {
        let options = ServerTlsOptions {
            cert: self.cert.clone(),
            key: self.key.clone(),
            development: self.development.clone(),
            client_ca: self.client_ca.clone(),
        };
        Ok(options.optional(self.tls, "which is off")?)
    }

    pub(crate) fn connections(&self) -> ConnectionLimits {
        ConnectionLimits { connections: self.max_connections, per_address: self.max_connections_per_address }
    }

    pub(crate) fn metrics(&self) -> Result<Option<Addresses>> {
        Ok(self.metrics.as_deref().map(Addresses::resolve).transpose()?)
    }
}

impl TriggerOptions {
    pub(crate) fn server_tls(&self) -> Result<Option<ServerTls>> {
        let options = ServerTlsOptions {
            cert: self.cert.clone(),
            key: self.key.clone(),
            development: self.development.clone(),
            client_ca: self.client_ca.clone(),
        };
        Ok(options.optional(self.tls, "which is off")?)
    }
}

impl LimitFields {
    pub(crate) fn core(&self) -> Limits {
        let Self { job, chunks, value, ttl_ms } = *self;
        Limits { job, chunks, value, ttl: ttl_ms, ..Limits::default() }
    }
}

impl ReachOptions {
    /// Convert the options. For `https://` without a trust option, trust the system's CAs.
    pub(crate) fn net(&self, url: &str) -> Result<ClientOptions> {
        let tls = ClientTlsOptions {
            fingerprint: self.fingerprint.clone(),
            ca: self.ca.clone(),
            system_ca: self.system_ca,
            cert: self.cert.clone(),
            key: self.cert_key.clone(),
        };
        let tls = tls.for_url(url)?;
        Ok(ClientOptions { tls, allowed_hosts: self.allowed_hosts.clone(), retry: seconds("retry", self.retry)? })
    }
}

impl WriteOptions {
    pub(crate) fn net(&self) -> Result<SenderConfig> {
        let encoding = match self.encoding.as_str() {
            "auto" => Encoding::Auto,
            "identity" => Encoding::Identity,
            "base64" => Encoding::Base64,
            other => return Err(Error::misuse(format!("encoding={other:?}: \"auto\", \"identity\" or \"base64\""))),
        };
        Ok(SenderConfig {
            encoding,
            gzip: self.gzip,
            content_length: self.content_length,
            meta: self.meta.clone(),
            max_chunk: self.chunk_bytes,
            max_chunks_per_batch: self.max_chunks_per_batch,
            flush_interval: flush_interval(self.flush_interval)?,
            stall_timeout: seconds("stall_timeout", self.stall_timeout)?,
            ..SenderConfig::default()
        })
    }
}

impl ReadOptions {
    pub(crate) fn net(&self) -> Result<ConsumerConfig> {
        Ok(ConsumerConfig {
            wait: seconds("wait", self.wait)?,
            poll_interval: seconds("poll_interval", self.poll_interval)?,
            max_poll_interval: seconds("max_poll_interval", self.max_poll_interval)?,
            stall_timeout: seconds("stall_timeout", self.stall_timeout)?,
            inflated: self.max_bytes,
            ..any_buffer()
        })
    }
}
