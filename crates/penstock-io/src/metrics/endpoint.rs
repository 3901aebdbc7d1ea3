//! The HTTP endpoint of metrics.
//!
//! `GET /metrics` returns OpenMetrics text, which Prometheus reads. `GET /healthz` returns 200, or
//! 503 once the server is told to stop or while its store fails.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use super::{Page, Source};
use crate::Result;
use crate::address::Addresses;
use crate::http::{Handler, HttpServer, RequestBody, Serving};

/// Each scrape uses one connection, and there are few at the same time.
const SERVING: Serving = Serving {
    what: "metrics",
    connections: 8,
    // One address must not take all connections.
    per_address: Some(4),
    descriptors: 1,
    keep_alive: false,
    header_timeout: Duration::from_secs(10),
    stall: Duration::from_secs(10),
    unsent: None,
    grace: Duration::from_secs(1),
};

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

#[derive(Debug)]
struct Adapter(Arc<dyn Source>);

impl Collector for Adapter {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Page(encoder))
    }
}

/// The HTTP endpoint with the metrics of a server. It ends when it is stopped or dropped.
#[derive(Debug)]
pub struct Endpoint(HttpServer);

struct MetricsHandler(Arc<dyn Source>);

impl Handler for MetricsHandler {
    type Body = Full<Bytes>;

    async fn answer(self: Arc<Self>, request: Request<RequestBody>, _peer: SocketAddr) -> Response<Full<Bytes>> {
        respond(&request, &self.0)
    }
}

impl Endpoint {
    /// Listen on the first of these addresses that works, and log it. Port 0 picks a free port.
    pub fn bind(listen: Addresses, source: Arc<dyn Source>) -> Result<Self> {
        let handler = Arc::new(MetricsHandler(source));
        let server = HttpServer::bind(handler, listen, None, SERVING, Arc::default())?;
        tracing::info!("metrics at http://{}/metrics", server.address());
        Ok(Self(server))
    }

    /// Return the address on which the endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Stop accepting connections.
    pub fn stop(&self) {
        self.0.stop();
    }
}

fn respond(request: &Request<RequestBody>, source: &Arc<dyn Source>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "GET only\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => scrape(source).map_or_else(
            |error| answer(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, format!("{error}\n")),
            |text| answer(StatusCode::OK, OPEN_METRICS, text),
        ),
        "/healthz" if source.is_healthy() => answer(StatusCode::OK, PLAIN, "ok\n".to_owned()),
        "/healthz" => {
            let why = source.failure().unwrap_or_else(|| "stopping".to_owned());
            answer(StatusCode::SERVICE_UNAVAILABLE, PLAIN, format!("{why}\n"))
        }
        _ => answer(StatusCode::NOT_FOUND, PLAIN, "there are /metrics and /healthz\n".to_owned()),
    }
}

fn scrape(source: &Arc<dyn Source>) -> std::result::Result<String, fmt::Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Adapter(Arc::clone(source))));
    let mut text = String::new();
    text::encode(&mut text, &registry)?;
    Ok(text)
}

fn answer(status: StatusCode, kind: HeaderValue, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::super::Histogram;
    use super::*;

    #[derive(Debug, Default)]
    struct One(Histogram);

    impl Source for One {
        fn write(&self, page: &mut Page<'_>) -> fmt::Result {
            page.counter("seen", "What was seen.", 3)?;
            page.counters("ended", "By code.", "code", [("A", 1), ("B", 2)])?;
            page.gauge("open", "Open.", u64::MAX)?;
            page.histogram("commit_seconds", "Commits.", &self.0)
        }

        fn is_healthy(&self) -> bool {
            true
        }
    }

    #[test]
    fn a_page_is_what_prometheus_reads() {
        let one = One::default();
        one.0.observe(Duration::from_millis(1));
        one.0.observe(Duration::from_secs(60));
        let source: Arc<dyn Source> = Arc::new(one);
        let text = scrape(&source).unwrap();
        for line in [
            "# TYPE seen counter",
            "seen_total 3",
            "ended_total{code=\"B\"} 2",
            "open 9223372036854775807",
            "commit_seconds_sum 60.001",
            "commit_seconds_bucket{le=\"0.001\"} 1",
            "commit_seconds_bucket{le=\"+Inf\"} 2",
            "# EOF",
        ] {
            assert!(text.lines().any(|each| each == line), "{line}\n{text}");
        }
    }
}
