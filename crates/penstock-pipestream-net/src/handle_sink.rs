//! The sink that hands each session of a server to the caller, as a handle.

use std::io;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use penstock_io::runtime::PerProcess;
use penstock_pipestream::{Attempt, ErrorCode, Reason};
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc, oneshot};

use crate::Result;
use crate::batch_channel::{BatchReceiver, BatchSender, batch_channel};
use crate::entity_link::HandleSource;
use crate::handle::SessionHandle;
use crate::incoming::{IncomingEntity, QueuedEntity, Spool};
use crate::port::{EntityBatch, EntitySink, NewSession, OpenSession, SinkEvent, SinkSession};
use crate::shared::Phase;
use crate::transport::Intake;

/// The server's end of [`channel`].
#[derive(Debug)]
pub struct HandleSink {
    sessions: mpsc::Sender<SessionHandle>,
}

impl EntitySink for HandleSink {
    fn open(&self, session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
        let (queue, entities) = HandleQueue::new();
        if let Some(source) = session.handle {
            tokio::spawn(hand_over(source, entities, self.sessions.clone()));
        }
        let (ended, done) = oneshot::channel();
        // This sink writes no list, so there is nothing to wait for at the end.
        let _ = ended.send(());
        ready(Ok(OpenSession { sink: Arc::new(queue), done })).boxed()
    }

    fn intake(&self) -> Intake {
        Intake::Sequential
    }
}

/// Hand a session over once its capabilities are agreed; wait while too many sessions wait for the
/// caller. The connection keeps its place meanwhile, even if it is lost, so no more sessions wait
/// than there may be connections.
async fn hand_over(source: HandleSource, entities: BatchReceiver<QueuedEntity>, sessions: mpsc::Sender<SessionHandle>) {
    let HandleSource { link, place: _place } = source;
    let mut phase = link.shared.phase.subscribe();
    let handle = SessionHandle::new(Arc::clone(&link), entities);
    let _ = phase.wait_for(|phase| !matches!(phase, Phase::Negotiating)).await;
    // The caller does not get a session that fails before the agreement.
    if link.shared.closed().is_none() {
        // An error means that the caller takes no more sessions.
        let _ = sessions.send(handle).await;
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

/// Return a sink that hands sessions to the caller, and the caller's end. At most `capacity`
/// sessions wait in between.
pub fn channel(capacity: usize) -> (Arc<HandleSink>, IncomingSessions) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    (Arc::new(HandleSink { sessions: sender }), IncomingSessions { sessions: PerProcess::new(Mutex::new(receiver)) })
}

/// The queue from which a session's handle takes entities. Each entity in it holds a stream or
/// parking permit, which the handle releases.
#[derive(Debug)]
pub(crate) struct HandleQueue(BatchSender<QueuedEntity>);

impl HandleQueue {
    /// Return a queue, and the end from which the handle takes entities.
    pub(crate) fn new() -> (Self, BatchReceiver<QueuedEntity>) {
        let (sender, receiver) = batch_channel();
        (Self(sender), receiver)
    }
}

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
        // A handle learns everything from its own events.
        None
    }

    fn spool(&self, _attempt: Attempt) -> io::Result<Spool> {
        tempfile::tempfile().map(Spool::anonymous)
    }
}
