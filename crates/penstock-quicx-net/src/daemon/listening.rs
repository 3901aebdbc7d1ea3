//! The daemon's listening sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use penstock_io::admission::Admission;
use penstock_io::listener::{Connection as Accepted, Listener};
use penstock_io::runtime::Runtime;
use penstock_io::tls::{Acceptor, Offer};
use penstock_io::unix::SocketFile;

use crate::Result;
use crate::daemon::options::DaemonOptions;
use crate::daemon::serve::Connection;
use crate::daemon::state::{Phase, Shared};

/// Listening sockets. Dropping this closes them and removes the socket's file.
pub(super) struct Listeners {
    pub(super) address: Option<SocketAddr>,
    pub(super) tls: Option<(SocketAddr, Arc<Acceptor>)>,
    all: Vec<Listener>,
    file: Option<SocketFile>,
}

impl Listeners {
    pub(super) fn bind(options: &DaemonOptions, admission: &Arc<Admission>) -> Result<Self> {
        let mut bound = Self { address: None, tls: None, all: Vec::new(), file: None };
        if let Some(listen) = &options.listen {
            let (listener, address) = Listener::tcp(listen.clone(), None, admission)?;
            if !address.ip().is_loopback() {
                tracing::warn!(%address, "anyone who can reach this address may submit and take tasks: it is not encrypted");
            }
            bound.all.push(listener);
            bound.address = Some(address);
        }
        if let Some((listen, tls)) = &options.tls {
            let acceptor = Arc::new(Acceptor::new(tls.clone(), Offer::tcp(&[]))?);
            let (listener, address) = Listener::tcp(listen.clone(), Some(Arc::clone(&acceptor)), admission)?;
            if tls.client_ca.is_none() && !address.ip().is_loopback() {
                tracing::warn!(%address, "anyone who can reach this address may submit and take tasks: no client CA");
            }
            bound.all.push(listener);
            bound.tls = Some((address, acceptor));
        }
        if let Some(path) = &options.socket {
            let (listener, file) = Listener::unix(path, admission)?;
            bound.all.push(listener);
            bound.file = Some(file);
        }
        Ok(bound)
    }

    /// Start to accept connections; return the socket's file, which is removed at the end.
    pub(super) fn serve(self, runtime: &Runtime, shared: &Arc<Shared>) -> Option<SocketFile> {
        for listener in self.all {
            let shared = Arc::clone(shared);
            runtime.handle().spawn(async move {
                let serve = |accepted| drop(tokio::spawn(serve(accepted, Arc::clone(&shared))));
                listener.run(shared.reached(Phase::Draining), serve).await;
            });
        }
        self.file
    }
}

/// Serve one connection from its handshake to its end.
async fn serve(accepted: Accepted, shared: Arc<Shared>) {
    let peer = accepted.peer;
    let name = peer.map_or_else(|| "unix".to_owned(), |peer| peer.to_string());
    let accepted = match accepted.handshake().await {
        Ok(accepted) => accepted,
        Err(error) => return tracing::warn!(peer = name, %error, "a connection was closed"),
    };
    let certified = accepted.stream.peer_certificate().is_some();
    let trusted = certified || peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback());
    let stream = accepted.stream.first_byte(&accepted.permit);
    Connection::new(&shared, stream, accepted.permit, &name, trusted).run().await;
}
