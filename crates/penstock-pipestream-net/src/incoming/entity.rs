use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use penstock_io::runtime::PerProcess;
use penstock_pipestream::{Accepted, Attempt, EntityHeader, EntityKey, Reason, YieldReason};
use tokio::sync::OwnedSemaphorePermit;

use crate::claim_checks::ClaimCheck;
use crate::entity_link::EntityLink;
use crate::incoming::body::Body;
use crate::incoming::receiver::{EntityReceiver, Parts};
use crate::{Misuse, Result};

/// An entity of the peer that may be received: its header has arrived, its payload has arrived or is arriving.
///
/// Read it to the end, then [`complete`](Self::complete) it. An entity that is dropped before that fails with
/// INTERNAL_ERROR.
#[derive(Debug)]
pub struct IncomingEntity {
    header: Arc<EntityHeader>,
    accepted: Accepted,
    receiver: PerProcess<EntityReceiver>,
}

/// The driver's decision about an entity stream that it admitted.
#[derive(Debug, Clone)]
pub(crate) struct AdmittedEntity {
    pub(crate) header: Arc<EntityHeader>,
    pub(crate) accepted: Accepted,
}

/// An entity that was not taken yet. It gets its link to the session when it is taken: a reference
/// count that two threads change alternately costs as much as a small entity's hash.
#[derive(Debug)]
pub(crate) struct QueuedEntity {
    pub(crate) entity: AdmittedEntity,
    pub(crate) body: Body,
    /// Whether it is parked: it waits without a stream permit.
    pub(crate) parked: bool,
}

impl IncomingEntity {
    /// Create the entity. `permit` is set if it was not released before the entity is taken.
    pub(crate) fn new(queued: QueuedEntity, link: Arc<EntityLink>, permit: Option<OwnedSemaphorePermit>) -> Self {
        let QueuedEntity { entity, body, .. } = queued;
        let process = link.process;
        let AdmittedEntity { header, accepted } = entity;
        let receiver = EntityReceiver::new(accepted.attempt(), Arc::clone(&header), body, link, permit);
        Self { header, accepted, receiver: PerProcess::of(process, receiver) }
    }

    /// Return the entity's key in its session.
    pub fn key(&self) -> EntityKey {
        self.accepted.key
    }

    /// Return the attempt that this entity belongs to.
    pub(crate) const fn attempt(&self) -> Attempt {
        self.accepted.attempt()
    }

    /// Return its header as it arrived.
    pub fn header(&self) -> &EntityHeader {
        &self.header
    }

    /// Return the session's view of the header.
    pub fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// Return the next bytes of the payload. `None` is returned once length and checksum are verified (section 10.2);
    /// nothing may be committed before. After an error the entity has failed and the peer has been informed.
    ///
    /// The polling thread hashes the bytes, and reads payloads that arrived in chunks from disk.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.receiver.get_mut()?.chunk().await
    }

    /// Put back bytes that [`chunk`](Self::chunk) returned last and that were not processed: they
    /// are returned next, and [`wait`](Self::wait) does not count them as processed.
    pub fn unread(&mut self, bytes: Bytes) -> Result<()> {
        self.receiver.get_mut()?.unread(bytes);
        Ok(())
    }

    /// Return the whole payload, if it has at most `limit` bytes.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Bytes> {
        if self.header.payload_length > limit as u64 {
            return Err(Misuse::PayloadLimit { limit }.into());
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.chunk().await? else { return Ok(first) };
        // A payload longer than its header declares never passes the check.
        let mut all = BytesMut::from(first);
        all.extend_from_slice(&second);
        while let Some(piece) = self.chunk().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// Report that the payload is safely delivered. The peer is sent COMPLETE; for an entity with
    /// children, once these are terminal. A part that was not read yet is read and checked first.
    pub async fn complete(self) -> Result<()> {
        self.receiver.into_inner()?.complete().await
    }

    /// Do the same as [`complete`](Self::complete) without notifying the session or checking the
    /// process: the caller does both for many entities.
    pub(crate) async fn finish(self) -> Result<()> {
        match self.receiver.inner_in_this_process() {
            Some(receiver) => receiver.finish().await,
            None => Err(penstock_io::Error::Forked.into()),
        }
    }

    /// [`finish`](Self::finish) a payload that has arrived completely. Return its length if it
    /// verifies; `None` if it must be awaited.
    pub(crate) fn finish_now(&mut self) -> Option<Result<u64>> {
        self.receiver.mut_in_this_process()?.finish_now()
    }

    /// Reject the entity; the peer will be sent FAILED and the reason.
    pub async fn fail(self, reason: Reason) -> Result<()> {
        self.receiver.into_inner()?.reject(reason)
    }

    /// Return an error where the entity cannot be skipped or deferred: below layer 2, and if it has
    /// children, whose handling its policy determines.
    pub fn check_layer2(&self) -> Result<()> {
        if self.accepted.dehydrated {
            return Err(Misuse::Dehydrated.into());
        }
        self.receiver.get()?.check_layer2()
    }

    /// Return an error where the entity cannot be deferred: as
    /// [`check_layer2`](Self::check_layer2), and where claim checks are not stored.
    pub fn check_defer(&self) -> Result<()> {
        self.check_layer2()?;
        self.receiver.get()?.check_claims()
    }

    /// Skip the entity, which does not count as failed: the peer will be sent SKIPPED and the reason. Layer 2.
    pub async fn skip(self, reason: Reason) -> Result<()> {
        self.check_layer2()?;
        self.receiver.into_inner()?.skip(reason)
    }

    /// Let the entity wait for `reason`. Its owner gets a token and returns it when processing may
    /// continue; then [`resumed`](Self::resumed) returns `state`. An entity that waits may also be
    /// completed, failed, skipped or deferred; one with children only completed or failed, and the
    /// children continue meanwhile. Layer 2.
    pub async fn wait(&mut self, reason: YieldReason, state: Bytes) -> Result<()> {
        self.receiver.get()?.check_layer2()?;
        self.receiver.get_mut()?.wait(reason, state).await
    }

    /// Wait until the owner lets an entity that [`wait`](Self::wait)s continue, and return the
    /// state; `None` if bytes were taken since, so that the state is outdated: processing starts
    /// again (section 10.7). Bytes that were taken are not returned again. Safe to cancel and call
    /// again.
    pub async fn resumed(&mut self) -> Result<Option<Bytes>> {
        self.receiver.get_mut()?.resumed().await
    }

    /// Defer the entity under a claim check, which is valid for `life`, or as long as the server allows, and is stored
    /// before the peer receives DEFERRED. Layer 2.
    pub async fn defer(self, reason: Reason, life: Option<std::time::Duration>) -> Result<ClaimCheck> {
        self.check_defer()?;
        self.receiver.into_inner()?.defer(reason, life).await
    }

    /// Reject an entity that has no consumer.
    pub(crate) fn reject(self, reason: Reason) {
        if let Ok(receiver) = self.receiver.into_inner() {
            // After its end the session needs no notification.
            let _ = receiver.reject(reason);
        }
    }

    /// Return its parts, for a consumer that verifies and decides by itself; `None` in a forked child.
    pub fn into_parts(self) -> Option<Parts> {
        let dehydrated = self.accepted.dehydrated;
        self.receiver.into_inner().ok()?.into_parts(dehydrated)
    }
}
