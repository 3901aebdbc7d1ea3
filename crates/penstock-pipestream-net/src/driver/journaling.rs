//! The driver's handling of a session whose records are on disk ([`Durable`]).

use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use penstock_io::DriverError as _;
use penstock_pipestream::{EntityKey, ErrorCode, Now, Reason, Ticket};

use crate::Error;
use crate::clock::now;
use crate::command::{SendRequest, closed};
use crate::congestion;
use crate::counters::Counters;
use crate::draft::{Delivery, EntityDraft};
use crate::driver::Driver;
use crate::driver::durable::{Durable, Unattached};
use crate::driver::opening::{Place, wait_for_sink};
use crate::driver::reconnect::Reconnect;
use crate::driver::stage::Root;
use crate::journal::Waiting;
use crate::port::SinkEvent;
use crate::transport::{SESSION_CONTINUES, certificate, quic_code};
use crate::types::Released;

impl Driver {
    /// Store the session's input, before anything follows from it. Return whether there is more to be polled.
    pub(super) async fn store(&mut self) -> bool {
        let (ended, whole) = (std::mem::take(&mut self.batches.ended), std::mem::take(&mut self.batches.whole));
        let Some(durable) = &mut self.durable else { return false };
        let end = self.session.end().map(|reason| reason.code);
        let snapshot = end.is_none() && durable.journal.wants_snapshot();
        let record = if snapshot { self.session.snapshot() } else { self.session.poll_record() };
        if durable.closed || self.stage.is_mute() {
            return false;
        }
        let last = end.is_some() && durable.journal.has_begun();
        let record = match record {
            Some(record) => record,
            None if last => Bytes::new(),
            None => return false,
        };
        if ended
            && let Some(sink) = self.link.sink.get()
            && !sink.flush().await
        {
            // The next process's session would not report again how they ended.
            return self.cannot_store("the sink cannot write how its entities have ended");
        }
        durable.closed = last;
        let Err(error) = durable.journal.write(&record, snapshot, end).await else {
            if whole && let Some(sink) = self.link.sink.get() {
                // The client closes when it learns that its root scope is released; the list must be closed before
                // that.
                sink.close_list().await;
            }
            return false;
        };
        self.cannot_store(&error)
    }

    /// End the session, and write nothing more of it. There is more to be polled.
    fn cannot_store(&mut self, error: impl Display) -> bool {
        tracing::error!(session = %self.link.shared.id(), %error, "the session ends: its records cannot be stored");
        if let Some(durable) = &mut self.durable {
            durable.closed = true;
        }
        let message = format!("the session's state cannot be stored: {error}");
        self.session.abort(now(), Reason { code: ErrorCode::InternalError, message });
        true
    }

    /// Suppress the announcement of an entity that was announced with its label before. Return what is still to be
    /// announced.
    pub(super) fn look_up(&mut self, now: Now, request: SendRequest) -> Option<SendRequest> {
        let label = &request.draft.label;
        let Some(durable) = self.durable.as_mut().filter(|_| !label.is_empty()) else { return Some(request) };
        if let Some(ticket) = durable.journal.open(label) {
            self.attach_open(now, ticket, request);
            return None;
        }
        let ended = match durable.journal.ended(label) {
            Ok(Some(ended)) => ended,
            Ok(None) => return Some(request),
            Err(error) => {
                request.answer.fail(Error::io("cannot read what has become of the label", error));
                return None;
            }
        };
        let ticket = ended.ticket;
        let shared = &self.link.shared;
        shared.resolutions.expect([ticket.key]);
        shared.resolutions.settle([(ticket.key, ended.resolution)]);
        if let Some(scope) = ticket.child_scope {
            durable.ended.insert(ticket.key);
            if let Some(digest) = ended.digest {
                shared.releases.expect(scope);
                let depth = ticket.depth.saturating_add(1);
                shared.releases.settle([(scope, Released { scope, parent: Some(ticket.key), depth, digest })]);
            }
        }
        self.link.entity.answer(request.answer, ticket);
        None
    }

    /// Return whether something has been announced with this label, by this process or an earlier one.
    pub(super) fn knows(&self, label: &Bytes) -> crate::Result<bool> {
        let Some(durable) = &self.durable else { return Ok(false) };
        let failed = |error: std::io::Error| Error::io("cannot read what has become of the label", error);
        Ok(durable.journal.open(label).is_some() || durable.journal.ended(label).map_err(failed)?.is_some())
    }

    fn attach_open(&mut self, now: Now, ticket: Ticket, request: SendRequest) {
        let policy = self.policy_of(&request.draft);
        self.keep(&ticket, policy.as_ref(), &request);
        let shared = &self.link.shared;
        shared.resolutions.expect([ticket.key]);
        let Some(durable) = &mut self.durable else { return };
        if let Some(scope) = ticket.child_scope {
            shared.releases.expect(scope);
            if let Some(digest) = durable.journal.digest(ticket.key).cloned() {
                let depth = ticket.depth.saturating_add(1);
                shared.releases.settle([(scope, Released { scope, parent: Some(ticket.key), depth, digest })]);
            }
        }
        let unattached = durable.unattached.remove(&ticket.key);
        let SendRequest { draft, delivery, answer } = request;
        match (delivery, unattached) {
            (Delivery::Payload(payload), Some(Unattached::Wanted)) => {
                self.queue(ticket, draft, payload, Some(answer));
                return;
            }
            (Delivery::Payload(_), Some(Unattached::Failed(reason))) => {
                self.attempt_of_ours_failed(ticket.key, &reason);
            }
            (Delivery::Payload(_), Some(Unattached::Nothing) | None) => {}
            (Delivery::Failed(reason), _) => self.session.fail(now, ticket.key, reason),
            // An entity that has ended in the meantime cannot be skipped.
            (Delivery::Skipped(reason), _) => drop(self.session.skip(now, ticket.key, reason)),
        }
        self.link.entity.answer(answer, ticket);
    }

    /// Fail the entities that an earlier process has announced and this one has not, because nothing more will be
    /// announced: the session would wait for them forever.
    pub(super) fn fail_unclaimed(&mut self, now: Now) {
        let Some(durable) = &mut self.durable else { return };
        if durable.unattached.is_empty() {
            return;
        }
        let left: HashSet<EntityKey> = durable.unattached.drain().map(|(key, _)| key).collect();
        tracing::warn!(session = %self.link.shared.id(), entities = left.len(), "what an earlier process has announced is not there any more");
        for open in self.session.sent_open() {
            let key = open.ticket.key;
            if !left.contains(&key) {
                continue;
            }
            let message = "the process that goes on with the session has not sent it".to_owned();
            self.session.fail(now, key, Reason { code: ErrorCode::InternalError, message });
            if open.ticket.child_scope.is_some() && !open.ended {
                // It fails in any case; the children that it has are all that it gets.
                let _ = self.session.end_children(now, key);
            }
        }
    }

    /// Return the label of an announcement in the session.
    pub(super) fn label_of(&self, draft: &EntityDraft) -> Bytes {
        if self.durable.is_some() { draft.label.clone() } else { Bytes::new() }
    }

    /// Set the destination of the session's records, if they are stored.
    pub(crate) fn store_in(&mut self, durable: Option<Durable>) {
        self.durable = durable;
    }

    /// Continue a client's session of an earlier process over this connection.
    pub(crate) fn begin_again(&mut self, mut durable: Durable) {
        for open in self.session.sent_open() {
            durable.unattached.insert(open.ticket.key, Unattached::Nothing);
            if open.ended {
                durable.ended.insert(open.ticket.key);
            }
        }
        if let Some(name) = self.naming.own {
            self.link.shared.set_name(name);
        }
        if durable.journal.root().is_some() {
            self.root = Root::Released;
        }
        durable.root_ended = self.session.root_ended();
        self.durable = Some(durable);
        self.published = *self.session.counters();
        // Only misuse fails, which this is not: the session is a client's, and suspended.
        let _ = self.session.reconnect(now());
    }

    /// Continue a server's session of an earlier process over this connection, whose peer has named it.
    pub(super) fn take_over(&mut self, waiting: Waiting) {
        if waiting.owner.certificate != certificate(&self.link.connection) {
            tracing::warn!(session = %waiting.owner.session, peer = %self.link.shared.peer, "another client asks for the session");
            if let Reconnect::Waits { returns, .. } = &self.road {
                returns.wait_for(waiting);
            }
            self.session.refuse_return(now());
            return;
        }
        let Waiting { session, owner, journal, found, end: _ } = waiting;
        if let Some(outcome) = session.received_all() {
            self.batches.sink(SinkEvent::Gathered { key: None, outcome });
        }
        let fresh = std::mem::replace(&mut self.session, session);
        tracing::info!(session = %owner.session, peer = %self.link.shared.peer, "the session of an earlier process goes on");
        Counters::add(&self.link.shared.counters.reconnects, 1);
        self.published = *self.session.counters();
        self.durable = Some(Durable::new(journal));
        self.link.shared.set_name(owner.session);
        self.register(owner.session);
        self.layer2.resumed(self.link.entity.claims.redeemed_by(owner.session));
        // An entity with a line is complete; the session may not have been informed of it.
        for (key, header) in found.entities() {
            self.note_admitted(key, &header);
            self.session.complete(now(), key);
        }
        if let Place::Closed(opening) = &mut self.place {
            opening.found = Some(found);
        }
        self.stage.identify();
        // The session closes by itself if something is wrong with it.
        let _ = self.session.adopt(now(), fresh);
    }

    /// Leave the session to another process, because this one ends or does not wait any longer.
    pub(super) async fn leave(mut self) {
        let message = "the session goes on with the next process".to_owned();
        let reason = Reason { code: SESSION_CONTINUES, message };
        let shared = Arc::clone(&self.link.shared);
        tracing::info!(session = %shared.id(), "the session waits for the next process");
        congestion::close(&self.link.connection, quic_code(reason.code), reason.message.as_bytes());
        for request in self.sending.waiting.take() {
            request.answer.fail(closed(&reason));
        }
        let (place, durable) = (std::mem::replace(&mut self.place, Place::Absent), self.durable.take());
        drop(self);
        wait_for_sink(place, &shared).await;
        // Only then may another server look at what is in the sink.
        if let Some(durable) = durable {
            durable.journal.close().await;
        }
        shared.close(reason);
    }
}
