//! Detection of a server on this machine that no longer runs.
//!
//! A server that was killed sends nothing, and QUIC takes the whole idle timeout to notice. On
//! loopback the system knows immediately: the port is closed, and a datagram to it is refused. A
//! refusal from another machine could be forged, or come from a transient fault of the network, so
//! refusals are trusted on loopback only, where packets are not lost.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use penstock_pipestream::{ErrorCode, Reason};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use crate::command::Urgent;
use crate::link::Link;

/// Time without a datagram after which the server's port is probed.
const QUIET_PERIOD: Duration = Duration::from_secs(1);
/// Maximum time for the refusal of a probe to arrive.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(50);
/// Not a packet of QUIC: its fixed bit is not set, so a QUIC receiver discards it (RFC 9000, section 17.2).
const PROBE: [u8; 1] = [0];

/// Watch a server on loopback, and report when it no longer listens.
pub(crate) async fn watch(link: Arc<Link>) {
    let (connection, server) = (&link.connection, link.shared.peer);
    let mut last_datagrams = connection.stats().udp_rx.datagrams;
    loop {
        tokio::select! {
            _ = connection.closed() => return,
            () = sleep(QUIET_PERIOD) => {}
        }
        let before = std::mem::replace(&mut last_datagrams, connection.stats().udp_rx.datagrams);
        // If the probe itself fails, the idle timeout still detects the loss.
        if before == last_datagrams && is_refused(server).await.unwrap_or(false) {
            let message = format!("the server no longer listens at {server}");
            link.commands.send_urgent(Urgent::ServerGone(Reason { code: ErrorCode::ControlReset, message }));
            return;
        }
    }
}

async fn is_refused(server: SocketAddr) -> io::Result<bool> {
    let any = match server {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&PROBE).await?;
    let received = timeout(REFUSAL_TIMEOUT, socket.recv(&mut [0; 1])).await;
    Ok(matches!(received, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_io::runtime::{block_on, spawn};

    #[test]
    fn a_port_in_use_is_not_refused_and_a_free_one_is() {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let refused = move || block_on(spawn(is_refused(address)).unwrap()).unwrap().unwrap().unwrap();
        assert!(!refused());
        drop(socket);
        assert!(refused());
    }
}
