//! Input from connections: frames, and the roles that may send them.

use std::time::Instant;

use super::connection::{Connection, Role, RoleChange, RoleKind};
use super::held::DeadList;
use super::task::Tick;
use super::{ConnectionId, Queue};
use crate::{Accepts, Decoded, Decoder, ErrorCode, Failed, Frame};

/// The waiting bytes of the journal above which producers, and then all connections, are not read.
/// The limit for workers is higher: they send little, and their heartbeats must get through.
const JOURNAL: (usize, usize) = (8 << 20, 16 << 20);
/// The bytes of an incomplete frame that each connection may buffer.
const PARTIAL: usize = 16 << 10;
/// The most bytes of all incomplete frames, above which frames larger than that are refused: the
/// pool divided by this.
const PARTIAL_OF_POOL: u64 = 4;

impl Queue {
    /// Handle bytes received on a connection.
    pub fn handle_input(&mut self, now: Instant, id: ConnectionId, bytes: &[u8]) {
        let now = self.tick(now);
        self.read(now, id, bytes);
    }

    /// Handle the end of a connection's input; outstanding requests are still answered.
    pub fn handle_end(&mut self, now: Instant, id: ConnectionId) {
        let now = self.tick(now);
        self.end(now, id);
    }

    /// Return whether a connection may send more requests. Otherwise output that the peer does not
    /// read would accumulate, or answers that wait for a slow disk.
    pub(super) fn takes_input(&self, id: ConnectionId) -> bool {
        let Some(connection) = self.connections.get(id) else { return false };
        let Some(open) = connection.open() else { return false };
        let journal = match open.role {
            Role::Producer(_) => JOURNAL.0,
            Role::Unknown | Role::Worker(_) => JOURNAL.1,
        };
        !connection.output.is_full() && self.journal_waiting() <= journal
    }

    fn read(&mut self, now: Tick, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        let Some(open) = connection.open_mut() else { return };
        if open.input.is_stalled() {
            return open.input.stall(bytes);
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
        let Some(open) = connection.open_mut() else { return };
        if let Role::Producer(producer) = &mut open.role {
            producer.in_turn = frames == 1 && answered;
        }
        if !takes_more {
            open.input.stall(input);
            self.list(id);
        }
    }

    /// Refuse a large incomplete frame if all incomplete frames, which are outside the pool, exceed
    /// their limit.
    fn keep_partial(&mut self, id: ConnectionId, decoder: &mut Decoder) {
        decoder.forget_given();
        let (kept, most) = (decoder.kept(), self.pool.bytes_total() / PARTIAL_OF_POOL);
        if kept > PARTIAL && (self.partial + kept) as u64 > most && decoder.abandon() {
            let message = "there are too many large frames that are not whole";
            self.refuse(id, ErrorCode::QueueFull, message);
        }
        self.partial += decoder.kept();
    }

    /// Name the connections that were paused and may be read again, now that the disk has caught up.
    pub(super) fn read_again(&mut self) {
        for id in std::mem::take(&mut self.read_paused) {
            if self.takes_input(id) {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.lists.read_paused = false;
                }
                self.mark(id);
            } else if self.connections.get(id).is_some() {
                self.read_paused.push_back(id);
            }
        }
    }

    /// Return whether a connection has no role (decision 2), so that it gets answers only.
    pub fn has_no_role(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_none_or(|connection| connection.state.has_no_role())
    }

    /// Return whether a connection's last input was one request of a producer, which is answered.
    /// Then the next request may follow soon.
    pub fn is_in_turn(&self, id: ConnectionId) -> bool {
        self.connections.get(id).and_then(Connection::producer).is_some_and(|producer| producer.in_turn)
    }

    /// Read the input of a stalled connection, if it may be read now.
    pub(super) fn resume(&mut self, now: Tick, id: ConnectionId) {
        if !self.takes_input(id) {
            return;
        }
        if let Some(unread) = self.connections.open_mut(id).and_then(|open| open.input.resume()) {
            self.read(now, id, &unread);
            self.mark(id);
        }
    }

    /// Stop reading; the connection ends once everything is written.
    fn end(&mut self, now: Tick, id: ConnectionId) {
        self.dismiss(now, id);
        self.mark(id);
    }

    fn handle_frame(&mut self, now: Tick, id: ConnectionId, frame: Frame<'_>) {
        match frame {
            Frame::Submit(submit) if self.is(now, id, RoleKind::Producer, &frame) => self.submit(now, id, submit, None),
            Frame::SubmitOnce(once) if self.is(now, id, RoleKind::Producer, &frame) => {
                self.submit(now, id, once.submit, Some(once.key));
            }
            Frame::Observe(task) if self.is(now, id, RoleKind::Producer, &frame) => self.observe(now, id, task),
            Frame::Ready if self.is(now, id, RoleKind::Worker, &frame) => self.ready(now, id),
            Frame::Prefetch(prefetch) if self.is(now, id, RoleKind::Worker, &frame) => {
                self.prefetch(now, id, prefetch.0)
            }
            Frame::Subscribe(types) if self.is(now, id, RoleKind::Worker, &frame) => self.subscribe(now, id, types),
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
            // These are refused already, by the role check or, if only the daemon sends them, by
            // the decoder.
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

    /// Return whether a connection has this role, or takes it now (decision 2).
    fn is(&mut self, now: Tick, id: ConnectionId, role: RoleKind, frame: &Frame<'_>) -> bool {
        let Some(open) = self.connections.open_mut(id) else { return false };
        match (open.role.take(role), role) {
            // A worker's heartbeats begin with READY.
            (RoleChange::Begins, RoleKind::Producer) => self.begin_beats(now, id, 0),
            (RoleChange::Begins, RoleKind::Worker) => {}
            (RoleChange::Stays, RoleKind::Producer | RoleKind::Worker) => {}
            (RoleChange::Refused, RoleKind::Producer) => return self.refuse_role(id, frame, "a producer"),
            (RoleChange::Refused, RoleKind::Worker) => return self.refuse_role(id, frame, "a worker"),
        }
        true
    }

    fn refuse_role(&mut self, id: ConnectionId, frame: &Frame<'_>, whose: &str) -> bool {
        self.refuse(id, ErrorCode::Invalid, &format!("{} is for {whose}", frame.opcode()));
        false
    }
}
