//! Connects a session to `HOST:PORT`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use penstock_io::DriverError as _;
use penstock_pipestream_net::{Client, Error, Result, SessionHandle, SessionOptions};
use tokio::task::JoinSet;

/// How long an address has before the next one of the same host is tried in parallel (RFC 8305).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Return the addresses of `HOST:PORT`, and HOST as a certificate names it. Blocks on the resolver.
pub(crate) fn resolve(address: &str) -> penstock_io::Result<(Vec<SocketAddr>, String)> {
    let wrong = |problem: &str| penstock_io::Error::Misuse(format!("{address:?} is no HOST:PORT: {problem}"));
    let (host, port) = address.rsplit_once(':').ok_or_else(|| wrong("there is no colon"))?;
    if port.parse::<u16>().is_err() {
        return Err(wrong("the port must be a number from 0 to 65535"));
    }
    if host.is_empty() {
        return Err(wrong("the host is missing"));
    }
    let found = address
        .to_socket_addrs()
        .map_err(|error| penstock_io::Error::io(format!("cannot resolve {address}"), error))?;
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return Err(penstock_io::Error::io(format!("cannot resolve {address}"), "it has no address"));
    }
    Ok((found, host.trim_start_matches('[').trim_end_matches(']').to_owned()))
}

/// Connect to the address that answers first, starting each attempt a little after the previous one.
pub(crate) async fn connect(
    client: Client,
    addresses: Vec<SocketAddr>,
    server_name: String,
    options: SessionOptions,
) -> Result<SessionHandle> {
    first(addresses, |address| {
        let (client, server_name, options) = (client.clone(), server_name.clone(), options.clone());
        async move { client.connect(address, &server_name, options).await }
    })
    .await
}

/// Return the result of the first address that answers.
pub(crate) async fn first<T, F>(addresses: Vec<SocketAddr>, attempt: impl Fn(SocketAddr) -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut attempts = JoinSet::new();
    let mut delay = Duration::ZERO;
    for address in addresses {
        let connecting = attempt(address);
        attempts.spawn(async move {
            tokio::time::sleep(delay).await;
            connecting.await
        });
        delay += ATTEMPT_DELAY;
    }
    let mut failed = Error::misuse("there is no address to connect to".into());
    while let Some(attempt) = attempts.join_next().await {
        match attempt {
            Ok(Ok(session)) => return Ok(session),
            Ok(Err(error)) => failed = error,
            Err(error) => failed = Error::io("cannot connect", error.to_string()),
        }
    }
    Err(failed)
}
