use std::sync::{Arc, Mutex};

use bytes::Bytes;
use penstock_io::sync::lock;
use penstock_pipestream::{Accepted, EntityHeader, YieldReason};
use tokio::task::yield_now;

use crate::incoming::entity::IncomingEntity;
use crate::{Error, Misuse, Result};

/// Number of bytes that [`EntityGuard::complete`] reads before it yields to its caller, which may
/// check for signals.
const TURN: usize = 1 << 20;

type Home = Arc<Mutex<Option<IncomingEntity>>>;

/// An entity of the peer that several callers hold; one at a time reads it or ends it.
#[derive(Debug)]
pub struct SharedEntity {
    accepted: Accepted,
    header: EntityHeader,
    /// Empty while a caller reads the entity, and after its end. The entity is taken out to be read, so that no thread
    /// waits for this lock.
    home: Home,
}

/// An entity that is being read. Dropping this at any time puts the entity back in its current state.
#[derive(Debug)]
pub struct EntityGuard {
    entity: Option<IncomingEntity>,
    home: Home,
}

impl From<IncomingEntity> for SharedEntity {
    fn from(entity: IncomingEntity) -> Self {
        Self { accepted: *entity.accepted(), header: entity.header().clone(), home: Arc::new(Mutex::new(Some(entity))) }
    }
}

impl SharedEntity {
    /// Return the session's view of the header.
    pub fn accepted(&self) -> &Accepted {
        &self.accepted
    }

    /// Return the header as it arrived.
    pub fn header(&self) -> &EntityHeader {
        &self.header
    }

    /// Take the entity out to be read.
    ///
    /// # Errors
    ///
    /// Misuse while another caller reads the entity, and after its end; so also in the methods
    /// below.
    pub fn borrow(&self) -> Result<EntityGuard> {
        Ok(EntityGuard { entity: Some(self.take()?), home: Arc::clone(&self.home) })
    }

    /// Take the entity for good.
    pub fn take(&self) -> Result<IncomingEntity> {
        lock(&self.home).take().ok_or_else(taken)
    }

    /// Take the entity for good, to be skipped; where that is impossible it stays.
    pub fn take_to_skip(&self) -> Result<IncomingEntity> {
        self.take_if(IncomingEntity::check_layer2)
    }

    /// Take the entity for good, to be deferred under a claim check; where that is impossible it stays.
    pub fn take_to_defer(&self) -> Result<IncomingEntity> {
        self.take_if(IncomingEntity::check_defer)
    }

    fn take_if(&self, check: impl FnOnce(&IncomingEntity) -> Result<()>) -> Result<IncomingEntity> {
        let mut home = lock(&self.home);
        check(home.as_ref().ok_or_else(taken)?)?;
        home.take().ok_or_else(taken)
    }
}

impl EntityGuard {
    /// [`IncomingEntity::chunk`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>> {
        self.entity()?.chunk().await
    }

    /// [`IncomingEntity::unread`].
    pub fn unread(&mut self, bytes: Bytes) -> Result<()> {
        self.entity()?.unread(bytes)
    }

    /// [`IncomingEntity::wait`].
    pub async fn wait(&mut self, reason: YieldReason, state: Bytes) -> Result<()> {
        self.entity()?.wait(reason, state).await
    }

    /// [`IncomingEntity::resumed`].
    pub async fn resumed(&mut self) -> Result<Option<Bytes>> {
        self.entity()?.resumed().await
    }

    /// Read the rest of the payload, then report that it is safely delivered. Safe to cancel while it reads: the entity
    /// goes back, and the bytes that were read are gone.
    pub async fn complete(mut self) -> Result<()> {
        let mut read = 0;
        while let Some(bytes) = self.chunk().await? {
            read += bytes.len();
            if read >= TURN {
                read = 0;
                yield_now().await;
            }
        }
        self.entity.take().ok_or_else(taken)?.complete().await
    }

    fn entity(&mut self) -> Result<&mut IncomingEntity> {
        self.entity.as_mut().ok_or_else(taken)
    }
}

impl Drop for EntityGuard {
    fn drop(&mut self) {
        if let Some(entity) = self.entity.take() {
            *lock(&self.home) = Some(entity);
        }
    }
}

fn taken() -> Error {
    Misuse::EntityTaken.into()
}
