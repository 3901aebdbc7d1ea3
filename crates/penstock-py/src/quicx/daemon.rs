//! A daemon for Python; `penstock.quicx.Daemon` wraps it.

use std::collections::BTreeMap;

use penstock_io::duration::grace;
use penstock_quicx_net::{Daemon, Result};
use pyo3::prelude::*;

use super::options::StartOptions;
use super::{StatsTuple, raised, stats_tuple, wait, wait_at_most};
use crate::pipestream::waiting::Timeout;

/// A running daemon.
#[pyclass(frozen, name = "QuicxDaemon", module = "penstock._core")]
pub(crate) struct QuicxDaemon {
    daemon: Daemon,
}

#[pymethods]
impl QuicxDaemon {
    #[new]
    fn new(py: Python<'_>, options: StartOptions) -> PyResult<Self> {
        py.detach(|| Self::start(options)).map_err(|error| raised(&error))
    }

    fn address(&self) -> PyResult<Option<String>> {
        let address = self.daemon.address().map_err(|error| raised(&error))?;
        Ok(address.map(|address| address.to_string()))
    }

    /// Return the address for TLS, and the fingerprint.
    fn tls(&self) -> PyResult<Option<(String, String)>> {
        let tls = self.daemon.tls().map_err(|error| raised(&error))?;
        Ok(tls.map(|(address, fingerprint)| (address.to_string(), fingerprint.to_string())))
    }

    fn metrics_address(&self) -> PyResult<Option<String>> {
        let address = self.daemon.metrics_address().map_err(|error| raised(&error))?;
        Ok(address.map(|address| address.to_string()))
    }

    fn stats(&self) -> PyResult<StatsTuple> {
        self.daemon.stats().map(stats_tuple).map_err(|error| raised(&error))
    }

    fn counters(&self) -> PyResult<BTreeMap<&'static str, u64>> {
        let (counters, dead) = self.daemon.counters().map_err(|error| raised(&error))?;
        Ok(BTreeMap::from([
            ("connections", counters.connections),
            ("submitted", counters.submitted),
            ("merged", counters.merged),
            ("refused", counters.errors.iter().sum()),
            ("delivered", counters.delivered),
            ("done", counters.done),
            ("failed", counters.failed),
            ("retried", counters.retried),
            ("lost", counters.lost),
            ("late", counters.late),
            ("died", counters.died),
            ("dead", dead as u64),
        ]))
    }

    /// Wait until a client asks the daemon to stop; `false` after the timeout.
    fn wait_for_stop(&self, py: Python<'_>, timeout: Timeout) -> PyResult<bool> {
        wait_at_most(py, timeout, self.daemon.asked_to_stop()).map(|asked| asked.is_some())
    }

    /// Stop the daemon; return how many tasks are left.
    fn stop(&self, py: Python<'_>, drain: f64) -> PyResult<usize> {
        wait(py, Timeout::NEVER, self.shutdown(drain))
    }
}

impl QuicxDaemon {
    /// Start a daemon. This blocks on files and on the resolver.
    pub(crate) fn start(options: StartOptions) -> Result<Self> {
        Ok(Self { daemon: Daemon::start(options.net()?)? })
    }

    pub(crate) async fn shutdown(&self, drain: f64) -> Result<usize> {
        self.daemon.stop(grace(drain)).await
    }
}
