//! A consumer that several threads share.

use std::fmt;
use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use penstock_pimp::{ConsumerConfig, Metadata};
use tokio::sync::Mutex as Turn;

use crate::Result;
use crate::client::JobClient;
use crate::consumer::{Consumer, Received};

/// A consumer for several threads. Its position can be read while another thread waits for the buffer.
pub struct SharedConsumer {
    consumer: Turn<Consumer>,
    progress: Mutex<Progress>,
}

/// A copy of the consumer's position.
struct Progress {
    next_index: u32,
    position: String,
}

impl fmt::Debug for SharedConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedConsumer").field("next_index", &self.next_index()).finish_non_exhaustive()
    }
}

impl SharedConsumer {
    /// Make a consumer of a job, at a [`position`](Self::position) if there is one. No request is sent yet.
    pub fn new(
        client: Arc<JobClient>,
        key: Option<String>,
        config: ConsumerConfig,
        position: Option<&str>,
    ) -> Result<Self> {
        let consumer = match position {
            Some(position) => Consumer::resume(client, key, config, position)?,
            None => Consumer::new(client, key, config),
        };
        let progress = Mutex::new(Progress::of(&consumer));
        Ok(Self { consumer: Turn::new(consumer), progress })
    }

    /// Return the position after the data returned so far: a line of JSON for another consumer of the job.
    pub fn position(&self) -> String {
        lock(&self.progress).position.clone()
    }

    /// Return the next index that the payload needs.
    pub fn next_index(&self) -> u32 {
        lock(&self.progress).next_index
    }

    /// Wait for the metadata, which come before all data.
    pub async fn metadata(&self) -> Result<Metadata> {
        let mut consumer = self.consumer.lock().await;
        loop {
            if let Some(metadata) = consumer.metadata() {
                return Ok(metadata.clone());
            }
            self.next(&mut consumer).await?;
        }
    }

    /// Return the next bytes; `None` once the payload is complete.
    pub async fn data(&self) -> Result<Option<Vec<u8>>> {
        let mut consumer = self.consumer.lock().await;
        loop {
            match self.next(&mut consumer).await? {
                Some(Received::Metadata(_)) => {}
                Some(Received::Data(data)) => return Ok(Some(data)),
                None => return Ok(None),
            }
        }
    }

    async fn next(&self, consumer: &mut Consumer) -> Result<Option<Received>> {
        let received = consumer.next().await;
        *lock(&self.progress) = Progress::of(consumer);
        received
    }
}

impl Progress {
    fn of(consumer: &Consumer) -> Self {
        Self { next_index: consumer.next_index(), position: consumer.position() }
    }
}
