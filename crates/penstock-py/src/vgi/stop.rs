//! Ending the waits of threads from outside.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyInterruptedError;
use pyo3::prelude::*;

thread_local! {
    /// What this thread watches.
    static WATCHED: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Ends what threads wait for that watch it, within a tenth of a second, with an `InterruptedError`.
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

    /// From now on the waits of this thread end with it.
    fn watch(&self) {
        WATCHED.replace(Some(Arc::clone(&self.stopped)));
    }

    /// End the waits, those that come too.
    fn set(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

/// Return whether this thread may go on.
pub(super) fn check() -> PyResult<()> {
    let stopped = WATCHED.with_borrow(|watched| watched.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)));
    if stopped { Err(PyInterruptedError::new_err("the wait was given up")) } else { Ok(()) }
}
