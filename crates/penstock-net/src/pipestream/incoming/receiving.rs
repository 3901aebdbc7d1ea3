use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use penstock_pipestream::{self as core, EntityHeader, EntityKey, ErrorCode, PayloadCheck, Reason};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::command::{Command, Commands, Urgent, closed};
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
    /// Made when the first octets of a stream come.
    check: Option<Box<PayloadCheck>>,
    /// The payload has been verified or has failed.
    checked: bool,
    sha256: Option<[u8; 32]>,
    link: Arc<EntityLink>,
    place: Option<OwnedSemaphorePermit>,
    decided: bool,
}

/// The largest payload that is parked, and how many are.
const PARKED_PAYLOAD: usize = 4 << 10;
pub(crate) const PARKED: usize = 1_024;

/// An entity's way back to its session. All entities of a session share one.
#[derive(Debug)]
pub(crate) struct EntityLink {
    /// The process that the session lives in.
    pub(crate) process: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) commands: Commands,
    pub(crate) log: Option<EventLog>,
    /// One for each entity stream that is being received or waits for its consumer.
    pub(crate) places: Arc<Semaphore>,
    /// One for each very small entity that came whole and waits without a place.
    pub(crate) parked: Arc<Semaphore>,
}

impl EntityLink {
    /// A very small entity that came whole gives its place back at once, as long as few wait for their consumer: the
    /// peer sends more while the consumer wakes up.
    pub(crate) fn park(&self, octets: usize, place: OwnedSemaphorePermit) -> OwnedSemaphorePermit {
        if octets > PARKED_PAYLOAD {
            return place;
        }
        Arc::clone(&self.parked).try_acquire_owned().unwrap_or(place)
    }

    /// So many entities were taken, some of which were parked.
    pub(crate) fn taken(&self, count: usize, parked: usize) {
        self.places.add_permits(count.saturating_sub(parked));
        self.parked.add_permits(parked);
    }
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
        link: Arc<EntityLink>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            key,
            header,
            body: Some(body),
            pieces: VecDeque::new(),
            offset: 0,
            check: None,
            checked: false,
            sha256: None,
            link,
            place,
            decided: false,
        }
    }

    /// The next octets; `None` once they are known to be right.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        while self.sha256.is_none() {
            if self.checked {
                return Err(Error::Misuse("the entity has failed already".into()));
            }
            if let Some(octets) = self.check_whole() {
                let octets = octets?;
                self.count(1, octets.len() as u64);
                return Ok(Some(octets).filter(|octets| !octets.is_empty()));
            }
            let Some(piece) = self.next_piece().await? else {
                self.finish_check()?;
                break;
            };
            if let Err(error) = self.check().update(&piece) {
                return Err(self.give_up(error));
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// A payload that came whole: it is known to be right before anybody sees it.
    fn check_whole(&mut self) -> Option<Result<Bytes>> {
        let Some(Body::Whole(octets)) = self.body.take_if(|body| matches!(body, Body::Whole(_))) else { return None };
        let digest = PayloadCheck::whole(self.header.payload_length, &self.header.checksum, &octets);
        Some(self.verified(digest).map(|()| octets))
    }

    /// [`finish`](Self::finish) without waiting, where nothing has to be waited for. Gives the payload's length, which
    /// whoever finishes many counts for all of them.
    pub(super) fn finish_now(&mut self) -> Option<Result<u64>> {
        if self.link.log.is_some() {
            return None;
        }
        let checked = self.check_whole()?;
        self.decided = true;
        Some(checked.map(|octets| octets.len() as u64))
    }

    fn count(&self, entities: u64, octets: u64) {
        self.link.shared.counters.arrived(entities, octets);
    }

    fn check(&mut self) -> &mut PayloadCheck {
        self.check.get_or_insert_with(|| Box::new(new_check(&self.header)))
    }

    /// Reads what is left, then tells the session.
    pub(super) async fn complete(self) -> Result<()> {
        let (key, link) = (self.key, Arc::clone(&self.link));
        self.finish().await?;
        if link.commands.urge(Urgent::Complete(vec![key])) { Ok(()) } else { Err(link.closed()) }
    }

    /// Reads what is left; the session is still to be told.
    pub(super) async fn finish(mut self) -> Result<()> {
        while self.chunk().await?.is_some() {}
        self.decided = true;
        if let (Some(log), Some(sha256)) = (&self.link.log, self.sha256) {
            let event = LogEvent::entity(self.key, &self.header, None, self.header.payload_length, &hex(&sha256));
            log.write(&self.link.shared.id, vec![event]).await;
        }
        Ok(())
    }

    /// Tells the session that the entity is rejected.
    pub(super) fn reject(mut self, reason: Reason) -> Result<()> {
        self.decided = true;
        self.stop(reason.code);
        if self.link.commands.urge(Urgent::Fail { key: self.key, reason }) { Ok(()) } else { Err(self.link.closed()) }
    }

    /// Leaves verification and decision to the caller.
    pub(super) fn into_parts(mut self, dehydrated: bool) -> Option<Parts> {
        self.decided = true;
        let (body, check) = (self.body.take()?, new_check(&self.header));
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
                    return Ok(Some(std::mem::take(octets)).filter(|octets| !octets.is_empty()));
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
        let check = self.check.take().map_or_else(|| new_check(&self.header), |check| *check);
        self.verified(check.finish())?;
        self.count(1, self.header.payload_length);
        Ok(())
    }

    fn verified(&mut self, digest: core::Result<[u8; 32]>) -> Result<()> {
        self.checked = true;
        match digest {
            Ok(digest) => {
                self.sha256 = Some(digest);
                self.body = None;
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
            StreamEnd::Lost => self.link.closed(),
        }
    }

    fn stop(&mut self, code: ErrorCode) {
        if let Some(Body::Stream(stream)) = &mut self.body {
            stream.stop(code);
        }
        self.body = None;
        self.checked = true;
    }
}

fn new_check(header: &EntityHeader) -> PayloadCheck {
    PayloadCheck::new(header.payload_length, header.checksum.clone())
}

impl EntityLink {
    pub(crate) fn closed(&self) -> Error {
        let lost = || Reason { code: ErrorCode::InternalError, message: "the connection is lost".to_owned() };
        closed(&self.shared.closed().unwrap_or_else(lost))
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
