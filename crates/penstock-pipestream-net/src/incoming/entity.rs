use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use penstock_io::DriverError as _;
use penstock_io::runtime::PerProcess;
use penstock_pipestream::{Accepted, EntityHeader, EntityKey, Reason, YieldReason};
use tokio::sync::OwnedSemaphorePermit;

use crate::claim_checks::ClaimCheck;
use crate::entity_link::EntityLink;
use crate::incoming::body::Body;
use crate::incoming::receiving::{Parts, Receiving};
use crate::types::Attempt;
use crate::{Error, Result};

/// An entity of the peer that may be received: its header is there, its payload is there or coming.
///
/// Read it to the end, then [`complete`](Self::complete) it. One that is dropped before has failed with
/// INTERNAL_ERROR.
#[derive(Debug)]
pub struct IncomingEntity {
    header: Arc<EntityHeader>,
    accepted: Accepted,
    number: u32,
    receiving: PerProcess<Receiving>,
}

/// What the driver said of an entity stream.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    pub(crate) header: Arc<EntityHeader>,
    pub(crate) accepted: Accepted,
    /// How many attempts have come to nothing.
    pub(crate) number: u32,
}

impl Admitted {
    pub(crate) const fn attempt(&self) -> Attempt {
        Attempt { key: self.accepted.key, number: self.number }
    }
}

/// An entity that nobody has taken yet. What ties it to its session is added by whoever takes it: a count that two
/// threads change in turn costs as much as a small entity's hash.
#[derive(Debug)]
pub(crate) struct Untaken {
    pub(crate) entity: Admitted,
    pub(crate) body: Body,
    /// Whether it came without a place.
    pub(crate) parked: bool,
}

impl IncomingEntity {
    /// `place`: where it is not given back before the entity is taken.
    pub(crate) fn new(untaken: Untaken, link: Arc<EntityLink>, place: Option<OwnedSemaphorePermit>) -> Self {
        let Untaken { entity, body, .. } = untaken;
        let (process, attempt) = (link.process, entity.attempt());
        let Admitted { header, accepted, number } = entity;
        let receiving = Receiving::new(attempt, Arc::clone(&header), body, link, place);
        Self { header, accepted, number, receiving: PerProcess::of(process, receiving) }
    }

    /// Return the entity's name in its session.
    pub fn key(&self) -> EntityKey {
        self.accepted.key
    }

    /// Which of its attempts it is.
    pub(crate) const fn attempt(&self) -> Attempt {
        Attempt { key: self.accepted.key, number: self.number }
    }

    /// Return its header as it came.
    pub fn header(&self) -> &EntityHeader {
        &self.header
    }

    /// What the session made of the header.
    pub fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// Return the next bytes of the payload. `None` comes once length and checksum are known to be right (section
    /// 10.2); nothing may be committed before. After an error the entity has failed and the peer knows.
    ///
    /// Hashes, and reads what came in chunks from disk, on the thread that polls it.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.receiving.get_mut()?.chunk().await
    }

    /// Gives back bytes that [`chunk`](Self::chunk) gave last and that nobody has looked at: they come next, and
    /// [`wait`](Self::wait) does not count them as processed.
    pub fn unread(&mut self, bytes: Bytes) -> Result<()> {
        self.receiving.get_mut()?.unread(bytes);
        Ok(())
    }

    /// Return the whole payload, if it has at most `limit` bytes.
    pub async fn read_to_end(&mut self, limit: usize) -> Result<Bytes> {
        if self.header.payload_length > limit as u64 {
            return Err(Error::misuse(format!("the payload has more than {limit} bytes")));
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.chunk().await? else { return Ok(first) };
        // What is longer than its header says never gets past the check.
        let mut all = BytesMut::from(first);
        all.extend_from_slice(&second);
        while let Some(piece) = self.chunk().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }

    /// The payload is safely delivered: the peer will be told COMPLETE; for an entity with children, once these are
    /// terminal. What was not read yet is read and checked first.
    pub async fn complete(self) -> Result<()> {
        self.receiving.into_inner()?.complete().await
    }

    /// [`complete`](Self::complete) without telling the session, nor asking whether this is its process: whoever does
    /// this does both for many.
    pub(crate) async fn finish(self) -> Result<()> {
        match self.receiving.asked_into_inner() {
            Some(receiving) => receiving.finish().await,
            None => Err(penstock_io::Error::Forked.into()),
        }
    }

    /// Return the same for a payload that is all here: its length if it is right. `None`: it has to be waited for.
    pub(crate) fn finish_now(&mut self) -> Option<Result<u64>> {
        self.receiving.asked_mut()?.finish_now()
    }

    /// The entity is rejected; the peer will be told FAILED and why.
    pub async fn fail(self, reason: Reason) -> Result<()> {
        self.receiving.into_inner()?.reject(reason)
    }

    /// Refuse to skip and to defer where that cannot be: below layer 2, and for an entity with children,
    /// of which its policy says what becomes.
    pub fn check_layer2(&self) -> Result<()> {
        if self.accepted.dehydrated {
            return Err(Error::misuse("an entity with children is completed or fails; it is not set aside".into()));
        }
        self.receiving.get()?.check_layer2()
    }

    /// Refuse to defer where that cannot be: as [`check_layer2`](Self::check_layer2), and where claim checks are kept
    /// nowhere.
    pub fn check_defer(&self) -> Result<()> {
        self.check_layer2()?;
        self.receiving.get()?.check_claims()
    }

    /// The entity is left out, and does not count as failed: the peer will be told SKIPPED and why. Layer 2.
    pub async fn skip(self, reason: Reason) -> Result<()> {
        self.check_layer2()?;
        self.receiving.into_inner()?.skip(reason)
    }

    /// The entity waits for something, `reason`: its owner gets a token, and hands it back when processing may go on;
    /// then [`resumed`](Self::resumed) gives `state`. An entity that waits may also be completed, failed, skipped or
    /// deferred; one with children is completed or failed, and they go on meanwhile. Layer 2.
    pub async fn wait(&mut self, reason: YieldReason, state: Bytes) -> Result<()> {
        self.receiving.get()?.check_layer2()?;
        self.receiving.get_mut()?.wait(reason, state).await
    }

    /// Wait until the owner lets an entity go on that [`wait`](Self::wait)s, and gives the state; `None` where bytes
    /// were taken since, so that the state is not the entity's any more: processing begins anew (section 10.7). Bytes
    /// that were taken do not come again. It may be given up and called again.
    pub async fn resumed(&mut self) -> Result<Option<Bytes>> {
        self.receiving.get_mut()?.resumed().await
    }

    /// Set the entity aside under a claim check, which is good for `life`, or as long as the server allows, and is
    /// stored before the peer hears DEFERRED. Layer 2.
    pub async fn defer(self, reason: Reason, life: Option<std::time::Duration>) -> Result<ClaimCheck> {
        self.check_defer()?;
        self.receiving.into_inner()?.defer(reason, life).await
    }

    /// Nobody takes it.
    pub(crate) fn reject(self, reason: Reason) {
        if let Ok(receiving) = self.receiving.into_inner() {
            // After the end of the session nobody needs to know.
            let _ = receiving.reject(reason);
        }
    }

    /// Return its parts, for a consumer that verifies and decides by itself; `None` in a forked child.
    pub fn into_parts(self) -> Option<Parts> {
        let dehydrated = self.accepted.dehydrated;
        self.receiving.into_inner().ok()?.into_parts(dehydrated)
    }
}
