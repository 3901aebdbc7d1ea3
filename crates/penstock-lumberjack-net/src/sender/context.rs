//! The options of a sender, and the state that its lanes share.

use std::sync::Arc;
use std::time::Duration;

use penstock_io::tls::{self, ClientTls};
use penstock_lumberjack::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::sync::{Notify, watch};

use crate::Result;

/// The use of several hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hosts {
    /// One host at a time; when it cannot be reached, the next one.
    #[default]
    Failover,
    /// All hosts, with one connection each; windows go to the hosts that have room.
    Balance,
}

/// The options of a sender.
#[derive(Debug, Clone)]
pub struct SenderOptions {
    /// The receivers, as `HOST:PORT`, at least one.
    pub hosts: Vec<String>,
    /// The use of several hosts. Default: fail-over.
    pub mode: Hosts,
    /// The receivers that the sender trusts. Default: none, so connections are plain.
    pub tls: Option<ClientTls>,
    /// The name in the certificates. Default: the host.
    pub server_name: Option<String>,
    /// The settings of windows, sequence numbers and compression.
    pub client: ClientConfig,
    /// How long the sender tries while no event is acknowledged; then sending fails. Default:
    /// forever.
    pub give_up: Option<Duration>,
}

impl SenderOptions {
    /// Return the defaults.
    pub fn new(hosts: Vec<String>) -> Self {
        Self {
            hosts,
            mode: Hosts::Failover,
            tls: None,
            server_name: None,
            client: ClientConfig::default(),
            give_up: None,
        }
    }
}

/// State that the lanes of a sender share.
pub(super) struct Context {
    pub(super) options: SenderOptions,
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    /// zlib's level. The state machines do not compress: the thread pool does.
    pub(super) level: u32,
    /// Notified when events were acknowledged, or a lane failed.
    pub(super) room: Notify,
    closing: watch::Sender<Closing>,
}

/// How far the sender is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closing {
    Open,
    /// The sender ends when all events are acknowledged.
    Closed,
    /// The sender ends now.
    Abandoned,
}

impl Context {
    pub(super) fn new(options: SenderOptions, tls: Option<Arc<rustls::ClientConfig>>, level: u32) -> Self {
        Self { options, tls, level, room: Notify::new(), closing: watch::Sender::new(Closing::Open) }
    }

    pub(super) fn host(&self, index: usize) -> &str {
        self.options.hosts.get(index).map_or("", String::as_str)
    }

    pub(super) fn server_name(&self, address: &str) -> Result<ServerName<'static>> {
        Ok(tls::server_name(self.options.server_name.as_deref(), address)?)
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closing.borrow() >= Closing::Closed
    }

    pub(super) fn is_abandoned(&self) -> bool {
        *self.closing.borrow() == Closing::Abandoned
    }

    pub(super) async fn abandoned(&self) {
        let mut closing = self.closing.subscribe();
        // An error means that the sender was dropped.
        let _ = closing.wait_for(|closing| *closing == Closing::Abandoned).await;
    }

    pub(super) fn close(&self, how: Closing) {
        self.closing.send_modify(|closing| *closing = (*closing).max(how));
    }
}
