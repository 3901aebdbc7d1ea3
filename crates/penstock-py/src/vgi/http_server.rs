//! The server over HTTP for Python. Requests come from our own server or from the user's web
//! server.

use std::path::PathBuf;
use std::sync::Arc;

use penstock_io::Addresses;
use penstock_io::tls::{Identity as Certificate, ServerTls, pair};
use penstock_vgi::http::{Config, Request, Service};
use penstock_vgi_net::Counters;
use penstock_vgi_net::external::External;
use penstock_vgi_net::http::{HttpCall, HttpListener};
use pyo3::prelude::*;

use crate::error::IntoPyErr;
use crate::vgi::errors::misuse;
use crate::vgi::http_call::VgiHttpCall;

/// The options: the attributes of a dataclass of `penstock.vgi.http`.
#[derive(FromPyObject)]
pub(crate) struct HttpOptions {
    prefix: String,
    signing_key: Vec<u8>,
    token_ttl: u64,
    max_request_bytes: Option<u64>,
    max_stream_response_bytes: Option<u64>,
    fills: bool,
    compression_level: Option<i32>,
    cors_origins: Vec<String>,
    cors_max_age: Option<u64>,
    health: bool,
    landing_page: bool,
    describe_page: bool,
    not_found_page: bool,
    repo_url: Option<String>,
    guarded_pages: bool,
    own_pages: Vec<String>,
    upload_urls: bool,
    max_upload_bytes: Option<u64>,
}

impl HttpOptions {
    pub(super) fn config(self, server: &penstock_vgi::ServerConfig, dialect: penstock_vgi::Dialect) -> Config {
        Config {
            server_id: server.server_id.clone(),
            dialect,
            description: server.description.clone(),
            limits: server.limits.clone(),
            seed: penstock_vgi_net::seed(),
            prefix: self.prefix,
            signing_key: self.signing_key,
            token_ttl: self.token_ttl,
            max_request_bytes: self.max_request_bytes,
            max_stream_response_bytes: self.max_stream_response_bytes,
            fills: self.fills,
            compression_level: self.compression_level,
            cors_origins: self.cors_origins,
            cors_max_age: self.cors_max_age,
            health: self.health,
            landing_page: self.landing_page,
            describe_page: self.describe_page,
            not_found_page: self.not_found_page,
            repo_url: self.repo_url,
            guarded_pages: self.guarded_pages,
            own_pages: self.own_pages,
            upload_urls: self.upload_urls,
            max_upload_bytes: self.max_upload_bytes,
        }
    }
}

/// A service over HTTP. Any number of threads may use it.
#[pyclass(frozen, name = "VgiHttp", module = "penstock._core")]
pub(crate) struct VgiHttp {
    service: Arc<Service>,
    counters: Arc<Counters>,
    external: Option<Arc<External>>,
}

impl VgiHttp {
    pub(super) fn new(service: Service, counters: Arc<Counters>, external: Option<Arc<External>>) -> Self {
        Self { service: Arc::new(service), counters, external }
    }
}

#[pymethods]
impl VgiHttp {
    /// Return the most bytes of a body.
    #[getter]
    fn max_body(&self) -> u64 {
        self.service.max_body()
    }

    /// Take the head of a web server's request, with a decoded path. Pass the body to `receive`.
    #[pyo3(signature = (method, path, query, headers, remote))]
    fn begin(
        &self,
        method: String,
        path: String,
        query: String,
        headers: Vec<(String, String)>,
        remote: String,
    ) -> VgiHttpCall {
        let request = Request { method, path, headers: headers.into_iter().collect(), body: Vec::new() };
        let (counters, external) = (Arc::clone(&self.counters), self.external.clone());
        VgiHttpCall::new(HttpCall::begin(&self.service, request, query, remote, counters, external), None)
    }

    /// Listen with the core's own server; with a certificate, over TLS.
    #[pyo3(signature = (address, *, authenticates, cert=None, key=None, client_ca=None))]
    fn listen(
        &self,
        address: &str,
        authenticates: bool,
        cert: Option<PathBuf>,
        key: Option<PathBuf>,
        client_ca: Option<PathBuf>,
    ) -> PyResult<VgiHttpServer> {
        let tls = match pair(cert, key).map_err(IntoPyErr::into_py_err)? {
            Some((cert, key)) => Some(ServerTls { identity: Certificate::Files { cert, key }, client_ca }),
            None if client_ca.is_some() => return Err(misuse("a CA for callers is for TLS: give cert and key too")),
            None => None,
        };
        let listen = Addresses::resolve(address).map_err(IntoPyErr::into_py_err)?;
        let (service, counters) = (Arc::clone(&self.service), Arc::clone(&self.counters));
        let listener = HttpListener::bind(service, listen, tls.as_ref(), authenticates, counters);
        let listener = listener.map_err(IntoPyErr::into_py_err)?;
        Ok(VgiHttpServer { listener, counters: Arc::clone(&self.counters), external: self.external.clone() })
    }
}

/// A listening server.
#[pyclass(frozen, name = "VgiHttpServer", module = "penstock._core")]
pub(crate) struct VgiHttpServer {
    listener: HttpListener,
    counters: Arc<Counters>,
    external: Option<Arc<External>>,
}

#[pymethods]
impl VgiHttpServer {
    #[getter]
    fn port(&self) -> u16 {
        self.listener.address().port()
    }

    #[getter]
    fn fingerprint(&self) -> Option<String> {
        self.listener.fingerprint().map(|fingerprint| fingerprint.to_string())
    }

    /// Wait for the next call; `None` once the server is closed. Do not call this on the thread that handles signals.
    fn next(&self, py: Python<'_>) -> Option<VgiHttpCall> {
        let waiting = py.detach(|| self.listener.next_call())?;
        let (call, caller) = HttpCall::take(waiting, Arc::clone(&self.counters), self.external.clone());
        let auth = caller.and_then(|caller| caller.downcast::<Py<PyAny>>().ok()).map(|auth| *auth);
        Some(VgiHttpCall::new(call, auth))
    }

    /// Accept no more calls, and wait for running ones.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.listener.close()).map_err(IntoPyErr::into_py_err)
    }
}
