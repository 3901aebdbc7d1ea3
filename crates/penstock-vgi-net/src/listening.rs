//! Listening sockets for servers whose threads wait in the system: the IO thread accepts
//! connections, within limits, and queues them here for the threads.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use penstock_io::admission::{Admission, Config, FIRST_BYTE_TIMEOUT, LoopbackShare, Permit, WhenFull};
use penstock_io::listener::{Connection, Listener, Stream};
use penstock_io::runtime::{PerProcess, spawn};
use penstock_io::sync::lock;
use penstock_io::unix::SocketFile;
use penstock_io::{Addresses, Result};
use socket2::SockRef;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::counters::Counters;
use super::tls::Tls;

/// The descriptors of a connection: the socket, the two that its channel reads and writes, and the
/// one that shuts it down.
const DESCRIPTORS: u64 = 4;
/// How long running calls may take once their server stops.
pub const GRACE: Duration = Duration::from_secs(10);

/// The limit of connections, and the time that each has to begin.
#[derive(Debug, Clone, Copy)]
pub struct ListeningOptions {
    /// The most connections at a time; others wait in the system's backlog. Default: 1,024.
    pub connections: u64,
    /// The time from accept to the end of the handshake and the first byte. Default: 10 s.
    pub first_byte: Duration,
}

impl Default for ListeningOptions {
    fn default() -> Self {
        Self { connections: 1_024, first_byte: FIRST_BYTE_TIMEOUT }
    }
}

impl ListeningOptions {
    fn admission(self, counters: &Counters) -> Result<Arc<Admission>> {
        let config = Config {
            when_full: WhenFull::Wait,
            descriptors: DESCRIPTORS,
            first_byte_timeout: self.first_byte,
            // The peer may be a proxy on loopback that forwards many clients.
            loopback: LoopbackShare::All,
            ..Config::new("vgi", self.connections)
        };
        Admission::new(config, Arc::clone(counters.admission()))
    }
}

/// A listening socket, which accepts connections until it is closed or dropped.
#[derive(Debug)]
pub struct RpcListener(PerProcess<Running>);

#[derive(Debug)]
struct Running {
    accepted: tokio::sync::Mutex<mpsc::UnboundedReceiver<AdmittedConnection>>,
    admission: Arc<Admission>,
    open: Arc<OpenSockets>,
    stop: watch::Sender<bool>,
    file: Mutex<Option<SocketFile>>,
}

/// The sockets of open connections, which a server that stops shuts down.
#[derive(Debug, Default)]
struct OpenSockets(Mutex<(u64, HashMap<u64, OwnedFd>)>);

impl OpenSockets {
    /// Keep a descriptor of a socket.
    fn add(self: &Arc<Self>, socket: OwnedFd) -> OpenSocket {
        let mut open = lock(&self.0);
        let (number, sockets) = &mut *open;
        *number = number.wrapping_add(1);
        sockets.insert(*number, socket);
        OpenSocket { of: Arc::clone(self), number: *number }
    }

    /// Shut all sockets down, and return how many there are. The call fails for a socket whose peer
    /// has gone, which has ended anyway.
    fn shutdown(&self, how: Shutdown) -> usize {
        let open = lock(&self.0);
        open.1.values().for_each(|socket| drop(SockRef::from(socket).shutdown(how)));
        open.1.len()
    }
}

/// One of the [`OpenSockets`], removed when this is dropped.
#[derive(Debug)]
struct OpenSocket {
    of: Arc<OpenSockets>,
    number: u64,
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        lock(&self.of.0).1.remove(&self.number);
    }
}

/// An admitted connection on which nothing was read yet. Dropping it returns its permit.
#[derive(Debug)]
pub struct AdmittedConnection {
    socket: Option<OwnedFd>,
    /// Dropped before the permit, which accounts for its descriptor.
    _open: OpenSocket,
    permit: Permit,
}

impl AdmittedConnection {
    /// Take the socket, which is in blocking mode; further calls return `None`.
    pub fn take_socket(&mut self) -> Option<OwnedFd> {
        self.socket.take()
    }

    /// Return how much time is left for the first byte.
    pub fn time_left(&self) -> Duration {
        self.permit.deadline().saturating_duration_since(Instant::now())
    }
}

impl RpcListener {
    /// Listen on an address; port 0 picks a free one. Return the listener and its address. Reload
    /// the certificate when it changes.
    pub fn tcp(
        listen: Addresses,
        tls: Option<&Tls>,
        options: ListeningOptions,
        counters: &Counters,
    ) -> Result<(Self, SocketAddr)> {
        let acceptor = tls.and_then(Tls::acceptor);
        let admission = options.admission(counters)?;
        let (listener, address) = Listener::tcp(listen, acceptor, &admission)?;
        Ok((Self::run(listener, admission, None)?, address))
    }

    /// Listen on a Unix socket to which only this user may connect.
    pub fn unix(path: &Path, options: ListeningOptions, counters: &Counters) -> Result<Self> {
        let admission = options.admission(counters)?;
        let (listener, file) = Listener::unix(path, &admission)?;
        Self::run(listener, admission, Some(file))
    }

    fn run(listener: Listener, admission: Arc<Admission>, file: Option<SocketFile>) -> Result<Self> {
        let (stop, mut stopped) = watch::channel(false);
        let (sender, accepted) = mpsc::unbounded_channel();
        let open = Arc::<OpenSockets>::default();
        let opened = Arc::clone(&open);
        drop(spawn(async move {
            // An error means that the sender was dropped.
            let stopped = async { drop(stopped.wait_for(|stopped| *stopped).await) };
            let hand_over = |connection| {
                if let Some(accepted) = AdmittedConnection::new(connection, &opened) {
                    // This fails if the server has ended, and then the connection is dropped.
                    let _ = sender.send(accepted);
                }
            };
            listener.run(stopped, hand_over).await;
        })?);
        let accepted = tokio::sync::Mutex::new(accepted);
        Ok(Self(PerProcess::new(Running { accepted, admission, open, stop, file: Mutex::new(file) })))
    }

    /// Wait for the next connection; return `None` once the listener is closed.
    pub async fn accept(&self) -> Result<Option<AdmittedConnection>> {
        Ok(self.0.get()?.accepted.lock().await.recv().await)
    }

    /// Stop accepting connections. Remove a Unix socket's file first, while the socket still
    /// listens, so that no other server takes the file for a leftover.
    pub fn close(&self) {
        // In a forked child the socket belongs to the parent.
        if let Ok(running) = self.0.get() {
            drop(lock(&running.file).take());
            running.stop.send_replace(true);
        }
    }
}

impl RpcListener {
    /// Stop accepting connections, and end the open ones: read nothing more, and give running calls
    /// `grace` to answer. Return how many connections were then cut off.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.close();
        // In a forked child the connections belong to the parent.
        let Ok(running) = self.0.get() else { return 0 };
        // Close connections that no thread has taken. A thread waiting for one holds this lock
        // until it learns of the end.
        let mut queued = running.accepted.lock().await;
        queued.close();
        while let Ok(connection) = queued.try_recv() {
            drop(connection);
        }
        drop(queued);
        running.open.shutdown(Shutdown::Read);
        match timeout(grace, running.admission.idle()).await {
            Ok(()) => 0,
            Err(_) => running.open.shutdown(Shutdown::Both),
        }
    }

    /// Pause after a connection that no thread can serve. Return whether to log this.
    pub async fn back_off(&self) -> Result<bool> {
        Ok(self.0.get()?.admission.back_off().await)
    }
}

impl AdmittedConnection {
    fn new(connection: Connection, open: &Arc<OpenSockets>) -> Option<Self> {
        let Connection { stream, permit, .. } = connection;
        let socket = match stream {
            Stream::Tcp(stream) => waiting(stream.into_std().ok()?.into()),
            Stream::Unix(stream) => waiting(stream.into_std().ok()?.into()),
            Stream::Tls(_) => None,
        };
        let socket = socket?;
        let open = open.add(socket.try_clone().ok()?);
        Some(Self { socket: Some(socket), _open: open, permit })
    }
}

/// Return a socket in blocking mode.
fn waiting(socket: OwnedFd) -> Option<OwnedFd> {
    rustix::io::ioctl_fionbio(&socket, false).ok()?;
    Some(socket)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Shutdown, TcpStream};
    use std::os::unix::net::UnixStream;

    use penstock_io::runtime::block_on;

    use super::*;

    fn accepted(listening: &RpcListener) -> AdmittedConnection {
        block_on(listening.accept()).expect("runs").expect("ours").expect("a connection")
    }

    #[test]
    fn a_server_accepts_1024_connections_by_default() {
        let ListeningOptions { connections, first_byte } = ListeningOptions::default();
        assert_eq!((connections, first_byte), (1_024, Duration::from_secs(10)));
    }

    #[test]
    fn a_connection_waits_for_a_thread_and_its_reads_wait_for_the_peer() {
        let counters = Counters::default();
        let (listening, address) =
            RpcListener::tcp(([127, 0, 0, 1], 0).into(), None, ListeningOptions::default(), &counters)
                .expect("listens");
        let mut client = TcpStream::connect(address).expect("connects");
        let mut accepted = accepted(&listening);
        assert!(accepted.time_left() > Duration::from_secs(5));
        let mut socket = TcpStream::from(accepted.take_socket().expect("a socket"));
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            socket.read_to_string(&mut text).map(|_| text)
        });
        std::thread::sleep(Duration::from_millis(50));
        client.write_all(b"hello").expect("written");
        client.shutdown(Shutdown::Write).expect("closed");
        assert_eq!(reader.join().expect("ends").expect("read"), "hello");
    }

    #[test]
    fn a_call_that_runs_is_answered_while_its_server_drains_and_a_silent_connection_ends() {
        let options = ListeningOptions::default();
        let (listening, address) =
            RpcListener::tcp(([127, 0, 0, 1], 0).into(), None, options, &Counters::default()).expect("listens");
        let mut clients: Vec<_> = (0..2).map(|_| TcpStream::connect(address).expect("connects")).collect();
        let serving: Vec<_> = (0..2)
            .map(|_| {
                let mut accepted = accepted(&listening);
                std::thread::spawn(move || {
                    let mut socket = TcpStream::from(accepted.take_socket().expect("a socket"));
                    let end = socket.read(&mut [0; 1]).expect("the end of the input");
                    // The answer must still be sent.
                    socket.write_all(b"answer").expect("written");
                    drop(accepted);
                    end
                })
            })
            .collect();
        assert_eq!(block_on(listening.drain(GRACE)).expect("runs"), 0);
        for (client, thread) in clients.iter_mut().zip(serving) {
            assert_eq!(thread.join().expect("ends"), 0);
            let mut text = String::new();
            client.read_to_string(&mut text).expect("read");
            assert_eq!(text, "answer");
        }
    }

    #[test]
    fn a_connection_whose_call_does_not_end_is_cut_off_after_the_grace() {
        let options = ListeningOptions::default();
        let (listening, address) =
            RpcListener::tcp(([127, 0, 0, 1], 0).into(), None, options, &Counters::default()).expect("listens");
        let mut client = TcpStream::connect(address).expect("connects");
        let held = accepted(&listening);
        // A connection that no thread has taken ends at once, and is not counted.
        let mut waiting = TcpStream::connect(address).expect("connects");
        assert_eq!(block_on(listening.drain(Duration::from_millis(50))).expect("runs"), 1);
        for client in [&mut client, &mut waiting] {
            client.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
            assert!(matches!(client.read(&mut [0; 1]), Ok(0) | Err(_)), "it has ended");
        }
        drop(held);
        assert!(block_on(listening.accept()).expect("runs").expect("ours").is_none(), "it is closed");
    }

    #[test]
    fn connections_that_cannot_be_served_are_told_of_once() {
        let options = ListeningOptions::default();
        let (listening, _) =
            RpcListener::tcp(([127, 0, 0, 1], 0).into(), None, options, &Counters::default()).expect("listens");
        let told = || block_on(listening.back_off()).expect("runs").expect("ours");
        assert_eq!([told(), told(), told()], [true, false, false]);
    }

    #[test]
    fn a_connection_beyond_the_limit_is_taken_when_another_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let options = ListeningOptions { connections: 1, ..ListeningOptions::default() };
        let listening = RpcListener::unix(&path, options, &Counters::default()).expect("listens");
        let _clients: Vec<_> = (0..2).map(|_| UnixStream::connect(&path).expect("connects")).collect();
        let first = accepted(&listening);
        let next = async { tokio::time::timeout(Duration::from_millis(100), listening.accept()).await.is_err() };
        assert!(block_on(next).expect("runs"), "there is one place");
        drop(first);
        drop(accepted(&listening));
        listening.close();
        assert!(!path.exists());
        assert!(block_on(listening.accept()).expect("runs").expect("ours").is_none(), "it is closed");
    }
}
