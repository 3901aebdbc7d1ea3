//! Calls between the IO thread, where they come in, and the threads that run methods.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use penstock_vgi::http::{Pending, Response};
use tokio::sync::oneshot;

/// A call that waits for a thread.
pub struct Waiting {
    /// What was asked.
    pub pending: Box<Pending>,
    /// Who asks, an IP address.
    pub remote: String,
    /// What stands behind the question mark.
    pub query: String,
    /// Where the answer goes.
    answer: oneshot::Sender<Response>,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").field("remote", &self.remote).finish_non_exhaustive()
    }
}

impl Waiting {
    pub(super) fn new(pending: Box<Pending>, remote: String, query: String) -> (Self, oneshot::Receiver<Response>) {
        let (answer, answered) = oneshot::channel();
        (Self { pending, remote, query, answer }, answered)
    }

    /// The request, and where its answer goes.
    pub fn into_parts(self) -> (Box<Pending>, impl FnOnce(Response) + Send + use<>) {
        let answer = self.answer;
        // Who asked may be gone.
        (self.pending, move |response| drop(answer.send(response)))
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

    /// Waits for the next; `None` when it was closed.
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
