//! Passing Ctrl-C and errors of Python code through Rust code that knows neither.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::runtime::Interrupted;
use penstock_io::sync::lock;
use pyo3::prelude::*;

use crate::error::IntoPyErr;
use crate::pipestream::waiting::attached;

/// The interval between checks for signals.
const INTERVAL: Duration = Duration::from_millis(100);

/// The first error that must end a long run, kept until the caller that started the run takes it.
#[derive(Clone, Default)]
pub(crate) struct Interrupts {
    state: Arc<Mutex<State>>,
    /// The flag with which another thread ends the run.
    stop: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    error: Option<PyErr>,
    checked: Option<Instant>,
}

impl Interrupts {
    /// Make the interrupts of a run that `stop` can also end.
    pub(crate) fn stopped_by(stop: Arc<AtomicBool>) -> Self {
        Self { state: Arc::default(), stop }
    }

    /// Check for signals, at most every 100 ms. Reads and writes call this, so that even a huge
    /// part can be interrupted.
    pub(crate) fn poll(&self) -> io::Result<()> {
        if self.pending() {
            return Err(interrupted());
        }
        let now = Instant::now();
        {
            let mut state = self.state();
            if state.checked.is_some_and(|checked| now.duration_since(checked) < INTERVAL) {
                return Ok(());
            }
            state.checked = Some(now);
        }
        attached(|py| py.check_signals()).map_err(|error| {
            self.keep(error);
            interrupted()
        })
    }

    /// Keep an error that does not belong to one part, unless an earlier one is kept.
    pub(crate) fn keep(&self, error: PyErr) {
        self.state().error.get_or_insert(error);
    }

    /// Return whether an error is kept, or `stop` was set.
    pub(crate) fn pending(&self) -> bool {
        if self.stop.load(Ordering::Relaxed) {
            self.keep(penstock_pipestream_net::Error::stopped("the sender").into_py_err());
        }
        self.state().error.is_some()
    }

    /// Return the kept error, if there is one.
    pub(crate) fn result(&self) -> PyResult<()> {
        self.state().error.take().map_or(Ok(()), Err)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl penstock_ingest::Interrupts for Interrupts {
    fn pending(&self) -> bool {
        self.pending()
    }

    fn check(&self) -> Result<(), Interrupted> {
        self.poll().map_err(|_| Interrupted)
    }
}

fn interrupted() -> io::Error {
    io::Error::other("interrupted")
}
