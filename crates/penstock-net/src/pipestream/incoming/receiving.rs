use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use penstock_pipestream::{self as core, EntityHeader, EntityKey, ErrorCode, PayloadCheck, Reason};
use tokio::sync::OwnedSemaphorePermit;

use super::super::command::{Command, Commands, Urgent, closed};
use super::super::counters::Counters;
use super::super::events::{EventLog, LogEvent};
use super::super::shared::Shared;
use super::super::transport::hex;
use super::body::{Body, StreamEnd};
use crate::{Error, Result};

/// How much of a spooled payload is read at a time.
const READ_SIZE: usize = 128 << 10;

/// An entity's payload on its way to its consumer, and the way back to the session. It tells the session when it is
/// dropped undecided.
#[derive(Debug)]
pub(super) struct Receiving {
    key: EntityKey,
    header: Arc<EntityHeader>,
    body: Option<Body>,
    pieces: VecDeque<Bytes>,
    offset: u64,
    /// Gone when the payload has been verified or has failed.
    check: Option<PayloadCheck>,
    sha256: Option<[u8; 32]>,
    link: EntityLink,
    place: Option<OwnedSemaphorePermit>,
    decided: bool,
}

/// An entity's way back to its session.
#[derive(Debug, Clone)]
pub(crate) struct EntityLink {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: Commands,
    pub(crate) log: Option<EventLog>,
}

/// What a consumer that does its own verification works with.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) key: EntityKey,
    pub(crate) dehydrated: bool,
    pub(crate) body: Body,
    pub(crate) check: PayloadCheck,
    pub(crate) place: Option<OwnedSemaphorePermit>,
}

impl Receiving {
    pub(super) fn new(
        key: EntityKey,
        header: Arc<EntityHeader>,
        body: Body,
        link: EntityLink,
        place: OwnedSemaphorePermit,
    ) -> Self {
        let check = PayloadCheck::new(header.payload_length, header.checksum.clone());
        Self {
            key,
            header,
            body: Some(body),
            pieces: VecDeque::new(),
            offset: 0,
            check: Some(check),
            sha256: None,
            link,
            place: Some(place),
            decided: false,
        }
    }

    /// The next octets; `None` once they are known to be right.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        while self.sha256.is_none() {
            if self.check.is_none() {
                return Err(Error::Misuse("the entity has failed already".into()));
            }
            let Some(piece) = self.next_piece().await? else {
                self.finish_check()?;
                break;
            };
            if let Some(check) = &mut self.check
                && let Err(error) = check.update(&piece)
            {
                return Err(self.give_up(error));
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Reads what is left, then tells the session.
    pub(super) async fn complete(mut self) -> Result<()> {
        while self.chunk().await?.is_some() {}
        self.decided = true;
        if let (Some(log), Some(sha256)) = (&self.link.log, self.sha256) {
            let event = LogEvent::entity(self.key, &self.header, None, self.header.payload_length, &hex(&sha256));
            log.write(&self.link.shared.id, vec![event]).await;
        }
        if self.link.commands.urge(Urgent::Complete(vec![self.key])) { Ok(()) } else { Err(self.closed()) }
    }

    /// Tells the session that the entity is rejected.
    pub(super) fn reject(mut self, reason: Reason) -> Result<()> {
        self.decided = true;
        self.stop(reason.code);
        if self.link.commands.urge(Urgent::Fail { key: self.key, reason }) { Ok(()) } else { Err(self.closed()) }
    }

    pub(super) fn release_place(&mut self) {
        self.place = None;
    }

    /// Leaves verification and decision to the caller.
    pub(super) fn into_parts(mut self, dehydrated: bool) -> Option<Parts> {
        self.decided = true;
        let (body, check) = (self.body.take()?, self.check.take()?);
        Some(Parts { key: self.key, dehydrated, body, check, place: self.place.take() })
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(Some(piece));
            }
            match &mut self.body {
                None => return Ok(None),
                Some(Body::Whole(octets)) => {
                    let octets = std::mem::take(octets);
                    self.body = None;
                    return Ok(Some(octets));
                }
                Some(Body::Spooled(spool)) => {
                    let read = spool.read(READ_SIZE, self.offset);
                    let piece = read.map_err(|error| {
                        self.give_up(core::Error::new(
                            penstock_wire::ErrorKind::Io,
                            ErrorCode::InternalError,
                            format!("cannot read the payload back: {error}"),
                        ))
                    })?;
                    self.offset = self.offset.saturating_add(piece.len() as u64);
                    return Ok((!piece.is_empty()).then_some(piece));
                }
                Some(Body::Stream(stream)) => match stream.next().await {
                    Ok(Some(pieces)) => self.pieces = pieces,
                    Ok(None) => return Ok(None),
                    Err(end) => return Err(self.stream_ended(end).await),
                },
            }
        }
    }

    fn finish_check(&mut self) -> Result<()> {
        let Some(check) = self.check.take() else { return Ok(()) };
        match check.finish() {
            Ok(digest) => {
                self.sha256 = Some(digest);
                self.body = None;
                Counters::add(&self.link.shared.counters.entities, 1);
                Counters::add(&self.link.shared.counters.octets, self.header.payload_length);
                Ok(())
            }
            Err(error) => Err(self.give_up(error)),
        }
    }

    /// The payload is wrong: the session learns it, the stream is stopped.
    fn give_up(&mut self, error: core::Error) -> Error {
        let reason = Reason { code: error.code(), message: error.message().to_owned() };
        self.decided = true;
        self.stop(reason.code);
        self.link.commands.urge(Urgent::Fail { key: self.key, reason });
        Error::Protocol(error)
    }

    async fn stream_ended(&mut self, end: StreamEnd) -> Error {
        self.decided = true;
        let stream = match self.body.take() {
            Some(Body::Stream(stream)) => stream.id(),
            _ => 0,
        };
        match end {
            StreamEnd::Reset(code) => {
                self.link.commands.tell(Command::StreamReset { stream, key: self.key, code }).await;
                core::Error::violation(ErrorCode::from_code(code), "the peer reset the entity's stream").into()
            }
            StreamEnd::Stopped(code) => core::Error::violation(code, "the entity has failed meanwhile").into(),
            StreamEnd::Lost => self.closed(),
        }
    }

    fn stop(&mut self, code: ErrorCode) {
        if let Some(Body::Stream(stream)) = &mut self.body {
            stream.stop(code);
        }
        self.body = None;
        self.check = None;
    }

    fn closed(&self) -> Error {
        let lost = || Reason { code: ErrorCode::InternalError, message: "the connection is lost".to_owned() };
        closed(&self.link.shared.closed().unwrap_or_else(lost))
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if !self.decided {
            let message = "the consumer dropped the entity".to_owned();
            self.stop(ErrorCode::InternalError);
            let reason = Reason { code: ErrorCode::InternalError, message };
            self.link.commands.urge(Urgent::Fail { key: self.key, reason });
        }
    }
}
