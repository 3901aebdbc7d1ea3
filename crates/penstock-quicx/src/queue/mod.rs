//! The queue: the daemon's state machine, without sockets, files or a clock.
//!
//! ```text
//!  bytes ─▶ connection ─▶ frame ─▶ task in the pool ─▶ journal ─▶ durable ─▶ type's queue ─▶ worker ─▶ DONE ─▶ freed
//!                            │                                                  ▲              │ lost      │
//!                            └─ ERROR                                           └──────────────┘           ▼
//!                                                                                        observers, outcomes
//! ```

mod admin;
mod config;
mod connection;
mod connection_id;
mod deliver;
mod durable;
mod event;
mod held;
mod input;
mod keys;
mod kinds;
mod observe;
mod outcome;
mod output;
mod submit;
mod task;
mod time;
mod timer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::RandomState;
use std::time::Instant;

pub use config::{Policy, QueueConfig};
use connection::{Connection, Connections};
pub use connection_id::ConnectionId;
use event::Events;
pub use event::{Counters, Event};
use keys::Keys;
use kinds::Kinds;
use outcome::Outcomes;
use penstock_pool::Pool;
use penstock_wire::FastMap;
use task::{State, Task, Tasks, Tick};
use timer::Timer;

use crate::error::{Limit, Misuse, Result};
use crate::{
    Accepts, ErrorCode, Failure, Frame, Journal, Lsn, RecoveredState, RecoveredTask, StatsResponse, TaskId, Write,
};

/// A task queue in fixed memory.
///
/// After any call that changes the queue, poll until every poll returns `None`:
/// [`poll_event`](Self::poll_event), [`poll_write`](Self::poll_write), and
/// [`poll_connection`](Self::poll_connection), which returns connections to write to, to read
/// again, or to end. At [`poll_timeout`](Self::poll_timeout), call
/// [`handle_timeout`](Self::handle_timeout).
///
/// Memory: the pool; about 160 bytes for each task, 60 more for one with a key, and 100 for each
/// remembered outcome or key; for each connection at most the output that [`QueueConfig`] allows,
/// an incomplete frame, and the bytes of one read.
#[derive(Debug)]
pub struct Queue {
    config: QueueConfig,
    began: Instant,
    pool: Pool,
    tasks: Tasks,
    kinds: Kinds,
    connections: Connections,
    journal: Option<Journal>,
    timers: BTreeSet<(Tick, Timer)>,
    /// Tasks whose records are not durable, in order.
    accepting: VecDeque<(Lsn, u32)>,
    /// Connections with answers that wait for the disk, and stalled ones.
    holding: Vec<ConnectionId>,
    /// Connections whose input is not read until the disk has caught up, first come, first served.
    read_paused: VecDeque<ConnectionId>,
    /// The segment whose tasks are being rewritten, and the next place in `tasks` to examine.
    compacting: Option<(u64, u32)>,
    /// The bytes that all connections buffer of incomplete frames.
    partial: usize,
    dirty: VecDeque<ConnectionId>,
    dead: Dead,
    observers: FastMap<u32, Vec<ConnectionId>>,
    outcomes: Outcomes,
    keys: Keys,
    events: Events,
    counters: Counters,
    hasher: RandomState,
    /// The order number of the next task.
    order: u64,
    /// A counter that orders the moments at which workers became idle or got a task.
    moments: u64,
    workers: usize,
    idle: usize,
    held: usize,
    stopping: bool,
}

/// The dead list: tasks by their order, and orders by task ID.
#[derive(Debug, Default)]
struct Dead {
    tasks: BTreeMap<u64, DeadEntry>,
    orders: BTreeMap<u32, u64>,
    bytes: usize,
}

/// A task on the dead list.
#[derive(Debug)]
struct DeadEntry {
    place: u32,
    /// Why its last delivery failed, possibly cut.
    reason: Box<[u8]>,
    /// Whether the reason comes from a worker: then observers of the task get it.
    verdict: bool,
}

impl Queue {
    /// Make an empty queue without a journal.
    ///
    /// Fails if the configuration is invalid.
    pub fn new(now: Instant, config: QueueConfig) -> Result<Self> {
        Self::build(now, config, None)
    }

    /// Make a queue with a journal; [`restore`](Self::restore) adds the tasks that the journal holds.
    ///
    /// Fails if the configuration is invalid.
    pub fn with_journal(now: Instant, config: QueueConfig, journal: Journal) -> Result<Self> {
        Self::build(now, config, Some(journal))
    }

    fn build(began: Instant, config: QueueConfig, journal: Option<Journal>) -> Result<Self> {
        config.check()?;
        let pool = Pool::new(&config.pool).map_err(Misuse::Pool)?;
        Ok(Self {
            began,
            pool,
            tasks: Tasks::default(),
            kinds: Kinds::default(),
            connections: Connections::default(),
            journal,
            timers: BTreeSet::new(),
            accepting: VecDeque::new(),
            holding: Vec::new(),
            read_paused: VecDeque::new(),
            compacting: None,
            partial: 0,
            dirty: VecDeque::new(),
            dead: Dead::default(),
            observers: FastMap::default(),
            outcomes: Outcomes::new(config.outcomes, config.outcome_time),
            keys: Keys::new(config.keys),
            events: Events::default(),
            counters: Counters::default(),
            hasher: RandomState::new(),
            order: 1,
            moments: 0,
            workers: 0,
            idle: 0,
            held: 0,
            stopping: false,
            config,
        })
    }

    /// Restore a task of an earlier process (decision 12). Tasks may come in any order.
    ///
    /// Fails as a limit if there is no room for it, which [`Recovery::check`](crate::Recovery::check) reports
    /// beforehand.
    pub fn restore(&mut self, now: Instant, task: &RecoveredTask, content: &[u8]) -> Result<()> {
        let now = self.tick(now);
        let (type_and_payload, key) = match content.split_last_chunk() {
            Some((rest, key)) if task.once => (rest, Some(*key)),
            Some(_) | None => (content, None),
        };
        let submit = crate::frame::submit_of(type_and_payload)?;
        let kind = self.kinds.enter(submit.kind, &self.config);
        let kind = kind.ok_or(Limit::JournalTypes { types: self.config.types })?;
        let block = self.pool.alloc(content.len()).map_err(Limit::Block)?;
        if let Ok(bytes) = self.pool.get_mut(block) {
            bytes.copy_from_slice(content);
        }
        let (id, order) = (task.id, task.order);
        let place = self.tasks.insert(Task {
            id,
            kind,
            attempts: task.attempts,
            bytes: content.len() as u32,
            order,
            block,
            submitter: None,
            segment: task.segment,
            state: State::Waiting,
            once: key.is_some(),
        });
        if let Some(key) = key {
            self.keys.remember(key, id);
        }
        if order >= self.order {
            self.order = order + 1;
            self.tasks.go_on_behind(id);
        }
        if let Some(journal) = &mut self.journal {
            journal.count_task(task.segment, content.len());
        }
        self.remember_unique(place);
        let most = self.kinds.get(kind).map_or(u16::MAX, |kind| kind.policy.attempts);
        match &task.state {
            RecoveredState::Dead { reason, verdict } => self.bury(place, reason, *verdict),
            // The worker's connection ended with the earlier process (decision 7). So a task that
            // crashes the daemon is not delivered forever.
            RecoveredState::Waiting if task.attempts >= most => {
                self.die(now, place, b"the daemon ended during the last delivery", false);
            }
            RecoveredState::Waiting => self.start(now, place),
        }
        Ok(())
    }

    /// Count damaged places that were found in the journal.
    pub const fn count_damage(&mut self, places: u64) {
        self.counters.damaged += places;
    }

    /// Open a connection. A trusted one may stop the daemon.
    pub fn open(&mut self, trusted: bool) -> ConnectionId {
        self.counters.connections += 1;
        self.connections.insert(
            Accepts::ToDaemon { submit: self.pool.largest() },
            trusted,
            (self.config.output, self.config.output_limit),
        )
    }

    /// Close a connection. The tasks that a worker holds return to the head of the queue
    /// (decision 7); the tasks that a producer submitted stay.
    pub fn handle_closed(&mut self, now: Instant, id: ConnectionId) {
        let now = self.tick(now);
        if self.connections.get(id).is_some() {
            self.dismiss(now, id);
            let Some(connection) = self.connections.remove(id) else { return };
            self.partial -= connection.decoder.kept();
            if connection.lists.holding {
                self.holding.retain(|other| *other != id);
            }
            if connection.lists.read_paused {
                self.read_paused.retain(|other| *other != id);
            }
        }
    }

    /// Return the bytes to write to a connection.
    pub fn poll_transmit(&self, id: ConnectionId) -> &[u8] {
        self.connections.get(id).map_or(&[], |connection| connection.output.ready())
    }

    /// Record that this many of these bytes were written.
    pub fn handle_written(&mut self, now: Instant, id: ConnectionId, bytes: usize) {
        let now = self.tick(now);
        let Some(connection) = self.connections.get_mut(id) else { return };
        let was_full = connection.output.is_full();
        connection.output.written(bytes);
        self.let_go(id);
        if was_full && self.connections.get(id).is_some_and(|connection| !connection.output.is_full()) {
            self.resume(now, id);
            self.feed(now, id.index);
        }
    }

    /// Return the bytes of a connection's buffers: output, answers that wait for the disk, an
    /// incomplete request, and pending input of at most one read. Without pending input, these are
    /// at most [`QueueConfig::output`] plus one answer, or one request; if observed tasks fail
    /// faster than the peer reads, [`QueueConfig::output_limit`] plus one answer. Answers that
    /// waited for the disk may take half a KiB more.
    pub fn buffered(&self, id: ConnectionId) -> usize {
        let (out, input) = self.buffers(id);
        out + input
    }

    /// Return the same bytes as two numbers: output and input.
    pub fn buffers(&self, id: ConnectionId) -> (usize, usize) {
        self.connections.get(id).map_or((0, 0), Connection::buffered)
    }

    /// Return whether a connection should be read. If not, [`poll_connection`](Self::poll_connection) names it when
    /// that has changed.
    pub fn wants_input(&mut self, id: ConnectionId) -> bool {
        if self.takes_input(id) {
            let open = self.connections.get(id).and_then(Connection::open);
            return open.is_some_and(|open| !open.input.is_stalled());
        }
        if self.journal.is_some()
            && let Some(connection) = self.connections.get_mut(id)
            && !connection.state.is_ending()
            && !std::mem::replace(&mut connection.lists.read_paused, true)
        {
            self.read_paused.push_back(id);
        }
        false
    }

    /// Return whether a connection ends once everything is written.
    pub fn is_ending(&self, id: ConnectionId) -> bool {
        self.connections.get(id).is_none_or(|connection| connection.state.is_ending() && !connection.output.holds())
    }

    /// Return a connection that has output, can be read again, or ends.
    pub fn poll_connection(&mut self) -> Option<ConnectionId> {
        loop {
            let id = self.dirty.pop_front()?;
            if let Some(connection) = self.connections.get_mut(id) {
                connection.lists.dirty = false;
                return Some(id);
            }
        }
    }

    /// Return the next event for the log.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Return the next request to the journal's log. After an append, call
    /// [`handle_durable`](Self::handle_durable) or
    /// [`handle_write_failed`](Self::handle_write_failed).
    pub fn poll_write(&mut self) -> Option<Write> {
        self.journal.as_mut()?.poll_write()
    }

    /// Return whether [`poll_write`](Self::poll_write) has something to append.
    pub fn wants_append(&self) -> bool {
        self.journal.as_ref().is_some_and(Journal::wants_append)
    }

    /// Return whether all of the journal is on the disk.
    pub fn is_written(&self) -> bool {
        self.journal.as_ref().is_none_or(Journal::is_written)
    }

    /// Reject submits and make no more deliveries (decision 13).
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Return whether the queue is stopping, after [`stop`](Self::stop) or STOP.
    pub const fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Return the number of tasks that workers hold.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Return the number of all tasks: waiting, held, delayed, dead, or not durable yet.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Return the number of tasks on the dead list.
    pub fn dead(&self) -> usize {
        self.dead.tasks.len()
    }

    /// Return the number of open connections.
    pub const fn connections(&self) -> usize {
        self.connections.open
    }

    /// Return the bytes of the journal that are not durable.
    pub fn journal_waiting(&self) -> usize {
        self.journal.as_ref().map_or(0, Journal::waiting)
    }

    /// Return the statistics for STATS_RESPONSE.
    pub fn stats(&self) -> StatsResponse {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        StatsResponse {
            queue_depth: count(self.depth()),
            workers_total: count(self.workers),
            workers_idle: count(self.idle),
            pmad_bytes_used: self.pool.bytes_used(),
            pmad_bytes_total: self.pool.bytes_total(),
        }
    }

    /// Return the number of tasks that wait for a worker or for their time.
    fn depth(&self) -> usize {
        self.tasks.len() - self.held - self.dead.tasks.len() - self.accepting.len()
    }

    /// Return the counters.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Return the pool.
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    fn tick(&self, now: Instant) -> Tick {
        u64::try_from(now.saturating_duration_since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    fn mark(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !std::mem::replace(&mut connection.lists.dirty, true)
        {
            self.dirty.push_back(id);
        }
    }

    /// Answer a request, in order.
    fn answer(&mut self, id: ConnectionId, frame: &Frame<'_>) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.output.answer(frame);
        }
        self.mark(id);
    }

    /// Answer a submit with OK once it is durable, or with ERROR if it cannot be written.
    fn accept_when_durable(&mut self, id: ConnectionId, task: TaskId, lsn: Lsn) {
        let journal = self.journal.as_ref();
        if lsn <= journal.map_or(Lsn(u64::MAX), Journal::durable) {
            return self.answer(id, &Frame::Ok(task));
        }
        let batch = journal.map_or(Lsn(0), Journal::gathers_from);
        if let Some(connection) = self.connections.get_mut(id) {
            connection.output.hold_submit(task, lsn, batch);
        }
        self.list(id);
    }

    /// Answer with OK once a record is durable, which the journal retries until it is written.
    fn answer_when_durable(&mut self, id: ConnectionId, task: TaskId, lsn: Lsn) {
        if lsn <= self.journal.as_ref().map_or(Lsn(u64::MAX), Journal::durable) {
            return self.answer(id, &Frame::Ok(task));
        }
        if let Some(connection) = self.connections.get_mut(id) {
            connection.output.hold_control(task, lsn);
        }
        self.list(id);
    }

    /// Release answers whose records are durable, as far as there is room for them.
    fn let_go(&mut self, id: ConnectionId) {
        let durable = self.journal.as_ref().map_or(Lsn(u64::MAX), Journal::durable);
        if let Some(connection) = self.connections.get_mut(id).filter(|connection| connection.output.holds())
            && let Some(list) = connection.output.release(durable)
        {
            self.write_dead(id, list);
        }
    }

    /// Add the connection to the list of connections that wait for the disk.
    fn list(&mut self, id: ConnectionId) {
        if self.journal.is_some()
            && let Some(connection) = self.connections.get_mut(id)
            && !std::mem::replace(&mut connection.lists.holding, true)
        {
            self.holding.push(id);
        }
    }

    /// Answer with ERROR.
    fn refuse(&mut self, id: ConnectionId, code: ErrorCode, message: &str) {
        self.counters.refused(code, 1);
        self.answer(id, &Frame::Error(Failure { code, message: message.as_bytes() }));
    }

    /// Send an unsolicited frame. A connection that leaves too many bytes unread is cut off.
    fn push(&mut self, now: Tick, id: ConnectionId, frame: &Frame<'_>) {
        let Some(connection) = self.connections.get_mut(id) else { return };
        connection.output.push(frame);
        if connection.output.waiting() > self.config.output_limit {
            self.counters.slow += 1;
            self.events.push(Event::Slow { connection: id });
            self.cut(now, id);
        }
        self.mark(id);
    }

    /// End a connection immediately, and drop its output.
    fn cut(&mut self, now: Tick, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.output.clear();
            self.dismiss(now, id);
            self.mark(id);
        }
    }
}
