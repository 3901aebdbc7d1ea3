//! Headers that are sealed with a header key (section 10.6). What comes is opened before the session sees it, what goes
//! out is sealed after the session has bound it.
//!
//! A session's keys are made from its ID. Headers that come before the ID is known wait here; their payloads wait in
//! their streams.

use std::mem;
use std::sync::Arc;

use penstock_io::{DriverError as _, tls};
use penstock_pipestream::header_key::{HeaderKeys, SessionHeaderKeys, refused};
use penstock_pipestream::{self as core, EntityHeader, Now, SessionId};
use tokio::sync::oneshot;

use super::super::command::Verdict;
use super::super::incoming::Arrival;
use super::super::sink::conceal;
use super::Driver;
use crate::{Error, Result};

/// A session's header keys, where it has any.
#[derive(Debug, Default)]
pub(super) struct Sealing {
    secrets: Option<HeaderKeys>,
    keys: Option<Arc<SessionHeaderKeys>>,
    early: Vec<Early>,
    /// The bytes of the headers that wait.
    waiting: usize,
}

/// An entity stream whose header waits for the session's ID.
#[derive(Debug)]
enum Early {
    Begun { stream: u64, header: Arc<EntityHeader>, reply: oneshot::Sender<Verdict> },
    Whole(Arrival),
}

impl Early {
    fn header(&self) -> &EntityHeader {
        match self {
            Self::Begun { header, .. } => header,
            Self::Whole(arrival) => &arrival.header,
        }
    }
}

/// Seals the headers of one session.
#[derive(Debug, Clone)]
pub(crate) struct Sealer(Arc<SessionHeaderKeys>);

impl Sealer {
    /// The header as it goes out, sealed under a nonce of its own.
    ///
    /// # Errors
    ///
    /// A system without random numbers; ENTITY_TOO_LARGE where the sealed header is above what a peer reads.
    pub(crate) fn seal(&self, header: &EntityHeader) -> Result<EntityHeader> {
        Ok(self.0.seal(header, tls::random()?)?)
    }
}

impl Sealing {
    pub(super) fn new(secrets: Option<HeaderKeys>) -> Self {
        Self { secrets, ..Self::default() }
    }

    /// The connection is lost, and its streams with it.
    pub(super) fn forget_early(&mut self) {
        (self.early, self.waiting) = (Vec::new(), 0);
    }

    fn open(&self, header: &EntityHeader) -> EntityHeader {
        let mut opened = self.keys.as_ref().and_then(|keys| keys.open(header)).unwrap_or_else(|| refused(header));
        // The token of a transaction was inside, where nothing that looks at the stream has seen it.
        conceal(&mut opened);
        opened
    }

    fn hold(&mut self, early: Early, limit: usize) -> core::Result<()> {
        self.waiting = self.waiting.saturating_add(early.header().weight());
        if self.waiting > limit {
            return Err(core::LimitError::EarlyHeaders { bytes: limit }.into());
        }
        self.early.push(early);
        Ok(())
    }
}

impl Driver {
    /// The header that a stream begins with, as its sender had it before it was sealed. One that cannot be opened fails
    /// its entity.
    pub(super) fn handle_header(
        &mut self,
        now: Now,
        stream: u64,
        header: Arc<EntityHeader>,
        reply: oneshot::Sender<Verdict>,
    ) {
        if !self.may_open() {
            return self.hold(now, Early::Begun { stream, header, reply });
        }
        let header = self.opened(header);
        self.take_header(now, stream, header, reply);
    }

    /// The same for a stream that came whole.
    pub(super) fn handle_arrival(&mut self, now: Now, mut arrival: Arrival) {
        if !self.may_open() {
            return self.hold(now, Early::Whole(arrival));
        }
        arrival.header = self.opened(arrival.header);
        self.take_arrival(now, arrival);
    }

    /// What seals our headers, if something does.
    ///
    /// # Errors
    ///
    /// Misuse where the session has no ID yet; nothing of ours is announced before.
    pub(super) fn sealer(&mut self) -> Result<Option<Sealer>> {
        if !self.may_open() {
            return Err(Error::misuse("the session has no ID yet".to_owned()));
        }
        Ok(self.sealing.keys.clone().map(Sealer))
    }

    /// Whether headers need no key, or their keys are there.
    fn may_open(&mut self) -> bool {
        let Some(secrets) = self.sealing.secrets.as_ref().filter(|_| self.sealing.keys.is_none()) else { return true };
        let Some(id) = self.key_id() else { return false };
        // HKDF refuses only more output than it has.
        self.sealing.keys = secrets.for_session(id).ok().map(Arc::new);
        self.sealing.keys.is_some()
    }

    /// The session's ID, once both ends know it.
    fn key_id(&self) -> Option<SessionId> {
        let shared = &self.link.shared;
        let below = || self.agreement.filter(|agreement| agreement.layer < 2);
        shared.layer2().or_else(|| below().and_then(|_| SessionId::parse(shared.id()).ok()))
    }

    fn opened(&self, header: Arc<EntityHeader>) -> Arc<EntityHeader> {
        if self.sealing.secrets.is_some() { Arc::new(self.sealing.open(&header)) } else { header }
    }

    fn hold(&mut self, now: Now, early: Early) {
        if let Err(error) = self.sealing.hold(early, self.held_limit) {
            self.sealing.forget_early();
            // It closes the session.
            let _ = self.session.handle_header_error(now, error);
        }
    }

    /// Takes the headers that came early, if the session has its ID by now. True: there were some.
    pub(super) fn take_early(&mut self, now: Now) -> bool {
        if self.sealing.early.is_empty() || !self.may_open() {
            return false;
        }
        let early = mem::take(&mut self.sealing.early);
        self.sealing.waiting = 0;
        for stream in early {
            match stream {
                Early::Begun { stream, header, reply } => self.handle_header(now, stream, header, reply),
                Early::Whole(arrival) => self.handle_arrival(now, arrival),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transactions_token_is_gone_once_a_sealed_header_is_opened() {
        let secrets = HeaderKeys::parse(&"ab".repeat(32)).expect("a key");
        let keys = Arc::new(secrets.for_session(SessionId::parse(&"01".repeat(16)).expect("an ID")).expect("keys"));
        let token = ("penstock.transaction-token".to_owned(), "a token of some length".to_owned());
        let header = EntityHeader { entity_id: 1, metadata: [token.clone()].into(), ..EntityHeader::default() };
        let sealed = Sealer(Arc::clone(&keys)).seal(&header).expect("sealed");
        let sealing = Sealing { secrets: Some(secrets), keys: Some(keys), ..Sealing::default() };
        let opened = sealing.open(&sealed);
        assert!(opened.metadata.values().all(|value| *value != token.1));
        let mut plain = header;
        conceal(&mut plain);
        assert_eq!(opened.metadata, plain.metadata);
    }
}
