//! Ending the waits of threads from other threads.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyInterruptedError;
use pyo3::prelude::*;

thread_local! {
    /// The stop that this thread watches.
    static WATCHED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Ends the waits of the threads that watch it, within a tenth of a second, with an `InterruptedError`.
#[pyclass(frozen, name = "VgiStop", module = "penstock._core")]
pub(crate) struct VgiStop {
    stopped: Arc<AtomicBool>,
}

#[pymethods]
impl VgiStop {
    #[new]
    fn new() -> Self {
        Self { stopped: Arc::default() }
    }

    /// Make this thread's waits end with this stop from now on.
    fn watch(&self) {
        WATCHED.replace(Some(Arc::clone(&self.stopped)));
    }

    /// End the waits, including later ones.
    fn set(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Fail if this thread must stop.
pub(super) fn check() -> PyResult<()> {
    let stopped = WATCHED.with_borrow(|watched| watched.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)));
    if stopped { Err(PyInterruptedError::new_err("the wait was stopped")) } else { Ok(()) }
}
