//! What comes from connections: frames, and who may send which.

use std::time::Instant;

use super::connection::Role;
use super::task::Tick;
use super::{ConnectionId, Queue};
use crate::{Accepts, Decoded, Decoder, ErrorCode, Failed, Frame};

/// Answers that may wait for the disk before nothing more is read from a connection.
const HELD: usize = 16_384;
/// Octets of the journal that may wait to be written before nothing more is read from anybody.
const JOURNAL: usize = 8 << 20;

impl Queue {
    /// Octets have come on a connection.
    pub fn handle_input(&mut self, now: Instant, id: ConnectionId, octets: &[u8]) {
        let now = self.tick(now);
        self.read(now, id, octets);
    }

    /// Nothing more comes on a connection; what was asked for is still answered.
    pub fn handle_end(&mut self, now: Instant, id: ConnectionId) {
        let now = self.tick(now);
        self.end(now, id);
    }

    /// Whether a connection may ask for more: too much that it does not read is not piled up for it, and what the disk does
    /// not take in time is not piled up for anybody.
    pub(super) fn takes_input(&self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get(id) else { return false };
        !connection.ending
            && connection.waiting() <= self.config.output
            && connection.held.len() <= HELD
            && self.journal_waiting() <= JOURNAL
    }

    fn read(&mut self, now: Tick, id: ConnectionId, octets: &[u8]) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !connection.rest.is_empty() {
            connection.rest.extend_from_slice(octets);
            return;
        }
        let mut decoder = std::mem::replace(&mut connection.decoder, Decoder::new(Accepts::ToClient));
        let mut input = octets;
        while self.takes_input(id)
            && let Some(decoded) = decoder.next_frame(&mut input)
        {
            match decoded {
                Decoded::Frame(frame) => self.handle_frame(now, id, frame),
                Decoded::Refused(refusal) => {
                    self.refuse(id, refusal.code, &refusal.message);
                    if refusal.close {
                        self.end(now, id);
                    }
                }
            }
        }
        let takes_more = self.takes_input(id);
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.decoder = decoder;
        if connection.ending {
            return;
        }
        connection.rest = input.to_vec();
        if !takes_more {
            connection.stalled = true;
            self.list(id);
        }
    }

    /// What was not read because too much waited is read now, if it may be.
    pub(super) fn resume(&mut self, now: Tick, id: ConnectionId) {
        if !self.takes_input(id) {
            return;
        }
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !std::mem::replace(&mut connection.stalled, false) {
            return;
        }
        let rest = std::mem::take(&mut connection.rest);
        self.read(now, id, &rest);
        self.mark(id);
    }

    /// Nothing more is read; the connection ends when everything is written.
    fn end(&mut self, now: Tick, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.ending = true;
        }
        self.dismiss(now, id);
        self.mark(id);
    }

    fn handle_frame(&mut self, now: Tick, id: ConnectionId, frame: Frame<'_>) {
        match frame {
            Frame::Submit(submit) if self.is(id, Role::Producer, &frame) => self.submit(now, id, submit, None),
            Frame::SubmitOnce(once) if self.is(id, Role::Producer, &frame) => {
                self.submit(now, id, once.submit, Some(once.key));
            }
            Frame::Observe(task) if self.is(id, Role::Producer, &frame) => self.observe(now, id, task),
            Frame::Ready if self.is(id, Role::Worker, &frame) => self.ready(now, id),
            Frame::Prefetch(prefetch) if self.is(id, Role::Worker, &frame) => self.prefetch(now, id, prefetch.0),
            Frame::Subscribe(types) if self.is(id, Role::Worker, &frame) => self.subscribe(now, id, types),
            Frame::Done(task) => self.worker_done(now, id, task),
            Frame::Failed(Failed { id: task, reason }) => self.worker_failed(now, id, task, reason),
            Frame::Heartbeat => self.heartbeat(now, id),
            Frame::Pong => self.pong(id),
            Frame::Stats => {
                let stats = self.stats();
                self.answer(id, &Frame::StatsResponse(stats));
            }
            Frame::DeadList => self.dead_list(id),
            Frame::DeadRequeue(task) => self.dead_requeue(now, id, task),
            Frame::DeadDrop(task) => self.dead_drop(id, task),
            Frame::Stop => self.asked_to_stop(id),
            // Refused already: by the role, or, what only the daemon sends, by the decoder.
            Frame::Submit(_)
            | Frame::SubmitOnce(_)
            | Frame::Observe(_)
            | Frame::Ready
            | Frame::Prefetch(_)
            | Frame::Subscribe(_)
            | Frame::Ok(_)
            | Frame::Error(_)
            | Frame::Task(_)
            | Frame::Wait
            | Frame::StatsResponse(_)
            | Frame::DeadTasks(_) => {}
        }
    }

    /// Whether a connection has this role, or takes it now (decision 2).
    fn is(&mut self, id: ConnectionId, role: Role, frame: &Frame<'_>) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        if connection.role == Role::Unknown {
            connection.role = role;
        }
        let fits = connection.role == role;
        if !fits {
            let whose = match role {
                Role::Producer => "a producer",
                Role::Worker | Role::Unknown => "a worker",
            };
            self.refuse(id, ErrorCode::Invalid, &format!("{} is for {whose}", frame.opcode()));
        }
        fits
    }
}
