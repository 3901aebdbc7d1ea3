//! The daemon: a queue, its sockets, its clock and its journal.

mod journal;
mod listening;
mod metrics;
mod options;
mod serve;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use penstock_io::admission::{Admission, Config};
use penstock_io::runtime::{self, PerProcess, Runtime, spawn_blocking};
use penstock_io::tls::{Acceptor, Fingerprint};
use penstock_io::{DriverError as _, metrics as endpoint};
use penstock_log::SystemDisk;
use penstock_quicx::{Counters, Queue, StatsResponse};
use tokio::time::timeout;

use self::journal::Folder;
use self::listening::Listeners;
pub use self::options::DaemonOptions;
use self::state::{Phase, Shared};
use crate::{Error, Misuse, Result};
use penstock_io::unix::SocketFile;

/// How long the journal's waiting records may take to reach the disk when the daemon stops.
const FLUSH: Duration = Duration::from_secs(10);
/// How long peers may take to read their output when the daemon stops.
const LINGER: Duration = Duration::from_secs(1);

/// A daemon, which serves until it is dropped.
pub struct Daemon(PerProcess<Running>);

struct Running {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    tls: Option<(SocketAddr, Arc<Acceptor>)>,
    metrics: OnceLock<endpoint::Endpoint>,
    socket: Option<Arc<SocketFile>>,
    stopped: AtomicBool,
}

impl fmt::Debug for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Daemon").finish_non_exhaustive()
    }
}

impl Daemon {
    /// Restore the tasks in the journal, and start to listen. Blocks on files.
    pub fn start(options: DaemonOptions) -> Result<Self> {
        if options.listen.is_none() && options.tls.is_none() && options.socket.is_none() {
            return Err(Misuse::NoListener.into());
        }
        let now = Instant::now();
        let (queue, folder) = match &options.journal {
            None => (Queue::new(now, options.queue.clone())?, None),
            Some(path) => {
                let (folder, queue) = Folder::open(Arc::new(SystemDisk), path, now, &options.queue)?;
                (queue, Some(folder))
            }
        };
        let config = Config {
            per_address: options.max_connections_per_address,
            ..Config::new("Quicx", options.max_connections as u64)
        };
        let admission = Admission::new(config, Arc::default())?;
        let listeners = Listeners::bind(&options, &admission)?;
        let shared = Arc::new(Shared::new(queue, admission, options.idle_timeout));
        let runtime = Runtime::current()?;
        let metrics = OnceLock::new();
        if let Some(listen) = options.metrics {
            let source = Arc::clone(&shared) as Arc<dyn endpoint::Source>;
            drop(metrics.set(endpoint::Endpoint::bind(listen, source)?));
        }
        folder.map(|folder| folder.start(&shared)).transpose()?;
        // Nothing fails after this point: a daemon that did not start must not leave a socket or a task behind.
        runtime.handle().spawn(state::keep_time(Arc::clone(&shared)));
        let (address, tls) = (listeners.address, listeners.tls.clone());
        let socket = listeners.serve(runtime, &shared).map(Arc::new);
        let stopped = AtomicBool::new(false);
        Ok(Self(PerProcess::new(Running { shared, address, tls, metrics, socket, stopped })))
    }

    /// Return the plain-text address on which it listens.
    pub fn address(&self) -> Result<Option<SocketAddr>> {
        Ok(self.0.get()?.address)
    }

    /// Return the TLS address on which it listens, and the fingerprint that clients pin now.
    pub fn tls(&self) -> Result<Option<(SocketAddr, Fingerprint)>> {
        Ok(self.0.get()?.tls.as_ref().map(|(address, acceptor)| (*address, acceptor.fingerprint())))
    }

    /// Return the address on which metrics are served, if they are.
    pub fn metrics_address(&self) -> Result<Option<SocketAddr>> {
        Ok(self.0.get()?.metrics.get().map(endpoint::Endpoint::address))
    }

    /// Return the statistics, as STATS reports them.
    pub fn stats(&self) -> Result<StatsResponse> {
        Ok(self.0.get()?.shared.lock().queue.stats())
    }

    /// Return the counters, and the number of dead tasks.
    pub fn counters(&self) -> Result<(Counters, usize)> {
        let state = self.0.get()?.shared.lock();
        Ok((*state.queue.counters(), state.queue.dead()))
    }

    /// Wait until a client requests a stop.
    pub async fn asked_to_stop(&self) -> Result<()> {
        self.0.get()?.shared.stop_requested.wait().await;
        Ok(())
    }

    /// Stop (decision 13): reject submits, let workers finish within `drain`, make the journal durable. Return
    /// how many tasks are left, in the journal or lost.
    pub async fn stop(&self, drain: Duration) -> Result<usize> {
        let running = self.0.get()?;
        if running.stopped.swap(true, Ordering::Relaxed) {
            return Ok(0);
        }
        if let Some(metrics) = running.metrics.get() {
            metrics.stop();
        }
        let shared = Arc::clone(&running.shared);
        let socket = running.socket.clone();
        let stopping = runtime::spawn(async move {
            let left = stop(&shared, socket, drain).await;
            // This releases the folder for another daemon. An error means that the process is exiting.
            if let Ok(closing) = spawn_blocking(move || shared.close_journal()) {
                let _ = closing.await;
            }
            left
        })?;
        stopping.await.map_err(Error::task)
    }
}

async fn stop(shared: &Arc<Shared>, socket: Option<Arc<SocketFile>>, drain: Duration) -> usize {
    // Remove the file while the socket still listens, so that no daemon takes it for a stale one.
    if let Some(socket) = socket {
        socket.remove();
    }
    {
        let mut state = shared.lock();
        state.queue.stop();
        shared.enter(Phase::Draining);
        shared.settle(&mut state, None);
    }
    if timeout(drain, shared.reached(Phase::Drained)).await.is_err() {
        tracing::warn!(tasks = shared.lock().queue.held(), "workers did not finish before the timeout");
    }
    let journaled = shared.journal.get().is_some();
    if journaled && timeout(FLUSH, flushed(shared)).await.is_err() {
        tracing::warn!("the journal's last records could not be written");
    }
    let _ = timeout(LINGER, written(shared)).await;
    let left = shared.lock().queue.tasks();
    if left > 0 && journaled {
        tracing::info!(tasks = left, "tasks stay in the journal");
    } else if left > 0 {
        tracing::warn!(tasks = left, "tasks are lost because there is no journal");
    }
    shared.cut();
    left
}

/// Wait until the journal has nothing left to write.
async fn flushed(shared: &Shared) {
    loop {
        let change = shared.wrote.notified();
        tokio::pin!(change);
        change.as_mut().enable();
        if shared.lock().queue.is_written() {
            return;
        }
        change.await;
    }
}

/// Wait until the output of all connections is written.
async fn written(shared: &Shared) {
    while shared.lock().unwritten() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // In a forked child, the daemon belongs to the parent.
        if let Ok(running) = self.0.get() {
            if let Some(socket) = &running.socket {
                socket.remove();
            }
            running.shared.cut();
            running.shared.close_journal();
            if let Some(metrics) = running.metrics.get() {
                metrics.stop();
            }
        }
    }
}
