//! The state that the driver, the stream tasks and the handles of one session may read.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use penstock_pipestream::{Agreement, Event, Layer2Event, Reason, Role, ScopeKey, SessionId, Ticket};
use tokio::sync::watch;

use crate::counters::{Counters, Gauges};
use crate::outcomes::{EventQueue, Outcomes};
use crate::resolutions::Resolutions;
use crate::types::Released;

/// Phase of a session, for the tasks that wait for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    Negotiating,
    Open(Agreement),
    /// The session is over, and its last results are being written.
    Ending(Reason),
    Closed(Reason),
}

/// Which process began a session, and whether it ended our root scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// This process began the session.
    New,
    /// An earlier process of a client began the session.
    Resumed,
    /// An earlier process of a client began the session and ended our root scope: nothing more can
    /// be announced.
    ResumedEnded,
}

impl Origin {
    /// Return whether an earlier process began the session.
    pub(crate) const fn is_resumed(self) -> bool {
        match self {
            Self::New => false,
            Self::Resumed | Self::ResumedEnded => true,
        }
    }

    /// Return whether that process has ended our root scope.
    pub(crate) const fn has_ended_root(self) -> bool {
        match self {
            Self::New | Self::Resumed => false,
            Self::ResumedEnded => true,
        }
    }
}

/// State that all tasks of a session may read.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The ID of the first connection, which is the session's ID below layer 2.
    connection: Arc<str>,
    /// The session's name at layer 2, once both ends have agreed on it.
    name: OnceLock<(SessionId, Arc<str>)>,
    pub(crate) role: Role,
    pub(crate) peer: SocketAddr,
    pub(crate) origin: Origin,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) resolutions: Resolutions,
    pub(crate) releases: Outcomes<ScopeKey, Released>,
    pub(crate) events: EventQueue<Event>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) gauges: Gauges,
}

impl Shared {
    pub(crate) fn new(
        connection: Arc<str>,
        role: Role,
        peer: SocketAddr,
        event_queue: usize,
        counters: Arc<Counters>,
        origin: Origin,
    ) -> Arc<Self> {
        Arc::new(Self {
            connection,
            name: OnceLock::new(),
            role,
            peer,
            origin,
            phase: watch::Sender::new(Phase::Negotiating),
            resolutions: Resolutions::default(),
            releases: Outcomes::new(),
            events: EventQueue::new(event_queue, |event| match event {
                Event::Layer2(Layer2Event::Yielded { token, .. }) => token.len(),
                Event::Layer2(_)
                | Event::Agreed(_)
                | Event::Status { .. }
                | Event::Admitted { .. }
                | Event::Gathered { .. }
                | Event::Resolved { .. }
                | Event::Released { .. }
                | Event::Digest { .. }
                | Event::Barrier { .. }
                | Event::Checkpoint { .. }
                | Event::Capacity
                | Event::Error { .. }
                | Event::Closed { .. } => 0,
            }),
            counters,
            gauges: Gauges::default(),
        })
    }

    /// Return the session's ID (decision 18).
    pub(crate) fn id(&self) -> &Arc<str> {
        self.name.get().map_or(&self.connection, |(_, text)| text)
    }

    /// Set the session's name, once both ends have agreed on layer 2. The connection's ID was not
    /// reported before.
    pub(crate) fn set_name(&self, name: SessionId) {
        // The first name stays; the session refuses another one.
        let _ = self.name.set((name, name.to_string().into()));
    }

    /// Return the session's name at layer 2; `None` below layer 2 or before the agreement.
    pub(crate) fn layer2(&self) -> Option<SessionId> {
        self.name.get().map(|(name, _)| *name)
    }

    /// Record that the session is over, before any of its entities is reported as failed, so that a caller that sees
    /// such an entity can see why.
    pub(crate) fn end(&self, reason: &Reason) {
        self.phase.send_if_modified(|phase| match phase {
            Phase::Ending(_) | Phase::Closed(_) => false,
            Phase::Negotiating | Phase::Open(_) => {
                *phase = Phase::Ending(reason.clone());
                true
            }
        });
    }

    /// Record that no results follow, and wake all waiting tasks.
    pub(crate) fn close(&self, reason: Reason) {
        self.phase.send_if_modified(|phase| match phase {
            Phase::Closed(_) => false,
            Phase::Negotiating | Phase::Open(_) | Phase::Ending(_) => {
                *phase = Phase::Closed(reason);
                true
            }
        });
        self.resolutions.close();
        self.releases.close();
        self.events.close();
    }

    /// Expect the digest of our root scope.
    pub(crate) fn expect_root(&self) {
        self.releases.expect(ScopeKey { scope: self.role.root_scope(), scope_use: 0 });
    }

    /// Stop expecting the outcome of an entity of ours.
    pub(crate) fn forget(&self, ticket: &Ticket) {
        self.resolutions.forget(ticket.key);
        if let Some(scope) = ticket.child_scope {
            self.releases.forget(scope);
        }
    }

    /// Return the reason for which the session is over, if it is.
    pub(crate) fn closed(&self) -> Option<Reason> {
        match &*self.phase.borrow() {
            Phase::Ending(reason) | Phase::Closed(reason) => Some(reason.clone()),
            Phase::Negotiating | Phase::Open(_) => None,
        }
    }

    /// Return whether the capabilities are known.
    pub(crate) fn is_negotiating(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Negotiating)
    }
}
