//! Which connections of a sender are open. Before a new one is compared with those that broke (decision 12), the earlier
//! ones that are on their end have ended: what was read of them is with the destination, and whether they broke is known.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use penstock_io::sync::lock;
use tokio::sync::watch;
use tokio::time::timeout;

use super::link::{Socket, WeakSocket, gone};
use crate::delivery::{ConnectionEnd, Destination};

/// How long a new connection waits for earlier ones. What is sent again while they end may be stored twice then.
const PATIENCE: Duration = Duration::from_millis(250);

/// The connections that are open, by their senders and numbers.
#[derive(Debug, Default)]
pub(super) struct Standings(Mutex<HashMap<Arc<str>, BTreeMap<u64, Open>>>);

#[derive(Debug)]
struct Open {
    socket: WeakSocket,
    /// Closed when it has ended.
    ended: watch::Receiver<()>,
}

/// Stands for a connection as long as it lives, and tells the destination how it has ended.
#[derive(Debug)]
pub(super) struct ConnectionGuard {
    all: Arc<Standings>,
    destination: Arc<dyn Destination>,
    ended: ConnectionEnd,
    _open: watch::Sender<()>,
}

impl Standings {
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

    /// The ends of earlier connections that their writers have closed.
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
    /// Waits until the earlier connections of the same sender that were on their end have ended.
    pub(super) async fn wait_for_earlier(&self) {
        let ending = self.all.ending(&self.ended.sender, self.ended.connection);
        let all = async {
            for mut ended in ending {
                // An error is what it waits for.
                let _ = ended.changed().await;
            }
        };
        if timeout(PATIENCE, all).await.is_err() {
            tracing::debug!(sender = %self.ended.sender, "an earlier connection takes long to end; what it brought may be stored twice");
        }
    }

    /// Every acknowledgement has reached the writer.
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
