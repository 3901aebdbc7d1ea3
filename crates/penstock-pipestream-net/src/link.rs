//! The state that the tasks of one connection share.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore};

use penstock_pipestream::Attempt;

use crate::command::Commands;
use crate::entity_link::EntityLink;
use crate::events::EventLog;
use crate::incoming::{QueuedEntity, Spool};
use crate::limits::CREDIT;
use crate::port::{EntityBatch, SinkSession};
use crate::shared::Shared;
use crate::transport::Intake;

/// Number of bits for the ID of a stream within its connection.
const STREAM_BITS: u32 = 48;

/// State that the tasks of a connection share.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    pub(crate) connection: quinn::Connection,
    /// Number of the connection among the session's, from 0.
    pub(crate) number: u16,
    pub(crate) commands: Commands,
    /// The part of this state that entities keep after they are handed over.
    pub(crate) entity: Arc<EntityLink>,
    /// Destination of entities. A server's is set once the session has its ID; no entity is
    /// admitted before.
    pub(crate) sink: Arc<OnceLock<Arc<dyn SinkSession>>>,
    pub(crate) intake: Intake,
    pub(crate) log: Option<EventLog>,
    /// One permit for each entity stream of the peer that is being received or waits for its consumer.
    pub(crate) stream_permits: Arc<Semaphore>,
    /// One permit for each byte of payload that may wait for its stream.
    pub(crate) credit: Arc<Semaphore>,
    /// Lock for opening a stream, because quinn wakes every task that waits for one.
    pub(crate) opening: Arc<Mutex<()>>,
    /// Closed while stream 0 waits for room.
    pub(crate) gate: Gate,
    /// Maximum length of a header, in bytes.
    pub(crate) max_header: u32,
}

/// A gate that holds entity streams back while stream 0 waits for room. quinn's priorities only
/// order bytes that it has accepted, and it accepts bytes from the first task that asks: many
/// entity streams would take all the room and keep stream 0 out.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    shut: AtomicBool,
    opened: Notify,
}

impl Gate {
    /// Close the gate, or open it.
    pub(crate) fn set(&self, shut: bool) {
        if self.shut.swap(shut, Ordering::AcqRel) && !shut {
            self.opened.notify_waiters();
        }
    }

    /// Wait until the gate is open.
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

    /// Wait until a poll finds the gate closed. This registers no waker: it is for tasks that are
    /// woken when they can write.
    pub(crate) async fn is_shut(&self) {
        poll_fn(|_| if self.shut.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

impl Link {
    /// Return the link of the same session over another connection.
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
            stream_permits: Arc::clone(&self.stream_permits),
            credit: Arc::new(Semaphore::new(CREDIT)),
            opening: Arc::default(),
            gate: Gate::default(),
            max_header: self.max_header,
        }
    }

    /// Return the number of a peer's stream in the session: its ID in the low bits, the number of
    /// its connection in the high bits. QUIC would take longer than any session lives to reach IDs
    /// of more than 48 bits.
    pub(crate) fn stream(&self, id: quinn::StreamId) -> u64 {
        u64::from(self.number) << STREAM_BITS | u64::from(id)
    }

    /// Return whether a stream belongs to this connection, and not to one that was lost.
    pub(crate) const fn has(&self, stream: u64) -> bool {
        stream >> STREAM_BITS == self.number as u64
    }

    /// Hand entities over to the sink.
    pub(crate) fn deliver(&self, entities: Vec<(QueuedEntity, OwnedSemaphorePermit)>) {
        if let Some(sink) = self.sink.get() {
            sink.deliver(EntityBatch::new(entities, &self.entity));
        }
    }

    /// Return the spool in which the chunks of an entity are assembled. Blocks on the disk.
    pub(crate) fn spool(&self, attempt: Attempt) -> std::io::Result<Spool> {
        match self.sink.get() {
            Some(sink) => sink.spool(attempt),
            None => Err(std::io::Error::other("the session has no sink yet")),
        }
    }

    /// Return how many entity streams of the peer may be received concurrently.
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
    fn a_gate_lets_no_task_through_until_it_opens() {
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
