use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use penstock_io::{DriverError as _, hex, runtime};
use penstock_pipestream::claims::ClaimTerms;
use penstock_pipestream::messages::StoppingPointValidation;
use penstock_pipestream::yield_token::StoppingPoint;
use penstock_pipestream::{
    self as core, Attempt, EntityHeader, ErrorCode, PayloadCheck, Reason, SessionId, YieldReason,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::claim_checks::{ClaimCheck, Details};
use crate::command::{Command, Urgent};
use crate::entity_link::EntityLink;
use crate::events::LogEvent;
use crate::incoming::body::{Body, StreamEnd};
use crate::types::{IssuedClaim, Resumed};
use crate::{Error, Misuse, Result};

/// Amount of a spooled payload that is read at a time.
const READ_SIZE: usize = 128 << 10;

/// An entity's payload on its way to its consumer, and the connection back to the session. It notifies the session when
/// it is dropped undecided.
#[derive(Debug)]
pub(super) struct EntityReceiver {
    attempt: Attempt,
    header: Arc<EntityHeader>,
    body: Option<Body>,
    pieces: VecDeque<Bytes>,
    offset: u64,
    verification: Verification,
    link: Arc<EntityLink>,
    permit: Option<OwnedSemaphorePermit>,
    /// Bytes that the consumer has put back.
    unread: Bytes,
    /// Number of bytes that the consumer has taken and not put back.
    processed: u64,
    /// Set only while the entity has yielded.
    yielded: Option<Box<YieldState>>,
    decision: Decision,
}

/// The decision about an entity, which ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// None was made: a drop fails the entity.
    Pending,
    /// The session knows it, or the caller reports it.
    Made,
}

/// Verification of a payload.
///
/// ```text
///  Awaited ── the first bytes of a stream ──► Checking ── the last ones ──► Verified
///     │ └── it is there as a whole ──────────────────┬───────────────────────┘
///     └── a difference, or a decision before the end ┴──► Failed
/// ```
#[derive(Debug)]
enum Verification {
    Awaited,
    Checking(Box<PayloadCheck>),
    /// Length and checksum are right; this is the SHA-256.
    Verified([u8; 32]),
    Failed,
}

/// The state of an entity whose owner has a token.
#[derive(Debug)]
struct YieldState {
    state: Bytes,
    /// Number of bytes that the consumer had taken when the entity yielded.
    processed: u64,
    token: YieldToken,
    /// Fires when the owner lets the entity continue.
    resumed: oneshot::Receiver<Resumed>,
}

/// The token of an entity that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum YieldToken {
    /// The consumer has read nothing since.
    Valid,
    /// The session knows that the consumer has read more.
    Outdated,
}

/// Parts for a consumer that does its own verification.
#[derive(Debug)]
pub struct Parts {
    /// The entity, and the attempt at it.
    pub attempt: Attempt,
    /// Whether it has children.
    pub dehydrated: bool,
    /// Its payload.
    pub body: Body,
    /// The check for the payload.
    pub check: PayloadCheck,
    /// Its permit among the streams of the peer: the peer may send another entity when it is dropped.
    pub permit: Option<OwnedSemaphorePermit>,
}

impl EntityReceiver {
    pub(super) fn new(
        attempt: Attempt,
        header: Arc<EntityHeader>,
        body: Body,
        link: Arc<EntityLink>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            attempt,
            header,
            body: Some(body),
            pieces: VecDeque::new(),
            offset: 0,
            verification: Verification::Awaited,
            link,
            permit,
            unread: Bytes::new(),
            processed: 0,
            yielded: None,
            decision: Decision::Pending,
        }
    }

    /// Return the next bytes; `None` once they are verified.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>> {
        let next = match std::mem::take(&mut self.unread) {
            unread if unread.is_empty() => self.fresh_chunk().await?,
            unread => Some(unread),
        };
        if let Some(bytes) = &next {
            self.processed = self.processed.saturating_add(bytes.len() as u64);
            self.note_progress().await;
        }
        Ok(next)
    }

    async fn fresh_chunk(&mut self) -> Result<Option<Bytes>> {
        loop {
            match &self.verification {
                Verification::Awaited | Verification::Checking(_) => {}
                Verification::Verified(_) => return Ok(None),
                Verification::Failed => return Err(Error::Ended("the entity has failed already")),
            }
            if let Some(bytes) = self.check_whole() {
                let bytes = bytes?;
                self.count(1, bytes.len() as u64);
                return Ok(Some(bytes).filter(|bytes| !bytes.is_empty()));
            }
            let Some(piece) = self.next_piece().await? else {
                self.finish_check()?;
                return Ok(None);
            };
            if let Err(error) = self.check(&piece) {
                return Err(self.give_up(error));
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }

    /// Verify and return a payload that arrived completely.
    fn check_whole(&mut self) -> Option<Result<Bytes>> {
        let Some(Body::Whole(bytes)) = self.body.take_if(|body| matches!(body, Body::Whole(_))) else { return None };
        let digest = PayloadCheck::whole(self.header.payload_length, &self.header.checksum, &bytes);
        Some(self.verified(digest).map(|()| bytes))
    }

    /// Do the same as [`finish`](Self::finish), or return `None` if that has to wait. Return the
    /// payload's length, which a caller that finishes many entities counts for all of them.
    pub(super) fn finish_now(&mut self) -> Option<Result<u64>> {
        if self.link.log.is_some() {
            return None;
        }
        let checked = self.check_whole()?;
        self.decision = Decision::Made;
        Some(checked.map(|bytes| bytes.len() as u64))
    }

    fn count(&self, entities: u64, bytes: u64) {
        self.link.shared.counters.arrived(entities, bytes);
    }

    fn check(&mut self, piece: &Bytes) -> core::Result<()> {
        match &mut self.verification {
            Verification::Awaited => {
                let mut check = Box::new(new_check(&self.header));
                let checked = check.update(piece);
                self.verification = Verification::Checking(check);
                checked
            }
            Verification::Checking(check) => check.update(piece),
            Verification::Verified(_) | Verification::Failed => Ok(()),
        }
    }

    /// Read the remaining bytes, then notify the session.
    pub(super) async fn complete(self) -> Result<()> {
        let (attempt, link) = (self.attempt, Arc::clone(&self.link));
        self.finish().await?;
        if link.commands.send_urgent(Urgent::Complete(vec![attempt])) { Ok(()) } else { Err(link.closed()) }
    }

    /// Read the remaining bytes; the caller notifies the session.
    pub(super) async fn finish(mut self) -> Result<()> {
        while self.chunk().await?.is_some() {}
        self.decision = Decision::Made;
        if let (Some(log), Verification::Verified(sha256)) = (&self.link.log, &self.verification) {
            let event = LogEvent::entity(
                self.attempt.key,
                &self.header,
                None,
                self.header.payload_length,
                &hex::encode(sha256),
            );
            log.write(self.link.shared.id(), vec![event]).await;
        }
        Ok(())
    }

    /// Notify the session that the entity is rejected.
    pub(super) fn reject(mut self, reason: Reason) -> Result<()> {
        self.decision = Decision::Made;
        self.stop(reason.code);
        self.send_urgent(Urgent::Fail { attempt: self.attempt, reason })
    }

    fn send_urgent(&self, command: Urgent) -> Result<()> {
        if self.link.commands.send_urgent(command) { Ok(()) } else { Err(self.link.closed()) }
    }

    /// Return an error if claim checks are not stored.
    pub(super) fn check_claims(&self) -> Result<()> {
        self.link.claims.check_kept()
    }

    pub(super) fn check_layer2(&self) -> Result<()> {
        self.link.layer2().map(drop)
    }

    /// Notify the session that the entity is skipped.
    pub(super) fn skip(mut self, reason: Reason) -> Result<()> {
        self.decision = Decision::Made;
        self.stop(reason.code);
        self.send_urgent(Urgent::Skip { attempt: self.attempt, reason })
    }

    /// Put back the last bytes that the consumer got and has not looked at: they are the next ones.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        self.processed = self.processed.saturating_sub(bytes.len() as u64);
        self.unread = bytes;
    }

    /// Notify the owner that the entity waits.
    pub(super) async fn wait(&mut self, reason: YieldReason, state: Bytes) -> Result<()> {
        let processed = self.processed;
        let validation = StoppingPointValidation {
            state_checksum: Some(state_checksum(&state, processed)),
            bytes_processed: Some(processed),
            is_resumable: Some(true),
            ..StoppingPointValidation::default()
        };
        let point = StoppingPoint { reason, continuation: state.clone(), validation };
        let ((reply, answer), (resumed, resuming)) = (oneshot::channel(), oneshot::channel());
        self.send_urgent(Urgent::Yield { attempt: self.attempt, point: Box::new(point), reply, resumed })?;
        answer.await.unwrap_or_else(|_| Err(self.link.closed()))?;
        self.yielded = Some(Box::new(YieldState { state, processed, token: YieldToken::Valid, resumed: resuming }));
        Ok(())
    }

    /// Note that the consumer of a waiting entity takes more bytes, so that its state differs from
    /// its token's. When this returns, no token is valid any more.
    async fn note_progress(&mut self) {
        let (attempt, processed) = (self.attempt, self.processed);
        let Some(yielded) = self.yielded.as_mut() else { return };
        match std::mem::replace(&mut yielded.token, YieldToken::Outdated) {
            YieldToken::Valid => {}
            YieldToken::Outdated => return,
        }
        let ((reply, noted), state_checksum) = (oneshot::channel(), state_checksum(&yielded.state, processed));
        if self.link.commands.send_urgent(Urgent::NoteState { attempt, state_checksum, reply }) {
            // A session that is over resumes no entity.
            let _ = noted.await;
        }
    }

    /// Wait until the owner lets the entity continue.
    pub(super) async fn resumed(&mut self) -> Result<Option<Bytes>> {
        let Some(yielded) = &mut self.yielded else { return Err(Misuse::NotWaiting.into()) };
        let resumed = (&mut yielded.resumed).await;
        // The token may have arrived just before the consumer took more.
        let unchanged = yielded.processed == self.processed;
        self.yielded = None;
        match resumed {
            Ok(point) => Ok(point.filter(|_| unchanged).map(|point| point.continuation)),
            Err(_) if self.link.shared.closed().is_some() => Err(self.link.closed()),
            Err(_) => Err(Error::Ended("the entity ended while it waited")),
        }
    }

    /// Store a claim check, then notify the session.
    pub(super) async fn defer(self, reason: Reason, life: Option<Duration>) -> Result<ClaimCheck> {
        let session = self.link.layer2()?;
        // The task runs to its end even if the caller stops waiting: an issued claim check needs an
        // owner.
        let deferring = runtime::spawn(self.set_aside(session, reason, life))?;
        deferring.await.unwrap_or_else(|error| Err(Error::task(error)))
    }

    /// Return the state of the processing for a claim check; the session adds the state of children and checkpoints.
    /// The peer that redeems the claim check sends the entity again, so nothing resumes from there.
    fn stopping_point(&self) -> StoppingPointValidation {
        let yielded = self.yielded.as_ref();
        StoppingPointValidation {
            state_checksum: yielded.map(|yielded| state_checksum(&yielded.state, self.processed)),
            bytes_processed: Some(self.processed),
            is_resumable: Some(false),
            ..StoppingPointValidation::default()
        }
    }

    async fn set_aside(mut self, session: SessionId, reason: Reason, life: Option<Duration>) -> Result<ClaimCheck> {
        let key = self.attempt.key;
        let known = self.stopping_point();
        let (reply, answer) = oneshot::channel();
        let request = Urgent::StoppingPoint { key, validation: Box::new(known.clone()), reply };
        // A session that is over has nothing to add.
        let validation =
            if self.link.commands.send_urgent(request) { Some(answer.await.unwrap_or(known)) } else { Some(known) };
        let terms = ClaimTerms { session, scope: key.scope, entity: key.entity, life, validation };
        let claims = Arc::clone(&self.link.claims);
        let claim = match Arc::clone(&claims).issue(terms, Details::of(&self.header, &reason)).await {
            Ok(claim) => claim,
            Err(error) => {
                let code = error.code().unwrap_or(ErrorCode::InternalError);
                // After its end the session needs no notification.
                let _ = self.reject(Reason { code, message: error.to_string() });
                return Err(error);
            }
        };
        self.decision = Decision::Made;
        self.stop(ErrorCode::NoError);
        let (reply, answer) = oneshot::channel();
        let issued = IssuedClaim { id: claim.id, expiry_micros: claim.expiry_micros, reason };
        let sent = self.send_urgent(Urgent::Defer { attempt: self.attempt, claim: issued, reply: Some(reply) });
        let answer = match sent {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(self.link.closed())),
            Err(error) => Err(error),
        };
        answer.inspect_err(|_| claims.void(claim.id)).map(|()| ClaimCheck::from(&claim))
    }

    /// Leave verification and decision to the caller.
    pub(super) fn into_parts(mut self, dehydrated: bool) -> Option<Parts> {
        self.decision = Decision::Made;
        let (body, check) = (self.body.take()?, new_check(&self.header));
        Some(Parts { attempt: self.attempt, dehydrated, body, check, permit: self.permit.take() })
    }

    async fn next_piece(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(Some(piece));
            }
            match &mut self.body {
                None => return Ok(None),
                Some(Body::Whole(bytes)) => {
                    return Ok(Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()));
                }
                Some(Body::Spooled(spool)) => {
                    let read = spool.read(READ_SIZE, self.offset);
                    let unavailable = |error: std::io::Error| core::Unavailable::Payload { reason: error.to_string() };
                    let piece = read.map_err(|error| self.give_up(unavailable(error).into()))?;
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
        let check = match std::mem::replace(&mut self.verification, Verification::Awaited) {
            Verification::Checking(check) => *check,
            Verification::Awaited | Verification::Verified(_) | Verification::Failed => new_check(&self.header),
        };
        self.verified(check.finish())?;
        self.count(1, self.header.payload_length);
        Ok(())
    }

    fn verified(&mut self, digest: core::Result<[u8; 32]>) -> Result<()> {
        match digest {
            Ok(digest) => {
                self.verification = Verification::Verified(digest);
                self.body = None;
                Ok(())
            }
            Err(error) => Err(self.give_up(error)),
        }
    }

    /// Report an invalid payload to the session, and stop the stream.
    fn give_up(&mut self, error: core::Error) -> Error {
        let reason = Reason { code: error.code(), message: error.message() };
        self.decision = Decision::Made;
        self.stop(reason.code);
        self.link.commands.send_urgent(Urgent::Fail { attempt: self.attempt, reason });
        Error::Protocol(error)
    }

    async fn stream_ended(&mut self, end: StreamEnd) -> Error {
        self.decision = Decision::Made;
        let stream = match self.body.take() {
            Some(Body::Stream(stream)) => stream.name(),
            Some(Body::Whole(_) | Body::Spooled(_)) | None => 0,
        };
        self.verification = Verification::Failed;
        match end {
            StreamEnd::Reset(code) => {
                self.link.commands.send(Command::StreamReset { stream, attempt: self.attempt, code }).await;
                core::Error::from(core::Violation::StreamReset(ErrorCode::from_code(code))).into()
            }
            StreamEnd::Stopped(code) => core::Error::from(core::Violation::StreamStopped(code)).into(),
            StreamEnd::Lost => self.link.closed(),
        }
    }

    fn stop(&mut self, code: ErrorCode) {
        if let Some(Body::Stream(stream)) = &mut self.body {
            stream.stop(code);
        }
        self.body = None;
        self.verification = match self.verification {
            Verification::Awaited | Verification::Checking(_) | Verification::Failed => Verification::Failed,
            Verification::Verified(digest) => Verification::Verified(digest),
        };
    }
}

/// Return the checksum of the state for which a token is valid (section 9.6): the bytes that the consumer has, and its
/// state.
fn state_checksum(state: &[u8], processed: u64) -> Bytes {
    let sha256 = Sha256::new().chain_update(processed.to_be_bytes()).chain_update(state);
    Bytes::copy_from_slice(&sha256.finalize())
}

fn new_check(header: &EntityHeader) -> PayloadCheck {
    PayloadCheck::new(header.payload_length, header.checksum.clone())
}

impl Drop for EntityReceiver {
    fn drop(&mut self) {
        if self.decision == Decision::Pending {
            let message = "the consumer dropped the entity".to_owned();
            self.stop(ErrorCode::InternalError);
            let reason = Reason { code: ErrorCode::InternalError, message };
            self.link.commands.send_urgent(Urgent::Fail { attempt: self.attempt, reason });
        }
    }
}
