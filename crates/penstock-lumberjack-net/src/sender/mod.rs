//! The sender: windows of events for one of several receivers, or for all of them alternately.
//!
//! ```text
//!  send(chunk) ─► lane: Client ─► window, compressed on the pool ─► host     events wait in the lane until acknowledged,
//!            └──► lane: Client ─► ...                                        and go again over the next connection
//! ```

mod chunk;
mod column;
mod context;
mod host;
mod lane;
mod line;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::runtime::{PerProcess, Runtime};
use penstock_io::sync::lock;
use penstock_lumberjack::Client;
use tokio::time::timeout;

pub use self::chunk::Chunk;
use self::context::{Closing, Context};
pub use self::context::{Hosts, SenderOptions};
use self::lane::Lane;
pub use self::line::Line;
use crate::{Error, Misuse, Result};

/// A sender of events, which keeps them until they are acknowledged. It connects when there are
/// events to send.
pub struct Sender(PerProcess<Arc<Shared>>);

struct Shared {
    context: Arc<Context>,
    lanes: Vec<Arc<Lane>>,
    next: AtomicUsize,
    order: Mutex<LaneAssignments>,
}

/// The lanes to which events were assigned, in the order in which the events were sent.
#[derive(Debug, Default)]
struct LaneAssignments {
    assigned: u64,
    acknowledged: u64,
    runs: VecDeque<Run>,
    /// The number of events assigned to each lane.
    lanes: Vec<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    lane: usize,
    /// The number of the lane's events up to the end of the run; `end` is that of all events.
    lane_end: u64,
    end: u64,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl Sender {
    /// Make a sender, and read its certificates. It does not connect yet.
    pub fn new(mut options: SenderOptions) -> Result<Self> {
        if options.hosts.is_empty() {
            return Err(Misuse::NoHosts.into());
        }
        let tls = options.tls.as_ref().map(|tls| tls.config(b"")).transpose()?;
        let tls = tls.map(|mut config| {
            config.alpn_protocols.clear();
            Arc::new(config)
        });
        // Reject a level that zlib does not have.
        Client::new(Instant::now(), options.client.clone())?;
        let level = std::mem::take(&mut options.client.compression);
        let lanes = match options.mode {
            Hosts::Failover => 1,
            Hosts::Balance => options.hosts.len(),
        };
        let made = (0..lanes).map(|first| {
            let client = Client::new(Instant::now(), options.client.clone())?;
            Ok(Arc::new(Lane::new(first, client)))
        });
        let lanes = made.collect::<Result<Vec<_>>>()?;
        let order = LaneAssignments { lanes: vec![0; lanes.len()], ..LaneAssignments::default() };
        let shared = Arc::new(Shared {
            context: Arc::new(Context::new(options, tls, level)),
            lanes,
            next: AtomicUsize::new(0),
            order: Mutex::new(order),
        });
        let runtime = Runtime::current()?;
        for lane in &shared.lanes {
            runtime.handle().spawn(Arc::clone(lane).drive(Arc::clone(&shared.context)));
        }
        Ok(Self(PerProcess::new(shared)))
    }

    /// Send events; return once all of them are in windows, which takes time while too many are in
    /// flight. Return the number of events sent since the beginning, including these.
    ///
    /// Fails as a limit, without sending any event, if one is larger than receivers accept. If the
    /// future is dropped, some of the events may be sent.
    pub async fn send(&self, chunk: &Chunk) -> Result<u64> {
        let shared = self.0.get()?;
        chunk.check(&shared.context.options.client.limits)?;
        let mut at = 0;
        loop {
            let room = shared.context.room.notified();
            tokio::pin!(room);
            // Register first, so that a change while the lanes are examined is not missed.
            room.as_mut().enable();
            at = shared.assign(chunk, at)?;
            if at >= chunk.len() {
                return Ok(shared.order().assigned);
            }
            room.await;
        }
    }

    /// Wait until this many events since the beginning are acknowledged. Open windows are sent at
    /// once.
    pub async fn acknowledged(&self, events: u64) -> Result<()> {
        let shared = self.0.get()?;
        shared.send_open_windows();
        loop {
            let room = shared.context.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            if shared.watermark()? >= events {
                return Ok(());
            }
            room.await;
        }
    }

    /// Wait until all events are acknowledged.
    pub async fn flush(&self) -> Result<()> {
        let assigned = self.0.get()?.order().assigned;
        self.acknowledged(assigned).await
    }

    /// Return how many events, in the order in which they were sent, are acknowledged without a gap.
    pub fn watermark(&self) -> Result<u64> {
        self.0.get()?.watermark()
    }

    /// Accept no more events, wait up to `grace` for the acknowledgements, and end. Fails if some
    /// are missing.
    pub async fn close(&self, grace: Duration) -> Result<()> {
        let shared = self.0.get()?;
        shared.close(Closing::Closed);
        let flushed = timeout(grace, self.flush()).await;
        shared.close(Closing::Abandoned);
        let missing = || {
            let order = shared.order();
            Error::deadline(format!("{} events were not acknowledged in time", order.assigned - order.acknowledged))
        };
        flushed.unwrap_or_else(|_| Err(missing()))
    }

    /// End now, even if some events are not acknowledged.
    pub fn abandon(&self) {
        // In a forked child the sender belongs to the parent.
        if let Ok(shared) = self.0.get() {
            shared.close(Closing::Abandoned);
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl Shared {
    fn order(&self) -> MutexGuard<'_, LaneAssignments> {
        lock(&self.order)
    }

    fn close(&self, how: Closing) {
        self.context.close(how);
        for lane in &self.lanes {
            lane.work.notify_one();
        }
        self.context.room.notify_waiters();
    }

    /// Send open windows.
    fn send_open_windows(&self) {
        for lane in &self.lanes {
            lane.lock().wanted = true;
            lane.work.notify_one();
        }
    }

    /// Assign events to lanes that have room; return the index of the first event that is left. When a
    /// lane wants no more events, the next lane follows.
    fn assign(&self, chunk: &Chunk, mut at: usize) -> Result<usize> {
        // The lock is held while lanes take events, so that the order of the lanes' events is that of the assignments.
        let mut order = self.order();
        if self.context.is_closed() {
            return Err(Misuse::Closed.into());
        }
        let mut failed = None;
        for _ in 0..self.lanes.len() {
            let index = self.next.load(Ordering::Relaxed) % self.lanes.len().max(1);
            let Some(lane) = self.lanes.get(index) else { break };
            let mut state = lane.lock();
            if let Some(error) = &state.failed {
                failed = Some(error.clone());
            } else {
                let before = at;
                at = chunk.push_into(at, &mut state.client)?;
                if at > before {
                    order.record(index, (at - before) as u64);
                    lane.work.notify_one();
                }
            }
            drop(state);
            if at >= chunk.len() {
                return Ok(at);
            }
            self.next.store(index + 1, Ordering::Relaxed);
        }
        match failed {
            // Events of a lane that has failed may never be acknowledged, so the caller gets its error.
            Some(error) => Err(error),
            None => Ok(at),
        }
    }

    fn watermark(&self) -> Result<u64> {
        let mut order = self.order();
        let states = self.lanes.iter().map(|lane| {
            let state = lane.lock();
            (state.client.acknowledged().0, state.failed.clone())
        });
        let states: Vec<_> = states.collect();
        while let Some(run) = order.runs.front().copied() {
            let acknowledged = states.get(run.lane).map_or(0, |(events, _)| *events);
            if acknowledged < run.lane_end {
                let part = run.end - (run.lane_end - acknowledged).min(run.end - order.acknowledged);
                order.acknowledged = order.acknowledged.max(part);
                break;
            }
            order.acknowledged = run.end;
            order.runs.pop_front();
        }
        if order.acknowledged < order.assigned
            && let Some(error) = states.into_iter().find_map(|(_, failed)| failed)
        {
            return Err(error);
        }
        Ok(order.acknowledged)
    }
}

impl LaneAssignments {
    fn record(&mut self, lane: usize, events: u64) {
        self.assigned += events;
        let end = self.assigned;
        let Some(of_lane) = self.lanes.get_mut(lane) else { return };
        *of_lane += events;
        let run = Run { lane, lane_end: *of_lane, end };
        match self.runs.back_mut().filter(|last| last.lane == lane) {
            Some(last) => *last = run,
            None => self.runs.push_back(run),
        }
    }
}

#[cfg(test)]
mod tests;
