//! Places for connections: so many in all, and so many for one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::timeout_at;

use super::counters::{Counters, count};
use super::{Descriptors, PATIENCE};
use crate::{Error, Result};

/// An address may have so many connections where nobody says otherwise, however few the server takes: a part of a handful would
/// refuse the ordinary.
const SMALLEST_SHARE: u64 = 64;

/// What becomes of a connection when the server is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It is closed at once.
    Close,
    /// It waits in the system until there is room.
    Wait,
}

/// What share of the places the loopback address has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopbackShare {
    /// That of one address.
    Address,
    /// All of them.
    All,
}

/// How connections are let in.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// What is served, for the log and errors.
    pub what: &'static str,
    /// Connections at once.
    pub connections: u64,
    /// Connections of one address at once, an IPv6 address standing for its /64. Default: seven eighths
    /// of all, or 64 where that is more.
    pub per_address: Option<u64>,
    /// What becomes of others.
    pub when_full: WhenFull,
    /// What share of them the loopback address has.
    pub loopback: LoopbackShare,
    /// Descriptors that a connection needs.
    pub descriptors: u64,
    /// From accept to the first byte.
    pub patience: Duration,
}

impl Config {
    /// Connections over TCP, closed at once when there are too many.
    pub const fn new(what: &'static str, connections: u64) -> Self {
        Self {
            what,
            connections,
            per_address: None,
            when_full: WhenFull::Close,
            loopback: LoopbackShare::Address,
            descriptors: 1,
            patience: PATIENCE,
        }
    }

    fn share(&self) -> u64 {
        let default = (self.connections - self.connections / 8).max(SMALLEST_SHARE);
        self.per_address.unwrap_or(default).min(self.connections)
    }
}

/// Why a connection is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// So many are open.
    Full(u64),
    /// So many of its address are open.
    Address(u64),
    /// What descriptors are left is for files.
    Descriptors,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(limit) => write!(f, "{limit} connections are open, the limit"),
            Self::Address(limit) => write!(f, "{limit} connections of its address are open, the limit of one address"),
            Self::Descriptors => f.write_str("the descriptors that are left are kept for files (ulimit -n)"),
        }
    }
}

#[derive(Debug, Default)]
struct Open {
    all: u64,
    addresses: HashMap<IpAddr, u64>,
}

/// Lets connections in.
#[derive(Debug)]
pub struct Admission {
    config: Config,
    share: u64,
    open: Mutex<Open>,
    /// A connection has ended.
    ended: Notify,
    counters: Arc<Counters>,
    /// Its own as long as it may let somebody in.
    _descriptors: Descriptors,
}

impl Admission {
    /// Raise the limit of descriptors to what the connections need. Where the system does not let it, takes fewer
    /// connections, and says so in the log; fails where it could take none.
    pub fn new(mut config: Config, counters: Arc<Counters>) -> Result<Arc<Self>> {
        for (name, limit) in
            [("connections", Some(config.connections)), ("connections of one address", config.per_address)]
        {
            if limit == Some(0) {
                return Err(Error::Misuse(format!(
                    "the limit of {name} of {} is 0: nobody could connect",
                    config.what
                )));
            }
        }
        let descriptors = Descriptors::provide(config.what, config.connections, config.descriptors)?;
        config.connections = descriptors.connections();
        let (share, open, ended) = (config.share(), Mutex::default(), Notify::new());
        Ok(Arc::new(Self { config, share, open, ended, counters, _descriptors: descriptors }))
    }

    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    /// Return whether half of the places, or of those that an address may have, are taken.
    pub fn is_half_full(&self, peer: IpAddr) -> bool {
        let open = self.lock();
        let of_address = open.addresses.get(&network(peer)).copied().unwrap_or(0);
        open.all > self.config.connections / 2 || of_address > self.share / 2
    }

    /// Return what is counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that are open.
    pub fn open(&self) -> u64 {
        self.lock().all
    }

    /// Lets a connection in; one without an address is of this machine, and only the limit of all holds for it.
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
        Ok(Permit { of: Arc::clone(self), address, deadline: Instant::now() + self.config.patience })
    }

    /// Wait until no more than so many connections are open.
    async fn at_most(&self, connections: u64) {
        loop {
            let mut ended = pin!(self.ended.notified());
            // From now on, so that an end while the count is read is not missed.
            ended.as_mut().enable();
            if self.open() <= connections {
                return;
            }
            ended.await;
        }
    }

    /// Wait until one more may be let in.
    pub(super) async fn room(&self) {
        self.at_most(self.config.connections.saturating_sub(1)).await;
    }

    /// Wait until none is open.
    pub async fn idle(&self) {
        self.at_most(0).await;
    }
}

/// The place of a connection, free again when this is dropped.
#[derive(Debug)]
pub struct Permit {
    of: Arc<Admission>,
    address: Option<IpAddr>,
    deadline: Instant,
}

impl Permit {
    /// Return when the first byte must have come.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Return the admission that gave it.
    pub fn admission(&self) -> &Arc<Admission> {
        &self.of
    }

    /// Wait for what must be done by the deadline, a handshake for instance. `None`: it was not, which is counted.
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

/// What limits count as one address: who has an address of IPv6 has the 2^64 beside it too.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
        }
        other @ (IpAddr::V4(_) | IpAddr::V6(_)) => other,
    }
}
