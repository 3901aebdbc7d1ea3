//! TCP sockets that listen, for every protocol over TCP.

use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Socket, Type};

/// Connections that wait to be accepted.
pub const BACKLOG: i32 = 1_024;

/// A socket that takes IPv4 as well where it is of IPv6, and whose port is free again at once.
pub fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    if address.is_ipv6() {
        // Some systems have no dual-stack sockets; then it serves IPv6 alone.
        let _ = socket.set_only_v6(false);
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
