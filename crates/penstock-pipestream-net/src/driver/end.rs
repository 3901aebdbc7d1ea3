use std::sync::Arc;
use std::time::Duration;

use penstock_pipestream::{Now, Reason, Role, ScopeKey};
use tokio::time::{sleep, timeout};

use crate::clock::now;
use crate::command::closed;
use crate::congestion;
use crate::driver::Driver;
use crate::driver::durable::Durable;
use crate::driver::opening::{SinkState, wait_for_sink};
use crate::driver::stage::Root;
use crate::events::LogEvent;
use crate::transport::quic_code;
use crate::types::Released;

/// Minimum and maximum time for the last frames to be delivered.
const LINGER: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// Maximum time to wait until the packet with CONNECTION_CLOSE is sent.
const CLOSE_SENT: Duration = Duration::from_secs(1);

impl Driver {
    /// Close gracefully. The server may stop before it handles CONNECTION_CLOSE, so a client whose
    /// session survives first ends its root scope: once that is released, a server that stores
    /// sessions on disk has a record that nothing more follows.
    pub(super) fn close(&mut self, now: Now) {
        let ends_root_first = self.link.shared.role == Role::Client && self.session.survives();
        if !ends_root_first || self.root == Root::Released {
            self.session.close(now);
            return;
        }
        self.root = Root::Closing;
        if !self.session.root_ended()
            && let Err(error) = self.session.end_root(now)
        {
            tracing::warn!(session = %self.link.shared.id(), %error, "cannot end the root scope");
            self.session.close(now);
        }
    }

    /// Continue a pending close: the peer has released our root scope, so all of it is terminal at
    /// both ends.
    pub(super) fn root_is_released(&mut self) {
        if std::mem::replace(&mut self.root, Root::Released) == Root::Closing {
            self.session.close(now());
        }
    }

    /// End the announcements of our root scope, unless an earlier process has done so.
    pub(super) fn end_root(&mut self, now: Now) -> penstock_pipestream::Result<()> {
        let before = self.durable.as_mut().and_then(Durable::has_ended_root);
        if before.is_none() {
            self.session.end_root(now)?;
        }
        let shared = &self.link.shared;
        shared.expect_root();
        if let Some(digest) = before.flatten() {
            let scope = ScopeKey { scope: digest.scope_id, scope_use: 0 };
            shared.releases.settle([(scope, Released { scope, parent: None, depth: 0, digest })]);
        }
        Ok(())
    }

    /// End the session: notify the peer, then the sink, then all waiters.
    pub(super) async fn finish(mut self, reason: Reason) {
        self.reconnect.close();
        if let Some(closing) = self.closing.take() {
            self.close_connection(&closing).await;
        }
        for request in self.sending.waiting.take() {
            request.reply.fail(closed(&reason));
        }
        let session = self.session.counters();
        let shared = Arc::clone(&self.link.shared);
        let (sent, received, completed, failed) =
            (session.announced, session.received, session.completed, session.failed);
        tracing::info!(session = %shared.id(), code = reason.code.name(), sent, received, completed, failed, "session ended");
        let log = self.link.log.clone();
        self.fail_redeemed();
        let (sink_state, durable) = (std::mem::replace(&mut self.sink_state, SinkState::Absent), self.durable.take());
        // Keep the name until the records are removed: a later session of that name must not write
        // records before.
        let name = self.naming.release().filter(|_| durable.is_some());
        // Commands, held streams and the sink's session are dropped with the driver, which wakes the tasks that wait
        // for them.
        drop(self);
        let is_listed = wait_for_sink(sink_state, &shared).await;
        if let Some(mut durable) = durable {
            if !is_listed {
                // The next process closes the list, if the disk permits it.
                tracing::warn!(session = %shared.id(), "cannot close the session's list: its records are kept for the next process");
                durable.keep_records();
            }
            let stays = durable.remove(shared.id()).await;
            match name {
                Some(name) if stays => name.keep(),
                name => drop(name),
            }
        }
        if let Some(log) = log {
            log.write(shared.id(), vec![LogEvent::closed(&reason)]).await;
            log.flush().await;
        }
        shared.close(reason);
    }

    /// Close the connection. CONNECTION_CLOSE discards the undelivered bytes of stream 0, so its
    /// frames first get a little time.
    async fn close_connection(&mut self, closing: &Reason) {
        let connection = self.link.connection.clone();
        let linger = (connection.rtt() * 2).clamp(LINGER.0, LINGER.1);
        let _ = timeout(LINGER.1, self.control.write_all()).await;
        sleep(linger).await;
        let sent = connection.stats().udp_tx.datagrams;
        congestion::close(&connection, quic_code(closing.code), closing.message.as_bytes());
        let gone = async {
            while connection.stats().udp_tx.datagrams == sent {
                sleep(Duration::from_millis(1)).await;
            }
        };
        // A process that exits immediately would never send the packet.
        let _ = timeout(CLOSE_SENT, gone).await;
    }
}
