//! A session that continues when its connection is lost (layer 2).
//!
//! ```text
//!             the connection is lost                   the client has dialed the server again
//!  attached ──────────────────────────► detached ──────────────────────────────────────────────► attached, by another
//!      │                                   └─ no connection in time, or the peer refuses: the session ends   `Link`
//!      └─ the peer has closed it, or one end does not continue: the session ends
//! ```
//!
//! At a server every connection begins with a new session. Where its client names one that waits, the connection is
//! handed to that session's driver ([`ReturningClient`]).

use std::sync::Arc;

use penstock_pipestream::{ErrorCode, Reason, Role, SessionId};
use quinn::{Connection, ConnectionError};

use crate::clock::now;
use crate::congestion;
use crate::counters::Counters;
use crate::driver::Driver;
use crate::driver::accept::accept;
use crate::driver::control::Control;
use crate::driver::durable::Durable;
use crate::driver::reconnect::{Reconnect, ReconnectOutcome, ReturningClient, refuse};
use crate::driver::stage::Life;
use crate::driver::streams::Streams;
use crate::port::{Owner, SinkEvent};
use crate::transport::{SESSION_CONTINUES, certificate, loss, quic_code};

impl Driver {
    /// Suspend the session after its connection was lost, or end it.
    pub(super) fn handle_lost(&mut self, error: &ConnectionError) {
        let (reason, by_peer) = loss(error);
        // A busy server may close a returning client's connection with IDLE_TIMEOUT before it
        // handles the client's packets. This does not show that the session is over.
        let unheard = reason.code == ErrorCode::IdleTimeout && self.session.is_returning();
        // A session that the peer or this end has closed is over.
        let over = match error {
            ConnectionError::ApplicationClosed(_) => reason.code != SESSION_CONTINUES && !unheard,
            ConnectionError::LocallyClosed if self.durable.is_some() => {
                self.life = Life::Leaving;
                return;
            }
            ConnectionError::LocallyClosed => true,
            ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::Reset
            | ConnectionError::TimedOut
            | ConnectionError::CidsExhausted => false,
        };
        if over || !self.detach(&reason.message) {
            self.session.handle_connection_lost(now(), reason, by_peer);
        }
    }

    /// Handle the server's disappearance, which no packet on the connection reports. Return whether
    /// the session waits for another connection.
    pub(super) fn handle_server_gone(&mut self, reason: Reason) -> bool {
        if self.session.is_suspended() {
            return true;
        }
        let waits = self.detach(&reason.message);
        if waits {
            congestion::close(&self.link.connection, quic_code(reason.code), reason.message.as_bytes());
        } else {
            self.session.abort(now(), reason);
        }
        waits
    }

    fn detach(&mut self, why: &str) -> bool {
        if matches!(self.reconnect, Reconnect::Never) {
            return false;
        }
        let unfinished = self.streams.unfinished();
        if !self.session.suspend(now(), |key| !unfinished.contains(&key)) {
            return false;
        }
        let unfinished_entities = unfinished.len();
        tracing::info!(session = %self.link.shared.id(), why, unfinished_entities, "connection lost: the session waits for another one");
        self.streams = Streams::default();
        self.sealing.forget_early();
        self.control = Control::new(None);
        for key in unfinished {
            self.batches.sink(SinkEvent::AttemptFailed { key });
        }
        // Pending entities are sent again later; callers that wait for a ticket get it now.
        self.sending.outgoing.clear();
        self.notify_announced();
        self.sending.pump.handle_connection_lost(&self.link.entity);
        self.reconnect.start();
        true
    }

    /// Handle the outcome of reconnecting. Return whether the session is attached again.
    pub(super) fn handle_reconnect(&mut self, outcome: ReconnectOutcome) -> bool {
        match outcome {
            ReconnectOutcome::Dialed(dialed) => {
                let (connection, control) = *dialed;
                self.attach(connection, Control::new(Some(control)));
                // This fails only on misuse.
                self.session.reconnect(now()).is_ok()
            }
            ReconnectOutcome::Accepted(returning) => self.handle_returned(*returning),
            ReconnectOutcome::TimedOut(why) => {
                let reason = Reason { code: ErrorCode::IdleTimeout, message: format!("the connection is lost: {why}") };
                if let Some(durable) = self.durable.as_mut().filter(|_| self.link.shared.role == Role::Client) {
                    // The next process may succeed.
                    durable.keep_records();
                }
                self.session.handle_connection_lost(now(), reason, false);
                false
            }
        }
    }

    fn handle_returned(&mut self, returning: ReturningClient) -> bool {
        let ReturningClient { fresh, control, connection } = returning;
        let is_up = !self.session.is_suspended();
        if !same_client(&self.link.connection, &connection) {
            tracing::warn!(session = %self.link.shared.id(), peer = %connection.remote_address(), "refused another client that tried to resume the session");
            congestion::close(
                &connection,
                quic_code(ErrorCode::ClaimNotFound),
                b"the session belongs to another client",
            );
            return is_up;
        }
        // The old connection must be lost, although this end has not noticed.
        if is_up && !self.detach("the client has reconnected") {
            congestion::close(&connection, quic_code(ErrorCode::ClaimNotFound), b"the session has ended");
            return true;
        }
        let old = self.link.connection.clone();
        self.attach(connection, control);
        congestion::close(&old, quic_code(ErrorCode::NoError), b"session resumed over another connection");
        // On an error the session closes itself.
        let _ = self.session.adopt(now(), fresh);
        true
    }

    fn attach(&mut self, connection: Connection, control: Control) {
        let peer = connection.remote_address();
        tracing::info!(session = %self.link.shared.id(), %peer, "session resumed over another connection");
        Counters::add(&self.link.shared.counters.reconnects, 1);
        self.link = Arc::new(self.link.over(connection));
        self.control = control;
        self.reconnect.finish();
        self.accepting.abort_all();
        self.accepting = accept(&self.link);
    }

    /// Hand this connection over to the driver of the session that its peer has named. Return this
    /// driver if no other driver has that session.
    pub(super) fn hand_over_to(mut self, named: SessionId) -> Option<Self> {
        let (connections, waiting) = match &self.reconnect {
            Reconnect::Accept { resumable, .. } => (resumable.of(named), resumable.take(named)),
            Reconnect::Never | Reconnect::Dial { .. } => (None, None),
        };
        if let Some(waiting) = waiting {
            self.adopt_earlier(waiting);
            return Some(self);
        }
        let Some(connections) = connections else {
            self.session.refuse_return(now());
            return Some(self);
        };
        self.accepting.abort_all();
        let connection = self.link.connection.clone();
        let returning = ReturningClient { fresh: self.session, control: self.control, connection: connection.clone() };
        if connections.send(returning).is_err() {
            refuse(&connection);
        }
        None
    }

    /// Register the session's name, so that a client can resume it. Return false if another session
    /// of the server has that name, even one that waits for its client.
    pub(super) fn register(&mut self, name: SessionId) -> bool {
        if self.link.shared.role == Role::Client {
            return true;
        }
        let waits = matches!(&self.reconnect, Reconnect::Accept { resumable, .. } if resumable.waits(name));
        if waits || !self.naming.take(name) {
            return false;
        }
        if self.session.survives()
            && let Reconnect::Accept { resumable, connections, .. } = &mut self.reconnect
        {
            *connections = resumable.register(name);
            let journals = resumable.journals.as_ref().filter(|_| self.durable.is_none() && connections.is_some());
            if let Some(journals) = journals {
                let owner = Owner { session: name, certificate: certificate(&self.link.connection) };
                self.durable = Some(Durable::new(journals.begin(owner)));
            }
        }
        true
    }
}

/// Return whether both connections belong to a client with the same certificate, or both have none.
fn same_client(one: &Connection, other: &Connection) -> bool {
    certificate(one) == certificate(other)
}
