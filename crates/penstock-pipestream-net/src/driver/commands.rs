use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use penstock_pipestream::pipe_doc::DOC;
use penstock_pipestream::{Admission, ChunkProgress, EntityHeader, EntityKey, ErrorCode, Now, PipeDoc, Ticket};
use tokio::sync::oneshot;

use crate::clock::now;
use crate::command::{BufferedEntity, CheckpointAnswer, Command, Reply, SendRequest, Verdict};
use crate::draft::{Delivery, EntityDraft};
use crate::driver::Driver;
use crate::driver::announcing::AnnouncedEntity;
use crate::driver::stage::Root;
use crate::outgoing::{self, Outgoing};
use crate::payload::Payload;
use crate::pump::Small;
use crate::sealer::unsealed;
use crate::ticket_reply::TicketReply;
use crate::{Error, Misuse};

impl Driver {
    pub(super) fn handle_command(&mut self, command: Command) {
        let now = now();
        self.silence.broken(now.instant);
        // On a violation by the peer, the session closes itself and reports it as an event.
        match command {
            Command::Control(send, receive) => self.control.open(send, receive),
            Command::Bidirectional => drop(self.session.handle_bidirectional(now)),
            Command::StreamOpened => drop(self.session.handle_stream_opened(now)),
            // The connection of this header is lost: the peer sends the header again.
            Command::Header { stream, .. } if !self.link.has(stream) => {}
            Command::Header { stream, header, reply } => self.handle_header(now, stream, Arc::from(header), reply),
            Command::Arrived(arrivals) => {
                let here = arrivals.into_iter().filter(|arrival| self.link.has(arrival.stream)).collect::<Vec<_>>();
                here.into_iter().for_each(|arrival| self.handle_arrival(now, arrival));
            }
            Command::HeaderError(error) => drop(self.session.handle_header_error(now, error)),
            Command::StreamReset { stream, attempt, code } => {
                self.streams.forget(stream);
                if self.session.is_current(attempt) {
                    self.session.handle_stream_reset(now, stream, Some(attempt.key), code);
                }
            }
            Command::ChunkFinished { attempt, index, bytes, reply } => {
                let key = attempt.key;
                let progress = match self.session.is_current(attempt) {
                    true => self.session.chunk_finished(now, key, index, bytes),
                    false => ChunkProgress::Dropped,
                };
                if progress == ChunkProgress::Whole {
                    self.streams.remove_assembly(key);
                }
                let _ = reply.send(progress);
            }
            Command::Fail { key, reason } => self.session.fail(now, key, reason),
            Command::FailAttempt { attempt, reason } => {
                if self.session.is_current(attempt) {
                    self.session.fail(now, attempt.key, reason);
                }
            }
            Command::NotSent { key, reason, stopped } => self.handle_not_sent(key, reason, stopped),
            // An entity that has ended cannot be skipped.
            Command::Skip { key, reason } => drop(self.session.skip(now, key, reason)),
            Command::Resume { key, token, reply } => self.resume(key, &token, reply),
            Command::AskClaim { ask, reply } => self.ask_claim(ask, reply),
            Command::Send(requests) => requests.into_iter().for_each(|request| self.handle_send(now, request)),
            Command::EndChildren { parent, reply } => {
                let ended = match parent {
                    Some(parent) if self.durable.as_mut().is_some_and(|durable| durable.has_ended(parent)) => Ok(()),
                    Some(parent) => self.session.end_children(now, parent),
                    None => self.end_root(now),
                };
                let _ = reply.send(ended.map_err(Into::into));
            }
            Command::Knows { label, reply } => {
                let _ = reply.send(self.knows(&label));
            }
            Command::Checkpoint { scope, entity, timeout, reply } => {
                self.handle_checkpoint(now, scope, entity, timeout, reply);
            }
        }
    }

    pub(super) fn take_header(
        &mut self,
        now: Now,
        stream: u64,
        header: Arc<EntityHeader>,
        reply: oneshot::Sender<Verdict>,
    ) {
        match self.session.handle_header(now, stream, &header) {
            Ok(Admission::Accepted(accepted)) => {
                self.admitted(&accepted, &header);
                self.streams.accept(stream, accepted, header, reply);
            }
            Ok(Admission::Held) => self.streams.hold(stream, header, reply),
            Ok(Admission::Stopped(code)) => {
                self.batches.rejected(header);
                let _ = reply.send(Verdict::Stopped(code));
            }
            Err(error) => drop(reply.send(Verdict::Stopped(error.code()))),
        }
    }

    pub(super) fn take_arrival(&mut self, now: Now, arrival: BufferedEntity) {
        let header = Arc::clone(&arrival.header);
        match self.session.handle_header(now, arrival.stream, &header) {
            Ok(Admission::Accepted(accepted)) => {
                self.admitted(&accepted, &header);
                self.streams.accept_whole(accepted, arrival);
            }
            Ok(Admission::Held) => self.streams.hold_whole(arrival),
            Ok(Admission::Stopped(_)) => self.batches.rejected(header),
            // The session closes itself and reports the reason as an event.
            Err(_) => {}
        }
    }

    fn handle_checkpoint(
        &mut self,
        now: Now,
        scope: u32,
        entity: u32,
        timeout: Option<Duration>,
        reply: Reply<CheckpointAnswer>,
    ) {
        match self.session.checkpoint(now, scope, entity, timeout) {
            Ok(sequence) => drop(self.checkpoints.insert(sequence, reply)),
            Err(error) => drop(reply.send(Err(error.into()))),
        }
    }

    fn handle_send(&mut self, now: Now, request: SendRequest) {
        if self.root == Root::Closing {
            request.reply.fail(Misuse::Closing.into());
        } else if self.sending.waiting.has(request.draft.parent) {
            self.sending.waiting.push(request);
        } else if let Some(request) = self.announce(now, request) {
            self.sending.waiting.push(request);
        }
    }

    /// Announce an entity and start to send it, or return it if it has to wait.
    fn announce(&mut self, now: Now, request: SendRequest) -> Option<SendRequest> {
        if request.reply.is_closed() {
            // The caller has stopped waiting, and the peer does not know of the entity.
            return None;
        }
        if self.exceeds_kept_limit(&request) {
            return Some(request);
        }
        let request = self.attach_known(now, request)?;
        let policy = self.policy_of(&request.draft);
        let (label, EntityDraft { parent, dehydrate, .. }) = (self.label_of(&request.draft), &request.draft);
        let announced = self.session.announce_labelled(now, *parent, *dehydrate, policy.as_ref(), label.clone());
        match announced {
            Ok(None) => Some(request),
            Ok(Some(ticket)) => {
                if let Some(durable) = &mut self.durable {
                    durable.announced(label, ticket);
                }
                self.keep(&ticket, policy.as_ref(), &request);
                self.announced(now, request, ticket);
                None
            }
            Err(error) => {
                request.reply.fail(error.into());
                None
            }
        }
    }

    fn announced(&mut self, now: Now, request: SendRequest, ticket: Ticket) {
        let SendRequest { draft, delivery, reply } = request;
        let shared = &self.link.shared;
        shared.resolutions.expect([ticket.key]);
        if let Some(scope) = ticket.child_scope {
            shared.releases.expect(scope);
        }
        let payload = match delivery {
            Delivery::Payload(payload) => payload,
            Delivery::Failed(reason) => {
                self.session.fail_unsent(now, ticket.key, reason);
                self.link.entity.deliver_ticket(reply, ticket);
                return;
            }
            Delivery::Skipped(reason) => {
                // This fails only without layer 2, where no caller skips entities.
                let _ = self.session.skip(now, ticket.key, reason);
                self.link.entity.deliver_ticket(reply, ticket);
                return;
            }
        };
        self.queue(ticket, draft, payload, Some(reply));
    }

    /// Queue an entity that is sent as soon as its announcement is written.
    pub(super) fn queue(&mut self, ticket: Ticket, draft: EntityDraft, payload: Payload, reply: Option<TicketReply>) {
        if !self.session.may_send() && self.session.survives() {
            // The entity is sent again once there is a connection.
            if let Some(reply) = reply {
                self.link.entity.deliver_ticket(reply, ticket);
            }
            return;
        }
        let mut header = EntityHeader {
            layer: draft.layer,
            content_type: draft.content_type,
            payload_length: payload.len(),
            checksum: Bytes::copy_from_slice(&payload.sha256()),
            metadata: draft.metadata,
            ..EntityHeader::default()
        };
        self.session.bind_header(&ticket, &mut header);
        if let Some(document) = draft.document {
            // The entity's ID is known only now (section 7.1).
            let document = PipeDoc { entity_id: ticket.key.entity, ..document };
            header.metadata.insert(DOC.to_owned(), document.to_entry());
        }
        let (chunk_size, dehydrated) = (draft.chunk_size, draft.dehydrate);
        let sealer = match self.sealer() {
            Ok(sealer) => sealer,
            Err(error) => return self.unsealed(ticket, &error, reply),
        };
        // The entity's PENDING is not among the control bytes yet.
        self.sending.announcing.push(match payload.small().filter(|_| chunk_size.is_none()) {
            Some(bytes) => {
                let head = match sealer.map(|sealer| sealer.seal(&header)) {
                    Some(Ok(sealed)) => sealed.into_bytes(),
                    Some(Err(error)) => return self.unsealed(ticket, &error, reply),
                    None => header.into_bytes(),
                };
                AnnouncedEntity::Small(Small { ticket, head, bytes, dehydrated, reply })
            }
            None => {
                let (stop, reset) = oneshot::channel();
                self.sending.outgoing.insert(ticket.key, stop);
                let outgoing = Outgoing { ticket, header, sealer, payload, chunk_size, dehydrated, reset, reply };
                AnnouncedEntity::Large(Box::new(outgoing))
            }
        });
    }

    /// Give up an entity whose header cannot be sealed.
    fn unsealed(&mut self, ticket: Ticket, error: &Error, reply: Option<TicketReply>) {
        self.session.fail_unsent(now(), ticket.key, unsealed(error));
        if let Some(reply) = reply {
            self.link.entity.deliver_ticket(reply, ticket);
        }
    }

    /// Record that all announcements so far are written with the control bytes up to `position`.
    pub(super) fn announcements_end_at(&mut self, position: u64) {
        if !self.sending.announcing.is_empty() {
            self.sending.announced.push_back((position, std::mem::take(&mut self.sending.announcing)));
        }
    }

    /// Send the entities whose announcements QUIC has accepted. A payload that used up the
    /// connection's credit before its PENDING could block the PENDING, and so its own reception,
    /// forever.
    pub(super) fn send_announced(&mut self) {
        let written = self.control.written();
        while let Some((_, entities)) = self.sending.announced.pop_front_if(|(end, _)| *end <= written) {
            for entity in entities {
                match entity {
                    AnnouncedEntity::Small(small) => self.sending.pump.push(small, &self.link.entity),
                    AnnouncedEntity::Large(outgoing) => {
                        tokio::spawn(outgoing::send(*outgoing, Arc::clone(&self.link)));
                    }
                }
            }
        }
    }

    /// Stop an entity of ours that was resolved before it was sent, or while it is being sent.
    pub(super) fn stop_outgoing(&mut self, key: EntityKey, code: ErrorCode) {
        if let Some(stop) = self.sending.outgoing.remove(&key) {
            // The entity may already have been sent completely.
            let _ = stop.send(code);
            return;
        }
        self.sending.pump.stop(key, code, &self.link.entity);
        for batch in self.sending.announced.iter_mut().map(|(_, batch)| batch).chain([&mut self.sending.announcing]) {
            batch.retain_mut(|entity| match entity {
                AnnouncedEntity::Small(small) if small.ticket.key == key => {
                    small.notify_caller(&self.link.entity);
                    false
                }
                AnnouncedEntity::Small(_) | AnnouncedEntity::Large(_) => true,
            });
        }
    }

    /// Answer the callers that wait for the tickets of announced entities, because the connection is lost.
    pub(super) fn notify_announced(&mut self) {
        let announced = std::mem::take(&mut self.sending.announced).into_iter().flat_map(|(_, batch)| batch);
        for entity in announced.chain(std::mem::take(&mut self.sending.announcing)) {
            let (ticket, reply) = match entity {
                AnnouncedEntity::Small(small) => (small.ticket, small.reply),
                AnnouncedEntity::Large(outgoing) => (outgoing.ticket, outgoing.reply),
            };
            if let Some(reply) = reply {
                self.link.entity.deliver_ticket(reply, ticket);
            }
        }
    }

    /// Retry the announcements that wait, now that there is room again, children before roots.
    pub(super) fn retry_waiting(&mut self) {
        let now = now();
        for (parent, mut requests) in std::mem::take(&mut self.sending.waiting.0).into_iter().rev() {
            while let Some(request) = requests.pop_front() {
                if let Some(request) = self.announce(now, request) {
                    requests.push_front(request);
                    break;
                }
            }
            if !requests.is_empty() {
                self.sending.waiting.0.insert(parent, requests);
            }
        }
    }
}
