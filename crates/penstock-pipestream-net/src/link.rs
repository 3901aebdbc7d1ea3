//! What the tasks of one connection work with.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};

use crate::command::Commands;
use crate::entity_link::EntityLink;
use crate::events::EventLog;
use crate::incoming::{Spool, Untaken};
use crate::limits::CREDIT;
use crate::port::{EntityBatch, SinkSession};
use crate::shared::Shared;
use crate::transport::Intake;
use crate::types::Attempt;

/// Bits of a stream's ID.
const STREAM_BITS: u32 = 48;

/// What the tasks of a connection work with.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connection: quinn::Connection,
    /// Which of the session's connections it is, from 0.
    pub(crate) number: u16,
    pub(crate) commands: Commands,
    /// What entities that are handed over keep of this.
    pub(crate) entity: Arc<EntityLink>,
    /// Where entities go; a sink is opened once the session has its ID, and nothing is admitted before.
    pub(crate) sink: Arc<OnceLock<Arc<dyn SinkSession>>>,
    pub(crate) intake: Intake,
    pub(crate) log: Option<EventLog>,
    /// One for each entity stream of the peer that is being received or waits for its consumer.
    pub(crate) places: Arc<Semaphore>,
    /// Bytes of payloads that wait for their stream.
    pub(crate) credit: Arc<Semaphore>,
    /// Whose turn it is to open a stream: quinn wakes everybody who waits for one.
    pub(crate) opening: Arc<Mutex<()>>,
    /// Shut while stream 0 waits for room.
    pub(crate) gate: Gate,
    /// The longest header taken, in bytes.
    pub(crate) max_header: u32,
}

/// Lets stream 0 go first. quinn's priorities order what it has taken; what it takes goes to whoever asks first, and
/// many entity streams that ask for all the room there is would keep stream 0 out.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    opened: Notify,
}

impl Gate {
    /// Shut it or opens it.
    pub(crate) fn set(&self, shut: bool) {
        if self.shut.swap(shut, Ordering::AcqRel) && !shut {
            self.opened.notify_waiters();
        }
    }

    /// Wait until it is open.
    pub(crate) async fn open(&self) {
        while self.shut.load(Ordering::Acquire) {
            let mut opened = pin!(self.opened.notified());
            opened.as_mut().enable();
            if !self.shut.load(Ordering::Acquire) {
                return;
            }
            opened.await;
        }
    }

    /// Ready when it is shut by the time it is polled; for whoever is woken to write.
    pub(crate) async fn is_shut(&self) {
        poll_fn(|_| if self.shut.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Link {
    /// Return the same session over another connection.
    pub(crate) fn over(&self, connection: quinn::Connection) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            connection,
            number: self.number.wrapping_add(1),
            commands: self.commands.clone(),
            entity: Arc::clone(&self.entity),
            sink: Arc::clone(&self.sink),
            intake: self.intake,
            log: self.log.clone(),
            places: Arc::clone(&self.places),
            credit: Arc::new(Semaphore::new(CREDIT)),
            opening: Arc::default(),
            gate: Gate::default(),
            max_header: self.max_header,
        }
    }

    /// What a stream of the peer is called in the session: its ID, below the number of its connection. QUIC would take
    /// longer than any session lives to use IDs of 48 bits up.
    pub(crate) fn stream(&self, id: quinn::StreamId) -> u64 {
        u64::from(self.number) << STREAM_BITS | u64::from(id)
    }

    /// Return whether a stream is of this connection, and not of one that was lost.
    pub(crate) const fn has(&self, stream: u64) -> bool {
        stream >> STREAM_BITS == self.number as u64
    }

    /// Hands entities over.
    pub(crate) fn deliver(&self, entities: Vec<(Untaken, OwnedSemaphorePermit)>) {
        if let Some(sink) = self.sink.get() {
            sink.deliver(EntityBatch::new(entities, &self.entity));
        }
    }

    /// Return where the chunks of an entity are put together. Blocks on the disk.
    pub(crate) fn spool(&self, attempt: Attempt) -> std::io::Result<Spool> {
        match self.sink.get() {
            Some(sink) => sink.spool(attempt),
            None => Err(std::io::Error::other("the session has no sink yet")),
        }
    }

    /// Return how many entity streams of the peer may be received at once.
    pub(crate) fn streams(&self) -> usize {
        usize::try_from(self.intake.streams()).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use penstock_io::runtime::{block_on, spawn};

    #[test]
    fn a_gate_lets_nobody_through_until_it_opens() {
        let gate = Arc::new(Gate::default());
        block_on(gate.open()).unwrap();
        gate.set(true);
        block_on(gate.is_shut()).unwrap();
        let waiting = Arc::clone(&gate);
        let through = spawn(async move { waiting.open().await }).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(!through.is_finished());
        gate.set(false);
        block_on(through).unwrap().unwrap();
    }
}
