//! What client and server do alike once a handshake is done.

use std::sync::Arc;

use penstock_pipestream::{Role, Session};
use quinn::{Connection, RecvStream, SendStream};
use tokio::sync::{Mutex, Semaphore, oneshot};

use super::command::Commands;
use super::consumer::{Consumer, Inlet};
use super::counters::Counters;
use super::driver::{Driver, Inbox, inbox};
use super::handle::SessionHandle;
use super::handover::handover;
use super::incoming::{EntityLink, PARKED, accept_bidirectional, accept_streams};
use super::outgoing::CREDIT;
use super::shared::{Gate, Link, SessionOptions, Shared, now};
use super::transport::{Intake, session_id};
use crate::{Error, Result};

/// A connection that is about to become a session.
pub(crate) struct Start {
    pub(crate) connection: Connection,
    pub(crate) role: Role,
    pub(crate) options: SessionOptions,
    pub(crate) counters: Arc<Counters>,
    /// Stream 0, at the client.
    pub(crate) control: Option<(SendStream, RecvStream)>,
}

/// A session whose tasks run.
pub(crate) struct Started {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: Commands,
    /// For its user, unless a folder takes its entities.
    pub(crate) handle: Option<SessionHandle>,
}

impl Start {
    /// Makes the session and spawns its tasks. `folder`: who takes its entities; otherwise a handle does.
    pub(crate) async fn run(self, folder: Option<&Consumer>) -> Result<Started> {
        let id: Arc<str> = session_id(&self.connection)?.into();
        let session = Session::new(self.role, self.options.session.clone(), now())?;
        let peer = self.connection.remote_address();
        tracing::info!(session = %id, %peer, "a session begins");
        let shared = Shared::new(id, self.role, peer, self.options.event_queue, Arc::clone(&self.counters));
        let (commands, inbox) = inbox();
        let intake = folder.map_or(Intake::Sequential, Consumer::intake);
        let places = Arc::new(Semaphore::new(usize::try_from(intake.streams()).unwrap_or(usize::MAX)));
        let entity = Arc::new(EntityLink {
            process: std::process::id(),
            shared: Arc::clone(&shared),
            commands: commands.clone(),
            log: self.options.events.clone(),
            places: Arc::clone(&places),
            // A sink takes entities at once, so nothing has to wait.
            parked: Arc::new(Semaphore::new(if intake == Intake::Concurrent { 0 } else { PARKED })),
        });
        let (inlet, handle, sink_done) = match folder {
            Some(Consumer::Folder(sink)) => {
                let (sink, id, commands) = (Arc::clone(sink), Arc::clone(&shared.id), commands.clone());
                let counters = Arc::clone(&self.counters);
                let opened = tokio::task::spawn_blocking(move || sink.session(&id, commands, counters)).await;
                let (session, done) = opened.map_err(|error| Error::Misuse(error.to_string()))??;
                (Inlet::Folder(session), None, Some(done))
            }
            Some(Consumer::Objects(sink)) => {
                let counters = Arc::clone(&self.counters);
                let (session, done) = sink.session(&shared.id, commands.clone(), counters).await?;
                (Inlet::Objects(session), None, Some(done))
            }
            Some(Consumer::Channel(_)) | None => {
                let (giver, taker) = handover();
                let handle = SessionHandle::new(Arc::clone(&entity), taker);
                (Inlet::Queue(giver), Some(handle), None)
            }
        };
        let link = Arc::new(Link {
            shared: Arc::clone(&shared),
            connection: self.connection.clone(),
            entity,
            commands: commands.clone(),
            inlet,
            intake,
            log: self.options.events.clone(),
            places,
            credit: Arc::new(Semaphore::new(CREDIT)),
            opening: Arc::new(Mutex::new(())),
            gate: Gate::default(),
        });
        self.spawn(session, link, inbox, sink_done);
        Ok(Started { shared, commands, handle })
    }

    fn spawn(self, session: Session, link: Arc<Link>, inbox: Inbox, sink_done: Option<oneshot::Receiver<()>>) {
        tokio::spawn(accept_streams(Arc::clone(&link)));
        tokio::spawn(accept_bidirectional(Arc::clone(&link)));
        tokio::spawn(Driver::new(session, link, inbox, self.control, self.options.handshake_timeout, sink_done).run());
    }
}
