//! The open connections of each sender. Before a new connection is compared with broken ones
//! (decision 12), earlier connections that are closing must have ended: then the destination has
//! all their events, and knows whether they broke.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use penstock_io::sync::lock;
use tokio::sync::watch;
use tokio::time::timeout;

use super::link::{Socket, WeakSocket, gone};
use crate::delivery::{ConnectionEnd, Destination};

/// How long a new connection waits for earlier ones to end. After that, events that are sent again
/// may be stored twice.
const EARLIER_TIMEOUT: Duration = Duration::from_millis(250);

/// The open connections, by sender and number.
#[derive(Debug, Default)]
pub(super) struct OpenConnections(Mutex<HashMap<Arc<str>, BTreeMap<u64, Open>>>);

#[derive(Debug)]
struct Open {
    socket: WeakSocket,
    /// Closed when the connection has ended.
    ended: watch::Receiver<()>,
}

/// Registers a connection while it exists, and reports its end to the destination when dropped.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    all: Arc<OpenConnections>,
    destination: Arc<dyn Destination>,
    ended: ConnectionEnd,
    _open: watch::Sender<()>,
}

impl OpenConnections {
    pub(super) fn open(
        self: &Arc<Self>,
        sender: &Arc<str>,
        connection: u64,
        socket: &Socket,
        destination: &Arc<dyn Destination>,
    ) -> ConnectionGuard {
        let (open, ended) = watch::channel(());
        let known = Open { socket: socket.downgrade(), ended };
        self.lock().entry(Arc::clone(sender)).or_default().insert(connection, known);
        ConnectionGuard {
            all: Arc::clone(self),
            destination: Arc::clone(destination),
            ended: ConnectionEnd { sender: Arc::clone(sender), connection, clean: false },
            _open: open,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, BTreeMap<u64, Open>>> {
        lock(&self.0)
    }

    /// Return receivers for the ends of earlier connections that their writers have closed.
    fn ending(&self, sender: &Arc<str>, before: u64) -> Vec<watch::Receiver<()>> {
        let (mut sockets, mut waiting, mut closed) = (Vec::new(), Vec::new(), Vec::new());
        for open in self.lock().get(sender).into_iter().flat_map(|open| open.range(..before)).map(|(_, open)| open) {
            match open.socket.upgrade() {
                Some(socket) => {
                    sockets.push(socket);
                    waiting.push(open.ended.clone());
                }
                None => closed.push(open.ended.clone()),
            }
        }
        closed.extend(gone(&sockets).into_iter().filter_map(|at| waiting.get(at).cloned()));
        closed
    }
}

impl ConnectionGuard {
    /// Wait until the earlier connections of the same sender that are closing have ended.
    pub(super) async fn wait_for_earlier(&self) {
        let ending = self.all.ending(&self.ended.sender, self.ended.connection);
        let all = async {
            for mut ended in ending {
                // An error means that the connection has ended.
                let _ = ended.changed().await;
            }
        };
        if timeout(EARLIER_TIMEOUT, all).await.is_err() {
            tracing::debug!(sender = %self.ended.sender, "an earlier connection has not ended; its events may be stored twice");
        }
    }

    /// Record that every acknowledgement has reached the writer.
    pub(super) fn is_clean(&mut self) {
        self.ended.clean = true;
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.destination.ended(self.ended.clone());
        let mut all = self.all.lock();
        if let Some(open) = all.get_mut(&self.ended.sender) {
            open.remove(&self.ended.connection);
            if open.is_empty() {
                all.remove(&self.ended.sender);
            }
        }
    }
}
