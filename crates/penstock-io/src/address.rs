//! The addresses of `HOST:PORT`, on which a server listens or to which a client connects.

use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::iter::once;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::{DriverError, Error, Misuse, Result};

/// How long one address of a host is tried before the next one is tried in parallel (RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// The addresses of `HOST:PORT`, at least one, in the resolver's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    name: String,
    first: SocketAddr,
    others: Vec<SocketAddr>,
}

impl<A: Into<SocketAddr>> From<A> for Addresses {
    fn from(address: A) -> Self {
        let address = address.into();
        Self { name: address.to_string(), first: address, others: Vec::new() }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Addresses {
    /// Resolve `HOST:PORT`. Blocks on the resolver.
    pub fn resolve(name: &str) -> Result<Self> {
        check(name)?;
        let unknown = |error| Error::io(format!("cannot resolve {name}"), error);
        Self::new(name, name.to_socket_addrs().map_err(unknown)?)
    }

    fn new(name: &str, mut found: impl Iterator<Item = SocketAddr>) -> Result<Self> {
        let nothing = || Error::io(format!("cannot resolve {name}"), "it has no address");
        let first = found.next().ok_or_else(nothing)?;
        Ok(Self { name: name.to_owned(), first, others: found.collect() })
    }

    /// Return the host in the form in which a certificate names it.
    pub fn host(&self) -> &str {
        host(&self.name)
    }

    /// Return the name that a server's certificate must have: the given one, or the host.
    pub fn server_name<'a>(&'a self, given: Option<&'a str>) -> &'a str {
        given.unwrap_or_else(|| self.host())
    }

    /// Return the port.
    pub const fn port(&self) -> u16 {
        self.first.port()
    }

    /// Return every address.
    pub fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        once(self.first).chain(self.others.iter().copied())
    }

    /// Return whether no other machine can connect, on whichever address a server listens.
    pub fn is_loopback(&self) -> bool {
        self.iter().all(|address| address.ip().is_loopback())
    }

    /// Listen on the first address that works. An address on which another server listens ends the
    /// search: with a second server on another address of the same name, clients would reach either
    /// of the two.
    pub fn bind<T>(&self, bind: impl Fn(SocketAddr) -> io::Result<T>) -> Result<T> {
        let (mut tried, mut result) = (self.first, bind(self.first));
        for address in &self.others {
            match &result {
                Err(error) if error.kind() != ErrorKind::AddrInUse => (tried, result) = (*address, bind(*address)),
                Ok(_) | Err(_) => break,
            }
        }
        result.map_err(|error| Error::io(format!("cannot listen on {tried}"), error))
    }

    /// Connect to the address that answers first, starting each attempt a little after the previous one. If none
    /// answers, return the error of the attempt that ended last.
    pub async fn connect<T, E, F>(&self, attempt: impl Fn(SocketAddr) -> F) -> std::result::Result<T, E>
    where
        T: Send + 'static,
        E: DriverError + Send + 'static,
        F: Future<Output = std::result::Result<T, E>> + Send + 'static,
    {
        let (mut attempts, mut delay) = (JoinSet::new(), Duration::ZERO);
        for address in self.iter() {
            let connecting = attempt(address);
            attempts.spawn(async move {
                sleep(delay).await;
                connecting.await
            });
            delay += ATTEMPT_DELAY;
        }
        let mut failed = E::io(format!("cannot connect to {self}"), "nothing was tried");
        while let Some(ended) = attempts.join_next().await {
            match ended {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => failed = error,
                Err(died) => failed = E::task(died),
            }
        }
        Err(failed)
    }
}

/// Return HOST of `HOST:PORT` in the form in which a certificate names it: an IPv6 address has no
/// brackets.
pub fn host(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(host, _)| host).trim_matches(['[', ']'])
}

fn check(name: &str) -> Result<()> {
    match name.rsplit_once(':') {
        None => Err(Misuse::NoPort { name: name.to_owned() }.into()),
        Some((_, port)) if port.parse::<u16>().is_err() => Err(Misuse::Port { name: name.to_owned() }.into()),
        Some(("", _)) => Err(Misuse::NoHost { name: name.to_owned() }.into()),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests;
