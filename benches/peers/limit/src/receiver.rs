//! The receiving end: a task for each stream, because streams that are read one after another while many are open
//! wait for each other's credit.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use peers_common::{Arguments, end_with_parent, say};
use quinn::{Connection, RecvStream, SendStream};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};

use super::frames::{PROBE, STATUS, STATUS_WITH_CURSOR, header_length, hex, status};
use super::{runtime, transport};

/// Pieces of a stream that are taken at a time.
const PIECES: usize = 64;

/// Frames that wait for stream 0; queued frames are written together.
#[derive(Default)]
pub struct Control {
    queue: RefCell<BytesMut>,
    changed: Notify,
}

impl Control {
    pub fn push(&self, frame: &[u8]) {
        self.queue.borrow_mut().extend_from_slice(frame);
        self.changed.notify_one();
    }

    pub async fn write(&self, mut stream: SendStream) {
        let _ = stream.set_priority(i32::MAX);
        loop {
            let bytes = self.queue.borrow_mut().split().freeze();
            if bytes.is_empty() {
                self.changed.notified().await;
            } else if stream.write_chunk(bytes).await.is_err() {
                return;
            }
        }
    }
}

pub fn run(arguments: &Arguments) {
    end_with_parent();
    let bare: bool = arguments.get("bare", false);
    let own: bool = arguments.get("hash", String::from("io")) == "own";
    LocalSet::new().block_on(&runtime(), async {
        let (endpoint, certificate) = transport::server(arguments);
        let address = endpoint.local_addr().expect("an address");
        say(&json!({ "address": address.to_string(), "certificate": hex(&certificate) }));
        let connection = endpoint.accept().await.expect("a client").await.expect("a handshake");
        let control = Rc::new(Control::default());
        spawn_local(take_control(connection.clone(), Rc::clone(&control)));
        let hasher = own.then(Hasher::start);
        while let Ok(stream) = connection.accept_uni().await {
            let (control, hasher) = (Rc::clone(&control), hasher.clone());
            spawn_local(async move {
                if bare {
                    drain(stream, &control).await;
                } else {
                    receive(stream, &control, hasher.as_ref()).await;
                }
            });
        }
    });
}

/// Stream 0: echoes probes, takes PENDING frames.
async fn take_control(connection: Connection, control: Rc<Control>) {
    let (send, mut receive) = connection.accept_bi().await.expect("stream 0");
    let echo = Rc::clone(&control);
    spawn_local(async move { echo.write(send).await });
    let mut buffer = BytesMut::new();
    while let Ok(Some(chunk)) = receive.read_chunk(64 << 10, true).await {
        buffer.extend_from_slice(&chunk.bytes);
        while buffer.len() >= STATUS {
            let frame = buffer.split_to(STATUS);
            if frame[0] == PROBE {
                control.push(&frame);
            }
        }
    }
}

/// A stream of which nothing is looked at; its end is echoed, so that the sender knows when to stop the clock.
async fn drain(mut stream: RecvStream, control: &Control) {
    let mut pieces = [const { Bytes::new() }; PIECES];
    while let Ok(Some(_)) = stream.read_chunks(&mut pieces).await {}
    control.push(&status(0x50, 0, STATUS_WITH_CURSOR));
}

/// An entity: its header, its payload, whose SHA-256 must be the header's, and COMPLETE.
async fn receive(mut stream: RecvStream, control: &Control, hasher: Option<&Hasher>) {
    let mut head = BytesMut::new();
    let mut expected = [0; 32];
    let mut id = 0;
    let mut hash = Some(Sha256::new());
    let mut pieces = [const { Bytes::new() }; PIECES];
    let mut in_header = true;
    while let Some(count) = stream.read_chunks(&mut pieces).await.expect("a stream") {
        let mut body: Vec<Bytes> = Vec::new();
        for piece in &mut pieces[..count] {
            let piece = std::mem::take(piece);
            if in_header {
                // Only the header is copied, and only where a packet cuts it.
                let start = piece.first_chunk().map(|start| header_length(*start));
                let whole = start.filter(|length| head.is_empty() && piece.len() >= *length);
                let end = whole.unwrap_or_else(|| {
                    let before = head.len();
                    head.extend_from_slice(&piece);
                    let length = head.first_chunk().map_or(usize::MAX, |start| header_length(*start));
                    length.saturating_sub(before)
                });
                if end <= piece.len() {
                    let header =
                        if whole.is_some() { &piece[..end] } else { &head[..head.len() - (piece.len() - end)] };
                    expected.copy_from_slice(&header[header.len() - 32..]);
                    // The entity's ID is one byte here or more; the status only has to be as long as ours.
                    id = u32::from(header[5]);
                    in_header = false;
                    body.push(piece.slice(end..));
                }
            } else {
                body.push(piece);
            }
        }
        hash = match (hasher, hash.take()) {
            (None, Some(mut hash)) => {
                body.iter().for_each(|piece| hash.update(piece));
                Some(hash)
            }
            (Some(hasher), Some(hash)) => Some(hasher.update(hash, body).await),
            (_, None) => None,
        };
    }
    let found = hash.expect("it comes back").finalize();
    assert_eq!(found[..], expected, "the payload is not what its header says");
    control.push(&status(0x50, id, STATUS_WITH_CURSOR));
}

type Work = (Sha256, Vec<Bytes>, tokio::sync::oneshot::Sender<Sha256>);

/// A thread that hashes.
#[derive(Clone)]
struct Hasher(std::sync::mpsc::Sender<Work>);

impl Hasher {
    fn start() -> Self {
        let (sender, work) = std::sync::mpsc::channel::<Work>();
        std::thread::spawn(move || {
            for (mut hash, pieces, done) in work {
                pieces.iter().for_each(|piece| hash.update(piece));
                let _ = done.send(hash);
            }
        });
        Self(sender)
    }

    async fn update(&self, hash: Sha256, pieces: Vec<Bytes>) -> Sha256 {
        let (done, hashed) = tokio::sync::oneshot::channel();
        self.0.send((hash, pieces, done)).expect("the thread lives");
        hashed.await.expect("the thread lives")
    }
}
