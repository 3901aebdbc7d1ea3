//! Sessions of layer 2 that continue when their connection is lost.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::Duration;

use penstock_pipestream_net::{EntityDraft, ErrorCode, Payload, SessionHandle, SessionOptions, Status, channel};

use crate::support::{Pair, block, container, draft, eventually, files, id, log};

/// The path between a client and a server, which can be cut: everything sent while it is cut is
/// lost.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
    cut: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    carrying: Option<JoinHandle<()>>,
}

impl Wire {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = near.local_addr().unwrap();
        let (cut, over) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let server = Arc::new(Mutex::new(server));
        let (end, lost, done) = (Arc::clone(&server), Arc::clone(&cut), Arc::clone(&over));
        let carrying = spawn(move || carry(&near, &end, &lost, &done));
        Self { address, server, cut, over, carrying: Some(carrying) }
    }

    /// Send everything that arrives from now on to another server.
    pub(crate) fn redirect(&self, server: SocketAddr) {
        *self.server.lock().unwrap() = server;
    }

    pub(crate) fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
    }

    pub(crate) fn restore(&self) {
        self.cut.store(false, Ordering::Relaxed);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.carrying.take().unwrap().join();
    }
}

/// Carry datagrams, with one far socket for each near peer: the server distinguishes peers by their
/// addresses.
fn carry(near: &UdpSocket, server: &Mutex<SocketAddr>, cut: &AtomicBool, over: &AtomicBool) {
    near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut far: HashMap<SocketAddr, UdpSocket> = HashMap::new();
    let mut datagram = vec![0; 65_536];
    while !over.load(Ordering::Relaxed) {
        if let Ok((bytes, peer)) = near.recv_from(&mut datagram) {
            let socket = far.entry(peer).or_insert_with(|| {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            });
            if !cut.load(Ordering::Relaxed) {
                let _ = socket.send_to(&datagram[..bytes], *server.lock().unwrap());
            }
        }
        for (peer, socket) in &far {
            while let Ok(bytes) = socket.recv(&mut datagram) {
                if !cut.load(Ordering::Relaxed) {
                    let _ = near.send_to(&datagram[..bytes], peer);
                }
            }
        }
    }
}

fn options(survives: Duration) -> SessionOptions {
    let mut options = SessionOptions {
        survives: Some(survives),
        idle_timeout: Duration::from_secs(1),
        mtu: Some(1_452),
        ..SessionOptions::default()
    };
    options.session.capabilities.layer2 = true;
    options
}

fn connect(pair: &Pair, wire: &Wire, survives: Duration) -> SessionHandle {
    block(pair.client.connect(wire.address, "localhost", options(survives))).unwrap()
}

fn payload(number: usize) -> Vec<u8> {
    let length = if number % 10 == 3 { 600_000 } else { 1_000 + number };
    (0..length).map(|at| u8::try_from((at * 7 + number) % 251).unwrap()).collect()
}

const PARTS: usize = 300;

/// Send a container and its parts one by one; call `after` with the number of parts sent so far.
fn send_parts(client: &SessionHandle, mut after: impl FnMut(usize)) {
    let parent = block(client.send(container(), Payload::empty())).unwrap();
    let mut sent = Vec::new();
    for number in 0..PARTS {
        let chunk_size = (number % 50 == 3).then_some(100_000);
        let part = EntityDraft { parent: Some(parent.key), chunk_size, ..draft("x/y") };
        sent.push(block(client.send(part, Payload::bytes(payload(number)))).unwrap());
        after(number);
    }
    block(client.end_children(parent.key)).unwrap();
    for ticket in sent.iter().chain([&parent]) {
        assert_eq!(block(client.wait_resolved(ticket.key)).unwrap().status, Status::Complete);
    }
    let released = block(client.wait_released(parent.child_scope.unwrap())).unwrap();
    assert_eq!((released.digest.processed, released.digest.succeeded), (PARTS as u64, PARTS as u64));
}

#[test]
fn a_session_goes_on_over_other_connections_and_each_entity_is_stored_once() {
    let patience = Duration::from_secs(60);
    let pair = Pair::with_options(|server| server.session = options(patience));
    let wire = Arc::new(Wire::to(pair.server.local_addr().unwrap()));
    let client = connect(&pair, &wire, patience);
    send_parts(&client, |number| {
        if number % 100 == 50 {
            wire.cut();
            let restored_wire = Arc::clone(&wire);
            // Longer than the idle timeout: both ends give up the connection.
            spawn(move || {
                sleep(Duration::from_secs(2));
                restored_wire.restore();
            });
        }
    });
    let session = id(&client);
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
    assert!(pair.server.counters().unwrap().reconnects >= 1);
    let lines = log(&pair.sink(), &session);
    let mut entities: Vec<_> =
        lines.iter().filter_map(|line| Some((line["scope"].as_u64()?, line["entity"].as_u64()?))).collect();
    assert_eq!(entities.len(), PARTS + 1, "an entity has no line, or two");
    entities.sort_unstable();
    entities.dedup();
    assert_eq!(entities.len(), PARTS + 1);
    assert!(lines[..PARTS + 1].iter().all(|line| line["status"] == "COMPLETE"));
    assert!(files(&pair.sink()).iter().all(|file| !file.contains(".tmp")));
}

#[test]
fn a_session_that_is_not_resumed_ends_at_both_ends() {
    let (consumer, sessions) = channel(4);
    let patience = Duration::from_millis(300);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |server| server.session = options(patience));
    let wire = Wire::to(pair.server.local_addr().unwrap());
    let client = connect(&pair, &wire, patience);
    let server = block(sessions.next()).unwrap();
    let sent = block(client.send(draft("x/y"), Payload::bytes(b"bytes".to_vec()))).unwrap();
    wire.cut();
    assert_eq!(block(server.closed()).unwrap().code, ErrorCode::IdleTimeout);
    assert_eq!(block(client.closed()).unwrap().code, ErrorCode::IdleTimeout);
    assert!(block(client.wait_resolved(sent.key)).is_ok_and(|ended| ended.status == Status::Failed));
}

#[test]
fn who_asks_for_a_session_that_is_not_there_is_refused() {
    let patience = Duration::from_secs(60);
    let pair = Pair::with_options(|server| server.session = options(patience));
    let wire = Wire::to(pair.server.local_addr().unwrap());
    let client = connect(&pair, &wire, patience);
    wire.cut();
    // Another server at the same address does not know the session.
    drop(pair.server);
    eventually("the client has given up", || {
        wire.restore();
        client.is_closed().unwrap().is_some()
    });
}

#[test]
fn what_is_kept_of_a_container_does_not_keep_its_children_out() {
    let (consumer, sessions) = channel(4);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |server| {
        server.session = options(Duration::from_secs(60));
    });
    let address = pair.server.local_addr().unwrap();
    let client = block(pair.client.connect(address, "localhost", options(Duration::from_secs(60)))).unwrap();
    let server = block(sessions.next()).unwrap();
    // The payload exceeds the limit of bytes kept to be sent again, but belongs to an entity that
    // has children.
    let whole = block(client.send(container(), Payload::bytes(vec![7; 65 << 20]))).unwrap();
    let part = EntityDraft { parent: Some(whole.key), ..draft("x/y") };
    let part = block(client.send(part, Payload::bytes(&b"part"[..]))).unwrap();
    block(client.end_children(whole.key)).unwrap();
    for _ in 0..2 {
        block(block(server.next_entity()).unwrap().unwrap().complete()).unwrap();
    }
    for key in [part.key, whole.key] {
        assert_eq!(block(client.wait_resolved(key)).unwrap().status, Status::Complete);
    }
    assert_eq!(block(client.close()).unwrap().code, ErrorCode::NoError);
}
