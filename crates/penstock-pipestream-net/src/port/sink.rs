use std::collections::HashSet;
use std::sync::Arc;
use std::{fmt, io, vec};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use penstock_io::metrics::Page;
use penstock_pipestream::{Attempt, EntityHeader, EntityKey, ErrorCode, Reason, Status};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::Result;
use crate::claim_checks::{ClaimRow, DeferTypes, Details};
use crate::entity_link::{EntityLink, HandleSource};
use crate::incoming::{IncomingEntity, QueuedEntity, Spool};
use crate::transport::Intake;

/// Destination of the entities of a server's sessions.
pub trait EntitySink: fmt::Debug + Send + Sync {
    /// Open a session.
    fn open(&self, session: NewSession) -> BoxFuture<'static, Result<OpenSession>>;

    /// Return how the sink takes the streams of a connection.
    fn intake(&self) -> Intake {
        Intake::Concurrent
    }

    /// Return the lookup of an earlier process's sessions; `None` where sessions do not continue.
    fn recovery(&self) -> Option<&dyn SessionRecovery> {
        None
    }

    /// Return whether the sink stores claim checks that were settled without a session.
    fn keeps_settled(&self) -> bool {
        false
    }

    /// Store claim checks that were settled without a session, except rows that are already stored.
    /// Blocks on the disk.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    fn note_settled(&self, rows: &[ClaimRow]) -> io::Result<()> {
        let _ = rows;
        Ok(())
    }

    /// Return how often a session was given up because a limit was exceeded.
    fn limits_exceeded(&self) -> SinkLimits {
        SinkLimits::default()
    }

    /// Write its metrics.
    ///
    /// # Errors
    ///
    /// Errors of the page.
    fn write_metrics(&self, page: &mut Page<'_>) -> fmt::Result {
        let _ = page;
        Ok(())
    }
}

/// Looks up the sessions of an earlier process in a sink.
pub trait SessionRecovery {
    /// Find the stored part of a session, as far as it concerns these entities. Without `folder`,
    /// return the last session with this ID. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    fn find(&self, id: &str, folder: Option<&str>, keys: &HashSet<EntityKey>) -> io::Result<Box<dyn RecoveredSession>>;
}

/// The stored part of a session that an earlier process had open.
pub trait RecoveredSession: fmt::Debug + Send {
    /// Return whether an entity is stored, and has its line.
    fn has(&self, key: EntityKey) -> bool;

    /// Return the stored entities.
    fn entities(&self) -> Vec<(EntityKey, Arc<EntityHeader>)>;

    /// Return whether its list has its last line.
    fn is_closed(&self) -> bool;

    /// Close its list, to which nothing more can be added. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    fn close_list(&mut self) -> io::Result<()>;

    /// Open the session again.
    fn open(self: Box<Self>, session: NewSession) -> BoxFuture<'static, Result<OpenSession>>;
}

/// A session to be opened in a sink.
#[derive(Debug)]
pub struct NewSession {
    /// Its ID.
    pub id: Arc<str>,
    /// The sink's notifications to it.
    pub control: Arc<dyn SessionControl>,
    /// The types of entities that are stored and deferred, where there are any.
    pub defer: Option<Arc<DeferTypes>>,
    /// The SHA-256 of the client's certificate, if it has shown one.
    pub certificate: Option<[u8; 32]>,
    /// Source of its handle; `None` where no client can return to it.
    pub handle: Option<HandleSource>,
}

/// An open session in a sink.
#[derive(Debug)]
pub struct OpenSession {
    /// Receiver of its entities.
    pub sink: Arc<dyn SinkSession>,
    /// Fires when the session's last line is written. Its sender is dropped where the sink could not write the line.
    pub done: oneshot::Receiver<()>,
}

/// Receiver of the entities of one session. The session is over when the driver and all tasks of the session have
/// dropped it.
pub trait SinkSession: fmt::Debug + Send + Sync {
    /// Take entities that may be received: verify them, store them, and notify the session of the outcome of each.
    fn deliver(&self, entities: EntityBatch<'_>);

    /// Take the driver's events, in order. Return `Some` if the sink has fallen far behind: it
    /// takes them when the future completes, and the driver waits, which holds the peer back.
    fn observe(&self, events: Vec<SinkEvent>) -> Option<BoxFuture<'_, ()>>;

    /// Create a spool in which the chunks of an entity are assembled. Blocks on the disk.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    fn spool(&self, attempt: Attempt) -> io::Result<Spool>;

    /// Return the name of the session's folder, if the next process can find the session by it.
    fn folder(&self) -> Option<&str> {
        None
    }

    /// Wait until the lines of observed events are durable. Return false if the disk refused any.
    fn flush(&self) -> BoxFuture<'_, bool> {
        ready(true).boxed()
    }

    /// Write the list's last line now, and make it durable: the client has ended its root scope, everything in it is
    /// terminal, and the session's records contain that.
    fn close_list(&self) -> BoxFuture<'_, ()> {
        ready(()).boxed()
    }
}

/// Notifications from a sink to a session. After the session's end they have no effect.
pub trait SessionControl: fmt::Debug + Send + Sync {
    /// Report that entities are safely delivered.
    fn complete(&self, attempts: Vec<Attempt>);

    /// Report that an attempt at an entity has failed.
    fn fail(&self, attempt: Attempt, reason: Reason);

    /// Report that an entity is stored and is to be deferred.
    fn set_aside(&self, attempt: Attempt, details: Details);

    /// End the session: its list lacks entries.
    fn abort(&self, reason: Reason);

    /// Count a payload that arrived completely and verified.
    fn count(&self, bytes: u64);

    /// Report that the peer has reset an entity's stream.
    fn stream_reset(&self, stream: u64, attempt: Attempt, code: u64) -> BoxFuture<'_, ()>;
}

/// Notifications from a driver to a sink.
#[derive(Debug)]
pub enum SinkEvent {
    /// An attempt to send an entity may be received.
    Admitted {
        /// The attempt.
        attempt: Attempt,
        /// Its header.
        header: Arc<EntityHeader>,
        /// Whether it has children.
        dehydrated: bool,
        /// Whether it is the entity for which the session has redeemed a claim check.
        redeems: bool,
    },
    /// The received part of an entity is void; it may be sent again.
    AttemptFailed {
        /// The entity.
        key: EntityKey,
    },
    /// All descendants of a dehydrated entity are terminal.
    Gathered {
        /// The entity; `None`: the peer's root scope, which it has ended.
        key: Option<EntityKey>,
        /// How they ended.
        outcome: Status,
    },
    /// An entity of the peer is terminal.
    Resolved {
        /// The entity.
        key: EntityKey,
        /// Its parent's ID; 0 for a root.
        parent_id: u32,
        /// Its terminal status.
        status: Status,
        /// The reason.
        reason: Option<Reason>,
        /// Number of attempts that failed before.
        failures: u32,
        /// The claim check under which it was deferred.
        claim: Option<u64>,
        /// Its header, where it was not admitted.
        header: Option<Arc<EntityHeader>>,
    },
    /// The session is over.
    Closed(ErrorCode),
}

/// How often sessions exceeded a limit of their sink.
#[derive(Debug, Clone, Copy, Default)]
pub struct SinkLimits {
    /// The headers of open entities had too many bytes.
    pub headers: u64,
    /// Pending FAILED lines took too much room.
    pub lines: u64,
}

/// Entities that are handed over together. Each gets its link to the session when it is taken: a
/// reference count that two threads change alternately costs as much as a small entity's hash.
#[derive(Debug)]
pub struct EntityBatch<'a> {
    entities: Vec<(QueuedEntity, OwnedSemaphorePermit)>,
    link: &'a Arc<EntityLink>,
}

impl<'a> EntityBatch<'a> {
    pub(crate) const fn new(entities: Vec<(QueuedEntity, OwnedSemaphorePermit)>, link: &'a Arc<EntityLink>) -> Self {
        Self { entities, link }
    }

    pub(crate) fn into_parts(self) -> (Vec<(QueuedEntity, OwnedSemaphorePermit)>, &'a Arc<EntityLink>) {
        (self.entities, self.link)
    }
}

impl<'a> IntoIterator for EntityBatch<'a> {
    type Item = IncomingEntity;
    type IntoIter = Entities<'a>;

    fn into_iter(self) -> Entities<'a> {
        Entities { entities: self.entities.into_iter(), link: self.link }
    }
}

/// The entities of a batch. Each keeps its permit until it is dropped.
#[derive(Debug)]
pub struct Entities<'a> {
    entities: vec::IntoIter<(QueuedEntity, OwnedSemaphorePermit)>,
    link: &'a Arc<EntityLink>,
}

impl Iterator for Entities<'_> {
    type Item = IncomingEntity;

    fn next(&mut self) -> Option<IncomingEntity> {
        let (queued, permit) = self.entities.next()?;
        Some(IncomingEntity::new(queued, Arc::clone(self.link), Some(permit)))
    }
}
