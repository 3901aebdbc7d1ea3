use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use penstock_io::runtime::PerProcess;
use penstock_io::tls::ClientTls;
use penstock_io::{Addresses, DriverError as _};
use penstock_pipestream::{ErrorCode, Reason, Role};
use quinn::VarInt;
use quinn::crypto::rustls::QuicClientConfig;

use crate::command::{Urgent, closed};
use crate::connection::{ClientJournal, Destination, RunningSession, Start};
use crate::counters::{CounterSnapshot, Counters};
use crate::dial::Dialer;
use crate::driver::Reconnect;
use crate::handle::SessionHandle;
use crate::handle_sink::HandleQueue;
use crate::journal::ClientState;
use crate::options::SessionOptions;
use crate::port::{ClaimChecks, no_claim_checks};
use crate::shared::Phase;
use crate::transport::{self, ALPN};
use crate::{Error, Misuse, Result};

/// A client, which opens sessions to servers. It consists of TLS files that were read once; all
/// clients of a process share their sockets.
#[derive(Clone)]
pub struct Client(Arc<PerProcess<Inner>>);

struct Inner {
    crypto: Arc<QuicClientConfig>,
    counters: Arc<Counters>,
    /// A client stores no claim checks, so it does not defer entities of servers.
    claims: Arc<dyn ClaimChecks>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Read the trusted certificates and the client's own.
    pub fn new(tls: &ClientTls) -> Result<Self> {
        let crypto =
            QuicClientConfig::try_from(tls.config(ALPN)?).map_err(|error| Error::tls_from(error.to_string(), error))?;
        Ok(Self(Arc::new(PerProcess::new(Inner {
            crypto: Arc::new(crypto),
            counters: Arc::default(),
            claims: no_claim_checks(),
        }))))
    }

    /// Return the counters of all sessions of this client.
    pub fn counters(&self) -> Result<CounterSnapshot> {
        Ok(self.0.get()?.counters.snapshot())
    }

    /// Connect and agree on capabilities. `server_name` is the name for which the server's certificate must be valid,
    /// unless the certificate is pinned.
    pub async fn connect(
        &self,
        address: SocketAddr,
        server_name: &str,
        options: SessionOptions,
    ) -> Result<SessionHandle> {
        let inner = self.0.get()?;
        let inner = Inner {
            crypto: Arc::clone(&inner.crypto),
            counters: Arc::clone(&inner.counters),
            claims: Arc::clone(&inner.claims),
        };
        let server_name = server_name.to_owned();
        // The session's tasks run on the IO thread, so this starts there as well.
        let connecting = penstock_io::runtime::spawn(connect(inner, address, server_name, options))?;
        connecting.await.unwrap_or_else(|error| Err(Error::task(error)))
    }

    /// Connect to the address of a host that answers first. `server_name` is the name in the
    /// certificate, if it is not the host.
    pub async fn connect_host(
        &self,
        host: &Addresses,
        server_name: Option<&str>,
        options: &SessionOptions,
    ) -> Result<SessionHandle> {
        let name = host.server_name(server_name);
        let attempt = |address| {
            let (client, name, options) = (self.clone(), name.to_owned(), options.clone());
            async move { client.connect(address, &name, options).await }
        };
        host.connect(attempt).await
    }
}

async fn connect(
    inner: Inner,
    address: SocketAddr,
    server_name: String,
    options: SessionOptions,
) -> Result<SessionHandle> {
    let needs_layer2 = options.policy.is_some() || options.survives.is_some();
    let dialer = Arc::new(Dialer::new(&inner.crypto, &inner.counters, address, server_name, &options)?);
    let (connection, control) = dialer.dial().await?;
    let lost = connection.clone();
    let reconnect = match options.survives {
        Some(within) => Reconnect::Dial { dialer: Arc::clone(&dialer), within, dialing: None },
        None => Reconnect::Never,
    };
    let Inner { counters, claims, .. } = inner;
    let mut options = options;
    let client_journal = match options.state.clone() {
        Some(folder) => Some(open_state(folder, &mut options).await?),
        None => None,
    };
    let (role, control, defer_types) = (Role::Client, Some(control), Arc::default());
    let start = Start {
        connection,
        role,
        options,
        counters,
        claims,
        defer_types,
        control,
        reconnect,
        names: Arc::default(),
        client_journal,
    };
    let (queue, entities) = HandleQueue::new();
    let running = start.run(Destination::Open(Arc::new(queue))).inspect_err(|_| {
        lost.close(VarInt::from_u32(1), b"the client could not start the session");
    })?;
    let RunningSession { shared, commands, entity } = running;
    let handle = SessionHandle::new(entity, entities);
    let mut phase = shared.phase.subscribe();
    let _ = phase.wait_for(|phase| !matches!(phase, Phase::Negotiating)).await;
    match shared.closed() {
        // A server that refuses the client's certificate reports that only now, after the client's
        // handshake has completed.
        Some(reason) => Err(transport::tls_alert(&lost, address).unwrap_or_else(|| closed(&reason))),
        None if needs_layer2 && shared.layer2().is_none() => {
            let message = "the requested options need layer 2".to_owned();
            commands.send_urgent(Urgent::Abort(Reason { code: ErrorCode::LayerUnsupported, message }));
            Err(Misuse::PeerLayer { address }.into())
        }
        None => Ok(handle),
    }
}

/// Return the journal of the session in a folder, or of a new session that will be stored there.
async fn open_state(folder: PathBuf, options: &mut SessionOptions) -> Result<ClientJournal> {
    if options.survives.is_none() || !options.session.capabilities.layer2 {
        return Err(Misuse::StateLayer.into());
    }
    if let Some(layer2) = &mut options.session.layer2 {
        layer2.survives = true;
    }
    let mut config = options.session.clone();
    // Both ends agree on capabilities only after this, so after an error another address of the
    // server may be tried.
    let opened = tokio::task::spawn_blocking(move || {
        let opened = ClientState::open(&folder, &mut config);
        opened.map(|opened| (opened, config))
    });
    let ((state, session), config) = opened.await.map_err(Error::task)??;
    options.session = config;
    Ok(match session {
        Some((session, journal)) => ClientJournal::Resumed(Box::new(session), Box::new(journal)),
        None => ClientJournal::New(Box::new(state)),
    })
}
