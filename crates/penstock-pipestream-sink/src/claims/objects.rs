//! The claim checks of a sink in an object store, which several servers share.
//!
//! ```text
//!  PREFIX/.claims/log/WRITER-NUMBER    records in the format of earlier.rs, with its first line: those of a batch,
//!                                      or of many merged batches of the same server
//!  PREFIX/.claims/redeemed/CLAIM       {"by": SESSION, "attempt": 16 hex digits}; put only if there is none
//! ```
//!
//! An object appears whole or not at all, and the store decides which redemption is first: the
//! session whose server has put `redeemed/CLAIM` has the entity, whatever its process (section
//! 10.8). A server reads the others' records when a client asks about a claim check. The order of
//! the records does not matter, as long as those that issue claim checks come first. Objects are
//! removed once no claim check in them can be valid any more.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::{Error, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, Result};
use penstock_io::runtime::block_on;
use penstock_io::storage::{ObjectPrefix, plain};
use penstock_pipestream::SessionId;
use penstock_pipestream::claims::{ClaimLimits, ClaimRecord};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::claims::earlier::{MAGIC, read_all};
use crate::claims::record::Change;
use crate::claims::state::retention;
use crate::format::CLAIMS as FOLDER;

const LOG: &str = "log";
const REDEEMED: &str = "redeemed";
/// Maximum number of concurrent requests.
const CONCURRENT: usize = 32;
/// Number of batches, and number of their bytes, at which they are merged.
const BATCHES: usize = 64;
const ROLL: usize = 4 << 20;
/// Time for which objects are kept after their claim checks are forgotten, for clocks that differ.
const SKEW: Duration = Duration::from_secs(3_600);
/// The interval at which a server removes old objects.
const SWEEP: Duration = Duration::from_secs(3_600);
/// Maximum number of times that the objects are listed: another server may merge some before they
/// are read.
const ROUNDS: usize = 8;

/// The content of a redemption: the session that has redeemed a claim check.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    /// The session's ID.
    by: String,
    /// A random number that identifies this attempt, because a store may have carried out a request
    /// that it reports as failed.
    attempt: String,
}

/// The claim checks of all servers of a sink.
#[derive(Debug)]
pub(super) struct SharedClaims {
    place: ObjectPrefix,
    /// The prefix of the names of this server's objects.
    writer: String,
    /// Objects that exist and need not be read again.
    seen: Mutex<Seen>,
    /// The number of calls of [`SharedClaims::read_new`].
    calls: AtomicU64,
}

#[derive(Debug, Default)]
struct Seen {
    names: HashSet<String>,
    /// The number of the last call that is answered.
    answered: u64,
}

impl SharedClaims {
    pub(super) fn new(place: ObjectPrefix) -> crate::Result<Self> {
        let writer = format!("{:016x}", u64::from_be_bytes(penstock_io::tls::random()?));
        Ok(Self { place, writer, seen: Mutex::default(), calls: AtomicU64::new(0) })
    }

    /// Return the log of the records of this server, whose claim checks have these limits.
    pub(super) fn log(&self, limits: ClaimLimits) -> ObjectLog {
        ObjectLog {
            place: self.place.clone(),
            writer: self.writer.clone(),
            next: 0,
            recent: Vec::new(),
            bytes: 0,
            kept: kept(limits),
            swept: None,
        }
    }

    pub(super) const fn place(&self) -> &ObjectPrefix {
        &self.place
    }

    /// Read the records that other servers have written since the last call; those that issue claim
    /// checks come first. One call queries the store for all waiting callers.
    pub(super) async fn read_new(&self, each: impl FnMut(Change)) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let mut seen = self.seen.lock().await;
        if seen.answered >= call {
            return Ok(());
        }
        let answered = self.calls.load(Ordering::Relaxed);
        let (changes, names) = read(&self.place, &seen.names, &self.writer).await?;
        in_order(changes).into_iter().for_each(each);
        *seen = Seen { names, answered };
        Ok(())
    }

    /// Return the claim checks that have a redemption.
    pub(super) async fn redeemed(&self) -> Result<Vec<u64>> {
        let found = list(&self.place, REDEEMED).await?;
        let names = found.iter().filter_map(|object| object.location.filename());
        Ok(names.filter_map(|name| u64::from_str_radix(name, 16).ok()).collect())
    }

    /// Return the session that has redeemed a claim check, if any.
    pub(super) async fn redeemer(&self, id: u64) -> Result<Option<SessionId>> {
        Ok(self.marker(id).await?.and_then(|marker| SessionId::parse(&marker.by).ok()))
    }

    /// Redeem a claim check for a session, once over all servers. Return as `Err` the session that
    /// was first.
    pub(super) async fn redeem(&self, id: u64, by: SessionId) -> Result<std::result::Result<(), SessionId>> {
        let attempt = penstock_io::tls::random().map_err(|error| generic(io::Error::other(error.to_string())))?;
        let marker = Marker { by: by.to_string(), attempt: format!("{:016x}", u64::from_be_bytes(attempt)) };
        let bytes = serde_json::to_vec(&marker).map_err(|error| generic(error.into()))?;
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.place.store().put_opts(&self.redemption(id), PutPayload::from(bytes), options).await {
            Ok(_) => Ok(Ok(())),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                let there =
                    self.marker(id).await?.ok_or_else(|| generic(io::Error::other("it is there, and is not")))?;
                if there.attempt == marker.attempt {
                    return Ok(Ok(()));
                }
                let other =
                    SessionId::parse(&there.by).map_err(|error| generic(io::Error::other(error.to_string())))?;
                Ok(Err(other))
            }
            Err(error) => Err(error),
        }
    }

    async fn marker(&self, id: u64) -> Result<Option<Marker>> {
        let bytes = match self.place.store().get(&self.redemption(id)).await {
            Ok(found) => found.bytes().await?,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| generic(error.into()))
    }

    fn redemption(&self, id: u64) -> object_store::path::Path {
        self.place.path(&format!("{FOLDER}/{REDEEMED}/{id:016x}"))
    }
}

/// Read the records of all servers of a sink. The caller need not be one of them.
pub(super) async fn look(place: &ObjectPrefix, mut each: impl FnMut(Change)) -> Result<()> {
    let (changes, _) = read(place, &HashSet::new(), "no writer").await?;
    in_order(changes).into_iter().for_each(&mut each);
    // A server may have been killed between a redemption and its record.
    for object in list(place, REDEEMED).await? {
        let Some(id) = object.location.filename().and_then(|name| u64::from_str_radix(name, 16).ok()) else { continue };
        let bytes = match place.store().get(&object.location).await {
            Ok(found) => found.bytes().await?,
            Err(Error::NotFound { .. }) => continue,
            Err(error) => return Err(error),
        };
        let marker: Marker = serde_json::from_slice(&bytes).map_err(|error| generic(error.into()))?;
        if let Ok(by) = SessionId::parse(&marker.by) {
            each((ClaimRecord::Redeemed { id, by }, None));
        }
    }
    Ok(())
}

/// Return the records of objects that are neither in `seen` nor this writer's, and the names of all
/// objects.
async fn read(place: &ObjectPrefix, seen: &HashSet<String>, writer: &str) -> Result<(Vec<Change>, HashSet<String>)> {
    let (mut changes, mut read) = (Vec::new(), seen.clone());
    for _ in 0..ROUNDS {
        let found = list(place, LOG).await?;
        let names: HashSet<String> =
            found.iter().filter_map(|object| Some(object.location.filename()?.to_owned())).collect();
        let new: Vec<_> =
            names.iter().filter(|name| !name.starts_with(writer) && !read.contains(*name)).cloned().collect();
        let requests = new.into_iter().map(|name| async move {
            let path = place.path(&format!("{FOLDER}/{LOG}/{name}"));
            match place.store().get(&path).await {
                Ok(found) => Ok(Some((name, found.bytes().await?))),
                Err(Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        });
        let mut answers = stream::iter(requests).buffer_unordered(CONCURRENT);
        let mut whole = true;
        while let Some(answer) = answers.try_next().await? {
            let Some((name, bytes)) = answer else {
                whole = false;
                continue;
            };
            let damaged =
                |error: io::Error| generic(io::Error::new(error.kind(), format!("{FOLDER}/{LOG}/{name}: {error}")));
            read_all(&bytes, &mut |change| changes.push(change)).map_err(damaged)?;
            read.insert(name);
        }
        if whole {
            return Ok((changes, names));
        }
    }
    Err(generic(io::Error::other("other servers change their claim checks faster than they can be read")))
}

/// Sort changes so that those that issue claim checks come first.
fn in_order(changes: Vec<Change>) -> Vec<Change> {
    let (mut issued, others): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|(record, _)| matches!(record, ClaimRecord::Issued(_)));
    issued.extend(others);
    issued
}

async fn list(place: &ObjectPrefix, below: &str) -> Result<Vec<ObjectMeta>> {
    place.store().list(Some(&place.path(&format!("{FOLDER}/{below}")))).try_collect().await
}

/// The objects of one server. Their names are never used again, because each process has its own
/// prefix.
#[derive(Debug)]
pub(super) struct ObjectLog {
    place: ObjectPrefix,
    writer: String,
    next: u64,
    /// Batches that are not merged yet.
    recent: Vec<(object_store::path::Path, Vec<u8>)>,
    bytes: usize,
    /// Age at which objects are removed.
    kept: Duration,
    /// When this server last removed old objects.
    swept: Option<Instant>,
}

impl ObjectLog {
    /// Store records. Blocks on the store.
    pub(super) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let path = self.put(records)?;
        self.bytes += records.len();
        self.recent.push((path, records.to_vec()));
        if self.recent.len() >= BATCHES || self.bytes >= ROLL {
            self.roll();
        }
        if self.swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
            self.swept = Some(Instant::now());
            if let Err(error) = wait(sweep(&self.place, self.kept, SystemTime::now())) {
                tracing::warn!(sink = self.place.uri(), %error, "records of claim checks that have expired stay for now");
            }
        }
        Ok(())
    }

    fn put(&mut self, records: &[u8]) -> io::Result<object_store::path::Path> {
        let path = self.place.path(&format!("{FOLDER}/{LOG}/{}-{:010}", self.writer, self.next));
        // After an error the object may exist anyway, and another server may have read it, so the
        // name is not used again.
        self.next = self.next.saturating_add(1);
        let bytes = [MAGIC, records].concat();
        wait(async { self.place.store().put(&path, PutPayload::from(bytes)).await.map(drop) })?;
        Ok(path)
    }

    /// Merge the recent objects into one, so that readers need not read a hundred thousand of them.
    fn roll(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        self.bytes = 0;
        let all: Vec<u8> = recent.iter().flat_map(|(_, records)| records.iter().copied()).collect();
        if let Err(error) = self.put(&all) {
            // Nothing is lost: the small objects remain.
            tracing::warn!(sink = self.place.uri(), %error, "batches of claim checks stay apart");
            return;
        }
        let paths = recent.into_iter().map(|(path, _)| path).collect();
        if let Err(error) = wait(remove(&self.place, paths)) {
            tracing::warn!(sink = self.place.uri(), %error, "batches of claim checks stay, and are there twice");
        }
    }
}

/// Return the age at which the claim checks in an object are forgotten.
fn kept(limits: ClaimLimits) -> Duration {
    retention(limits).saturating_add(SKEW)
}

/// Remove objects of at least the age `kept`.
async fn sweep(place: &ObjectPrefix, kept: Duration, now: SystemTime) -> Result<()> {
    for below in [LOG, REDEEMED] {
        let old = |object: &ObjectMeta| now.duration_since(object.last_modified.into()).is_ok_and(|age| age >= kept);
        let found = list(place, below).await?;
        remove(place, found.into_iter().filter(old).map(|object| object.location).collect()).await?;
    }
    Ok(())
}

async fn remove(place: &ObjectPrefix, paths: Vec<object_store::path::Path>) -> Result<()> {
    let mut removed = place.store().delete_stream(stream::iter(paths.into_iter().map(Ok)).boxed());
    while let Some(result) = removed.next().await {
        match result {
            Ok(_) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn wait<T>(request: impl Future<Output = Result<T>>) -> io::Result<T> {
    block_on(request).map_err(io::Error::other)?.map_err(|error| io::Error::other(plain(&error)))
}

fn generic(error: io::Error) -> Error {
    Error::Generic { store: "claim checks", source: Box::new(error) }
}

#[cfg(test)]
mod tests;
