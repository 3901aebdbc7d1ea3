use std::sync::Mutex;

use penstock_io::runtime::{block_on, spawn};
use penstock_io::sync::lock;
use tokio::time::timeout;

use super::*;
use crate::columns::Layout;
use crate::delivery::{ConnectionEnd, Delivery, Safe};
use crate::{Batches, Chunk, Sender, SenderOptions, channel};

const GRACE: Duration = Duration::from_secs(10);

/// A destination that records its calls.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<&'static str>>);

impl Recorder {
    fn note(&self, what: &'static str) {
        lock(&self.0).push(what);
    }

    fn noted(&self) -> Vec<&'static str> {
        lock(&self.0).clone()
    }
}

impl Destination for Recorder {
    fn layout(&self) -> Option<&Layout> {
        None
    }

    // Only a destination that detects replays is told when connections end.
    fn hash_seed(&self) -> Option<u64> {
        Some(0)
    }

    fn take(&self, _delivery: Delivery) -> Safe {
        self.note("take");
        Box::pin(std::future::ready(Ok(())))
    }

    fn ended(&self, _ended: ConnectionEnd) {
        self.note("ended");
    }

    fn close(&self) -> Result<()> {
        self.note("close");
        Err(Error::misuse("it cannot be closed".into()))
    }
}

fn options() -> ReceiverOptions {
    ReceiverOptions::new(([127, 0, 0, 1], 0).into())
}

/// Send one event to a receiver, while its connection stays open; then shut the receiver down.
fn life(options: ReceiverOptions, destination: Arc<dyn Destination>) -> Result<()> {
    let receiver = Receiver::bind(options, destination)?;
    let sender = Sender::new(SenderOptions::new(vec![receiver.local_addr()?.to_string()]))?;
    let mut chunk = Chunk::default();
    chunk.push_json(b"{}");
    let sent = block_on(async {
        sender.send(&chunk).await?;
        sender.flush().await
    });
    sent??;
    let ended = block_on(receiver.shutdown(GRACE))?;
    block_on(sender.close(Duration::ZERO))??;
    ended
}

#[test]
fn a_receiver_closes_its_destination_after_its_last_connection() {
    let recorder = Arc::new(Recorder::default());
    let error = life(options(), Arc::clone(&recorder) as Arc<dyn Destination>).unwrap_err();
    assert_eq!(error.to_string(), "it cannot be closed");
    assert_eq!(recorder.noted(), ["take", "ended", "close"]);
}

#[test]
fn a_destination_that_outlives_the_receiver_is_left_open() {
    let recorder = Arc::new(Recorder::default());
    let options = ReceiverOptions { shared_destination: true, ..options() };
    life(options, Arc::clone(&recorder) as Arc<dyn Destination>).unwrap();
    assert_eq!(recorder.noted(), ["take", "ended"]);
}

#[test]
fn a_wait_for_a_batch_ends_with_the_receiver_and_batches_that_came_before_are_returned() {
    let (destination, batches) = channel(Layout::raw());
    let receiver = Receiver::bind(options(), destination).unwrap();
    let to = receiver.local_addr().unwrap().to_string();
    let sender = Sender::new(SenderOptions::new(vec![to])).unwrap();
    let mut chunk = Chunk::default();
    chunk.push_json(b"{}");
    block_on(sender.send(&chunk)).unwrap().unwrap();
    let batches = Arc::new(batches);
    let mut first = block_on(batches.next()).unwrap().unwrap();
    first.ack();
    block_on(sender.flush()).unwrap().unwrap();
    block_on(sender.send(&chunk)).unwrap().unwrap();
    let reading = spawn({
        let batches: Arc<Batches> = Arc::clone(&batches);
        async move {
            let mut second = batches.next().await.unwrap();
            second.ack();
            batches.next().await.is_none()
        }
    });
    block_on(sender.flush()).unwrap().unwrap();
    block_on(receiver.shutdown(GRACE)).unwrap().unwrap();
    let ended = block_on(async { timeout(GRACE, reading.unwrap()).await.expect("in time") });
    assert!(ended.unwrap().unwrap());
    assert!(block_on(batches.next()).unwrap().is_none());
    block_on(sender.close(Duration::ZERO)).unwrap().unwrap();
}
