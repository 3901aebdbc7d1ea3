//! A buffer for Python; `penstock.pimp.Buffer` wraps it.

use std::sync::Arc;

use penstock_io::{Addresses, DriverError as _};
use penstock_pimp_net::{Buffer, Error, Result, Service, ServiceConfig, open_store};
use pyo3::prelude::*;

use super::options::ServeOptions;
use super::{closed, raised, wait};
use crate::pipestream::waiting::Timeout;

/// A listening buffer.
#[pyclass(frozen, name = "PimpBuffer", module = "penstock._core")]
pub(crate) struct PimpBuffer {
    buffer: Arc<Buffer>,
}

#[pymethods]
impl PimpBuffer {
    #[new]
    fn new(py: Python<'_>, listen: &str, options: ServeOptions) -> PyResult<Self> {
        py.detach(|| Self::bind(listen, options)).map_err(|error| raised(&error))
    }

    fn address(&self) -> String {
        self.buffer.address().to_string()
    }

    /// Return the fingerprint of the certificate; `None` without TLS.
    fn fingerprint(&self) -> Option<String> {
        self.buffer.fingerprint().map(|fingerprint| fingerprint.to_string())
    }

    fn metrics_address(&self) -> Option<String> {
        self.buffer.metrics_address().map(|address| address.to_string())
    }

    /// Stop accepting connections, and wait for running requests for up to `grace` seconds.
    fn close(&self, py: Python<'_>, grace: f64) -> PyResult<()> {
        wait(py, Timeout::NEVER, self.shutdown(grace))
    }
}

impl PimpBuffer {
    /// Make and bind a buffer. This blocks on the store and on the resolver.
    pub(crate) fn bind(listen: &str, options: ServeOptions) -> Result<Self> {
        let allow_origin = options.allow_origin.as_deref().map(|origin| {
            let wrong = |_| Error::misuse(format!("allow_origin={origin:?} is no origin"));
            origin.parse().map_err(wrong)
        });
        let (tls, metrics, connections) = (options.server_tls()?, options.metrics()?, options.connections());
        let config = ServiceConfig {
            store: open_store(&options.store)?,
            limits: options.limits.core(),
            jwt_secret: options.jwt_secret,
            allow_origin: allow_origin.transpose()?,
        };
        config.check()?;
        let service = Service::new(config);
        let buffer = Buffer::bind(&service, Addresses::resolve(listen)?, tls.as_ref(), metrics, connections)?;
        Ok(Self { buffer: Arc::new(buffer) })
    }

    pub(crate) async fn shutdown(&self, grace: f64) -> Result<()> {
        let buffer = Arc::clone(&self.buffer);
        closed(grace, move |grace| buffer.close(grace)).await
    }
}
