//! The end of a session of an earlier process whose client does not return. It ends as it would
//! have in memory: in order where the client had ended its root scope and everything in it is
//! there. A client whose session survives ends its root scope before it closes.

use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_pipestream::{ErrorCode, Event, Reason};

use crate::clock::now;
use crate::command::inbox;
use crate::counters::Counters;
use crate::port::{NewSession, OpenSession, SinkEvent, Waiting};
use crate::sink_control::DriverControl;
use crate::{Error, Result};

impl Waiting {
    /// Write the last lines of the session's list, and remove its records. Return whether that
    /// succeeded.
    pub(crate) async fn end(mut self, counters: &Arc<Counters>) -> bool {
        let session = self.owner.session;
        let message = "its client did not come back to the server that was started again".to_owned();
        let reason = Reason { code: ErrorCode::IdleTimeout, message };
        for (key, _) in self.found.entities() {
            self.session.complete(now(), key);
        }
        let mut events = Vec::new();
        let whole = self.session.received_all();
        self.session.handle_connection_lost(now(), reason, false);
        events.extend(whole.map(|outcome| SinkEvent::Gathered { key: None, outcome }));
        while let Some(event) = self.session.poll_event() {
            if let Event::Resolved { key, parent_id, status, reason, failures, owned: false, .. } = event {
                let event = SinkEvent::Resolved { key, parent_id, status, reason, failures, claim: None, header: None };
                events.push(event);
            }
        }
        // The client had closed a complete session; CONNECTION_CLOSE was lost with the server.
        let end = self.end.or(whole.map(|_| ErrorCode::NoError));
        events.push(SinkEvent::Closed(end.unwrap_or(ErrorCode::IdleTimeout)));
        if end.is_none() {
            tracing::warn!(%session, "nobody came back to a session of an earlier process; it has ended");
            self.journal.count_in_vain();
        }
        match self.close(counters, events).await {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(%session, %error, "the list of a session cannot be closed; it is tried again at the next start");
                false
            }
        }
    }

    async fn close(self, counters: &Arc<Counters>, events: Vec<SinkEvent>) -> Result<()> {
        if !self.found.is_closed() {
            // No driver reads the sink's notifications.
            let (commands, _) = inbox();
            let session = NewSession {
                id: self.owner.session.to_string().into(),
                control: DriverControl::shared(commands, Arc::clone(counters)),
                defer: None,
                certificate: self.owner.certificate,
                handle: None,
            };
            let OpenSession { sink, done } = self.found.open(session).await?;
            if let Some(behind) = sink.observe(events) {
                behind.await;
            }
            drop(sink);
            // On an error the records stay, for a retry at the next start.
            done.await.map_err(|_| Error::io("the list has no last line", "the disk has refused it"))?;
        }
        self.journal.remove().await.map_err(|error| Error::io("cannot remove its records", error))
    }
}
