//! Who takes the entities that a peer sends.

use std::io;
use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_io::runtime::PerProcess;
use penstock_pipestream::{ErrorCode, Reason};
use tokio::sync::{Mutex, OwnedSemaphorePermit, mpsc, oneshot};

use super::claims::DeferTypes;
use super::command::{Attempt, Commands};
use super::counters::Counters;
use super::handle::SessionHandle;
use super::handover::Giver;
use super::incoming::{EntityLink, IncomingEntity, Spool, Untaken};
use super::sink::{FolderSink, Found, ObjectSession, ObjectSink, SinkCounters, SinkSession};
use super::transport::Intake;
use crate::{Error, Result};

/// Where a server's sessions go.
#[derive(Debug, Clone)]
pub enum Consumer {
    /// Every whole entity becomes a file.
    Folder(Arc<FolderSink>),
    /// Every whole entity becomes an object.
    Objects(Arc<ObjectSink>),
    /// Every session becomes a handle for the caller.
    Channel(ChannelConsumer),
}

impl From<Arc<FolderSink>> for Consumer {
    fn from(sink: Arc<FolderSink>) -> Self {
        Self::Folder(sink)
    }
}

impl From<Arc<ObjectSink>> for Consumer {
    fn from(sink: Arc<ObjectSink>) -> Self {
        Self::Objects(sink)
    }
}

impl From<ChannelConsumer> for Consumer {
    fn from(channel: ChannelConsumer) -> Self {
        Self::Channel(channel)
    }
}

impl Consumer {
    /// What the sink has counted, if there is one.
    pub(crate) fn counters(&self) -> Option<&SinkCounters> {
        match self {
            Self::Folder(sink) => sink.counters(),
            Self::Objects(sink) => sink.counters(),
            Self::Channel(_) => None,
        }
    }

    /// Whether it stores entities by itself.
    pub(crate) const fn is_sink(&self) -> bool {
        matches!(self, Self::Folder(_) | Self::Objects(_))
    }

    pub(crate) const fn intake(&self) -> Intake {
        match self {
            Self::Folder(_) | Self::Objects(_) => Intake::Concurrent,
            Self::Channel(_) => Intake::Sequential,
        }
    }
}

/// The server's end of [`channel`].
#[derive(Debug, Clone)]
pub struct ChannelConsumer {
    sessions: mpsc::Sender<SessionHandle>,
}

impl ChannelConsumer {
    /// Hands a session over; waits while the caller has `capacity` of them waiting.
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
    /// The next session whose capabilities are agreed; `None` when the server is gone, as it is in a forked child.
    pub async fn next(&self) -> Option<SessionHandle> {
        self.sessions.get().ok()?.lock().await.recv().await
    }
}

/// A consumer that hands sessions to the caller, at most `capacity` of them ahead.
pub fn channel(capacity: usize) -> (ChannelConsumer, IncomingSessions) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    (ChannelConsumer { sessions: sender }, IncomingSessions { sessions: PerProcess::new(Mutex::new(receiver)) })
}

/// Where one session's entities go.
#[derive(Debug)]
pub(crate) enum Inlet {
    Folder(SinkSession),
    Objects(ObjectSession),
    Queue(Giver<Untaken>),
}

impl Inlet {
    /// A session's place in a sink, and what fires when its last line is written.
    pub(crate) async fn open(
        sink: &Consumer,
        id: &Arc<str>,
        commands: Commands,
        counters: Arc<Counters>,
        defer: Option<Arc<DeferTypes>>,
        certificate: Option<[u8; 32]>,
        found: Option<Found>,
    ) -> Result<(Self, Option<oneshot::Receiver<()>>)> {
        match sink {
            Consumer::Folder(sink) => {
                let (sink, id) = (Arc::clone(sink), Arc::clone(id));
                let open = move || sink.session(&id, commands, counters, defer, certificate, found);
                let opened = tokio::task::spawn_blocking(open).await;
                let (session, done) = opened.map_err(|died| Error::task(&died))??;
                Ok((Self::Folder(session), Some(done)))
            }
            Consumer::Objects(sink) => {
                let (session, done) = sink.session(id, commands, counters, defer, certificate).await?;
                Ok((Self::Objects(session), Some(done)))
            }
            Consumer::Channel(_) => Err(Error::misuse("a handle takes this session's entities".into())),
        }
    }

    /// Hands entities over. No more wait than there are places, which whoever takes them gives back.
    pub(crate) fn deliver(&self, entities: Vec<(Untaken, OwnedSemaphorePermit)>, link: &Arc<EntityLink>) {
        let entity = |(untaken, place)| IncomingEntity::new(untaken, Arc::clone(link), Some(place));
        match self {
            Self::Folder(session) => entities.into_iter().map(entity).for_each(|entity| session.take(entity)),
            Self::Objects(session) => entities.into_iter().map(entity).for_each(|entity| session.take(entity)),
            Self::Queue(giver) => {
                let kept = |(untaken, place): (_, OwnedSemaphorePermit)| {
                    place.forget();
                    untaken
                };
                let Err(back) = giver.give(entities.into_iter().map(kept).collect()) else { return };
                link.taken(back.len(), back.iter().filter(|untaken| untaken.parked).count());
                for untaken in back {
                    let message = "nobody takes entities of this session".to_owned();
                    let entity = IncomingEntity::new(untaken, Arc::clone(link), None);
                    entity.reject(Reason { code: ErrorCode::InternalError, message });
                }
            }
        }
    }

    /// Where the chunks of an entity are put together. Blocks on the disk.
    pub(crate) fn spool(&self, attempt: Attempt) -> io::Result<Spool> {
        match self {
            Self::Folder(session) => session.spool(attempt),
            Self::Objects(session) => session.spool(),
            Self::Queue(_) => tempfile::tempfile().map(Spool::anonymous),
        }
    }
}
