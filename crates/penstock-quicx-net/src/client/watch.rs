//! Watched tasks: their outcomes, one by one, as they arrive.

use std::fmt;
use std::sync::Arc;

use penstock_io::runtime;
use penstock_io::sync::Latch;
use penstock_quicx::TaskId;
use tokio::sync::{Mutex as Turn, mpsc};

use super::producer::{Outcome, Producer};
use crate::{Misuse, Result};

/// The most watched tasks whose outcome was not taken: the number of outcomes that a daemon remembers.
const WATCHED: usize = 65_536;

/// A watched task, and its outcome; an error if the outcome is unknown.
pub type Watched = (TaskId, Result<Outcome>);

/// Watched tasks, whose outcomes are returned in the order in which they arrive. Each watched task
/// has a place in the queue from the start, so the queue is bounded and no outcome is lost. If
/// there is no place, [`add`](Self::add) waits until an outcome is taken.
pub struct Watch {
    producer: Arc<Producer>,
    places: mpsc::Sender<Watched>,
    outcomes: Turn<mpsc::Receiver<Watched>>,
    closed: Latch,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("free", &self.places.capacity()).finish_non_exhaustive()
    }
}

impl Watch {
    /// Watch tasks over the connection of a producer.
    pub fn new(producer: Arc<Producer>) -> Self {
        Self::bounded(producer, WATCHED)
    }

    fn bounded(producer: Arc<Producer>, most: usize) -> Self {
        let (places, outcomes) = mpsc::channel(most);
        Self { producer, places, outcomes: Turn::new(outcomes), closed: Latch::default() }
    }

    /// Watch a task. Waits while the outcomes of too many watched tasks were not taken.
    pub async fn add(&self, id: TaskId) -> Result<()> {
        if self.closed.is_set() {
            return Err(Misuse::ProducerClosed.into());
        }
        let place = self.closed.unless_set(self.places.clone().reserve_owned()).await.ok_or(Misuse::ProducerClosed)?;
        let place = place.map_err(|_| Misuse::ProducerClosed)?;
        let producer = Arc::clone(&self.producer);
        runtime::spawn(async move { drop(place.send((id, producer.observe(id).await))) })?;
        Ok(())
    }

    /// Return the next outcome. Several callers may wait; each outcome goes to one of them.
    pub async fn next(&self) -> Watched {
        match self.outcomes.lock().await.recv().await {
            Some(watched) => watched,
            // This cannot happen: `places` is a sender, so the queue never ends.
            None => std::future::pending().await,
        }
    }

    /// Close the producer's connection: no more tasks can be watched, and the outcomes of watched
    /// tasks become errors.
    pub fn close(&self) {
        self.closed.set();
        self.producer.close();
    }
}

#[cfg(test)]
mod tests;
