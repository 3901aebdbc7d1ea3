//! The claim checks that an end has issued, over all its sessions (decision 20): the core's book, a
//! description of the entity behind each claim check, and the log of a folder or the objects of a
//! store, which hold both before a change is reported. An end without such a store issues none: a
//! forgotten claim check could be redeemed twice (section 10.8).

mod doubts;
mod earlier;
mod lists;
mod log;
mod objects;
mod record;
mod state;
mod store;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use penstock_io::runtime::{block_on, spawn_blocking};
use penstock_io::storage::{ObjectPrefix, plain};
use penstock_io::sync::lock;
use penstock_io::{DriverError as _, tls};
use penstock_pipestream::claims::{Claim, ClaimLimits, ClaimRecord, ClaimState, ClaimTerms};
use penstock_pipestream::{self as core, ClaimResponse, ErrorCode, SessionId, Status};
use penstock_pipestream_net::port::{ClaimChecks, ClaimCounters, Details};
use penstock_pipestream_net::{ClaimRow, now};
use tokio::sync::Notify;

use crate::claims::objects::SharedClaims;
use crate::claims::record::Entry;
use crate::claims::state::{HERE, State};
use crate::claims::store::{Answer, Folder, Store};
use crate::format::CLAIMS as FOLDER;
use crate::{Error, Result};

/// Read the claim checks in the folder of a sink, also from another process than its server. Return
/// none if the folder has none. Blocks on the disk.
///
/// # Errors
///
/// If a place of the log is lost: then not all claim checks are known.
pub fn read_claims(sink: &Path) -> Result<Vec<ClaimRow>> {
    let mut state = State::default();
    store::look(&sink.join(FOLDER), &mut state)?;
    state.page((0, 0), usize::MAX)
}

/// Read the claim checks of all servers of a sink in an object store. Blocks on the store.
pub fn read_claims_in(sink: &ObjectPrefix) -> Result<Vec<ClaimRow>> {
    let mut state = State::default();
    let read = block_on(objects::look(sink, |(record, details)| state.restore(record, details)))?;
    read.map_err(|error| failed("cannot read the claim checks of", sink, &error))?;
    state.page((0, 0), usize::MAX)
}

/// The place where claim checks are stored.
#[derive(Debug)]
enum Home {
    /// A folder that belongs to one process at a time.
    Folder(PathBuf),
    /// An object store that several servers share.
    Objects(SharedClaims),
}

/// The claim checks of an end.
#[derive(Debug)]
pub struct Claims {
    state: Arc<Mutex<State>>,
    home: Home,
    limits: ClaimLimits,
    counters: ClaimCounters,
    store: OnceLock<Store>,
    opening: Mutex<()>,
    /// Whether stored claim checks exist that could not be read so far.
    unread: AtomicBool,
    /// Signals that a claim check was issued.
    issued: Notify,
    /// Whether a sink stores the claim checks that were settled without a session.
    noted: AtomicBool,
}

/// Fires when all earlier changes are durable.
type PendingAnswer = Option<Answer>;

impl Claims {
    /// Open the book in a folder, which is created if it does not exist and belongs to one process
    /// at a time. A change is not reported before it is durable.
    pub fn open(folder: &Path) -> Result<Arc<Self>> {
        Self::open_with(folder, ClaimLimits::default())
    }

    /// [`open`](Self::open), with limits.
    pub(crate) fn open_with(folder: &Path, limits: ClaimLimits) -> Result<Arc<Self>> {
        let claims = Arc::new(Self::of(Home::Folder(folder.to_owned()), limits));
        claims.open_now()?;
        Ok(claims)
    }

    /// Return the book next to the sessions of a sink. Several servers may share a sink, and most
    /// have no claim checks: the first server that has any takes the folder, and the others cannot
    /// issue any.
    pub fn beside(sink: &Path) -> Arc<Self> {
        Self::beside_with(sink, ClaimLimits::default())
    }

    /// [`beside`](Self::beside), with limits.
    pub(crate) fn beside_with(sink: &Path, limits: ClaimLimits) -> Arc<Self> {
        let folder = sink.join(FOLDER);
        let claims = Arc::new(Self::of(Home::Folder(folder.clone()), limits));
        if store::exists(&folder)
            && let Err(error) = claims.open_now().and_then(|()| claims.settle_from(sink))
        {
            // The server that has locked the folder answers for its claim checks.
            let is_busy = matches!(error, Error::Local(penstock_io::Error::Busy(_)));
            claims.unread.store(!is_busy && claims.store.get().is_none(), Ordering::Relaxed);
            tracing::warn!(folder = %folder.display(), %error, "this server gives out no claim checks for now");
        }
        claims
    }

    /// Return the book that all servers of a sink in an object store share, next to its sessions:
    /// each server finds the claim checks of the others, and a claim check can be redeemed once
    /// over all servers. Blocks on the store.
    pub(crate) fn in_store(sink: &ObjectPrefix, limits: ClaimLimits) -> Result<Arc<Self>> {
        let claims = Arc::new(Self::of(Home::Objects(SharedClaims::new(sink.clone())?), limits));
        claims.open_now()?;
        claims.settle_from_store(sink)?;
        Ok(claims)
    }

    fn of(home: Home, limits: ClaimLimits) -> Self {
        Self {
            state: Arc::new(Mutex::new(State::new(limits))),
            home,
            limits,
            counters: ClaimCounters::default(),
            store: OnceLock::new(),
            opening: Mutex::default(),
            unread: AtomicBool::new(false),
            issued: Notify::new(),
            noted: AtomicBool::new(false),
        }
    }

    /// Read the stored claim checks, once. Blocks on the disk or the store.
    fn open_now(self: &Arc<Self>) -> Result<()> {
        let _opening = lock(&self.opening);
        if self.store.get().is_some() {
            return Ok(());
        }
        let mut state = State::new(self.limits);
        let store = match &self.home {
            Home::Folder(folder) => {
                let folder = Folder::open(folder, &mut state)?;
                state.note_left();
                self.counters.damaged.store(folder.damaged(), Ordering::Relaxed);
                self.adopt(state);
                folder.start(&self.state)?
            }
            Home::Objects(sharing) => {
                let read = block_on(read_shared(sharing, &mut state))?;
                read.map_err(|error| failed("cannot read the claim checks of", sharing.place(), &error))?;
                self.adopt(state);
                Store::objects(sharing.log(self.limits))?
            }
        };
        self.unread.store(false, Ordering::Relaxed);
        // This cannot fail: only this function sets it, under the lock `opening`.
        let _ = self.store.set(store);
        Ok(())
    }

    /// Replace the state with what was read.
    fn adopt(&self, mut state: State) {
        state.number_all();
        *lock(&self.state) = state;
    }

    /// Read the claim checks if they could not be read before: until then nothing may be said about
    /// them.
    async fn known(self: &Arc<Self>) -> Result<()> {
        if self.unread.load(Ordering::Relaxed) { self.ready().await } else { Ok(()) }
    }

    async fn ready(self: &Arc<Self>) -> Result<()> {
        if self.store.get().is_some() {
            return Ok(());
        }
        let this = Arc::clone(self);
        let opened = spawn_blocking(move || this.open_now())?.await;
        opened.unwrap_or_else(|died| Err(Error::task(died)))
    }

    /// Read the records that other servers of the sink have written, if it can have others. A
    /// settled claim check does not change any more, so nothing is read for it.
    async fn read_others(&self, id: u64) -> Result<()> {
        let Home::Objects(sharing) = &self.home else { return Ok(()) };
        let known = lock(&self.state).book.get(id).map(|claim| claim.state);
        if matches!(known, Some(ClaimState::Settled { .. })) {
            return Ok(());
        }
        let failed = |error| failed("cannot read the claim checks of", sharing.place(), &error);
        sharing.read_new(|(record, details)| lock(&self.state).restore(record, details)).await.map_err(failed)?;
        // A server may have been killed between a redemption and its record.
        let open = lock(&self.state).book.get(id).is_some_and(|claim| claim.state == ClaimState::Open);
        if open && let Some(by) = sharing.redeemer(id).await.map_err(failed)? {
            lock(&self.state).book.restore(now(), ClaimRecord::Redeemed { id, by });
        }
        Ok(())
    }

    /// Transfer a deferred entity of `session` to the session `by`, once. `PendingAnswer` fires
    /// when that is durable.
    async fn take(self: &Arc<Self>, id: u64, session: SessionId, by: SessionId) -> Result<(Claim, PendingAnswer)> {
        self.known().await?;
        if let Home::Objects(sharing) = &self.home {
            self.read_others(id).await?;
            lock(&self.state).book.check_redeem(now(), id, session)?;
            let failed = |error| failed("cannot redeem a claim check of", sharing.place(), &error);
            if let Err(other) = sharing.redeem(id, by).await.map_err(failed)? {
                let mut state = lock(&self.state);
                state.book.restore(now(), ClaimRecord::Redeemed { id, by: other });
                state.book.check_redeem(now(), id, session)?;
            }
            let mut state = lock(&self.state);
            let claim = state.book.redeem(now(), id, session, by)?;
            // The store has decided, so this need not wait: the record is for readers of all
            // records.
            drop(self.save(&mut state));
            return Ok((claim, None));
        }
        let mut state = lock(&self.state);
        state.check(id)?;
        let claim = state.book.redeem(now(), id, session, by)?;
        let stored = self.save(&mut state);
        Ok((claim, stored))
    }

    /// Settle, at a server's start, the claim checks that sessions of an earlier process had
    /// redeemed and not sent: those sessions are over, unless they continue. The sessions' lists
    /// were read before. In a shared store the first server settles them.
    pub(crate) fn fail_left(&self, goes_on: &dyn Fn(SessionId) -> bool) {
        let left = std::mem::take(&mut lock(&self.state).left);
        for (id, by) in left.into_iter().filter(|(_, by)| !goes_on(*by)) {
            // A state that was read from a list takes precedence.
            self.settle(id, by, Status::Failed);
        }
    }

    /// Return the first `max` claim checks whose expiry and ID follow `after`, in that order.
    pub(crate) fn page(self: &Arc<Self>, after: (u64, u64), max: usize) -> Result<Vec<ClaimRow>> {
        if self.unread.load(Ordering::Relaxed) {
            self.open_now()?;
        }
        let mut state = lock(&self.state);
        state.sweep();
        state.page(after, max)
    }

    /// Wait for open claim checks with a number above `after`. Return them with the number of the
    /// last.
    pub(crate) async fn fresh(&self, after: u64) -> (Vec<ClaimRow>, u64) {
        loop {
            let mut issued = pin!(self.issued.notified());
            issued.as_mut().enable();
            let (rows, last) = lock(&self.state).fresh(after);
            if !rows.is_empty() {
                return (rows, last);
            }
            issued.await;
        }
    }

    /// Issue a claim check. It is durable when this returns.
    pub(crate) async fn issue(self: &Arc<Self>, terms: &ClaimTerms, details: Details) -> Result<Claim> {
        self.ready().await?;
        let (claim, stored) = {
            let mut state = lock(&self.state);
            state.sweep();
            state.has_room().inspect_err(|_| self.note_full())?;
            let claim = loop {
                let random = u64::from_be_bytes(tls::random()?);
                if let Some(claim) = state.book.issue(now(), terms, random).inspect_err(|_| self.note_full())? {
                    break claim;
                }
            };
            state.remember(claim.id, details);
            let stored = self.save(&mut state);
            (claim, stored)
        };
        if let Err(error) = written(stored).await {
            self.void(claim.id);
            return Err(error);
        }
        lock(&self.state).number(claim.id);
        self.issued.notify_waiters();
        Ok(claim)
    }

    fn note_full(&self) {
        self.counters.full.fetch_add(1, Ordering::Relaxed);
    }

    /// Revoke a claim check that has not been reported to a peer.
    pub(crate) fn void(&self, id: u64) {
        let mut state = lock(&self.state);
        state.book.void(id);
        // This need not wait: if the claim check reappears after a crash, no peer knows its ID.
        drop(self.save(&mut state));
        state.forget(id);
    }

    /// Return the state of a claim check.
    pub(crate) async fn query(self: &Arc<Self>, id: u64) -> Result<ClaimResponse> {
        self.known().await?;
        self.read_others(id).await?;
        let (response, stored) = {
            let mut state = lock(&self.state);
            state.check(id)?;
            // The reported state may not be durable yet, so the answer waits for the barrier.
            let mut response = state.book.query(now(), id);
            if self.noted.load(Ordering::Relaxed) {
                state.tell_place(&mut response);
            }
            (response, self.barrier(&mut state))
        };
        written(stored).await.map(|()| response)
    }

    /// Transfer a deferred entity of `session` to the session `by`, once. Durable when this
    /// returns.
    pub(crate) async fn redeem(self: &Arc<Self>, id: u64, session: SessionId, by: SessionId) -> Result<ClaimResponse> {
        let taken = self.take(id, session, by).await;
        if taken.as_ref().is_err_and(|error| error.code() == Some(ErrorCode::ClaimExpired)) {
            self.counters.expired.fetch_add(1, Ordering::Relaxed);
        }
        let (claim, stored) = taken?;
        written(stored).await?;
        Ok(ClaimResponse { claim_id: id, found: Some(claim.found()) })
    }

    /// Record the outcome of an entity in the session that had redeemed it.
    pub(crate) fn settle(&self, id: u64, by: SessionId, status: Status) {
        let mut state = lock(&self.state);
        match state.book.settle(id, by, status) {
            Ok(()) => state.doubts.clear(id),
            Err(error) => tracing::warn!(claim = format!("{id:016x}"), %error, "a claim check could not be settled"),
        }
        drop(self.save(&mut state));
    }

    /// Settle a claim check that no session has redeemed. Durable when this returns.
    pub(crate) async fn settle_here(self: &Arc<Self>, id: u64, status: Status) -> Result<()> {
        self.known().await?;
        self.read_others(id).await?;
        lock(&self.state).check(id)?;
        let session = lock(&self.state).book.get(id).map(|claim| claim.session);
        let session = session.ok_or(core::Error::from(core::Violation::UnknownClaim { id }))?;
        // A claim check that is already redeemed must be settled by its redeemer, which may be
        // `HERE`.
        if let Err(error) = self.take(id, session, HERE).await
            && !lock(&self.state).book.get(id).is_some_and(|claim| claim.is_with(HERE))
        {
            return Err(error);
        }
        let stored = {
            let mut state = lock(&self.state);
            state.book.settle(id, HERE, status)?;
            self.save(&mut state)
        };
        written(stored).await
    }

    /// Pass the book's changes to the store, in order.
    fn save(&self, state: &mut State) -> PendingAnswer {
        let mut entries = Vec::new();
        while let Some(record) = state.book.poll_record() {
            let details = match &record {
                ClaimRecord::Issued(claim) => state.details.get(&claim.id),
                ClaimRecord::Redeemed { .. } | ClaimRecord::Settled { .. } | ClaimRecord::Voided { .. } => None,
            };
            entries.push(Entry::change(&record, details));
        }
        let store = self.store.get().filter(|_| !entries.is_empty())?;
        Some(store.save(entries))
    }

    /// Return an answer that fires when all earlier changes are durable.
    fn barrier(&self, state: &mut State) -> PendingAnswer {
        drop(self.save(state));
        self.store.get().map(|store| store.save(Vec::new()))
    }
}

impl ClaimChecks for Claims {
    fn check_kept(&self) -> Result<()> {
        Ok(())
    }

    fn issue(self: Arc<Self>, terms: ClaimTerms, details: Details) -> BoxFuture<'static, Result<Claim>> {
        async move { Self::issue(&self, &terms, details).await }.boxed()
    }

    fn void(&self, id: u64) {
        Self::void(self, id);
    }

    fn query(self: Arc<Self>, id: u64) -> BoxFuture<'static, Result<ClaimResponse>> {
        async move { Self::query(&self, id).await }.boxed()
    }

    fn redeem(
        self: Arc<Self>,
        id: u64,
        session: SessionId,
        by: SessionId,
    ) -> BoxFuture<'static, Result<ClaimResponse>> {
        async move { Self::redeem(&self, id, session, by).await }.boxed()
    }

    fn settle(&self, id: u64, by: SessionId, status: Status) {
        Self::settle(self, id, by, status);
    }

    fn settle_here(self: Arc<Self>, id: u64, status: Status) -> BoxFuture<'static, Result<()>> {
        async move { Self::settle_here(&self, id, status).await }.boxed()
    }

    fn redeemed_by(&self, session: SessionId) -> HashSet<u64> {
        let state = lock(&self.state);
        let redeemed = state.book.iter().filter(|claim| claim.state == ClaimState::Redeemed { by: session });
        // A claim check in doubt may have been settled.
        let redeemed = redeemed.filter(|claim| state.is_sure(claim.id));
        redeemed.map(|claim| claim.id).collect()
    }

    fn fail_left(&self, goes_on: &dyn Fn(SessionId) -> bool) {
        Self::fail_left(self, goes_on);
    }

    fn count(&self) -> u64 {
        u64::try_from(lock(&self.state).book.len()).unwrap_or(u64::MAX)
    }

    fn page(self: Arc<Self>, after: (u64, u64), max: usize) -> Result<Vec<ClaimRow>> {
        Self::page(&self, after, max)
    }

    fn open_rows(&self) -> Vec<ClaimRow> {
        let state = lock(&self.state);
        let known = state.order.values().filter_map(|id| state.book.get(*id));
        known.filter(|claim| claim.is_open(now()) && state.is_sure(claim.id)).map(|claim| state.row(claim)).collect()
    }

    fn fresh(self: Arc<Self>, after: u64) -> BoxFuture<'static, (Vec<ClaimRow>, u64)> {
        async move { Self::fresh(&self, after).await }.boxed()
    }

    fn note_in_sink(&self) -> Vec<ClaimRow> {
        self.noted.store(true, Ordering::Relaxed);
        let state = lock(&self.state);
        state.book.iter().filter(|claim| state.is_done_here(claim)).map(|claim| state.row(claim)).collect()
    }

    fn done_here(&self, id: u64) -> Option<ClaimRow> {
        let state = lock(&self.state);
        state.book.get(id).filter(|claim| state.is_done_here(claim)).map(|claim| state.row(claim))
    }

    fn counters(&self) -> &ClaimCounters {
        &self.counters
    }

    fn close(self: Arc<Self>) -> BoxFuture<'static, ()> {
        async move {
            let this = Arc::clone(&self);
            if let Ok(closing) = spawn_blocking(move || this.store.get().map(Store::close)) {
                // Closing has no result.
                let _ = closing.await;
            }
        }
        .boxed()
    }
}

/// Read all records of all servers of a sink.
async fn read_shared(sharing: &SharedClaims, state: &mut State) -> object_store::Result<()> {
    sharing.read_new(|(record, details)| state.restore(record, details)).await?;
    for id in sharing.redeemed().await? {
        let open = state.book.get(id).is_some_and(|claim| claim.state == ClaimState::Open);
        if open && let Some(by) = sharing.redeemer(id).await? {
            state.book.restore(now(), ClaimRecord::Redeemed { id, by });
        }
    }
    Ok(())
}

fn failed(what: &str, sink: &ObjectPrefix, error: &object_store::Error) -> Error {
    Error::io(format!("{what} {}", sink.uri()), plain(error))
}

async fn written(stored: PendingAnswer) -> Result<()> {
    let Some(stored) = stored else { return Ok(()) };
    let ended = || Err(io::Error::other("the thread that stores claim checks has ended"));
    stored.await.unwrap_or_else(|_| ended()).map_err(|error| Error::io("a claim check cannot be stored", error))
}
