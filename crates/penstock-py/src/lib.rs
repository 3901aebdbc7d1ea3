//! The extension module `penstock._core`: a list of what Python sees, nothing else.
//!
//! Each protocol is a file of its own; `python/penstock` wraps what it exports in typed classes, and `_core.pyi` there
//! describes it (stubtest compares the two). Nothing here starts a thread or a runtime at import: PySpark forks its
//! workers, and a runtime made before a fork hangs after it.

mod error;
mod logging;

use pyo3::prelude::*;

/// The Rust core of penstock. Use the typed modules (`penstock.pipestream`, ...), not this one.
#[pymodule]
mod _core {
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::logging::init_logging;
}
