//! The steps from a completed handshake to a running session, which clients and servers share.

use std::sync::{Arc, OnceLock};

use penstock_pipestream::{Role, Session};
use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::{Mutex, Semaphore};

use crate::Result;
use crate::claim_checks::DeferTypes;
use crate::clock::now;
use crate::command::{Commands, inbox};
use crate::counters::Counters;
use crate::driver::{Driver, Durable, Names, Reconnect, SinkOpening};
use crate::entity_link::{EntityLink, Place};
use crate::limits::{CREDIT, PARKED};
use crate::link::{Gate, Link};
use crate::options::SessionOptions;
use crate::port::{ClaimChecks, EntitySink, Owner, SessionJournal, SessionJournals, SinkSession};
use crate::shared::{Origin, Shared};
use crate::transport::{Intake, session_id};

/// A connection that is about to become a session.
pub(crate) struct Start {
    pub(crate) connection: Connection,
    pub(crate) role: Role,
    pub(crate) options: SessionOptions,
    pub(crate) counters: Arc<Counters>,
    /// Store of the claim checks that this end issues.
    pub(crate) claims: Arc<dyn ClaimChecks>,
    /// Content types that a sink stores and defers.
    pub(crate) defer_types: Arc<DeferTypes>,
    /// Stream 0, at the client.
    pub(crate) control: Option<(SendStream, RecvStream)>,
    /// How the session recovers from the loss of its connection.
    pub(crate) reconnect: Reconnect,
    /// The names of the open sessions. All sessions of a server share one set; a client's session
    /// has its own.
    pub(crate) names: Arc<Names>,
    /// Journal of a client's session, where its state is on disk.
    pub(crate) client_journal: Option<ClientJournal>,
}

/// Journal of a client's session.
#[derive(Debug)]
pub(crate) enum ClientJournal {
    /// A new session.
    New(Box<dyn SessionJournals>),
    /// A session that an earlier process has begun.
    Resumed(Box<Session>, Box<dyn SessionJournal>),
}

impl ClientJournal {
    fn origin(&self) -> Origin {
        match self {
            Self::New(_) => Origin::New,
            Self::Resumed(session, _) if session.root_ended() => Origin::ResumedEnded,
            Self::Resumed(..) => Origin::Resumed,
        }
    }
}

/// Destination of a session's entities.
pub(crate) enum Destination {
    /// A server's sink, which opens its part of the session once the session has its ID.
    Sink(Arc<dyn EntitySink>, Arc<Place>),
    /// A client's part of a sink, which is open from the start.
    Open(Arc<dyn SinkSession>),
}

/// A session whose tasks are running.
pub(crate) struct RunningSession {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: Commands,
    /// The link of its entities and its handle to the session.
    pub(crate) entity: Arc<EntityLink>,
}

impl Start {
    /// Create the session and spawn its tasks.
    pub(crate) fn run(mut self, destination: Destination) -> Result<RunningSession> {
        self.options.prepare(self.role)?;
        let id: Arc<str> = session_id(&self.connection)?.into();
        let client_journal = self.client_journal.take();
        let origin = client_journal.as_ref().map_or(Origin::New, ClientJournal::origin);
        let (session, durable) = self.session(client_journal)?;
        let peer = self.connection.remote_address();
        let shared = Shared::new(id, self.role, peer, self.options.event_queue, Arc::clone(&self.counters), origin);
        let (commands, inbox) = inbox();
        let sink_cell = Arc::<OnceLock<Arc<dyn SinkSession>>>::default();
        let (intake, sink) = match destination {
            Destination::Sink(sink, place) => {
                let intake = sink.intake();
                (intake, Some(SinkOpening { sink, defer_types: self.defer_types, place, found: None }))
            }
            Destination::Open(opened) => {
                // The cell is empty, so this cannot fail.
                let _ = sink_cell.set(opened);
                (Intake::Sequential, None)
            }
        };
        let stream_permits = Arc::new(Semaphore::new(usize::try_from(intake.streams()).unwrap_or(usize::MAX)));
        let entity = Arc::new(EntityLink {
            process: std::process::id(),
            shared: Arc::clone(&shared),
            commands: commands.clone(),
            log: self.options.events.clone(),
            claims: Arc::clone(&self.claims),
            stream_permits: Arc::clone(&stream_permits),
            // A concurrent sink takes entities immediately, so none has to be parked.
            parked: Arc::new(Semaphore::new(if intake == Intake::Concurrent { 0 } else { PARKED })),
        });
        let link = Arc::new(Link {
            shared: Arc::clone(&shared),
            connection: self.connection.clone(),
            number: 0,
            entity: Arc::clone(&entity),
            commands: commands.clone(),
            sink: sink_cell,
            intake,
            log: self.options.events.clone(),
            stream_permits,
            credit: Arc::new(Semaphore::new(CREDIT)),
            opening: Arc::new(Mutex::new(())),
            gate: Gate::default(),
            max_header: self.options.session.max_header,
        });
        let mut driver = Driver::new(session, link, inbox, self.control, self.options, sink, self.reconnect);
        driver.name_in(self.names);
        match durable {
            Some(durable) if origin.is_resumed() => driver.resume_earlier(durable),
            durable => driver.store_in(durable),
        }
        tokio::spawn(driver.run());
        Ok(RunningSession { shared, commands, entity })
    }

    /// Return the session, new or restored from its journal, and its journal if it has one.
    fn session(&self, client_journal: Option<ClientJournal>) -> Result<(Session, Option<Durable>)> {
        let journals = match client_journal {
            Some(ClientJournal::Resumed(session, journal)) => return Ok((*session, Some(Durable::new(journal)))),
            Some(ClientJournal::New(journals)) => Some(journals),
            None => None,
        };
        let session = Session::new(self.role, self.options.session.clone(), now())?;
        let name = self.options.session.layer2.as_ref().and_then(|layer2| layer2.session);
        let begin = |(journals, session): (Box<dyn SessionJournals>, _)| {
            Durable::new(journals.begin(Owner { session, certificate: None }))
        };
        Ok((session, journals.zip(name).map(begin)))
    }
}
