//! The settings of a server: its sink, its claim checks and its readers, and which of these fit
//! together.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_io::ReadKey;
use penstock_io::storage::StorageOptions;
use penstock_io::tls::ClientCertificates;
use penstock_pipestream_net::port::{ClaimChecks, EntitySink, PortService, no_claim_checks};
use penstock_pipestream_net::{ClaimLimits, DeferTypes, IncomingSessions, Server, ServerOptions, channel};

use crate::claims::Claims;
use crate::folder::FolderSink;
use crate::objects::ObjectSink;
use crate::place::SinkPlace;
use crate::read::ReadOptions;
use crate::references::References;
use crate::{Misuse, Result};

/// Maximum number of sessions that wait for a caller to take them. Beyond it the clients wait.
const WAITING_SESSIONS: usize = 16;

/// How a sink handles entities that refer to objects.
#[derive(Debug, Clone, Default)]
pub struct ReferenceSettings {
    /// URLs below which objects are fetched; if empty, references are kept as they arrive.
    pub fetch_from: Vec<String>,
    /// Providers whose keys may have wrapped an object's key, `PROVIDER` or `PROVIDER=KEY`. `None`:
    /// kept references are not examined, and encrypted objects are not fetched.
    pub approved_key_providers: Option<Vec<String>>,
    /// Options of the objects' store.
    pub storage: StorageOptions,
}

/// An operator's settings of a server.
#[derive(Debug, Clone)]
pub struct ServerSettings {
    /// The addresses and the options of the sessions. [`bind`](Self::bind) sets the claim checks,
    /// the service and the types to defer.
    pub server: ServerOptions,
    /// The place where entities are stored; without it the caller takes the sessions.
    pub sink: Option<SinkPlace>,
    /// A folder for claim checks. Default: next to the sessions of the sink; without a sink there
    /// are none.
    pub claims: Option<PathBuf>,
    /// Limits of claim checks. All servers of a sink in an object store need the same `life` and
    /// `linger`: each removes the records of all once they are older than these allow.
    pub claim_limits: ClaimLimits,
    /// Content types that the sink stores and defers: `image/png`, `image/*`. Layer 2.
    pub defer_types: Vec<String>,
    /// The key of the sink's readers. Default: there is no service for readers.
    pub read_key: Option<ReadKey>,
    /// Whether readers need a certificate where clients do.
    pub reader_certificates: ClientCertificates,
    /// How the sink handles references. Default: they are kept.
    pub references: Option<ReferenceSettings>,
}

impl ServerSettings {
    /// Return the settings of a server without a sink.
    pub fn new(server: ServerOptions) -> Self {
        Self {
            server,
            sink: None,
            claims: None,
            claim_limits: ClaimLimits::default(),
            defer_types: Vec::new(),
            read_key: None,
            reader_certificates: ClientCertificates::Required,
            references: None,
        }
    }

    /// Open the sink and its claim checks, and start to listen. Return the source of sessions if
    /// there is no sink. Blocks on the disk or the store.
    ///
    /// # Errors
    ///
    /// Misuse if settings do not fit together; errors of the sink, of the claim checks and of the
    /// socket.
    pub fn bind(self) -> Result<(Server, Option<IncomingSessions>)> {
        self.check()?;
        let defer_types = DeferTypes::new(self.defer_types.iter().cloned())?;
        // Open the sink first, because it creates the folder that contains the claim checks.
        let (sink, sessions) = self.entity_sink()?;
        let claims = self.claim_checks()?;
        let service = self.service(&claims)?;
        let server = Server::bind(ServerOptions { defer_types, claims, service, ..self.server }, sink)?;
        Ok((server, sessions))
    }

    fn check(&self) -> Result<()> {
        if self.sink.is_none() {
            if !self.defer_types.is_empty() {
                return Err(Misuse::DeferTypesSink.into());
            }
            if self.read_key.is_some() {
                return Err(Misuse::ReadKeySink.into());
            }
            if self.references.is_some() {
                return Err(Misuse::ReferencesSink.into());
            }
        }
        if !self.defer_types.is_empty() && !self.has_layer_2() {
            let layers = u8::from(self.server.session.session.capabilities.layer1);
            return Err(Misuse::DeferTypesLayer { layers }.into());
        }
        Ok(())
    }

    fn has_layer_2(&self) -> bool {
        self.server.session.session.capabilities.layer2
    }

    fn entity_sink(&self) -> Result<(Arc<dyn EntitySink>, Option<IncomingSessions>)> {
        let events = self.server.session.events.clone();
        Ok(match &self.sink {
            Some(SinkPlace::Folder(folder)) => (FolderSink::open_with(folder, events, self.references()?)?, None),
            Some(SinkPlace::Objects(prefix)) => {
                (ObjectSink::open_with(prefix.clone(), events, self.references()?)?, None)
            }
            None => {
                let (sink, sessions) = channel(WAITING_SESSIONS);
                (sink, Some(sessions))
            }
        })
    }

    fn references(&self) -> Result<References> {
        let Some(settings) = &self.references else { return Ok(References::keep()) };
        let references = match settings.fetch_from.as_slice() {
            [] => References::keep(),
            prefixes => References::fetch(prefixes, &settings.storage, self.server.session.session.max_payload)?,
        };
        match &settings.approved_key_providers {
            Some(approved) => references.with_key_providers(approved),
            None => Ok(references),
        }
    }

    /// Open the store of claim checks.
    fn claim_checks(&self) -> Result<Arc<dyn ClaimChecks>> {
        let limits = self.claim_limits;
        if !self.has_layer_2() {
            // Claim checks exist only in Layer 2.
            return Ok(no_claim_checks());
        }
        match (&self.claims, &self.sink) {
            (Some(folder), sink) => {
                let claims = Claims::open_with(folder, limits)?;
                match sink {
                    Some(SinkPlace::Folder(sink)) => claims.settle_from(sink)?,
                    Some(SinkPlace::Objects(prefix)) => claims.settle_from_store(prefix)?,
                    None => {}
                }
                Ok(claims)
            }
            (None, Some(SinkPlace::Folder(sink))) => Ok(Claims::beside_with(sink, limits)),
            (None, Some(SinkPlace::Objects(prefix))) => Ok(Claims::in_store(prefix, limits)?),
            (None, None) => Ok(no_claim_checks()),
        }
    }

    /// Return the service for the sink's readers, if there is a key.
    fn service(&self, claims: &Arc<dyn ClaimChecks>) -> Result<Option<Arc<dyn PortService>>> {
        let (Some(key), Some(sink)) = (&self.read_key, &self.sink) else { return Ok(None) };
        let options =
            ReadOptions { certificates: self.reader_certificates, ..ReadOptions::new(key.clone(), sink.store()?) };
        options.service(Arc::clone(claims)).map(Some)
    }
}
