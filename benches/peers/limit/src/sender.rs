//! The sending end: some tasks, each of which takes the next entity, hashes it, announces it, and writes its stream.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use peers_common::{Arguments, Mark, Receiver, noise, percentiles};
use quinn::{Connection, RecvStream};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::task::{LocalSet, spawn_local};

use super::frames::{PROBE, STATUS, STATUS_WITH_CURSOR, header, status, unhex};
use super::receiver::Control;
use super::{runtime, transport};

/// Counts the frames that the sender has received on stream 0.
#[derive(Default)]
struct StatusCounters {
    completed: Cell<u64>,
    echoed: Cell<u64>,
    changed: Notify,
}

impl StatusCounters {
    /// Count statuses and echoes. Both kinds begin with their first byte; a probe is shorter.
    async fn listen(&self, mut stream: RecvStream) {
        let mut buffer = BytesMut::new();
        while let Ok(Some(chunk)) = stream.read_chunk(64 << 10, true).await {
            buffer.extend_from_slice(&chunk.bytes);
            while let Some(first) = buffer.first().copied() {
                let length = if first == PROBE { STATUS } else { STATUS_WITH_CURSOR };
                if buffer.len() < length {
                    break;
                }
                let _ = buffer.split_to(length);
                let count = if first == PROBE { &self.echoed } else { &self.completed };
                count.set(count.get() + 1);
            }
            self.changed.notify_waiters();
        }
    }

    async fn until(&self, counter: impl Fn(&Self) -> u64, least: u64) {
        while counter(self) < least {
            self.changed.notified().await;
        }
    }
}

/// The source of entities, each with its header.
enum Source {
    /// The task that takes an entity hashes it.
    Inline { payload: Bytes, next: Cell<u32>, last: Cell<u32>, bare: bool },
    /// A separate thread hashes them.
    Threaded(tokio::sync::Mutex<mpsc::Receiver<(u32, Bytes, Bytes)>>),
}

impl Source {
    async fn next(&self) -> Option<(u32, Bytes, Bytes)> {
        match self {
            Self::Inline { payload, next, last, bare } => {
                let id = next.get();
                if id > last.get() {
                    return None;
                }
                next.set(id + 1);
                let head = if *bare { Bytes::new() } else { header(id, payload) };
                Some((id, head, payload.clone()))
            }
            Self::Threaded(entities) => entities.lock().await.recv().await,
        }
    }
}

struct Bench {
    receiver: Receiver,
    connection: Connection,
    control: Rc<Control>,
    counters: Rc<StatusCounters>,
    size: usize,
    tasks: usize,
    bare: bool,
    own: bool,
}

pub fn run(arguments: &Arguments) -> Value {
    let mut arguments = arguments.clone();
    let bare = arguments.command == "bare";
    if bare {
        arguments.set("bare", "true");
    }
    LocalSet::new().block_on(&runtime(), async {
        let bench = Bench::connect(&arguments, bare).await;
        bench.send(arguments.get("warmup", 200)).await;
        match arguments.command.as_str() {
            "control" => bench.control(arguments.get("count", 2_000)).await,
            _ => bench.streams(arguments.get("count", 10_000)).await,
        }
    })
}

impl Bench {
    async fn connect(arguments: &Arguments, bare: bool) -> Self {
        let receiver = Receiver::start(arguments);
        let (endpoint, config) = transport::client(arguments, unhex(receiver.text("certificate")));
        let address = receiver.text("address").parse().expect("an address");
        let connecting = endpoint.connect_with(config, address, "localhost").expect("a connection");
        let connection = connecting.await.expect("a handshake");
        let (send, receive) = connection.open_bi().await.expect("stream 0");
        let (control, counters) = (Rc::new(Control::default()), Rc::new(StatusCounters::default()));
        let (writing, listening) = (Rc::clone(&control), Rc::clone(&counters));
        spawn_local(async move { writing.write(send).await });
        spawn_local(async move { listening.listen(receive).await });
        control.push(&status(0x50, 0, STATUS)[..STATUS]);
        Self {
            receiver,
            connection,
            control,
            counters,
            size: arguments.get("size", 1_024),
            tasks: arguments.get("tasks", 64),
            bare,
            own: arguments.get("hash", String::from("io")) == "own",
        }
    }

    fn source(&self, count: u32) -> Source {
        let payload = Bytes::from(noise(self.size));
        if !self.own || self.bare {
            return Source::Inline { payload, next: Cell::new(1), last: Cell::new(count), bare: self.bare };
        }
        let (sender, entities) = mpsc::channel(1_024);
        std::thread::spawn(move || {
            for id in 1..=count {
                if sender.blocking_send((id, header(id, &payload), payload.clone())).is_err() {
                    return;
                }
            }
        });
        Source::Threaded(tokio::sync::Mutex::new(entities))
    }

    fn workers(&self, source: &Rc<Source>) -> Vec<tokio::task::JoinHandle<()>> {
        let worker = |_| {
            let (connection, control) = (self.connection.clone(), Rc::clone(&self.control));
            let (source, bare) = (Rc::clone(source), self.bare);
            spawn_local(async move {
                while let Some((id, head, payload)) = source.next().await {
                    if !bare {
                        control.push(&status(0x50, id, STATUS)[..STATUS]);
                    }
                    let mut stream = connection.open_uni().await.expect("a stream");
                    stream.write_all_chunks(&mut [head, payload]).await.expect("written");
                    stream.finish().expect("finished");
                }
            })
        };
        (0..self.tasks).map(worker).collect()
    }

    /// Sends entities and waits until all are complete.
    async fn send(&self, count: u32) {
        let before = self.counters.completed.get();
        for worker in self.workers(&Rc::new(self.source(count))) {
            worker.await.expect("it works");
        }
        self.counters.until(|counters| counters.completed.get(), before + u64::from(count)).await;
    }

    async fn streams(&self, count: u32) -> Value {
        let mark = Mark::now(&self.receiver);
        self.send(count).await;
        let mut report = mark.report(u64::from(count), u64::from(count) * self.size as u64);
        let stats = self.connection.stats();
        report["mtu"] = json!(stats.path.current_mtu);
        report["lost_packets"] = json!(stats.path.lost_packets);
        report
    }

    /// Round trips, one after another, while entities are sent all the time.
    async fn control(&self, count: u64) -> Value {
        let source = Rc::new(self.source(u32::MAX));
        let workers = self.workers(&source);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut samples = Vec::new();
        let completed = self.counters.completed.get();
        let since = Instant::now();
        for _ in 0..count {
            let before = self.counters.echoed.get();
            let sent = Instant::now();
            self.control.push(&status(PROBE, 0, STATUS)[..STATUS]);
            self.counters.until(|counters| counters.echoed.get(), before + 1).await;
            samples.push(sent.elapsed());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let rate = (self.counters.completed.get() - completed) as f64 / since.elapsed().as_secs_f64();
        workers.iter().for_each(tokio::task::JoinHandle::abort);
        let mut report = percentiles(samples);
        report["per_second"] = json!(rate);
        report
    }
}
