//! Handling of arriving headers, which wait for their session's keys
//! ([`Sealing`](crate::driver::sealing::Sealing)).

use std::mem;
use std::sync::Arc;

use penstock_io::DriverError as _;
use penstock_pipestream::{EntityHeader, Now, SessionId};
use tokio::sync::oneshot;

use crate::command::{BufferedEntity, Verdict};
use crate::driver::Driver;
use crate::driver::sealing::EarlyStream;
use crate::sealer::Sealer;
use crate::{Error, Result};

impl Driver {
    /// Open the header of a stream, if it is sealed, and handle it. A header that cannot be opened
    /// fails its entity.
    pub(super) fn handle_header(
        &mut self,
        now: Now,
        stream: u64,
        header: Arc<EntityHeader>,
        reply: oneshot::Sender<Verdict>,
    ) {
        if !self.has_header_keys() {
            return self.hold(now, EarlyStream::Partial { stream, header, reply });
        }
        let header = self.open_header(header);
        self.take_header(now, stream, header, reply);
    }

    /// Handle a stream that arrived completely, as [`handle_header`](Self::handle_header) does.
    pub(super) fn handle_arrival(&mut self, now: Now, mut arrival: BufferedEntity) {
        if !self.has_header_keys() {
            return self.hold(now, EarlyStream::Whole(arrival));
        }
        arrival.header = self.open_header(arrival.header);
        self.take_arrival(now, arrival);
    }

    /// Return the sealer of our headers, if there is one.
    ///
    /// # Errors
    ///
    /// Internal where the session has no ID yet; no entity of ours is announced before then.
    pub(super) fn sealer(&mut self) -> Result<Option<Sealer>> {
        if !self.has_header_keys() {
            return Err(Error::internal("the keys of headers", "the session has no ID yet"));
        }
        Ok(self.sealing.keys.clone().map(Sealer))
    }

    /// Derive the header keys, if they are needed and missing. Return whether headers can be
    /// handled.
    fn has_header_keys(&mut self) -> bool {
        let Some(secrets) = self.sealing.secrets.as_ref().filter(|_| self.sealing.keys.is_none()) else { return true };
        let Some(id) = self.key_id() else { return false };
        // HKDF fails only for more output than it can produce.
        self.sealing.keys = secrets.for_session(id).ok().map(Arc::new);
        self.sealing.keys.is_some()
    }

    /// Return the session's ID, once both ends know it.
    fn key_id(&self) -> Option<SessionId> {
        let shared = &self.link.shared;
        let below = || self.session.agreement().filter(|agreement| agreement.layer < 2);
        shared.layer2().or_else(|| below().and_then(|_| SessionId::parse(shared.id()).ok()))
    }

    fn open_header(&self, header: Arc<EntityHeader>) -> Arc<EntityHeader> {
        if self.sealing.secrets.is_some() { Arc::new(self.sealing.open(&header)) } else { header }
    }

    fn hold(&mut self, now: Now, early: EarlyStream) {
        if let Err(error) = self.sealing.hold(early) {
            self.sealing.forget_early();
            // The session closes itself.
            let _ = self.session.handle_header_error(now, error);
        }
    }

    /// Handle the headers that arrived early, if the session has its ID by now. Return whether there were any.
    pub(super) fn take_early(&mut self, now: Now) -> bool {
        if self.sealing.early.is_empty() || !self.has_header_keys() {
            return false;
        }
        let early = mem::take(&mut self.sealing.early);
        self.sealing.early_bytes = 0;
        for stream in early {
            match stream {
                EarlyStream::Partial { stream, header, reply } => self.handle_header(now, stream, header, reply),
                EarlyStream::Whole(arrival) => self.handle_arrival(now, arrival),
            }
        }
        true
    }
}
