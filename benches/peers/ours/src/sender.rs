//! The sending end: the calling thread makes payloads, which hashes them, and hands them over in batches.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peers_common::{Arguments, Mark, Receiver, noise, percentiles};
use penstock_io::runtime::{block_on, spawn};
use penstock_io::tls::{ClientTls, Trust};
use penstock_pipestream_net::{Client, EntityDraft, EntityKey, Payload, SessionHandle, SessionOptions, Status};
use serde_json::{Value, json};

/// `--mtu 0` leaves the defaults alone.
pub fn options(arguments: &Arguments) -> SessionOptions {
    let mtu = Some(arguments.get("mtu", 6_500)).filter(|mtu| *mtu > 0);
    let survives = Some(arguments.get("survive", 0)).filter(|seconds| *seconds > 0).map(Duration::from_secs);
    let mut options = SessionOptions { mtu, survives, ..SessionOptions::default() };
    options.session.capabilities.layer2 = arguments.get("layers", 1) == 2;
    options
}

struct Bench {
    receiver: Receiver,
    client: Client,
    session: SessionHandle,
    options: SessionOptions,
    size: usize,
    batch: usize,
}

pub fn run(arguments: &Arguments) -> Value {
    block_on(async {
        let mut bench = Bench::connect(arguments).await;
        let warmup = arguments.get("warmup", 200);
        bench.send(warmup).await;
        match arguments.command.as_str() {
            "control" => bench.control(arguments.get("count", 2_000)).await,
            "flat" => bench.flat(arguments.get("count", 1_000), arguments.get("repeat", 10), warmup).await,
            "document" => bench.documents(arguments).await,
            _ => bench.streams(arguments.get("count", 10_000)).await,
        }
    })
    .expect("a runtime")
}

impl Bench {
    async fn connect(arguments: &Arguments) -> Self {
        let receiver = Receiver::start(arguments);
        let trust = Trust::Fingerprint(receiver.text("fingerprint").parse().expect("a fingerprint"));
        let client = Client::new(&ClientTls { trust, identity: None }).expect("a client");
        let options = options(arguments);
        let session = connect(&client, &receiver, &options).await;
        Self {
            receiver,
            client,
            session,
            options,
            // A document's size is not that of the entities that warm up.
            size: if arguments.command == "document" { 64 << 10 } else { arguments.get("size", 1_024) },
            batch: arguments.get("batch", 256),
        }
    }

    /// Sends entities and waits until all are complete.
    async fn send(&self, count: usize) {
        let payload = Bytes::from(noise(self.size));
        let (mut sent, mut completed) = (0, 0);
        while sent < count {
            let batch = self.batch.min(count - sent);
            sent += batch;
            let drafts = (0..batch).map(|_| (draft(), Payload::bytes(payload.clone()))).collect();
            for ticket in self.session.send_many(drafts).await {
                ticket.expect("announced");
            }
            if sent - completed > 4 * self.batch {
                completed += self.take(self.batch).await;
            }
        }
        while completed < count {
            completed += self.take(count - completed).await;
        }
    }

    async fn take(&self, max: usize) -> usize {
        let resolutions = self.session.resolutions(max).await.expect("a session");
        assert!(!resolutions.is_empty(), "the session is over");
        for (_, resolution) in &resolutions {
            assert_eq!(resolution.status, Status::Complete);
        }
        resolutions.len()
    }

    async fn streams(&self, count: usize) -> Value {
        let mark = Mark::now(&self.receiver);
        self.send(count).await;
        mark.report(count as u64, count as u64 * self.size as u64)
    }

    /// Sessions of `count` entities, one after another, each warm before its clock starts.
    async fn flat(&mut self, count: usize, repeat: usize, warmup: usize) -> Value {
        let mut seconds = Vec::new();
        let (mut senders, mut receivers) = (0.0, 0.0);
        for _ in 0..repeat {
            self.session.close().await.expect("a session");
            self.session = connect(&self.client, &self.receiver, &self.options).await;
            self.send(warmup).await;
            let mark = Mark::now(&self.receiver);
            self.send(count).await;
            let report = mark.report(count as u64, 0);
            seconds.push(report["seconds"].as_f64().unwrap_or_default());
            senders += report["sender_cpu_us"].as_f64().unwrap_or_default();
            receivers += report["receiver_cpu_us"].as_f64().unwrap_or_default();
        }
        let total: f64 = seconds.iter().sum();
        json!({
            "count": count,
            "repeat": repeat,
            "us_per_entity": total * 1e6 / (count * repeat) as f64,
            "sender_cpu_us": senders / repeat as f64,
            "receiver_cpu_us": receivers / repeat as f64,
        })
    }

    /// Documents of `size` bytes, one after another: as one entity, or as a parent with parts of `part` bytes.
    async fn documents(&self, arguments: &Arguments) -> Value {
        let (size, part) = (arguments.get("size", 8_usize << 20), arguments.get("part", 64_usize << 10));
        let count = arguments.get("count", 1_u64);
        // A large document lies in a file, as it would; its bytes are not what is measured.
        let file = (part == 0).then(|| tempfile(size));
        let bytes = if part == 0 { Bytes::new() } else { Bytes::from(noise(part)) };
        let mark = Mark::now(&self.receiver);
        let mut seconds = Vec::new();
        for _ in 0..count {
            let began = Instant::now();
            let key = match &file {
                Some(file) => {
                    let payload = Payload::file(file.try_clone().expect("a file")).expect("readable");
                    self.session.send(draft(), payload).await.expect("announced").key
                }
                None => self.parts(size, &bytes).await,
            };
            let resolution = self.session.wait_resolved(key).await.expect("an outcome");
            assert_eq!(resolution.status, Status::Complete);
            seconds.push(began.elapsed().as_secs_f64());
        }
        let mut report = mark.report(count, count * size as u64);
        report["each"] = json!(seconds);
        report
    }

    /// A parent and its parts, handed over in batches, each part with a hash of its own.
    async fn parts(&self, size: usize, data: &Bytes) -> EntityKey {
        let metadata = [("pipestream.original-length".to_owned(), size.to_string())].into();
        let parent = EntityDraft { dehydrate: true, metadata, ..draft() };
        let parent = self.session.send(parent, Payload::empty()).await.expect("announced").key;
        let mut left = size;
        while left > 0 {
            let mut batch = Vec::new();
            while left > 0 && batch.len() < 32 {
                let length = left.min(data.len());
                left -= length;
                batch.push((EntityDraft { parent: Some(parent), ..draft() }, Payload::bytes(data.slice(..length))));
            }
            for ticket in self.session.send_many(batch).await {
                ticket.expect("announced");
            }
        }
        self.session.end_children(parent).await.expect("ended");
        parent
    }

    /// Round trips, one after another, while entities are sent all the time.
    async fn control(self, count: usize) -> Value {
        let stop = Arc::new(AtomicBool::new(false));
        let (session, stopped) = (self.session.clone(), Arc::clone(&stop));
        let probing = spawn(async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let mut samples = Vec::new();
            let since = Instant::now();
            for _ in 0..count {
                let sent = Instant::now();
                let answer = session.checkpoint(0, 1, None).await.expect("an answer");
                assert!(answer.satisfied);
                samples.push(sent.elapsed());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            stopped.store(true, Ordering::Relaxed);
            (samples, since.elapsed())
        })
        .expect("a runtime");
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            self.send(self.batch * 4).await;
            sent += self.batch * 4;
        }
        let (samples, elapsed) = probing.await.expect("probes");
        let mut report = percentiles(samples);
        report["per_second"] = json!(sent as f64 / elapsed.as_secs_f64());
        report
    }
}

pub async fn connect(client: &Client, receiver: &Receiver, options: &SessionOptions) -> SessionHandle {
    let address = receiver.text("address").parse().expect("an address");
    client.connect(address, "localhost", options.clone()).await.expect("a session")
}

/// A file of so many bytes that takes no room on disk and has no name.
fn tempfile(size: usize) -> File {
    let path = std::env::temp_dir().join(format!("penstock-bench-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a new file");
    std::fs::remove_file(&path).expect("it is there");
    file.set_len(size as u64).expect("a long file");
    file
}

pub fn draft() -> EntityDraft {
    EntityDraft { content_type: "application/octet-stream".into(), ..EntityDraft::default() }
}
