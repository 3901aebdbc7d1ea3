//! The options of a session: capabilities, limits, trust.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use penstock_io::storage::{self, ObjectPrefix};
use penstock_io::tls::{ClientCertificates, ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions};
use penstock_io::{Addresses, DriverError as _, ReadKey};
use penstock_pipestream::SessionId;
use penstock_pipestream::header_key::HeaderKeys;
use penstock_pipestream_net::port::{ClaimChecks, PortService, no_claim_checks};
use penstock_pipestream_net::{DeferTypes, Error, EventLog, Result, SessionOptions, check_mtu};
use penstock_pipestream_sink::read::{ReadOptions, Store};
use penstock_pipestream_sink::{Claims, References};
use pyo3::prelude::*;

use super::fields::PolicyFields;
use super::limits::LimitFields;
use super::references::ReferenceOptions;
use super::waiting::Timeout;

/// The longest time that a session waits, in seconds: a day.
const LONGEST: f64 = 86_400.0;

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
    /// Where claim checks are stored, if not next to the sessions of a sink; without either there are none.
    #[pyo3(default)]
    pub(crate) claims: Option<PathBuf>,
    /// Content types that a sink stores and defers.
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
        let policy = self.policy.clone().map(Into::into);
        let survives = survives(self.survive, self.layers)?;
        let state = self.state.clone();
        let header_keys = header_keys(self.header_key.as_deref())?;
        let name = self.session_id.as_deref().map(SessionId::parse).transpose().map_err(Error::Protocol)?;
        let mut options = SessionOptions {
            policy,
            survives,
            state,
            header_keys,
            name,
            ..session(self.layers, self.window, self.mtu)?
        };
        options.session.status_interval = self.status_interval.map(status_interval).transpose()?;
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

    /// Return the address for serving metrics. Blocks on the resolver.
    pub(crate) fn metrics(&self) -> Result<Option<Addresses>> {
        Ok(self.metrics.as_deref().map(Addresses::resolve).transpose()?)
    }

    /// Return how to handle entities that refer to objects.
    pub(crate) fn references(&self) -> Result<References> {
        self.references.as_ref().map_or_else(|| Ok(References::keep()), |options| options.references(self.max_payload))
    }

    /// Return the prefix, if the sink is one.
    pub(crate) fn place(&self) -> Result<Option<ObjectPrefix>> {
        match &self.sink {
            Some(sink) => Ok(ObjectPrefix::at(sink, &self.storage)?),
            None if self.storage.is_empty() => Ok(None),
            None => Err(storage::without_store().into()),
        }
    }

    /// Return the service for the readers of the sink, if readers are allowed.
    pub(crate) fn read_service(
        &self,
        claims: &Arc<dyn ClaimChecks>,
        store: impl FnOnce() -> Result<Arc<dyn Store>>,
    ) -> Result<Option<Arc<dyn PortService>>> {
        let certificates = ClientCertificates::parse("reader_certificates", &self.reader_certificates)?;
        let key = self.read_key.as_deref().map(ReadKey::new).transpose()?;
        let service = |key| {
            let options = ReadOptions { certificates, ..ReadOptions::new(key, store()?) };
            options.service(Arc::clone(claims))
        };
        key.map(service).transpose()
    }

    /// Open the store of claim checks; `place`: the prefix, if the sink is one. Blocks on the disk or the store.
    pub(crate) fn claims(&self, place: Option<&ObjectPrefix>) -> Result<Arc<dyn ClaimChecks>> {
        let limits = self.limits.claims()?;
        match (&self.claims, place, &self.sink) {
            // Claim checks exist only at layer 2.
            _ if self.layers < 2 => Ok(no_claim_checks()),
            (Some(folder), place, sink) => {
                let claims = Claims::open_with(folder, limits)?;
                match (place, sink) {
                    (Some(place), _) => claims.settle_from_store(place)?,
                    (None, Some(sink)) => claims.settle_from(sink)?,
                    (None, None) => {}
                }
                Ok(claims)
            }
            (None, Some(place), _) => Ok(Claims::in_store(place, limits)?),
            (None, None, Some(sink)) => Ok(Claims::beside_with(sink, limits)),
            (None, None, None) => Ok(no_claim_checks()),
        }
    }

    /// Return which types are deferred, for servers that can defer.
    pub(crate) fn defer_types(&self) -> Result<DeferTypes> {
        let types = DeferTypes::new(self.defer_types.iter().cloned())?;
        if !types.is_empty() && self.sink.is_none() {
            return Err(Error::misuse(
                "defer_types are for servers with a sink: an application defers by itself".into(),
            ));
        }
        if !types.is_empty() && self.layers < 2 {
            return Err(Error::misuse(format!("layers={}: defer_types need layer 2", self.layers)));
        }
        Ok(types)
    }

    pub(crate) fn session(&self) -> Result<SessionOptions> {
        let mut options = session(self.layers, self.window, self.mtu)?;
        self.limits.apply(&mut options)?;
        if let Some(max_payload) = self.max_payload {
            options.session.max_payload = max_payload;
        }
        options.session.status_interval = self.status_interval.map(status_interval).transpose()?;
        options.survives = survives(self.survive, self.layers)?;
        options.header_keys = header_keys(self.header_key.as_deref())?;
        let wrong = |error| Error::misuse(format!("idle_timeout={:?}: {error}", self.idle_timeout));
        let quiet = self.idle_timeout.map(Duration::try_from_secs_f64).transpose().map_err(wrong)?;
        // 0 means never, and so does a time beyond the clock's range.
        options.quiet_timeout = quiet.filter(|quiet| !quiet.is_zero() && quiet.as_secs_f64() <= LONGEST);
        options.events = self.events.as_deref().map(EventLog::create).transpose()?;
        Ok(options)
    }
}

/// Return the keys that seal headers.
fn header_keys(text: Option<&str>) -> Result<Option<HeaderKeys>> {
    text.map(|text| HeaderKeys::parse(text).map_err(Error::Protocol)).transpose()
}

/// Return how long a session survives without a connection.
fn survives(seconds: Option<f64>, layers: u8) -> Result<Option<Duration>> {
    let Some(seconds) = seconds.filter(|seconds| *seconds != 0.0) else { return Ok(None) };
    let survives = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= LONGEST);
    let wrong = || Error::misuse(format!("survive={seconds}: 0 to {LONGEST} seconds"));
    if layers < 2 {
        return Err(Error::misuse(format!("layers={layers}: sessions survive at layer 2")));
    }
    survives.map(Some).ok_or_else(wrong)
}

fn session(layers: u8, window: Option<u32>, mtu: Option<i64>) -> Result<SessionOptions> {
    let mut options = SessionOptions { mtu: mtu.map(check_mtu).transpose()?, ..SessionOptions::default() };
    let capabilities = &mut options.session.capabilities;
    (capabilities.layer1, capabilities.layer2) = match layers {
        0 => (false, false),
        1 => (true, false),
        2 => (true, true),
        other => return Err(Error::misuse(format!("layers={other}: this end has layers 0 to 2"))),
    };
    match window {
        Some(0) => return Err(Error::misuse("window=0: nothing could be sent".into())),
        Some(_) => capabilities.max_window_size = window,
        None => {}
    }
    Ok(options)
}

/// The longest interval, in seconds: an idle connection is lost after 30.
const LONGEST_INTERVAL: f64 = 10.0;

fn status_interval(seconds: f64) -> Result<Duration> {
    if (0.001..=LONGEST_INTERVAL).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(Error::misuse(format!("status_interval={seconds}: it is from 0.001 to {LONGEST_INTERVAL} seconds")))
}
