//! The jobs of a store: their states, the requests that wait for them, and their changes, one after the other.
//!
//! A decision is repeated if another process has changed the job meanwhile, because buffers may share a store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use penstock_io::memory::MemoryPermit;
use penstock_io::runtime::spawn;
use penstock_io::sync::lock;
use penstock_io::{Busy, DriverError as _};
use penstock_pimp::{Error, Job, JobId, Limits, Lost, Now, Settings, verify_jwt};
use tokio::sync::{Mutex as Turn, watch};

use super::refused::{Refused, ended};
use crate::clock::now;
use crate::{Change, Store};

/// How often a decision is repeated before the store counts as failed.
const TRIES: usize = 100;
/// How far the clocks of a buffer and its store may differ: chunks of a job that expires sooner are not taken for lost.
const SKEW: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, Refused>;
/// The new state of a job (`None`: it is deleted), and its new chunks.
type Next = (Option<Job>, Vec<(u32, Bytes)>);

/// A job that requests are waiting for or changing.
#[derive(Debug)]
pub(super) struct JobNotifier {
    /// Lets one request of this process change the job at a time.
    turn: Arc<Turn<()>>,
    /// Grows with each change.
    news: watch::Sender<u64>,
}

impl JobNotifier {
    /// Notify waiting requests that the job has changed.
    fn notify(&self) {
        self.news.send_modify(|number| *number += 1);
    }
}

/// The jobs of a store.
pub(super) struct Jobs {
    pub(super) store: Arc<dyn Store>,
    limits: Limits,
    jwt_secret: Option<Vec<u8>>,
    notifiers: Mutex<HashMap<JobId, Arc<JobNotifier>>>,
}

impl Jobs {
    pub(super) fn new(store: Arc<dyn Store>, limits: Limits, jwt_secret: Option<Vec<u8>>) -> Arc<Self> {
        Arc::new(Self { store, limits, jwt_secret, notifiers: Mutex::default() })
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Return whether signed tokens create jobs.
    pub(super) const fn takes_tokens(&self) -> bool {
        self.jwt_secret.is_some()
    }

    /// Delete expired jobs, and forget jobs that no request waits for.
    pub(super) async fn sweep(&self) {
        if let Err(error) = self.store.sweep(now().unix_millis()).await {
            tracing::error!(%error, "expired jobs could not be deleted");
        }
        self.notifiers().retain(|_, notifier| Arc::strong_count(notifier) > 1);
    }

    /// Wait for changes by other processes, and wake the requests that wait for them.
    pub(super) async fn follow_store(&self) {
        loop {
            let changed = self.store.changed().await;
            let notifiers = self.notifiers();
            match changed {
                Some(id) => notifiers.get(&id).into_iter().for_each(|notifier| notifier.notify()),
                None => notifiers.values().for_each(|notifier| notifier.notify()),
            }
        }
    }

    fn notifiers(&self) -> MutexGuard<'_, HashMap<JobId, Arc<JobNotifier>>> {
        lock(&self.notifiers)
    }

    fn notifier(&self, id: JobId) -> Arc<JobNotifier> {
        let fresh = || Arc::new(JobNotifier { turn: Arc::default(), news: watch::Sender::new(0) });
        Arc::clone(self.notifiers().entry(id).or_insert_with(fresh))
    }

    /// Return a subscription to a job's changes.
    pub(super) fn news(&self, id: JobId) -> (Arc<JobNotifier>, watch::Receiver<u64>) {
        let notifier = self.notifier(id);
        let news = notifier.news.subscribe();
        (notifier, news)
    }

    /// Return how many requests wait for a change of a job.
    #[cfg(test)]
    pub(super) fn waiting(&self, id: JobId) -> usize {
        self.notifiers().get(&id).map_or(0, |notifier| notifier.news.receiver_count())
    }

    /// Return a known job, with its token renewed if this key is a newer one.
    pub(super) async fn job(&self, id: JobId, key: Option<&str>) -> Result<Job> {
        self.known(id, key).await?.ok_or_else(|| Error::NotFound.into())
    }

    pub(super) async fn known(&self, id: JobId, key: Option<&str>) -> crate::Result<Option<Job>> {
        let (job, now) = (self.store.load(id).await?, now());
        let mut job = job.filter(|job| now.unix_millis() < job.forgotten_at());
        if let Some(job) = &mut job {
            self.renew(id, job, key, now);
        }
        Ok(job)
    }

    /// Return when a key that is a signed token expires; `None` for an ordinary key.
    pub(super) fn token(&self, id: JobId, key: &str, now: Now) -> Result<Option<u64>> {
        let Some(secret) = self.jwt_secret.as_deref() else { return Ok(None) };
        Ok(verify_jwt(key, secret, id, now, self.limits.ttl)?)
    }

    /// Replace the job's token by the one of this request; return whether it was replaced.
    pub(super) fn renew(&self, id: JobId, job: &mut Job, key: Option<&str>, now: Now) -> bool {
        let Some(key) = key.filter(|key| job.has_other_token(key)) else { return false };
        self.token(id, key, now).is_ok_and(|until| until.is_some_and(|until| job.renew(key, until)))
    }

    /// Make the job for a first write with a signed token (decision 1).
    pub(super) fn created_by_token(&self, id: JobId, key: &str, now: Now) -> Result<Job> {
        if self.jwt_secret.is_none() {
            return Err(Error::NotFound.into());
        }
        let until = self.token(id, key, now)?.ok_or_else(|| Refused::Guess(Error::NotFound))?;
        let mut job = Job::create(now, key, Settings::default(), &self.limits)?;
        job.set_token(Some(until));
        Ok(job)
    }

    /// Change a job by a decision on its current state. Changes of one job run one at a time. `decide` may be called
    /// several times, so it must be deterministic.
    ///
    /// `held` is the change's memory permit, which is held until the store has committed.
    pub(super) async fn change<T>(
        &self,
        id: JobId,
        held: Option<MemoryPermit>,
        decide: impl Fn(Option<Job>, Now) -> Result<(Option<Next>, T)> + Send,
    ) -> Result<T> {
        let notifier = self.notifier(id);
        let mut turn = (Arc::clone(&notifier.turn).lock_owned().await, held);
        for _ in 0..TRIES {
            let (was, now) = (self.store.load(id).await?, now());
            let known = was.clone().filter(|job| now.unix_millis() < job.forgotten_at());
            let (next, answer) = decide(known, now)?;
            let Some((job, chunks)) = next else { return Ok(answer) };
            let (store, notifier) = (Arc::clone(&self.store), Arc::clone(&notifier));
            // A separate task: when the client disconnects, this future is dropped, but the store continues. The next
            // change must see the result of this one, and the memory is in use until then.
            let committing = spawn(async move {
                let stored = store.commit(id, Change { was, job, chunks }).await;
                if stored.as_ref().is_ok_and(|stored| *stored) {
                    notifier.notify();
                }
                (stored, turn)
            })?;
            let (stored, back) = committing.await.map_err(ended)?;
            turn = back;
            if stored? {
                return Ok(answer);
            }
        }
        Err(crate::Error::busy(Busy::Conflict { what: format!("job {id}"), tries: TRIES }).into())
    }

    /// Return the error for a chunk that the job has but the store did not find.
    ///
    /// Either the job has ended meanwhile, or its store has lost the chunk, as a Redis with eviction does: then the job
    /// is LOST.
    pub(super) async fn missing(&self, id: JobId, index: u32) -> Refused {
        let is_lost = async {
            let has = |job: &Job, now: Now| {
                job.indices().contains(index) && !job.is_deleted() && job.time_left(now) > SKEW && job.is_intact()
            };
            let Some(before) = self.store.load(id).await?.filter(|job| has(job, now())) else { return Ok(false) };
            if !self.store.read(id, vec![index], 0).await?.is_empty() {
                return Ok(false);
            }
            self.change(id, None, |known, now| {
                // If it is the same job as before, it had the chunk all the time.
                let same = known.filter(|job| job.created_at() == before.created_at() && has(job, now));
                let Some(mut job) = same else { return Ok((None, false)) };
                job.set_lost();
                Ok((Some((Some(job), Vec::new())), true))
            })
            .await
        };
        match is_lost.await {
            Err(refused) => refused,
            Ok(false) => Refused::Busy,
            Ok(true) => {
                tracing::error!(job = %id, index, "the store has lost an acknowledged chunk; requests for the job get 410");
                Error::from(Lost::Chunk { index }).into()
            }
        }
    }
}
