use penstock_vgi::Log;
use pyo3::prelude::*;

/// Passes on a server's log messages.
pub(crate) struct Logger {
    on_log: Option<Py<PyAny>>,
}

impl Logger {
    pub(crate) fn new(on_log: Option<Py<PyAny>>) -> Self {
        Self { on_log }
    }

    pub(crate) fn log(&self, py: Python<'_>, log: &Log) -> PyResult<()> {
        let Some(on_log) = &self.on_log else { return Ok(()) };
        on_log.call1(py, (&log.level, &log.message, &log.extra, &log.server_id, &log.request_id)).map(drop)
    }
}
