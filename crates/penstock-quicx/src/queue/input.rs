//! What comes from connections: frames, and who may send which.

use std::time::Instant;

use super::connection::Role;
use super::output::DeadList;
use super::task::Tick;
use super::{ConnectionId, Queue};
use crate::{Accepts, Decoded, Decoder, ErrorCode, Failed, Frame};

/// Bytes of the journal that may wait to be written before nothing more is read from producers, and then from anybody: what
/// workers say is little, and they must be able to say that they are at work.
const JOURNAL: (usize, usize) = (8 << 20, 16 << 20);
/// Bytes that each connection may have of a frame that is not whole.
const PARTIAL: usize = 16 << 10;
/// What all those beyond may have together, as a part of the pool.
const PARTIAL_OF_POOL: u64 = 4;

impl Queue {
    /// Bytes have come on a connection.
    pub fn handle_input(&mut self, now: Instant, id: ConnectionId, bytes: &[u8]) {
        let now = self.tick(now);
        self.read(now, id, bytes);
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
        let journal = if connection.role == Role::Producer { JOURNAL.0 } else { JOURNAL.1 };
        !connection.ending && !connection.output.is_full() && self.journal_waiting() <= journal
    }

    fn read(&mut self, now: Tick, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        if !connection.rest.is_empty() {
            connection.rest.extend_from_slice(bytes);
            return;
        }
        let mut decoder = std::mem::replace(&mut connection.decoder, Decoder::new(Accepts::ToClient));
        self.partial -= decoder.kept();
        let mut input = bytes;
        let mut frames = 0_usize;
        while self.takes_input(id)
            && let Some(decoded) = decoder.next_frame(&mut input)
        {
            frames += 1;
            match decoded {
                Decoded::Frame(frame) => self.handle_frame(now, id, frame),
                Decoded::Refused(malformed) => {
                    self.refuse(id, malformed.code(), &malformed.to_string());
                    if malformed.is_fatal() {
                        self.end(now, id);
                    }
                }
            }
        }
        self.keep_partial(id, &mut decoder);
        let takes_more = self.takes_input(id);
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.decoder = decoder;
        let answered = !connection.output.holds() && connection.output.waiting() > 0;
        connection.in_turn = frames == 1 && connection.role == Role::Producer && answered;
        if connection.ending {
            return;
        }
        connection.rest = input.to_vec();
        if !takes_more {
            connection.stalled = true;
            self.list(id);
        }
    }

    /// Frames that are not whole lie outside of the pool: what is large among them has room as long as all together have.
    fn keep_partial(&mut self, id: ConnectionId, decoder: &mut Decoder) {
        decoder.forget_given();
        let (kept, most) = (decoder.kept(), self.pool.bytes_total() / PARTIAL_OF_POOL);
        if kept > PARTIAL && (self.partial + kept) as u64 > most && decoder.abandon() {
            let message = "there are too many large frames that are not whole";
            self.refuse(id, ErrorCode::QueueFull, message);
        }
        self.partial += decoder.kept();
    }

    /// Those that were not read until the disk had caught up are read again, if they may be.
    pub(super) fn read_again(&mut self) {
        for id in std::mem::take(&mut self.refrained) {
            if self.takes_input(id) {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.refrained = false;
                }
                self.mark(id);
            } else if self.connections.get(id).is_some() {
                self.refrained.push_back(id);
            }
        }
    }

    /// Whether a connection has neither submitted nor observed nor taken anything (decision 2): nothing will come for it.
    pub fn has_no_role(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_none_or(|connection| connection.role == Role::Unknown)
    }

    /// Whether a connection's last input was one request of a producer, and is answered: the next one may be near.
    pub fn is_in_turn(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_some_and(|connection| connection.in_turn)
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
            Frame::Submit(submit) if self.is(now, id, Role::Producer, &frame) => self.submit(now, id, submit, None),
            Frame::SubmitOnce(once) if self.is(now, id, Role::Producer, &frame) => {
                self.submit(now, id, once.submit, Some(once.key));
            }
            Frame::Observe(task) if self.is(now, id, Role::Producer, &frame) => self.observe(now, id, task),
            Frame::Ready if self.is(now, id, Role::Worker, &frame) => self.ready(now, id),
            Frame::Prefetch(prefetch) if self.is(now, id, Role::Worker, &frame) => self.prefetch(now, id, prefetch.0),
            Frame::Subscribe(types) if self.is(now, id, Role::Worker, &frame) => self.subscribe(now, id, types),
            Frame::Done(task) => self.worker_done(now, id, task),
            Frame::Failed(Failed { id: task, reason }) => self.worker_failed(now, id, task, reason),
            Frame::Heartbeat => self.heartbeat(now, id),
            Frame::Pong => self.pong(id),
            Frame::Stats => {
                let stats = self.stats();
                self.answer(id, &Frame::StatsResponse(stats));
            }
            Frame::DeadList => self.dead_list(id, DeadList::Oldest),
            Frame::DeadAfter(task) => self.dead_list(id, DeadList::After(task)),
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
    fn is(&mut self, now: Tick, id: ConnectionId, role: Role, frame: &Frame<'_>) -> bool {
        let Some(connection) = self.connections.get_mut(id) else { return false };
        connection.heard = true;
        let begins = connection.role == Role::Unknown && role == Role::Producer;
        if connection.role == Role::Unknown {
            connection.role = role;
        }
        let fits = connection.role == role;
        if begins {
            self.begin_beats(now, id);
        }
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
