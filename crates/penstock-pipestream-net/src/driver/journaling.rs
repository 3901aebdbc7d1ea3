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
use crate::driver::durable::{Durable, EarlierRoot, PendingPayload, Records};
use crate::driver::opening::{SinkState, wait_for_sink};
use crate::driver::reconnect::Reconnect;
use crate::driver::stage::Root;
use crate::port::{RecordKind, SinkEvent, Waiting};
use crate::transport::{SESSION_CONTINUES, certificate, quic_code};
use crate::types::Released;

impl Driver {
    /// Store the session's input before anything follows from it. Return whether the session must
    /// be polled again.
    pub(super) async fn store(&mut self) -> bool {
        let (ended, whole) = (std::mem::take(&mut self.batches.ended), std::mem::take(&mut self.batches.whole));
        let Some(durable) = &mut self.durable else { return false };
        let end = self.session.end().map(|reason| reason.code);
        let kind = match end {
            Some(code) => RecordKind::Last(code),
            None if durable.journal.wants_snapshot() => RecordKind::Snapshot,
            None => RecordKind::Inputs,
        };
        let record = match kind {
            RecordKind::Snapshot => self.session.snapshot(),
            RecordKind::Inputs | RecordKind::Last(_) => self.session.poll_record(),
        };
        if !durable.records.are_open() || self.stage.is_mute() {
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
            // After a restart the session would not report again how these entities ended.
            return self.cannot_store("the sink cannot write the outcomes of its entities");
        }
        if last {
            durable.records = Records::Finished;
        }
        let Err(error) = durable.journal.write(&record, kind).await else {
            if whole && let Some(sink) = self.link.sink.get() {
                // The client closes when it learns that its root scope is released; the list must be closed before
                // that.
                sink.close_list().await;
            }
            return false;
        };
        self.cannot_store(&error)
    }

    /// Abort the session and write no more records. Return true: the session must be polled again.
    fn cannot_store(&mut self, error: impl Display) -> bool {
        tracing::error!(session = %self.link.shared.id(), %error, "cannot store the session's records: the session is aborted");
        if let Some(durable) = &mut self.durable {
            durable.records = Records::Finished;
        }
        let message = format!("the session's state cannot be stored: {error}");
        self.session.abort(now(), Reason { code: ErrorCode::InternalError, message });
        true
    }

    /// Attach the request to an entity that was already announced with its label. Return the
    /// request if there is none.
    pub(super) fn attach_known(&mut self, now: Now, request: SendRequest) -> Option<SendRequest> {
        let label = &request.draft.label;
        let Some(durable) = self.durable.as_mut().filter(|_| !label.is_empty()) else { return Some(request) };
        if let Some(ticket) = durable.journal.open(label) {
            self.attach_pending(now, ticket, request);
            return None;
        }
        let ended = match durable.journal.ended(label) {
            Ok(Some(ended)) => ended,
            Ok(None) => return Some(request),
            Err(error) => {
                request.reply.fail(Error::io("cannot read the outcome of the label", error));
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
        self.link.entity.deliver_ticket(request.reply, ticket);
        None
    }

    /// Return whether an entity was announced with this label, by this process or an earlier one.
    pub(super) fn knows(&self, label: &Bytes) -> crate::Result<bool> {
        let Some(durable) = &self.durable else { return Ok(false) };
        let failed = |error: std::io::Error| Error::io("cannot read the outcome of the label", error);
        Ok(durable.journal.open(label).is_some() || durable.journal.ended(label).map_err(failed)?.is_some())
    }

    fn attach_pending(&mut self, now: Now, ticket: Ticket, request: SendRequest) {
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
        let pending = durable.pending_payloads.remove(&ticket.key);
        let SendRequest { draft, delivery, reply } = request;
        match (delivery, pending) {
            (Delivery::Payload(payload), Some(PendingPayload::Wanted)) => {
                self.queue(ticket, draft, payload, Some(reply));
                return;
            }
            (Delivery::Payload(_), Some(PendingPayload::Failed(reason))) => {
                self.handle_sent_attempt_failed(ticket.key, &reason);
            }
            (Delivery::Payload(_), Some(PendingPayload::NotRequested) | None) => {}
            (Delivery::Failed(reason), _) => self.session.fail(now, ticket.key, reason),
            // An entity that has ended in the meantime cannot be skipped.
            (Delivery::Skipped(reason), _) => drop(self.session.skip(now, ticket.key, reason)),
        }
        self.link.entity.deliver_ticket(reply, ticket);
    }

    /// Fail the entities that an earlier process announced and this one did not send: no request
    /// for them will come, and the session would wait for them forever.
    pub(super) fn fail_unclaimed(&mut self, now: Now) {
        let Some(durable) = &mut self.durable else { return };
        if durable.pending_payloads.is_empty() {
            return;
        }
        let left: HashSet<EntityKey> = durable.pending_payloads.drain().map(|(key, _)| key).collect();
        tracing::warn!(session = %self.link.shared.id(), entities = left.len(), "failed entities that an earlier process announced and this one did not send");
        for open in self.session.sent_open() {
            let key = open.ticket.key;
            if !left.contains(&key) {
                continue;
            }
            let message = "the process that resumed the session did not send the entity".to_owned();
            self.session.fail(now, key, Reason { code: ErrorCode::InternalError, message });
            if open.ticket.child_scope.is_some() && !open.ended {
                // The entity fails in any case, and gets no more children.
                let _ = self.session.end_children(now, key);
            }
        }
    }

    /// Return the label with which the session announces an entity: none where sessions are not
    /// stored.
    pub(super) fn label_of(&self, draft: &EntityDraft) -> Bytes {
        if self.durable.is_some() { draft.label.clone() } else { Bytes::new() }
    }

    /// Set the destination of the session's records, if they are stored.
    pub(crate) fn store_in(&mut self, durable: Option<Durable>) {
        self.durable = durable;
    }

    /// Continue a client's session of an earlier process over this connection.
    pub(crate) fn resume_earlier(&mut self, mut durable: Durable) {
        for open in self.session.sent_open() {
            durable.pending_payloads.insert(open.ticket.key, PendingPayload::NotRequested);
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
        if self.session.root_ended() {
            durable.earlier_root = EarlierRoot::Ended;
        }
        self.durable = Some(durable);
        self.published = *self.session.counters();
        // This fails only on misuse: the session is a client's, and suspended.
        let _ = self.session.reconnect(now());
    }

    /// Continue a server's session of an earlier process over this connection, whose peer has named
    /// the session.
    pub(super) fn adopt_earlier(&mut self, waiting: Waiting) {
        if waiting.owner.certificate != certificate(&self.link.connection) {
            tracing::warn!(session = %waiting.owner.session, peer = %self.link.shared.peer, "refused another client that tried to resume the session");
            if let Reconnect::Accept { resumable, .. } = &self.reconnect {
                resumable.insert(waiting);
            }
            self.session.refuse_return(now());
            return;
        }
        let Waiting { session, owner, journal, found, end: _ } = waiting;
        if let Some(outcome) = session.received_all() {
            self.batches.sink(SinkEvent::Gathered { key: None, outcome });
        }
        let fresh = std::mem::replace(&mut self.session, session);
        tracing::info!(session = %owner.session, peer = %self.link.shared.peer, "resumed a session of an earlier process");
        Counters::add(&self.link.shared.counters.reconnects, 1);
        self.published = *self.session.counters();
        self.durable = Some(Durable::new(journal));
        self.link.shared.set_name(owner.session);
        self.register(owner.session);
        self.layer2.resumed(self.link.entity.claims.redeemed_by(owner.session));
        // An entity with a line is complete; the session may not know that.
        for (key, header) in found.entities() {
            self.note_admitted(key, &header);
            self.session.complete(now(), key);
        }
        if let SinkState::Closed(opening) = &mut self.sink_state {
            opening.found = Some(found);
        }
        self.stage.identify();
        // On an error the session closes itself.
        let _ = self.session.adopt(now(), fresh);
    }

    /// Leave the session to another process, because this one ends or does not wait any longer.
    pub(super) async fn leave(mut self) {
        let message = "the session continues in the next process".to_owned();
        let reason = Reason { code: SESSION_CONTINUES, message };
        let shared = Arc::clone(&self.link.shared);
        tracing::info!(session = %shared.id(), "the session is left to the next process");
        congestion::close(&self.link.connection, quic_code(reason.code), reason.message.as_bytes());
        for request in self.sending.waiting.take() {
            request.reply.fail(closed(&reason));
        }
        let (sink_state, durable) = (std::mem::replace(&mut self.sink_state, SinkState::Absent), self.durable.take());
        drop(self);
        wait_for_sink(sink_state, &shared).await;
        // Close the journal last: it unlocks the folder, and another server may then read the sink.
        if let Some(durable) = durable {
            durable.journal.close().await;
        }
        shared.close(reason);
    }
}
