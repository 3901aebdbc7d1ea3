//! Detection of a server on this machine that is gone.
//!
//! A server that was killed sends nothing, and QUIC takes the whole idle timeout to notice. On loopback the system
//! knows immediately: the port is closed, and a datagram to it is refused. From other machines such a refusal could be
//! forged or be a transient one of the network, so it is trusted on loopback only, where packets are not lost.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use penstock_pipestream::{ErrorCode, Reason};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use crate::command::Urgent;
use crate::link::Link;

/// Duration of silence after which the system is asked.
const QUIET: Duration = Duration::from_secs(1);
/// A refusal has arrived by then.
const ANSWER: Duration = Duration::from_millis(50);
/// Not a packet of QUIC: its fixed bit is not set, so a QUIC receiver discards it (RFC 9000, section 17.2).
const NOTHING: [u8; 1] = [0];

/// Report when the server is gone. For servers on loopback.
pub(crate) async fn watch(link: Arc<Link>) {
    let (connection, server) = (&link.connection, link.shared.peer);
    let mut heard = connection.stats().udp_rx.datagrams;
    loop {
        tokio::select! {
            _ = connection.closed() => return,
            () = sleep(QUIET) => {}
        }
        let before = std::mem::replace(&mut heard, connection.stats().udp_rx.datagrams);
        // Where the system cannot be asked, the idle timeout decides.
        if before == heard && is_refused(server).await.unwrap_or(false) {
            let message = format!("the server is gone: nobody listens at {server} any more");
            link.commands.urge(Urgent::Gone(Reason { code: ErrorCode::ControlReset, message }));
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
    socket.send(&NOTHING).await?;
    let answered = timeout(ANSWER, socket.recv(&mut [0; 1])).await;
    Ok(matches!(answered, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_io::runtime::{block_on, spawn};

    #[test]
    fn a_port_that_somebody_has_is_not_refused_and_one_that_nobody_has_is() {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let refused = move || block_on(spawn(is_refused(address)).unwrap()).unwrap().unwrap().unwrap();
        assert!(!refused());
        drop(socket);
        assert!(refused());
    }
}
