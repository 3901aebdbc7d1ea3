//! The queue of calls between the IO thread, which receives them, and the threads that run methods.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use penstock_io::sync::lock;
use penstock_vgi::http::{Pending, Response};
use tokio::sync::oneshot;

use penstock_io::memory::MemoryPermit;

/// The application's data about an authenticated caller, which comes back to it with the body.
pub type Caller = Box<dyn Any + Send>;

/// A thread's verdict on a call.
pub enum Verdict {
    /// The call is answered.
    Answered(Response),
    /// The caller is authenticated: the server must read the body, and then queue the call again.
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

/// The progress of a call.
pub enum Progress {
    /// The body is not read yet, and the caller must be authenticated.
    Head,
    /// The body was read, but the caller is not authenticated.
    Whole,
    /// The body was read, and the caller is authenticated.
    Admitted(Caller),
}

/// A call that waits for a thread.
pub struct Waiting {
    /// The request.
    pub pending: Box<Pending>,
    /// The call's progress.
    pub progress: Progress,
    /// The caller's IP address.
    pub remote: String,
    /// The query of the URL.
    pub query: String,
    /// The sender of the verdict to the server.
    verdict: oneshot::Sender<Verdict>,
    /// The body's memory permit.
    permit: Option<MemoryPermit>,
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
        permit: Option<MemoryPermit>,
    ) -> (Self, oneshot::Receiver<Verdict>) {
        let (verdict, receiver) = oneshot::channel();
        (Self { pending, progress, remote, query, verdict, permit }, receiver)
    }

    /// Return the request, its progress, and a function that sends the verdict. The body's memory
    /// is returned with the verdict, or when the function is dropped; in both cases drop the
    /// request and everything made of it first.
    pub fn into_parts(self) -> (Box<Pending>, Progress, impl FnOnce(Verdict) + Send + use<>) {
        let Self { pending, progress, verdict, permit, .. } = self;
        let respond = move |decision| {
            // The caller may have disconnected.
            drop(verdict.send(decision));
            drop(permit);
        };
        (pending, progress, respond)
    }
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    closed: bool,
}

/// A first-come, first-served queue of limited length.
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
        lock(&self.state)
    }

    /// Add a call; return `false` if too many are waiting, or the queue is closed.
    pub(super) fn push(&self, waiting: Waiting) -> bool {
        let mut state = self.state();
        let taken = !state.closed && state.waiting.len() < self.most;
        if taken {
            state.waiting.push_back(waiting);
            self.changed.notify_one();
        }
        taken
    }

    /// Wait for the next call; return `None` once the queue is closed.
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
