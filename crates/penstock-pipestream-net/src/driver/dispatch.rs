use std::sync::Arc;

use penstock_pipestream::{Accepted, EntityHeader, EntityKey, ErrorCode, Event, Reason, Status, Transmit};

use crate::clock::now;
use crate::command::{BufferedEntity, CheckpointAnswer};
use crate::counters::Counters;
use crate::driver::Driver;
use crate::driver::opening::SinkState;
use crate::driver::stage::{Life, Stage};
use crate::driver::streams::names;
use crate::entity_link::HandleSource;
use crate::events::LogEvent;
use crate::incoming::{AdmittedEntity, Body, QueuedEntity};
use crate::port::{NewSession, OpenSession, SinkEvent};
use crate::shared::Phase;
use crate::sink_control::DriverControl;
use crate::transport::certificate;
use crate::types::{Released, Resolution};
use crate::{Error, Result};

/// Maximum number of bytes requested from the session at a time.
const MAX_TRANSMIT: usize = 64 << 10;
/// Maximum number of events that are handed over together.
const MAX_EVENTS: usize = 4_096;

impl Driver {
    /// Handle events until there are none, then transmits until there are none.
    pub(super) async fn flush(&mut self) {
        loop {
            let mut count = 0;
            while count < MAX_EVENTS
                && let Some(event) = self.session.poll_event()
            {
                count += 1;
                self.handle_event(event);
            }
            if count < MAX_EVENTS && self.take_early(now()) {
                continue;
            }
            self.batches.rejected.clear();
            let more = self.open().await;
            self.hand_over().await;
            // Store the session's record only once all events are handled.
            if count == MAX_EVENTS || more || self.store().await {
                continue;
            }
            self.streams.admit();
            self.deliver_whole();
            break;
        }
        // A paced session always has another block ready: do not poll it while the peer accepts
        // none.
        while (self.control.has_room(0) || !self.session.is_paced())
            && let Some(transmit) = self.session.poll_transmit(MAX_TRANSMIT)
        {
            match transmit {
                Transmit::Control(bytes) if self.stage.is_mute() => drop(bytes),
                Transmit::Control(bytes) => self.control.push(bytes),
                Transmit::StopStream { stream, code } => self.streams.stop(stream, code),
                Transmit::Close { code, message } => self.closing = Some(Reason { code, message }),
            }
        }
        self.announcements_end_at(self.control.pushed().saturating_add(self.session.queued_control() as u64));
        self.control.write_now().await;
        self.link.gate.set(!self.control.is_flushed());
        self.send_announced();
        self.widen();
        self.publish();
    }

    /// Publish the session's counters and its current state.
    fn publish(&mut self) {
        let shared = &self.link.shared;
        let seen = *self.session.counters();
        if seen != self.published {
            shared.counters.sessions.add(&self.published, &seen);
            self.published = seen;
        }
        let streams = self.link.streams().saturating_sub(self.link.stream_permits.available_permits());
        shared.gauges.set(&self.session.usage(), self.control.queued(), streams);
    }

    /// Grant the peer extra credit for the bytes that held streams leave unread, so that they
    /// cannot block the entities that they wait for. The credit is never reduced: on a later
    /// increase quinn would grant it again before it has recovered it.
    fn widen(&mut self) {
        if let Some(window) = self.streams.wider_window(self.link.intake) {
            self.link.connection.set_receive_window(window.into());
        }
    }

    /// Open the sink if the session has just got its ID. Return whether the session must be polled
    /// again.
    async fn open(&mut self) -> bool {
        let shared = &self.link.shared;
        let opened = match (&self.stage, self.session.agreement()) {
            (Stage::Identified, Some(agreement)) => {
                tracing::info!(session = %shared.id(), peer = %shared.peer, layer = agreement.layer, "session opened");
                self.open_sink(agreement.layer).await.map(|()| Some(agreement))
            }
            // A session that ends before it has an ID still gets a list, under its connection's
            // name. In the later stages the sink is open, or the arm above opens it.
            (Stage::Negotiating { .. }, _) if self.session.end().is_some() => self.open_sink(0).await.map(|()| None),
            (Stage::Negotiating { .. } | Stage::Identified | Stage::Open | Stage::Mute, _) => Ok(None),
        };
        match opened {
            Ok(Some(agreement)) => {
                self.stage = Stage::Open;
                self.link.shared.phase.send_replace(Phase::Open(agreement));
                false
            }
            Ok(None) => false,
            Err(error) => {
                self.stage = Stage::Mute;
                if let Some(durable) = &mut self.durable {
                    // The next start retries a session of an earlier process: its list is still
                    // open.
                    durable.keep_records();
                }
                tracing::error!(session = %self.link.shared.id(), %error, "the sink cannot open the session");
                let (code, message) = if let Error::Protocol(error) = &error {
                    (error.code(), error.message())
                } else {
                    // The error names a folder of this machine, which must not be disclosed to the peer.
                    (ErrorCode::InternalError, "the sink cannot open the session".to_owned())
                };
                self.session.abort(now(), Reason { code, message });
                true
            }
        }
    }

    async fn open_sink(&mut self, layer: u8) -> Result<()> {
        let opening = match std::mem::replace(&mut self.sink_state, SinkState::Absent) {
            SinkState::Closed(opening) => opening,
            other @ (SinkState::Absent | SinkState::Open(_)) => {
                self.sink_state = other;
                return Ok(());
            }
        };
        let shared = &self.link.shared;
        let types = Some(Arc::clone(&opening.defer_types));
        let session = NewSession {
            id: Arc::clone(shared.id()),
            control: DriverControl::shared(self.link.commands.clone(), Arc::clone(&shared.counters)),
            defer: types.filter(|types| layer == 2 && !types.is_empty()),
            certificate: certificate(&self.link.connection),
            handle: Some(HandleSource { link: Arc::clone(&self.link.entity), place: Arc::clone(&opening.place) }),
        };
        let OpenSession { sink, done } = opening.open(session).await?;
        self.sink_state = SinkState::Open(done);
        if let (Some(durable), Some(folder)) = (&mut self.durable, sink.folder()) {
            durable.note_sink_folder(folder);
        }
        // The cell is empty: the sink is opened only once.
        let _ = self.link.sink.set(sink);
        Ok(())
    }

    /// Inform the sink of an entity that may be received.
    pub(super) fn admitted(&mut self, accepted: &Accepted, header: &Arc<EntityHeader>) {
        let (attempt, dehydrated) = (accepted.attempt(), accepted.dehydrated);
        let layer2 = self.session.agreement().is_some_and(|agreement| agreement.layer == 2);
        let redeems = layer2 && self.note_admitted(attempt.key, header);
        self.batches.sink(SinkEvent::Admitted { attempt, header: Arc::clone(header), dehydrated, redeems });
    }

    /// Hand over the entities that arrived completely; the sink has already been informed of them.
    fn deliver_whole(&mut self) {
        let whole = self.streams.take_whole();
        if whole.is_empty() {
            return;
        }
        let link = &self.link.entity;
        let queued = |(accepted, arrival)| {
            let BufferedEntity { header, bytes, permit, .. } = arrival;
            let parked = Arc::ptr_eq(permit.semaphore(), &link.parked);
            (QueuedEntity { entity: AdmittedEntity { header, accepted }, body: Body::Whole(bytes), parked }, permit)
        };
        self.link.deliver(whole.into_iter().map(queued).collect());
    }

    fn handle_event(&mut self, event: Event) {
        if self.link.log.is_some() {
            self.batches.log.extend(LogEvent::of(&event));
        }
        match &event {
            Event::Agreed(agreement) => {
                match (agreement.layer, self.naming.own) {
                    (2, Some(name)) => {
                        self.link.shared.set_name(name);
                        // Otherwise wait for the server's SESSION: it states whether the session
                        // survives its connection.
                        if self.begins_before_session() {
                            self.stage.identify();
                        }
                    }
                    // A server waits: the client chooses the session's name.
                    (2, None) => {}
                    (_, _) => self.stage.identify(),
                }
            }
            Event::Admitted { stream, accepted } => {
                if let Some(header) = self.streams.release(*stream, *accepted) {
                    self.admitted(accepted, &header);
                }
            }
            Event::Gathered { key, outcome, .. } => {
                self.batches.whole |= key.is_none();
                self.batches.sink(SinkEvent::Gathered { key: *key, outcome: *outcome });
            }
            Event::Resolved { key, status, reason, attempts, owned: true, .. } => {
                self.resolved_owned(*key, *status, reason.clone(), *attempts);
            }
            Event::Resolved { key, parent_id, status, reason, failures, owned: false, .. } => {
                self.resolved_received(*key, *parent_id, *status, reason.clone(), *failures);
            }
            Event::Released { scope, parent, depth, digest } => {
                self.released(Released { scope: *scope, parent: *parent, depth: *depth, digest: digest.clone() });
            }
            Event::Checkpoint { checkpoint, satisfied, ours: true } => {
                if let Some(reply) = self.checkpoints.remove(&checkpoint.sequence_number) {
                    let answer = CheckpointAnswer { checkpoint: checkpoint.clone(), satisfied: *satisfied };
                    let _ = reply.send(Ok(answer));
                }
            }
            Event::Capacity => self.retry_waiting(),
            Event::Closed { reason, .. } => {
                self.link.shared.counters.ended(reason.code);
                self.batches.sink(SinkEvent::Closed(reason.code));
                self.life = Life::Ended(reason.clone());
            }
            Event::Checkpoint { ours: false, .. }
            | Event::Status { .. }
            | Event::Digest { .. }
            | Event::Barrier { .. }
            | Event::Error { .. } => {}
            Event::Layer2(event) => self.handle_layer2(event),
        }
        self.batches.user.push(event);
    }

    /// Record that the peer has released a scope of this end.
    fn released(&mut self, released: Released) {
        if let Some(durable) = &mut self.durable {
            durable.note_released(&released);
        }
        let is_root = released.parent.is_none();
        self.batches.released.push((released.scope, released));
        if is_root {
            self.root_is_released();
        }
    }

    /// Handle the end of an entity of ours: stop the streams that may still be sending it.
    fn resolved_owned(&mut self, key: EntityKey, status: Status, reason: Option<Reason>, attempts: u32) {
        if status == Status::Complete {
            self.sending.outgoing.remove(&key);
        } else {
            let code = reason.as_ref().map_or(ErrorCode::InternalError, |reason| reason.code);
            self.stop_outgoing(key, code);
        }
        let claim = self.forget_sent(key);
        let resolution = Resolution { status, reason, attempts, claim };
        if let Some(durable) = &mut self.durable {
            durable.note_ended(key, &resolution);
        }
        self.batches.resolved.push((key, resolution));
    }

    fn resolved_received(
        &mut self,
        key: EntityKey,
        parent_id: u32,
        status: Status,
        reason: Option<Reason>,
        failures: u32,
    ) {
        let (claim, mut header) = self.forget_received(key, status);
        self.batches.roots += u64::from(parent_id == 0);
        if status == Status::Complete {
            self.batches.completed += 1;
        } else {
            self.batches.ended = true;
            let code = reason.as_ref().map_or(ErrorCode::InternalError, |reason| reason.code);
            self.link.shared.counters.entity_ended(status, code);
            header = header.or_else(|| self.refused_header(key));
        }
        self.streams.remove_assembly(key);
        let (claim, reason) = match claim {
            Some(claim) => (Some(claim.id), reason.or(Some(claim.reason))),
            None => (None, reason),
        };
        self.batches.sink(SinkEvent::Resolved { key, parent_id, status, reason, failures, claim, header });
    }

    /// Return the header of an entity that was not admitted.
    pub(super) fn refused_header(&self, key: EntityKey) -> Option<Arc<EntityHeader>> {
        let rejected = self.batches.rejected.iter().find(|header| names(header, key));
        rejected.cloned().or_else(|| self.streams.held_header(key))
    }

    /// Pass on all batches. Wait for a sink or a log that has fallen far behind.
    async fn hand_over(&mut self) {
        let shared = &self.link.shared;
        let batches = &mut self.batches;
        if let Some(reason) = self.session.end() {
            shared.end(reason);
        }
        if batches.roots > 0 || batches.completed > 0 {
            Counters::add(&shared.counters.roots, std::mem::take(&mut batches.roots));
            Counters::add(&shared.counters.completed, std::mem::take(&mut batches.completed));
        }
        // A scope is released before its parent ends, so a caller that waits for the parent finds it released.
        if !batches.released.is_empty() {
            shared.releases.settle(batches.released.drain(..));
        }
        if !batches.resolved.is_empty() {
            shared.resolutions.settle(batches.resolved.drain(..));
        }
        if !batches.user.is_empty() {
            let lost = shared.events.push(batches.user.drain(..));
            Counters::add(&shared.counters.events_lost, lost);
        }
        match self.link.sink.get() {
            Some(sink) if !batches.sink.is_empty() => {
                if let Some(behind) = sink.observe(std::mem::take(&mut batches.sink)) {
                    behind.await;
                }
            }
            Some(_) => {}
            // The sink is not open yet: keep the events, because an entity that ends before SESSION
            // has a line, too.
            None if matches!(self.sink_state, SinkState::Closed(_)) => {}
            None => batches.sink.clear(),
        }
        if let Some(log) = &self.link.log
            && !batches.log.is_empty()
            // Lines written before the session has its ID could not be found by that ID.
            && (self.stage.is_open() || self.session.end().is_some())
        {
            log.write(shared.id(), std::mem::take(&mut batches.log)).await;
        }
    }
}
