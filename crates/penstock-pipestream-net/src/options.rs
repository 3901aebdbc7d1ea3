//! Options of a session.

use std::path::PathBuf;
use std::time::Duration;

use penstock_io::tls;
use penstock_pipestream::header_key::HeaderKeys;
use penstock_pipestream::messages::CompletionPolicy;
use penstock_pipestream::yield_token::TokenKey;
use penstock_pipestream::{Layer2Config, Role, SessionConfig, SessionId};

use crate::Result;
use crate::events::EventLog;
use crate::transport::HANDSHAKE_TIMEOUT;

/// Options of a session, in addition to those of the core.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Capabilities and limits. If they offer layer 2 without configuring it, the session's name
    /// and the key of its yield tokens come from the secure random source.
    pub session: SessionConfig,
    /// The policy of each root entity of ours that has children and no policy of its own. A
    /// client's policy also applies to the root scopes, if the server supports that. It needs layer
    /// 2, so a peer that does not agree on layer 2 is refused. Default: none.
    pub policy: Option<CompletionPolicy>,
    /// How long a session of layer 2 continues without a connection, if both ends support that: a
    /// client dials, a server waits. The session is kept in memory, with the payloads of a client's
    /// entities until these are terminal. Default: a session ends with its connection.
    pub survives: Option<Duration>,
    /// A folder for one session of a client that survives its process: an unfinished session in the
    /// folder is continued, otherwise a new one begins there. Needs `survives`. A server has
    /// [`ServerOptions::state`](crate::ServerOptions::state) instead. Default: none, the session is
    /// kept in memory.
    pub state: Option<PathBuf>,
    /// Maximum duration of the handshake, and after it of the control stream and the capabilities together. Default: 10
    /// s.
    pub handshake_timeout: Duration,
    /// Time without a packet after which the connection is given up. Default: 30 s.
    pub idle_timeout: Duration,
    /// Time without a frame or a command after which a session ends in which nothing is open.
    /// Default: never; for a server 15 minutes ([`ServerOptions::new`](crate::ServerOptions::new)).
    pub quiet_timeout: Option<Duration>,
    /// The largest UDP payload that is tried on the path to the peer, in bytes, from 1,200 to
    /// 9,000; sizes that the path does not carry are detected and not used. Default: 6,500 for a
    /// peer on a loopback address, 1,452 for others.
    pub mtu: Option<u16>,
    /// Number of events that are kept for [`SessionHandle::events`](crate::SessionHandle::events). Default: 4,096.
    pub event_queue: usize,
    /// Log to which events are written.
    pub events: Option<EventLog>,
    /// The name of a client's session at layer 2 (decision 18). Default: a random one.
    pub name: Option<SessionId>,
    /// Keys that seal the metadata and content types of headers, in both directions (section 10.6);
    /// the peer must have the same keys. Default: headers are not sealed.
    pub header_keys: Option<HeaderKeys>,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            session: SessionConfig::default(),
            policy: None,
            survives: None,
            state: None,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            idle_timeout: Duration::from_secs(30),
            quiet_timeout: None,
            mtu: None,
            event_queue: 4_096,
            events: None,
            name: None,
            header_keys: None,
        }
    }
}

impl SessionOptions {
    /// Complete the options of layer 2, if it is offered, and check them.
    pub(crate) fn prepare(&mut self, role: Role) -> Result<()> {
        let config = &mut self.session;
        if config.capabilities.layer2 && config.layer2.is_none() {
            config.layer2 = Some(Layer2Config::new(None, TokenKey::new(tls::random()?)));
        }
        if let Some(layer2) = config.layer2.as_mut().filter(|layer2| role == Role::Client && layer2.session.is_none()) {
            let random = || tls::random().map(SessionId::new);
            layer2.session = Some(self.name.map_or_else(random, Ok)?);
        }
        if let Some(layer2) = &mut config.layer2 {
            layer2.survives |= self.survives.is_some();
            layer2.policy = self.policy.filter(|_| role == Role::Client);
        }
        Ok(config.check()?)
    }
}
