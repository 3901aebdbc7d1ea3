//! The consumer's driver: it polls when the state machine asks for it, and returns the payload.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::BoxFuture;
use penstock_pimp::{Consumer as Machine, ConsumerConfig, ConsumerEvent, Metadata};
use tokio::time::sleep_until;

use super::client::{Answered, JobClient};
use super::clock::now;
use crate::Result;

/// The most chunks that a poll asks for: at most 5 MiB of values, because gateways cut responses at 6 MB.
pub const POLL_LIMIT: u32 = 20;

/// A reader of a job, which polls only while the caller waits for more.
pub struct Consumer {
    client: Arc<JobClient>,
    key: Option<String>,
    machine: Machine,
    // A poll in flight survives a caller that stops waiting.
    request: Option<BoxFuture<'static, Result<Answered>>>,
    metadata: Option<Metadata>,
    idle_since: Option<Instant>,
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("machine", &self.machine).finish_non_exhaustive()
    }
}

/// A guard that records when the caller stops waiting, even by dropping the future.
struct IdleGuard<'a>(&'a mut Option<Instant>);

impl Drop for IdleGuard<'_> {
    fn drop(&mut self) {
        *self.0 = Some(Instant::now());
    }
}

impl Consumer {
    /// Make a consumer of a job; `key` is its readKey or writeKey, if it needs one. No request is sent yet.
    pub fn new(client: Arc<JobClient>, key: Option<String>, config: ConsumerConfig) -> Self {
        let machine = Machine::new(now(), client.id(), config);
        Self::with_machine(client, key, machine)
    }

    /// Make a consumer that resumes at a [`position`](Self::position), possibly that of another process.
    ///
    /// Fails if the text is not a position in this job.
    pub fn resume(client: Arc<JobClient>, key: Option<String>, config: ConsumerConfig, position: &str) -> Result<Self> {
        let machine = Machine::resume(now(), client.id(), config, position)?;
        Ok(Self::with_machine(client, key, machine))
    }

    fn with_machine(client: Arc<JobClient>, key: Option<String>, machine: Machine) -> Self {
        // The time before the first poll does not count as a stall either.
        Self { client, key, machine, request: None, metadata: None, idle_since: Some(Instant::now()) }
    }

    /// Return the position after the data returned so far: a line of JSON for
    /// [`resume`](Self::resume).
    pub fn position(&self) -> String {
        self.machine.position()
    }

    /// Return the job's metadata, once chunk 0 has arrived.
    pub const fn metadata(&self) -> Option<&Metadata> {
        self.metadata.as_ref()
    }

    /// Return the next index that the payload needs.
    pub const fn next_index(&self) -> u32 {
        self.machine.next_index()
    }

    /// Wait for chunk 0, and then for the next bytes.
    pub async fn next(&mut self) -> Result<Option<Received>> {
        if let Some(idle_since) = self.idle_since.take() {
            self.machine.handle_absence(idle_since.elapsed());
        }
        let _waiting = IdleGuard(&mut self.idle_since);
        loop {
            match self.machine.poll_event() {
                Some(ConsumerEvent::Metadata(metadata)) => {
                    self.metadata = Some(metadata.clone());
                    return Ok(Some(Received::Metadata(metadata)));
                }
                Some(ConsumerEvent::Data(data)) => return Ok(Some(Received::Data(data))),
                Some(ConsumerEvent::Completed) => continue,
                None if self.machine.is_completed() => return Ok(None),
                None => {}
            }
            // Events from before an error are returned first.
            self.machine.handle_timeout(now())?;
            if let Some(poll) = self.machine.poll_transmit(now()) {
                let request = self.client.poll(&poll.query(), self.key.as_deref(), poll.wait)?;
                self.request = Some(Box::pin(request));
            }
            let Some(due) = self.machine.poll_timeout() else { continue };
            let answered = async {
                match &mut self.request {
                    Some(request) => request.await,
                    None => std::future::pending().await,
                }
            };
            let answered = tokio::select! {
                answered = answered => answered,
                () = sleep_until(due.into()) => continue,
            };
            self.request = None;
            match answered {
                // The machine keeps the error and returns it after everything before it.
                Ok(answered) => drop(self.machine.handle_response(now(), answered.status, &answered.body)),
                Err(error @ crate::Error::Local(penstock_io::Error::Io { .. })) => {
                    self.machine.handle_failure(now(), &error.to_string())
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A result of a consumer.
#[derive(Debug, Clone, PartialEq)]
pub enum Received {
    /// The metadata, which are returned once, before all data.
    Metadata(Metadata),
    /// The next bytes of the payload.
    Data(Vec<u8>),
}
