//! The queue, the wakers of its connections, and its clock.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use penstock_io::admission::Admission;
use penstock_io::metrics::Histogram;
use penstock_io::runtime::cores;
use penstock_io::sync::{Latch, lock};
use penstock_log::GroupCommit;
use penstock_quicx::{ConnectionId, Event, Queue};
use tokio::sync::{Notify, watch};
use tokio::time::sleep_until;

/// The size of the read buffer, which all connections share, so that a silent connection needs none.
const READ: usize = 64 << 10;
const NO_DEADLINE: Duration = Duration::from_secs(3_600);

/// The phases of a daemon:
///
/// ```text
///          Daemon::stop           no worker holds a task          the output is written
///  Running ───────────▶ Draining ───────────────────────▶ Drained ─────────────────────▶ Ended
///     │                    │                                                               ▲
///     │  it is dropped     │  it is dropped, or the time for the drain is over             │
///     └────────────────────┴───────────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Running,
    /// No connection is accepted and no task delivered; workers finish the tasks that they hold.
    Draining,
    Drained,
    /// All connections close, and all other async tasks return.
    Ended,
}

/// The state that a daemon's tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notified when the next deadline is earlier than before.
    time: Notify,
    /// Notified when the journal has written records.
    pub(super) wrote: Notify,
    /// The writer of the journal, if there is one. It holds a reference to this state, so the
    /// daemon has to close it.
    pub(super) journal: OnceLock<GroupCommit<()>>,
    phase: watch::Sender<Phase>,
    /// Set when a client requests a stop. The phase does not show this: the daemon's owner decides
    /// when to stop, and may stop the daemon without a request.
    pub(super) stop_requested: Latch,
    pub(super) admission: Arc<Admission>,
    pub(super) idle_timeout: Option<Duration>,
    /// The cores that this process may use.
    pub(super) cores: usize,
    pub(super) commit_seconds: Histogram,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) queue: Queue,
    pub(super) scratch: Box<[u8]>,
    /// The waker of each connection by its index, and its name in logs.
    wakers: Vec<Option<(Waker, Arc<str>, ConnectionId)>>,
    armed: Option<Instant>,
}

impl Shared {
    pub(super) fn new(queue: Queue, admission: Arc<Admission>, idle_timeout: Option<Duration>) -> Self {
        Self {
            state: Mutex::new(State {
                queue,
                scratch: vec![0; READ].into_boxed_slice(),
                wakers: Vec::new(),
                armed: None,
            }),
            time: Notify::new(),
            wrote: Notify::new(),
            journal: OnceLock::new(),
            phase: watch::Sender::new(Phase::Running),
            stop_requested: Latch::default(),
            admission,
            idle_timeout,
            cores: cores(),
            commit_seconds: Histogram::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Enter a phase, unless a later one has begun: a daemon may be dropped while it stops.
    pub(super) fn enter(&self, next: Phase) {
        self.phase.send_if_modified(|phase| {
            let is_later = *phase < next;
            if is_later {
                *phase = next;
            }
            is_later
        });
    }

    /// Wait until this phase or a later one has begun.
    pub(super) async fn reached(&self, phase: Phase) {
        // An error would mean that the sender was dropped, which cannot happen during the borrow.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// End all connections and all other async tasks.
    pub(super) fn cut(&self) {
        // A connection checks the phase and stores its waker under this lock, so no connection
        // misses the end.
        let state = self.lock();
        self.enter(Phase::Ended);
        state.wakers.iter().flatten().for_each(|(waker, ..)| waker.wake_by_ref());
    }

    /// Write the journal's remaining records, and end its thread. Blocks.
    pub(super) fn close_journal(&self) {
        if let Some(journal) = self.journal.get() {
            journal.close();
        }
    }

    /// Handle a change of the queue: wake the connections that have work, except the calling one.
    pub(super) fn settle(&self, state: &mut State, this: Option<ConnectionId>) {
        while let Some(id) = state.queue.poll_connection() {
            if Some(id) != this
                && let Some(Some((waker, ..))) = state.wakers.get(id.index as usize)
            {
                waker.wake_by_ref();
            }
        }
        while let Some(event) = state.queue.poll_event() {
            self.tell(state, &event);
        }
        let due = state.queue.poll_timeout();
        if due.is_some_and(|due| state.armed.is_none_or(|armed| due < armed)) {
            state.armed = due;
            self.time.notify_one();
        }
        if state.queue.wants_append()
            && let Some(journal) = self.journal.get()
        {
            // An error means that the daemon has ended.
            let _ = journal.push(());
        }
        // A client's STOP stops the queue before the daemon's owner drains the daemon.
        if state.queue.is_stopping() && state.queue.held() == 0 && self.phase() == Phase::Draining {
            self.enter(Phase::Drained);
        }
    }

    fn tell(&self, state: &State, event: &Event) {
        let peer = |id: &ConnectionId| state.name(*id);
        match event {
            Event::Failed { id, kind, reason, again } => {
                tracing::warn!(task = id.0, kind, reason, again, "a task failed");
            }
            Event::Dead { id, kind, attempts, reason } => {
                tracing::error!(task = id.0, kind, attempts, reason, "a task is dead");
            }
            Event::Slow { connection } => {
                tracing::warn!(peer = %peer(connection), "a connection that does not read was cut off");
            }
            Event::Silent { connection } => {
                tracing::warn!(peer = %peer(connection), "a worker or a producer that does not answer heartbeats was cut off");
            }
            Event::JournalFailed { message, refused } => {
                tracing::error!(error = message, refused, "the journal cannot be written; submits are refused");
            }
            Event::JournalWorks => tracing::info!("the journal can be written again"),
            Event::Stop { connection } => {
                tracing::info!(peer = %peer(connection), "a client requested a stop");
                self.stop_requested.set();
            }
        }
    }
}

impl State {
    /// Set the waker of a connection.
    pub(super) fn watch(&mut self, id: ConnectionId, name: &Arc<str>, waker: &Waker) {
        let index = id.index as usize;
        if self.wakers.len() <= index {
            self.wakers.resize_with(index + 1, || None);
        }
        match self.wakers.get_mut(index) {
            Some(Some((known, _, of))) if *of == id => known.clone_from(waker),
            Some(place) => *place = Some((waker.clone(), Arc::clone(name), id)),
            None => {}
        }
    }

    fn name(&self, id: ConnectionId) -> Arc<str> {
        match self.wakers.get(id.index as usize) {
            Some(Some((_, name, _))) => Arc::clone(name),
            Some(None) | None => "?".into(),
        }
    }

    pub(super) fn forget(&mut self, id: ConnectionId) {
        if let Some(place) = self.wakers.get_mut(id.index as usize) {
            *place = None;
        }
    }

    /// Return whether any connection has unwritten output.
    pub(super) fn unwritten(&self) -> bool {
        self.wakers.iter().flatten().any(|(.., id)| !self.queue.poll_transmit(*id).is_empty())
    }
}

/// Call the queue's timer whenever a deadline passes.
pub(super) async fn keep_time(shared: Arc<Shared>) {
    loop {
        let due = {
            let mut state = shared.lock();
            state.armed = state.queue.poll_timeout();
            state.armed.unwrap_or_else(|| Instant::now() + NO_DEADLINE)
        };
        tokio::select! {
            () = sleep_until(due.into()) => {
                let mut state = shared.lock();
                state.queue.handle_timeout(Instant::now());
                shared.settle(&mut state, None);
            }
            () = shared.time.notified() => {}
            () = shared.reached(Phase::Ended) => return,
        }
    }
}
