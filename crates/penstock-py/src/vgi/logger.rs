use penstock_vgi::Log;
use penstock_vgi_net::{ApplicationError, LogSink};
use pyo3::prelude::*;

use super::errors::raised;
use crate::pipestream::waiting::attached;

/// A sink that passes a server's log messages to a Python function.
pub(crate) struct Logger {
    on_log: Option<Py<PyAny>>,
}

impl Logger {
    pub(crate) fn new(on_log: Option<Py<PyAny>>) -> Self {
        Self { on_log }
    }
}

impl LogSink for Logger {
    fn log(&self, log: &Log) -> Result<(), ApplicationError> {
        let Some(on_log) = &self.on_log else { return Ok(()) };
        let fields = (&log.level, &log.message, &log.extra, &log.server_id, &log.request_id);
        let passed = attached(|py| on_log.call1(py, fields).map(drop));
        passed.map_err(|error| {
            let message = error.to_string();
            raised(error, message)
        })
    }
}
