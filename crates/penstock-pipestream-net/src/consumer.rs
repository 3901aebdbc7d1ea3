//! Consumers of the entities of a server's sessions: a sink, or the caller by a handle for each session.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use penstock_io::runtime::PerProcess;
use penstock_pipestream::{ErrorCode, Reason};
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc};

use crate::batch_channel::BatchSender;
use crate::handle::SessionHandle;
use crate::incoming::{IncomingEntity, QueuedEntity, Spool};
use crate::port::{EntityBatch, EntitySink, SinkEvent, SinkSession};
use crate::transport::Intake;
use crate::types::Attempt;

/// Destination of a server's sessions.
#[derive(Debug, Clone)]
pub enum Consumer {
    /// A sink takes the entities of every session.
    Sink(Arc<dyn EntitySink>),
    /// Every session becomes a handle for the caller.
    Channel(ChannelConsumer),
}

impl<S: EntitySink + 'static> From<Arc<S>> for Consumer {
    fn from(sink: Arc<S>) -> Self {
        Self::Sink(sink)
    }
}

impl From<ChannelConsumer> for Consumer {
    fn from(channel: ChannelConsumer) -> Self {
        Self::Channel(channel)
    }
}

impl Consumer {
    /// Return the sink, where it is one.
    pub(crate) const fn sink(&self) -> Option<&Arc<dyn EntitySink>> {
        match self {
            Self::Sink(sink) => Some(sink),
            Self::Channel(_) => None,
        }
    }

    pub(crate) fn intake(&self) -> Intake {
        self.sink().map_or(Intake::Sequential, |sink| sink.intake())
    }
}

/// The server's end of [`channel`].
#[derive(Debug, Clone)]
pub struct ChannelConsumer {
    sessions: mpsc::Sender<SessionHandle>,
}

impl ChannelConsumer {
    /// Hand a session over; wait while `capacity` of them are waiting for the caller.
    pub(crate) async fn hand_over(&self, session: SessionHandle) -> bool {
        self.sessions.send(session).await.is_ok()
    }
}

/// The caller's end of [`channel`].
#[derive(Debug)]
pub struct IncomingSessions {
    sessions: PerProcess<Mutex<mpsc::Receiver<SessionHandle>>>,
}

impl IncomingSessions {
    /// Return the next session whose capabilities are agreed; `None` when the server is gone, as it is in a forked
    /// child.
    pub async fn next(&self) -> Option<SessionHandle> {
        self.sessions.get().ok()?.lock().await.recv().await
    }
}

/// Return a consumer that hands sessions to the caller, at most `capacity` of them ahead.
pub fn channel(capacity: usize) -> (ChannelConsumer, IncomingSessions) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    (ChannelConsumer { sessions: sender }, IncomingSessions { sessions: PerProcess::new(Mutex::new(receiver)) })
}

/// The queue from which a session's handle takes entities. It contains at most as many as there are places, which the
/// handle releases.
#[derive(Debug)]
pub(crate) struct HandleQueue(pub(crate) BatchSender<QueuedEntity>);

impl SinkSession for HandleQueue {
    fn deliver(&self, entities: EntityBatch<'_>) {
        let (entities, link) = entities.into_parts();
        let queued_only = |(queued, permit): (_, OwnedSemaphorePermit)| {
            permit.forget();
            queued
        };
        let Err(returned) = self.0.send(entities.into_iter().map(queued_only).collect()) else { return };
        link.release_permits(returned.len(), returned.iter().filter(|queued| queued.parked).count());
        for queued in returned {
            let message = "this session has no consumer for entities".to_owned();
            let entity = IncomingEntity::new(queued, Arc::clone(link), None);
            entity.reject(Reason { code: ErrorCode::InternalError, message });
        }
    }

    fn observe(&self, _events: Vec<SinkEvent>) -> Option<BoxFuture<'_, ()>> {
        // A handle is informed of everything by its own events.
        None
    }

    fn spool(&self, _attempt: Attempt) -> io::Result<Spool> {
        tempfile::tempfile().map(Spool::anonymous)
    }
}
