//! Asks the kernel whether the peer's TCP has acknowledged everything that a socket has sent (decision 12).
//!
//! An idle writer does not read, so it does not notice that this end has closed, and its own end stays open as long as
//! it likes. Bytes that its TCP has acknowledged have arrived nevertheless. On Linux `sock_diag` reports that: a
//! request names one socket by its addresses, and the response has the number of unacknowledged bytes, FIN included.

use std::net::SocketAddr;

use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// The type of the request, and of a response that is not an error.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const TCP: u8 = 6;
const REQUEST_LENGTH: u32 = 72;
/// The offsets of the type in a response, and of the number of unacknowledged bytes: after the header (16), the state
/// (4), the addresses (48), the timer (4) and the receive queue (4).
const KIND: usize = 4;
const UNCONFIRMED: usize = 76;

/// Return how many sent bytes the peer's TCP has not acknowledged; `None` if the system does not report it.
pub(super) fn unconfirmed(local: SocketAddr, peer: SocketAddr) -> Option<u32> {
    let kind = SocketType::DGRAM;
    let asking = socket_with(AddressFamily::NETLINK, kind, SocketFlags::CLOEXEC, Some(SOCK_DIAG)).ok()?;
    send(&asking, &request(local, peer), SendFlags::DONTWAIT).ok()?;
    // The system answers before `send` returns.
    let mut answer = [0_u8; 1 << 10];
    let (_, count) = recv(&asking, &mut answer[..], RecvFlags::DONTWAIT).ok()?;
    read(answer.get(..count)?)
}

fn request(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let interface = if let SocketAddr::V6(peer) = peer { peer.scope_id() } else { 0 };
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&REQUEST_LENGTH.to_ne_bytes());
    bytes.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&[u8::try_from(family.as_raw()).unwrap_or(0), TCP, 0, 0]);
    // Sockets in any state.
    bytes.extend_from_slice(&u32::MAX.to_ne_bytes());
    bytes.extend_from_slice(&local.port().to_be_bytes());
    bytes.extend_from_slice(&peer.port().to_be_bytes());
    for address in [local, peer] {
        let mut field = [0_u8; 16];
        match address {
            SocketAddr::V4(address) => {
                field.iter_mut().zip(address.ip().octets()).for_each(|(field, byte)| *field = byte);
            }
            SocketAddr::V6(address) => field = address.ip().octets(),
        }
        bytes.extend_from_slice(&field);
    }
    bytes.extend_from_slice(&interface.to_ne_bytes());
    // Any socket with these addresses.
    bytes.extend_from_slice(&[0xFF; 8]);
    bytes
}

fn read(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(*answer.get(KIND..)?.first_chunk()?);
    let count = u32::from_ne_bytes(*answer.get(UNCONFIRMED..)?.first_chunk()?);
    (kind == BY_FAMILY).then_some(count)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_is_unconfirmed_is_counted_or_nothing_is_said() {
        for listen in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let port = listener.local_addr().unwrap().port();
            let to = if listen.starts_with("[::1]") { "[::1]" } else { "127.0.0.1" };
            let writer = TcpStream::connect(format!("{to}:{port}")).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            let places = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
            let ask = || unconfirmed(places.0, places.1);
            // A system without `sock_diag` reports nothing.
            let Some(0) = ask() else { continue };
            stream.write_all(b"2A\0\0\0\x01").unwrap();
            while ask() != Some(0) {}
            // Write more bytes than fit in the buffers of a writer that does not read.
            stream.set_nonblocking(true).unwrap();
            while stream.write(&[0; 64 << 10]).is_ok() {}
            assert!(ask().unwrap() > 0);
            drop(writer);
        }
        let unused = "127.0.0.1:1".parse().unwrap();
        assert_eq!(unconfirmed(unused, unused), None);
        assert_eq!(read(&[0; 16]), None);
    }
}
