//! The options of a session: capabilities, limits, trust.

use std::collections::BTreeMap;
use std::path::PathBuf;

use penstock_io::tls::{ClientCertificates, ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions};
use penstock_io::{Addresses, ReadKey};
use penstock_pipestream::SessionId;
use penstock_pipestream::header_key::HeaderKeys;
use penstock_pipestream_net::{Error, EventLog, Result, ServerOptions, SessionOptions, SessionSettings};
use penstock_pipestream_sink::{ServerSettings, SinkPlace};
use pyo3::prelude::*;

use super::fields::PolicyFields;
use super::limits::LimitFields;
use super::references::ReferenceOptions;
use super::waiting::Timeout;

/// The attributes of the dataclass that `penstock.pipestream.Session.connect` makes.
#[derive(FromPyObject)]
pub(crate) struct ConnectOptions {
    pub(crate) fingerprint: Option<String>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) system_ca: bool,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
    pub(crate) layers: u8,
    pub(crate) window: Option<u32>,
    pub(crate) mtu: Option<i64>,
    pub(crate) timeout: Timeout,
    /// The policy of root entities that have children and no policy of their own.
    #[pyo3(default)]
    pub(crate) policy: Option<PolicyFields>,
    /// Seconds for which the session survives without a connection.
    #[pyo3(default)]
    pub(crate) survive: Option<f64>,
    /// A folder for the session, so that it survives the process.
    #[pyo3(default)]
    pub(crate) state: Option<PathBuf>,
    pub(crate) limits: LimitFields,
    /// The key that seals headers, in hex.
    #[pyo3(default)]
    pub(crate) header_key: Option<String>,
    /// The name of a session at layer 2, 32 hex digits.
    #[pyo3(default)]
    pub(crate) session_id: Option<String>,
    /// Seconds between two blocks of stream 0.
    #[pyo3(default)]
    pub(crate) status_interval: Option<f64>,
}

/// The attributes of the dataclass that `penstock.pipestream.Server` makes.
#[derive(FromPyObject)]
pub(crate) struct ServeOptions {
    /// A folder, or the URI of a prefix in an object store.
    pub(crate) sink: Option<PathBuf>,
    pub(crate) storage: BTreeMap<String, String>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) development: PathBuf,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) layers: u8,
    pub(crate) window: Option<u32>,
    pub(crate) mtu: Option<i64>,
    pub(crate) max_payload: Option<u64>,
    pub(crate) events: Option<PathBuf>,
    pub(crate) metrics: Option<String>,
    pub(crate) read_key: Option<String>,
    pub(crate) reader_certificates: String,
    pub(crate) references: Option<ReferenceOptions>,
    /// The place of claim checks, unless they are stored next to a sink's sessions; without either,
    /// there are none.
    #[pyo3(default)]
    pub(crate) claims: Option<PathBuf>,
    /// The content types that a sink stores and defers.
    #[pyo3(default)]
    pub(crate) defer_types: Vec<String>,
    /// The most connections from one address; by default seven eighths of all.
    #[pyo3(default)]
    pub(crate) max_connections_per_address: Option<u64>,
    /// Seconds of silence after which a session without open entities ends.
    #[pyo3(default)]
    pub(crate) idle_timeout: Option<f64>,
    /// Seconds for which a session waits for a client that survives a lost connection.
    #[pyo3(default)]
    pub(crate) survive: Option<f64>,
    /// A folder for sessions, so that they survive the process.
    #[pyo3(default)]
    pub(crate) state: Option<PathBuf>,
    pub(crate) limits: LimitFields,
    /// The key that seals headers, in hex.
    #[pyo3(default)]
    pub(crate) header_key: Option<String>,
    /// Seconds between two blocks of stream 0.
    #[pyo3(default)]
    pub(crate) status_interval: Option<f64>,
}

/// The attributes of the dataclass that `penstock.pipestream.SinkReader` makes.
#[derive(FromPyObject)]
pub(crate) struct ReaderOptions {
    /// The sink's folder, or the URI of its prefix in an object store; otherwise the server's address.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) storage: BTreeMap<String, String>,
    pub(crate) address: Option<String>,
    pub(crate) fingerprint: Option<String>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) system_ca: bool,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
    pub(crate) read_key: Option<String>,
    pub(crate) timeout: Option<f64>,
}

impl ReaderOptions {
    pub(crate) fn tls(&self) -> Result<ClientTls> {
        let options = ClientTlsOptions {
            fingerprint: self.fingerprint.clone(),
            ca: self.ca.clone(),
            system_ca: self.system_ca,
            cert: self.cert.clone(),
            key: self.key.clone(),
        };
        Ok(options.required()?)
    }
}

impl ConnectOptions {
    pub(crate) fn tls(&self) -> Result<ClientTls> {
        let options = ClientTlsOptions {
            fingerprint: self.fingerprint.clone(),
            ca: self.ca.clone(),
            system_ca: self.system_ca,
            cert: self.cert.clone(),
            key: self.key.clone(),
        };
        Ok(options.required()?)
    }

    pub(crate) fn session(&self) -> Result<SessionOptions> {
        let settings = SessionSettings {
            layers: self.layers,
            window: self.window,
            mtu: self.mtu,
            survive: self.survive,
            idle_timeout: None,
            status_interval: self.status_interval,
        };
        let mut options = SessionOptions {
            policy: self.policy.clone().map(Into::into),
            state: self.state.clone(),
            header_keys: header_keys(self.header_key.as_deref())?,
            name: self.session_id.as_deref().map(SessionId::parse).transpose().map_err(Error::Protocol)?,
            ..settings.options()?
        };
        self.limits.apply(&mut options)?;
        Ok(options)
    }
}

impl ServeOptions {
    pub(crate) fn tls(&self) -> Result<ServerTls> {
        let options = ServerTlsOptions {
            cert: self.cert.clone(),
            key: self.key.clone(),
            development: self.development.clone(),
            client_ca: self.client_ca.clone(),
        };
        Ok(options.required()?)
    }

    /// Return the address for serving metrics. This blocks on the resolver.
    pub(crate) fn metrics(&self) -> Result<Option<Addresses>> {
        Ok(self.metrics.as_deref().map(Addresses::resolve).transpose()?)
    }

    /// Return the settings of a server, with these options filled into `server`.
    pub(crate) fn settings(&self, server: ServerOptions) -> Result<ServerSettings> {
        let server = ServerOptions {
            session: self.session()?,
            max_connections: self.limits.max_connections,
            max_connections_per_address: self.max_connections_per_address,
            state: self.state.clone(),
            ..server
        };
        Ok(ServerSettings {
            server,
            sink: SinkPlace::of(self.sink.as_deref(), &self.storage)?,
            claims: self.claims.clone(),
            claim_limits: self.limits.claims()?,
            defer_types: self.defer_types.clone(),
            read_key: self.read_key.as_deref().map(ReadKey::new).transpose()?,
            reader_certificates: ClientCertificates::parse("reader_certificates", &self.reader_certificates)?,
            references: self.references.as_ref().map(Into::into),
        })
    }

    fn session(&self) -> Result<SessionOptions> {
        let settings = SessionSettings {
            layers: self.layers,
            window: self.window,
            mtu: self.mtu,
            survive: self.survive,
            idle_timeout: self.idle_timeout,
            status_interval: self.status_interval,
        };
        let mut options = SessionOptions {
            header_keys: header_keys(self.header_key.as_deref())?,
            events: self.events.as_deref().map(EventLog::create).transpose()?,
            ..settings.options()?
        };
        self.limits.apply(&mut options)?;
        if let Some(max_payload) = self.max_payload {
            options.session.max_payload = max_payload;
        }
        Ok(options)
    }
}

/// Return the keys that seal headers.
fn header_keys(text: Option<&str>) -> Result<Option<HeaderKeys>> {
    text.map(|text| HeaderKeys::parse(text).map_err(Error::Protocol)).transpose()
}
