//! Calls between the IO thread, where they come in, and the threads that run methods.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use penstock_vgi::http::{Pending, Response};
use tokio::sync::oneshot;

use penstock_io::memory::MemoryPermit;

/// What the application knows of a caller that it has let in. It comes back with the body.
pub type Caller = Box<dyn Any + Send>;

/// What a thread says of a call.
pub enum Verdict {
    /// It is answered.
    Answered(Response),
    /// Its caller may call: the body is to be read, and the call comes to a thread again.
    Admitted(Box<Pending>, Caller),
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Answered(_) => "Answered",
            Self::Admitted(..) => "Admitted",
        })
    }
}

/// How far a call has come.
pub enum Progress {
    /// Its body is not read: the caller is to be looked at.
    Head,
    /// Its body is there, and nobody has looked at the caller.
    Whole,
    /// Its body is there, and so is what the application knows of its caller.
    Admitted(Caller),
}

/// A call that waits for a thread.
pub struct Waiting {
    /// What was asked.
    pub pending: Box<Pending>,
    /// How far it has come.
    pub progress: Progress,
    /// Who asks, an IP address.
    pub remote: String,
    /// What stands behind the question mark.
    pub query: String,
    /// Where the verdict goes.
    verdict: oneshot::Sender<Verdict>,
    /// What the body takes of the budget.
    room: Option<MemoryPermit>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("remote", &self.remote).finish_non_exhaustive()
    }
}

impl Waiting {
    pub(super) fn new(
        pending: Box<Pending>,
        progress: Progress,
        remote: String,
        query: String,
        room: Option<MemoryPermit>,
    ) -> (Self, oneshot::Receiver<Verdict>) {
        let (verdict, spoken) = oneshot::channel();
        (Self { pending, progress, remote, query, verdict, room }, spoken)
    }

    /// Return the request, how far it has come, and where the verdict goes. The room of the body is given back with the
    /// verdict, or when nobody can give one any more: the request, and what was made of it, is dropped first.
    pub fn into_parts(self) -> (Box<Pending>, Progress, impl FnOnce(Verdict) + Send + use<>) {
        let Self { pending, progress, verdict, room, .. } = self;
        let judge = move |said| {
            // The caller may be gone.
            drop(verdict.send(said));
            drop(room);
        };
        (pending, progress, judge)
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

/// First come, first served; beyond its length nobody may wait.
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    most: usize,
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), most }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `false`: there are too many already, or nobody takes them any more.
    pub(super) fn push(&self, waiting: Waiting) -> bool {
        let mut state = self.state();
        let taken = !state.closed && state.waiting.len() < self.most;
        if taken {
            state.waiting.push_back(waiting);
            self.changed.notify_one();
        }
        taken
    }

    /// Wait for the next; `None` when it was closed.
    pub(super) fn next(&self) -> Option<Waiting> {
        let mut state = self.state();
        loop {
            if let Some(waiting) = state.waiting.pop_front() {
                return Some(waiting);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }
}
