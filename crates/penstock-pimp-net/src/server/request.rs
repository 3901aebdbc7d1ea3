//! The parts of a request that handlers read.

use std::net::IpAddr;

use hyper::header::{HeaderMap, HeaderName};
use hyper::http::request::Parts;
use penstock_io::admission::network;
use penstock_io::http::ShutdownSignal;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Return the text of a header.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Return the address of the caller. A loopback peer may be a proxy that names its client: the last address is the one
/// that the proxy has seen.
pub(super) fn caller(headers: &HeaderMap, peer: IpAddr) -> IpAddr {
    let named = headers.get_all(FORWARDED_FOR).iter().next_back().and_then(|value| value.to_str().ok());
    let last = named.and_then(|list| list.rsplit(',').next()?.trim().parse().ok());
    let peer = peer.to_canonical();
    network(last.filter(|_| peer.is_loopback()).unwrap_or(peer))
}

/// Return whether an Accept list names the wanted value, with a quality other than 0.
pub(super) fn accepts(list: &str, wanted: &str) -> bool {
    list.split(',').any(|each| {
        let mut parts = each.split(';').map(str::trim);
        let refused = |part: &str| {
            let quality = part.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
            quality.is_some_and(|(_, quality)| quality.trim().parse() == Ok(0.0))
        };
        parts.next().is_some_and(|name| name.eq_ignore_ascii_case(wanted)) && !parts.any(refused)
    })
}

/// The stop signal of the server that received a request, if a server did.
pub(super) struct ServerStop(Option<ShutdownSignal>);

impl ServerStop {
    pub(super) fn of(parts: &Parts) -> Self {
        Self(parts.extensions.get().cloned())
    }

    /// Wait until the server stops.
    pub(super) async fn wait(&mut self) {
        match &mut self.0 {
            Some(stopping) => stopping.stopped().await,
            None => std::future::pending().await,
        }
    }
}
