//! Permits for connections: a number in total, and a number for each address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use penstock_wire::later;
use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::FIRST_BYTE_TIMEOUT;
use super::counters::{Counters, count};
use super::descriptors::Descriptors;
use super::throttle::LogThrottle;
use crate::sync::lock;
use crate::{Misuse, Result};

/// The smallest default share of an address: for a server with few connections, a fraction of their
/// number would refuse ordinary clients.
const SMALLEST_SHARE: u64 = 64;

/// How a full server treats a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// The server closes it immediately.
    Close,
    /// The connection waits in the system's backlog until there is room.
    Wait,
}

/// How many of the permits the loopback address may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopbackShare {
    /// As many as any address.
    Address,
    /// All of them.
    All,
}

/// How connections are admitted.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// The name of the service, for the log and errors.
    pub what: &'static str,
    /// Connections at the same time.
    pub connections: u64,
    /// Connections from one address at the same time; an IPv6 address stands for its /64. Default: seven eighths of
    /// all, or 64 if that is more.
    pub per_address: Option<u64>,
    /// How connections beyond these limits are treated.
    pub when_full: WhenFull,
    /// How many of the permits the loopback address may hold.
    pub loopback: LoopbackShare,
    /// Descriptors that a connection needs.
    pub descriptors: u64,
    /// The time from accept to the first byte.
    pub first_byte_timeout: Duration,
}

impl Config {
    /// Make a configuration for TCP that closes connections immediately when there are too many.
    pub const fn new(what: &'static str, connections: u64) -> Self {
        Self {
            what,
            connections,
            per_address: None,
            when_full: WhenFull::Close,
            loopback: LoopbackShare::Address,
            descriptors: 1,
            first_byte_timeout: FIRST_BYTE_TIMEOUT,
        }
    }

    fn share(&self) -> u64 {
        let default = (self.connections - self.connections / 8).max(SMALLEST_SHARE);
        self.per_address.unwrap_or(default).min(self.connections)
    }
}

/// Why a connection is not admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// This many connections are open.
    Full(u64),
    /// This many connections from its address are open.
    Address(u64),
    /// The remaining descriptors are reserved for files.
    Descriptors,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(limit) => write!(f, "{limit} connections are open, the limit"),
            Self::Address(limit) => write!(f, "{limit} connections of its address are open, the limit of one address"),
            Self::Descriptors => f.write_str("the remaining descriptors are reserved for files (ulimit -n)"),
        }
    }
}

#[derive(Debug, Default)]
struct Open {
    all: u64,
    addresses: HashMap<IpAddr, u64>,
}

/// The admission of a server's connections.
#[derive(Debug)]
pub struct Admission {
    config: Config,
    share: u64,
    open: Mutex<Open>,
    /// Notified when a connection has ended.
    ended: Notify,
    counters: Arc<Counters>,
    /// The limit on log lines about connections that this process could not serve.
    pub(super) unserved: Mutex<LogThrottle>,
    /// Held as long as connections may be admitted.
    _descriptors: Descriptors,
}

impl Admission {
    /// Raise the limit of descriptors to what the connections need. If the system does not allow
    /// that, accept fewer connections and log that; fail if not even one connection is possible.
    pub fn new(mut config: Config, counters: Arc<Counters>) -> Result<Arc<Self>> {
        for (name, limit) in
            [("connections", Some(config.connections)), ("connections of one address", config.per_address)]
        {
            if limit == Some(0) {
                return Err(Misuse::ConnectionLimit { name, server: config.what }.into());
            }
        }
        let descriptors = Descriptors::provide(config.what, config.connections, config.descriptors)?;
        config.connections = descriptors.connections();
        let (share, open, ended) = (config.share(), Mutex::default(), Notify::new());
        let unserved = Mutex::default();
        Ok(Arc::new(Self { config, share, open, ended, counters, unserved, _descriptors: descriptors }))
    }

    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    /// Return whether more than half of all permits, or of those that the address may hold, are
    /// taken.
    pub fn is_half_full(&self, peer: IpAddr) -> bool {
        let open = self.lock();
        let of_address = open.addresses.get(&network(peer)).copied().unwrap_or(0);
        open.all > self.config.connections / 2 || of_address > self.share / 2
    }

    /// Return the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        lock(&self.open)
    }

    /// Return the number of open connections.
    pub fn open(&self) -> u64 {
        self.lock().all
    }

    /// Admit a connection. One without an address is local, and only the total limit applies to it.
    pub fn admit(self: &Arc<Self>, peer: Option<IpAddr>) -> std::result::Result<Permit, Refused> {
        let address = peer.map(network).filter(|address| match self.config.loopback {
            LoopbackShare::Address => true,
            LoopbackShare::All => !address.is_loopback(),
        });
        let mut open = self.lock();
        if open.all >= self.config.connections {
            count(&self.counters.full);
            return Err(Refused::Full(self.config.connections));
        }
        if let Some(address) = address {
            let of_address = open.addresses.entry(address).or_default();
            if *of_address >= self.share {
                count(&self.counters.address);
                return Err(Refused::Address(self.share));
            }
            *of_address += 1;
        }
        open.all += 1;
        drop(open);
        Ok(Permit { of: Arc::clone(self), address, deadline: later(Instant::now(), self.config.first_byte_timeout) })
    }

    /// Wait until at most this many connections are open.
    async fn at_most(&self, connections: u64) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // Register before reading the count, so that a connection that ends in between is not missed.
            ended.as_mut().enable();
            if self.open() <= connections {
                return;
            }
            ended.await;
        }
    }

    /// Wait until one more connection may be admitted.
    pub(super) async fn capacity(&self) {
        self.at_most(self.config.connections.saturating_sub(1)).await;
    }

    /// Wait until no connection is open.
    pub async fn idle(&self) {
        self.at_most(0).await;
    }
}

/// The permit of one connection. Dropping it returns the permit.
#[derive(Debug)]
pub struct Permit {
    of: Arc<Admission>,
    address: Option<IpAddr>,
    deadline: Instant,
}

impl Permit {
    /// Return the deadline of the first byte.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Return the admission that issued the permit.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.of
    }

    /// Run a future, for example a handshake, until the deadline. `None`: it did not finish in time, which is counted.
    pub async fn in_time<F: Future>(&self, doing: F) -> Option<F::Output> {
        let done = timeout_at(self.deadline.into(), doing).await.ok();
        if done.is_none() {
            self.of.counters.late();
        }
        done
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.of.lock();
        open.all = open.all.saturating_sub(1);
        if let Some(address) = self.address
            && let Some(of_address) = open.addresses.get_mut(&address)
        {
            *of_address = of_address.saturating_sub(1);
            if *of_address == 0 {
                open.addresses.remove(&address);
            }
        }
        drop(open);
        self.of.ended.notify_waiters();
    }
}

/// Return the address under which the limits count an address: a host with one IPv6 address has all
/// 2^64 of its /64.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        other @ (IpAddr::V4(_) | IpAddr::V6(_)) => other,
    }
}
