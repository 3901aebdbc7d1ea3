//! Batches for an application, which acknowledges them itself.

use std::sync::{Arc, Mutex as StdMutex};

use arrow_array::RecordBatch;
use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::columns::Layout;
use super::delivery::{Delivery, Destination, Origin, Safe};
use crate::{Error, Result};

/// Events of one connection. If dropped without [`ack`](Self::ack), they are not acknowledged and the connection ends,
/// so that the writer sends them again.
#[derive(Debug)]
pub struct Batch {
    /// The events, one per row.
    pub record_batch: RecordBatch,
    /// Their origin.
    pub origin: Origin,
    taken: Option<oneshot::Sender<()>>,
}

impl Batch {
    /// Report that the application has accepted the events, so that they may be acknowledged.
    pub fn ack(&mut self) {
        if let Some(taken) = self.taken.take() {
            // An error means that the connection has ended: the writer will send them again.
            let _ = taken.send(());
        }
    }

    /// Return whether the events were acknowledged.
    pub fn is_acked(&self) -> bool {
        self.taken.is_none()
    }
}

/// Passes batches to an application. The receiver's limits bound the queue.
#[derive(Debug)]
pub struct Channel {
    layout: Layout,
    /// `None` once the receiver has ended.
    batches: StdMutex<Option<mpsc::UnboundedSender<Batch>>>,
}

/// The receiving end of a [`channel`].
#[derive(Debug)]
pub struct Batches(Mutex<mpsc::UnboundedReceiver<Batch>>);

/// Make a channel.
pub fn channel(layout: Layout) -> (Arc<Channel>, Batches) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Arc::new(Channel { layout, batches: StdMutex::new(Some(sender)) }), Batches(Mutex::new(receiver)))
}

impl Batches {
    /// Return the next batch; `None` when the receiver has ended. Several callers may wait; each batch goes to one of
    /// them.
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
        let batch = Batch { record_batch: batch, origin, taken: Some(taken) };
        let sent = lock(&self.batches).as_ref().is_some_and(|batches| batches.send(batch).is_ok());
        Box::pin(async move {
            if !sent {
                return Err(refused("the application has closed the channel"));
            }
            safe.await.map_err(|_| refused("the application dropped a batch without ack()"))
        })
    }

    fn close(&self) -> Result<()> {
        lock(&self.batches).take();
        Ok(())
    }
}

fn refused(why: &str) -> Error {
    Error::io("the application did not accept events", why.to_owned())
}

/// Drops events, to measure the speed of a receiver.
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
