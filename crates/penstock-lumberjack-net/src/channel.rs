//! Batches for an application, which acknowledges them itself.

use std::sync::Arc;

use arrow_array::RecordBatch;
use penstock_io::DriverError as _;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::columns::Layout;
use super::delivery::{Delivery, Destination, Origin, Safe};
use crate::{Error, Result};

/// Events of one connection. Dropped without [`ack`](Self::ack), they are not acknowledged, and their connection ends:
/// the writer sends them again.
#[derive(Debug)]
pub struct Batch {
    /// The events, a row for each.
    pub record_batch: RecordBatch,
    /// Where they came from.
    pub origin: Origin,
    taken: Option<oneshot::Sender<()>>,
}

impl Batch {
    /// The application has taken the events: they may be acknowledged.
    pub fn ack(&mut self) {
        if let Some(taken) = self.taken.take() {
            // An error means that the connection is gone: the writer will send them again.
            let _ = taken.send(());
        }
    }

    /// Whether they were acknowledged.
    pub fn is_acked(&self) -> bool {
        self.taken.is_none()
    }
}

/// Hands batches to an application. What waits is bounded by the receiver's limits, not here.
#[derive(Debug)]
pub struct Channel {
    layout: Layout,
    batches: mpsc::UnboundedSender<Batch>,
}

/// Where the application takes them.
#[derive(Debug)]
pub struct Batches(Mutex<mpsc::UnboundedReceiver<Batch>>);

/// The two ends of a channel.
pub fn channel(layout: Layout) -> (Arc<Channel>, Batches) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(Channel { layout, batches: sender }), Batches(Mutex::new(receiver)))
}

impl Batches {
    /// The next batch; none when the receiver is gone. Several may wait, each gets another one.
    pub async fn next(&self) -> Option<Batch> {
        self.0.lock().await.recv().await
    }
}

impl Destination for Channel {
    fn layout(&self) -> Option<&Layout> {
        Some(&self.layout)
    }

    fn hash_seed(&self) -> Option<u64> {
        None
    }

    fn take(&self, delivery: Delivery) -> Safe {
        let (taken, safe) = oneshot::channel();
        let Delivery { batch, origin, .. } = delivery;
        let sent = self.batches.send(Batch { record_batch: batch, origin, taken: Some(taken) });
        Box::pin(async move {
            sent.map_err(|_| refused("nobody takes batches any more"))?;
            safe.await.map_err(|_| refused("the application gave a batch up"))
        })
    }
}

fn refused(why: &str) -> Error {
    Error::io("events were not taken", why.to_owned())
}

/// Takes events and forgets them: how fast a receiver can be.
#[derive(Debug)]
pub struct Discard;

impl Destination for Discard {
    fn layout(&self) -> Option<&Layout> {
        None
    }

    fn hash_seed(&self) -> Option<u64> {
        None
    }

    fn take(&self, _delivery: Delivery) -> Safe {
        Box::pin(std::future::ready(Result::Ok(())))
    }
}
