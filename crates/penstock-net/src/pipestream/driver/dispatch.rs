use std::sync::Arc;

use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Event, Reason, ScopeKey, Status, Transmit};

use super::super::command::CheckpointAnswer;
use super::super::consumer::Inlet;
use super::super::counters::Counters;
use super::super::events::LogEvent;
use super::super::incoming::{Arrival, Body, Untaken};
use super::super::shared::{Phase, Released, Resolution};
use super::super::sink::SinkEvent;
use super::Driver;
use super::streams::names;

/// The most octets that the session is asked for at a time.
const MAX_TRANSMIT: usize = 64 << 10;
/// Events that are handed on together.
const MAX_EVENTS: usize = 4_096;

/// What is handed on together, once the session has nothing more to say.
#[derive(Debug, Default)]
pub(super) struct Batches {
    sink: Vec<SinkEvent>,
    log: Vec<LogEvent>,
    user: Vec<Event>,
    resolved: Vec<(EntityKey, Resolution)>,
    released: Vec<(ScopeKey, Released)>,
    /// Headers that the session has just refused, for the lines of their entities.
    rejected: Vec<Arc<EntityHeader>>,
    /// Received entities that became terminal, those without a parent and those that are COMPLETE.
    roots: u64,
    completed: u64,
}

impl Batches {
    /// Something that only a sink wants to know.
    pub(super) fn sink(&mut self, event: SinkEvent) {
        self.sink.push(event);
    }

    pub(super) fn rejected(&mut self, header: Arc<EntityHeader>) {
        self.rejected.push(header);
    }
}

impl Driver {
    /// Events until there are none, then transmits until there are none.
    pub(super) async fn flush(&mut self) {
        loop {
            let mut count = 0;
            while count < MAX_EVENTS
                && let Some(event) = self.session.poll_event()
            {
                count += 1;
                self.handle_event(event);
            }
            self.batches.rejected.clear();
            self.hand_over().await;
            self.streams.admit();
            self.deliver_whole();
            if count < MAX_EVENTS {
                break;
            }
        }
        while let Some(transmit) = self.session.poll_transmit(MAX_TRANSMIT) {
            match transmit {
                Transmit::Control(octets) => self.control.push(octets),
                Transmit::StopStream { stream, code } => self.streams.stop(stream, code),
                Transmit::Close { code, message } => self.closing = Some(Reason { code, message }),
            }
        }
        self.announcements_end_at(self.control.pushed());
        self.control.write_now().await;
        self.link.gate.set(!self.control.is_flushed());
        self.send_announced();
        self.widen();
        self.publish();
    }

    /// Shows what the session has seen and what it holds.
    fn publish(&mut self) {
        let shared = &self.link.shared;
        let seen = *self.session.counters();
        if seen != self.published {
            shared.counters.sessions.add(&self.published, &seen);
            self.published = seen;
        }
        let streams = self.link.streams().saturating_sub(self.link.places.available_permits());
        shared.gauges.set(&self.session.usage(), self.control.queued(), streams);
    }

    /// Gives the peer credit for what held streams keep unread, so that they cannot keep out what they wait for. It is
    /// never taken back: quinn would give it again before it has got it back.
    fn widen(&mut self) {
        if let Some(window) = self.streams.wider_window(self.link.intake) {
            self.link.connection.set_receive_window(window.into());
        }
    }

    pub(super) fn tell_sink_admitted(&mut self, key: EntityKey, header: &Arc<EntityHeader>, dehydrated: bool) {
        self.batches.sink(SinkEvent::Admitted { key, header: Arc::clone(header), dehydrated });
    }

    /// Hands over what came whole; the sink has heard of it by now.
    fn deliver_whole(&mut self) {
        let whole = self.streams.take_whole();
        if whole.is_empty() {
            return;
        }
        let link = &self.link.entity;
        let untaken = |(accepted, arrival)| {
            let Arrival { header, octets, place, .. } = arrival;
            let parked = Arc::ptr_eq(place.semaphore(), &link.parked);
            (Untaken { header, accepted, body: Body::Whole(octets), parked }, place)
        };
        self.link.inlet.deliver(whole.into_iter().map(untaken).collect(), link);
    }

    fn handle_event(&mut self, event: Event) {
        if self.link.log.is_some() {
            self.batches.log.extend(LogEvent::of(&event));
        }
        match &event {
            Event::Agreed(agreement) => {
                self.agree_by = None;
                self.link.shared.phase.send_replace(Phase::Open(*agreement));
            }
            Event::Admitted { stream, accepted } => {
                if let Some(header) = self.streams.release(*stream, *accepted) {
                    self.tell_sink_admitted(accepted.key, &header, accepted.dehydrated);
                }
            }
            Event::Gathered { key, outcome, .. } => {
                self.batches.sink(SinkEvent::Gathered { key: *key, outcome: *outcome });
            }
            Event::Resolved { key, status, reason, owned: true, .. } => {
                self.resolved_owned(*key, *status, reason.clone());
            }
            Event::Resolved { key, parent_id, status, reason, owned: false } => {
                self.resolved_received(*key, *parent_id, *status, reason.clone());
            }
            Event::Released { scope, parent, depth, digest } => {
                let released = Released { scope: *scope, parent: *parent, depth: *depth, digest: digest.clone() };
                self.batches.released.push((*scope, released));
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
                self.end = Some(reason.clone());
            }
            Event::Checkpoint { ours: false, .. }
            | Event::Status { .. }
            | Event::Digest { .. }
            | Event::Barrier { .. }
            | Event::Error { .. } => {}
        }
        self.batches.user.push(event);
    }

    /// One of ours is terminal: what may still be on its way is stopped.
    fn resolved_owned(&mut self, key: EntityKey, status: Status, reason: Option<Reason>) {
        if status == Status::Complete {
            self.outgoing.remove(&key);
        } else {
            let code = reason.as_ref().map_or(ErrorCode::InternalError, |reason| reason.code);
            self.stop_outgoing(key, code);
        }
        self.batches.resolved.push((key, Resolution { status, reason }));
    }

    fn resolved_received(&mut self, key: EntityKey, parent_id: u32, status: Status, reason: Option<Reason>) {
        let counters = &self.link.shared.counters;
        let mut header = None;
        self.batches.roots += u64::from(parent_id == 0);
        if status == Status::Complete {
            self.batches.completed += 1;
        } else {
            counters.entity_failed(reason.as_ref().map_or(ErrorCode::InternalError, |reason| reason.code));
            let rejected = self.batches.rejected.iter().find(|header| names(header, key));
            header = rejected.cloned().or_else(|| self.streams.held_header(key));
        }
        self.streams.let_go(key);
        self.batches.sink(SinkEvent::Resolved { key, parent_id, status, reason, header });
    }

    /// Hands everything on. Waits for a sink or a log that is far behind.
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
        // A scope is released before its parent ends, and who waits for the parent finds it so.
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
        match &self.link.inlet {
            Inlet::Folder(sink) if !batches.sink.is_empty() => sink.observe(std::mem::take(&mut batches.sink)).await,
            Inlet::Objects(sink) if !batches.sink.is_empty() => sink.observe(std::mem::take(&mut batches.sink)).await,
            Inlet::Folder(_) | Inlet::Objects(_) => {}
            Inlet::Queue(_) => batches.sink.clear(),
        }
        if let Some(log) = &self.link.log
            && !batches.log.is_empty()
        {
            log.write(&shared.id, std::mem::take(&mut batches.log)).await;
        }
    }
}
