//! What is sent again when a receiver that keeps its sessions on disk is killed: entities are under way all the time, and
//! the receiver that is started again counts what comes to it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peers_common::{Arguments, Receiver, noise};
use penstock_io::runtime::block_on;
use penstock_io::tls::{ClientTls, Trust};
use penstock_pipestream_net::{Client, Payload, SessionHandle, Status};
use serde_json::{Value, json};

use super::sender::{connect, draft, options};

/// How long nothing may come before everything that was under way to us has come.
const SILENCE: Duration = Duration::from_millis(500);

pub fn run(mut arguments: Arguments) -> Value {
    block_on(async move {
        let (size, count) = (arguments.get("size", 64_usize << 10), arguments.get("count", 4_000_usize));
        let receiver = Receiver::start(&arguments);
        let address: SocketAddr = receiver.text("address").parse().expect("an address");
        arguments.set("port", &address.port().to_string());
        let trust = Trust::Fingerprint(receiver.text("fingerprint").parse().expect("a fingerprint"));
        let client = Client::new(&ClientTls { trust, identity: None }).expect("a client");
        let session = connect(&client, &receiver, &options(&arguments)).await;
        let mut run = Run { session, payload: Bytes::from(noise(size)), announced: 0, completed: 0 };
        while run.completed < count / 2 {
            run.step(count, arguments.get("batch", 64)).await;
        }
        drop(receiver);
        let killed = Instant::now();
        while let Ok(taken) = tokio::time::timeout(SILENCE, run.take()).await {
            run.completed += taken;
        }
        let (announced, in_flight) = (run.announced, run.announced - run.completed);
        let receiver = Receiver::start(&arguments);
        let before = run.completed;
        while run.completed == before {
            run.step(count, arguments.get("batch", 64)).await;
        }
        let back = killed.elapsed();
        while run.completed < count {
            run.step(count, arguments.get("batch", 64)).await;
        }
        let again = received(receiver.text("metrics")) - ((count - announced) * size) as f64;
        json!({
            "in_flight_bytes": in_flight * size,
            "again_bytes": again,
            "completed_before": before,
            "back_seconds": (back - SILENCE).as_secs_f64(),
        })
    })
    .expect("a runtime")
}

struct Run {
    session: SessionHandle,
    payload: Bytes,
    announced: usize,
    completed: usize,
}

impl Run {
    /// Four batches are under way; one more is handed over, or one is waited for.
    async fn step(&mut self, count: usize, batch: usize) {
        let batch = batch.min(count - self.announced);
        if batch > 0 && self.announced - self.completed <= 3 * batch {
            let drafts = (0..batch).map(|_| (draft(), Payload::bytes(self.payload.clone()))).collect();
            for ticket in self.session.send_many(drafts).await {
                ticket.expect("announced");
            }
            self.announced += batch;
        } else {
            self.completed += self.take().await;
        }
    }

    async fn take(&self) -> usize {
        let resolutions = self.session.resolutions(64).await.expect("a session");
        assert!(!resolutions.is_empty(), "the session is over");
        for (_, resolution) in &resolutions {
            assert_eq!(resolution.status, Status::Complete);
        }
        resolutions.len()
    }
}

/// Payload bytes that a receiver says to have received whole.
fn received(metrics: &str) -> f64 {
    let mut stream = TcpStream::connect(metrics).expect("metrics");
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n").expect("metrics");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("metrics");
    let value = page.lines().find_map(|line| line.strip_prefix("penstock_pipestream_payload_bytes_total "));
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no such counter in {page}"))
}
