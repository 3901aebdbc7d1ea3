//! Transactions of an object sink.
//!
//! ```text
//! PREFIX/.transactions/SHA256(KEY)/OWNER/SESSION         a session's end: it is prepared, its list still in pieces
//! PREFIX/.transactions/SHA256(KEY)/OWNER/committed.json  {"transaction": KEY, "sessions": [ID, ...], "owner": KIND}: never changed
//! ```
//!
//! What is anyone's lies in `SHA256(KEY)` itself (`owner.rs`).
//!
//! A session's marker is put once all pieces of its list are there. The record is put only where there is none, which
//! stores decide among all who try: from then on the transaction is committed. What follows (whole lists, then the
//! markers go) is done again by whoever finds a record beside markers: the next order, or a start.
//!
//! An abort removes the markers, looks for a record once more, and closes the lists only where there is none. A commit
//! looks at its sessions once more when its record is there: where one was given up, none of them is read.
//!
//! Records go where the transaction cannot be run again ([`origin`]): that of a micro-batch when a later one is
//! committed, that of a job when a start finds it and it is old.

use std::collections::HashSet;
use std::io;
use std::time::SystemTime;

use futures_util::future::try_join_all;
use futures_util::stream::TryStreamExt as _;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, Result};
use penstock_pipestream::ErrorCode;
use sha2::{Digest as _, Sha256};

use super::super::super::transport::hex;
use super::super::record;
use super::super::records::{Standing, others_have_committed, prepared_by_another};
use super::super::transaction::{
    Act, FINISHED, GIVEN_UP, KEPT, Order, Origin, Record, Refusal, Transaction, is_session_folder, origin, resolve,
};
use super::list::{self, End};
use super::sweep::{age, some};
use crate::storage::{Place, plain};

/// Where all of it lies, below the sink. No session has such a name.
pub(super) const FOLDER: &str = ".transactions";
const RECORD: &str = "committed.json";
/// Micro-batches whose records a commit looks for. Those without rows have none, so that one look may miss some.
const LOOKED_BACK: u64 = 8;
/// Lists that one order looks at at once.
const LOOKS: usize = 16;
/// Old records that one start reads.
const READ: usize = 16;

/// A session has ended as it should, and all of its list is in the store.
pub(super) async fn prepare(place: &Place, of: &Transaction, session: &str) -> Result<Standing> {
    let folder = folder(of);
    let marker = place.path(&format!("{folder}/{session}"));
    place.store().put(&marker, PutPayload::from(of.key.as_bytes().to_vec())).await?;
    // A commit looks for markers after it has put the record; so one of the two sees the other.
    if read_record(place, &folder).await?.is_none() {
        return Ok(Standing::Prepared);
    }
    place.store().delete(&marker).await?;
    Ok(Standing::TooLate)
}

/// The sessions that a transaction was committed with, by each of its owners that has.
pub(super) async fn committed(place: &Place, key: &str) -> Result<Vec<Vec<String>>> {
    let found = Found::list(place, key).await?;
    let read = found.records().map(|path| async move { read_at(place, path).await });
    Ok(try_join_all(read).await?.into_iter().flatten().map(|record| record.sessions).collect())
}

/// The sessions of a transaction that are prepared and not closed yet, whose ever they are.
pub(super) async fn prepared(place: &Place, key: &str) -> Result<Vec<String>> {
    Ok(Found::list(place, key).await?.sessions(|_| true))
}

/// Makes the sessions of a commit readable, all or none, and those of an abort unreadable for ever.
pub(super) async fn carry_out(place: &Place, order: &Order) -> std::result::Result<(), Refusal> {
    order.check()?;
    let Order { of, act } = order;
    let folder = folder(of);
    let record = read_record(place, &folder).await.map_err(refusal)?;
    let abort_only = matches!(act, Act::Abort(_));
    match (act, record) {
        (Act::Commit { sessions, .. }, Some(record)) if !record.is_of(sessions) => return Err(Refusal::Committed),
        (Act::Commit { sessions, exclusive }, None) => commit(place, of, sessions, *exclusive).await?,
        (Act::Abort(sessions), None) => return abort(place, of, sessions.as_deref()).await,
        (Act::Commit { .. } | Act::Abort(_), Some(_)) => {}
    }
    match settle(place, &folder).await {
        // It has what it wants.
        Err(Refusal::GivenUp) if abort_only => {}
        settled => settled?,
    }
    if let Err(error) = forget_earlier(place, of).await {
        // The commit is done all the same.
        tracing::warn!(error = plain(&error), "records of old micro-batches stay");
    }
    Ok(())
}

/// Removes the records of micro-batches that cannot be run again, now that this one is committed.
async fn forget_earlier(place: &Place, of: &Transaction) -> Result<()> {
    let Origin::MicroBatch { query, number } = origin(&of.key) else { return Ok(()) };
    let Some(last) = number.checked_sub(KEPT) else { return Ok(()) };
    let earlier = last.saturating_sub(LOOKED_BACK - 1)..=last;
    let forgotten = earlier.map(|number| async move {
        let earlier = Transaction { key: format!("spark/{query}/{number}").into(), owner: of.owner };
        forget(place, &folder(&earlier)).await
    });
    try_join_all(forgotten).await.map(drop)
}

/// Removes a record, unless there are sessions that have to be closed first.
async fn forget(place: &Place, folder: &str) -> Result<()> {
    let own = place.path(folder);
    let found: Vec<ObjectMeta> = place.store().list(Some(&own)).try_collect().await?;
    let mut here = found.iter().filter(|object| is_in(&own, &object.location));
    match (here.next(), here.next()) {
        (Some(record), None) if record.location.filename() == Some(RECORD) => {
            gone(place.store().delete(&record.location).await)
        }
        _ => Ok(()),
    }
}

/// All objects of a transaction's name, whose ever they are.
struct Found(Vec<ObjectMeta>);

impl Found {
    async fn list(place: &Place, key: &str) -> Result<Self> {
        Ok(Self(place.store().list(Some(&place.path(&name_folder(key)))).try_collect().await?))
    }

    fn records(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().map(|object| &object.location).filter(|path| path.filename() == Some(RECORD))
    }

    /// The folders of the sessions whose markers are wanted.
    fn sessions(&self, wanted: impl Fn(&Path) -> bool) -> Vec<String> {
        let markers = self.0.iter().map(|object| &object.location).filter(|path| wanted(path));
        let names = markers.filter_map(Path::filename).filter(|name| is_session_folder(name));
        names.map(str::to_owned).collect()
    }
}

async fn commit(
    place: &Place,
    of: &Transaction,
    sessions: &[String],
    exclusive: bool,
) -> std::result::Result<(), Refusal> {
    let (folder, found) = (folder(of), Found::list(place, &of.key).await.map_err(refusal)?);
    let own = place.path(&folder);
    for path in found.records().filter(|path| !is_in(&own, path)) {
        let record = read_at(place, path).await.map_err(refusal)?;
        if let Some(record) = record.filter(|record| exclusive || record.has_no_owner()) {
            return Err(others_have_committed(&record));
        }
    }
    let prepared = match resolve(sessions, &found.sessions(|path| is_in(&own, path))) {
        Ok(prepared) => prepared,
        Err(missing) => return Err(why_missing(place, &found, &own, missing).await),
    };
    let octets = serde_json::to_vec(&Record::new(of, prepared)).map_err(io::Error::from)?;
    let path = place.path(&format!("{folder}/{RECORD}"));
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match place.store().put_opts(&path, octets.into(), options).await {
        Ok(_) => Ok(()),
        // Another server was faster: its word counts.
        Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
            match read_record(place, &folder).await.map_err(refusal)? {
                Some(record) if record.is_of(sessions) => Ok(()),
                Some(_) | None => Err(Refusal::Committed),
            }
        }
        Err(error) => Err(refusal(error)),
    }
}

/// Why a commit cannot have a session.
async fn why_missing(place: &Place, found: &Found, own: &Path, missing: String) -> Refusal {
    if resolve(std::slice::from_ref(&missing), &found.sessions(|path| !is_in(own, path))).is_ok() {
        return prepared_by_another(&missing);
    }
    match list::any_is_open(place, &missing).await {
        Ok(true) => Refusal::StillOpen(missing),
        Ok(false) => Refusal::Unknown(missing),
        Err(error) => refusal(error),
    }
}

/// Gives prepared sessions up: these, or all of the owner's.
async fn abort(place: &Place, of: &Transaction, sessions: Option<&[String]>) -> std::result::Result<(), Refusal> {
    let (folder, found) = (folder(of), Found::list(place, &of.key).await.map_err(refusal)?);
    let own = place.path(&folder);
    let (prepared, others) = (found.sessions(|path| is_in(&own, path)), found.sessions(|path| !is_in(&own, path)));
    let mut named = Vec::new();
    match sessions {
        None => named.extend(prepared),
        Some(sessions) => {
            for session in sessions.iter().map(std::slice::from_ref) {
                match (resolve(session, &prepared), resolve(session, &others)) {
                    (Ok(folders), _) => named.extend(folders),
                    (Err(session), Ok(_)) => return Err(prepared_by_another(&session)),
                    // What has not ended is not prepared, and ends by itself.
                    (Err(_), Err(_)) => {}
                }
            }
        }
    }
    give_up(place, of, named).await
}

/// Closes prepared sessions that no commit may have any more; where one came meanwhile, it has them.
async fn give_up(place: &Place, of: &Transaction, sessions: Vec<String>) -> std::result::Result<(), Refusal> {
    let folder = folder(of);
    let marker = |session: &str| place.path(&format!("{folder}/{session}"));
    for session in &sessions {
        gone(place.store().delete(&marker(session)).await).map_err(refusal)?;
    }
    let committed = read_record(place, &folder).await.map_err(refusal)?.is_some();
    for (at, session) in sessions.iter().enumerate() {
        let closed = if committed { Ok(()) } else { list::close_left(place, session, record::closed(GIVEN_UP)).await };
        if committed || closed.is_err() {
            // They are prepared as before: the commit wants them, or the abort is said again.
            for session in sessions.iter().skip(at) {
                let put = place.store().put(&marker(session), PutPayload::from(of.key.as_bytes().to_vec())).await;
                put.map_err(refusal)?;
            }
            closed.map_err(refusal)?;
            break;
        }
    }
    match settle(place, &folder).await {
        Err(Refusal::GivenUp) => Ok(()),
        settled => settled,
    }
}

/// Brings to their ends what servers that crashed had committed, and removes records that nobody needs any more, as far
/// as this start looks.
pub(super) async fn redo(place: &Place, now: SystemTime) -> Result<()> {
    let found = some(place, FOLDER).await?;
    let mut unsettled: Vec<String> = Vec::new();
    let mut old: Vec<String> = Vec::new();
    let top = place.path(FOLDER);
    for object in &found {
        let below: Option<Vec<_>> =
            object.location.prefix_match(&top).map(|parts| parts.map(|part| part.as_ref().to_owned()).collect());
        let Some((name, folders)) = below.as_ref().and_then(|below| below.split_last()) else { continue };
        let folder = format!("{FOLDER}/{}", folders.join("/"));
        // What is committed and settled has no marker.
        if is_session_folder(name) && !unsettled.contains(&folder) {
            unsettled.push(folder);
        } else if name == RECORD && age(object, now) >= FINISHED {
            old.push(folder);
        }
    }
    for folder in unsettled {
        match settle(place, &folder).await {
            Ok(()) | Err(Refusal::GivenUp) => {}
            Err(Refusal::Storage(error)) => return Err(Error::Generic { store: "sink", source: Box::new(error) }),
            // Another server is at it.
            Err(other) => tracing::info!(folder, ?other, "a committed session is in use; it is closed later"),
        }
    }
    fastrand::shuffle(&mut old);
    for folder in old.into_iter().take(READ) {
        let record = read_record(place, &folder).await?;
        if record.is_some_and(|record| matches!(origin(&record.transaction), Origin::Job)) {
            forget(place, &folder).await?;
        }
    }
    Ok(())
}

/// Whole lists for the sessions of a transaction that is committed.
async fn settle(place: &Place, folder: &str) -> std::result::Result<(), Refusal> {
    let Some(record) = read_record(place, folder).await.map_err(refusal)? else { return Ok(()) };
    let own = place.path(folder);
    let found = Found(place.store().list(Some(&own)).try_collect().await.map_err(refusal)?);
    let markers = found.sessions(|path| is_in(&own, path));
    let given_up = is_given_up(place, &record, &markers).await?;
    for session in markers {
        let committed = !given_up && record.sessions.contains(&session);
        let code = if committed { ErrorCode::NoError } else { GIVEN_UP };
        close(place, folder, &session, code).await.map_err(refusal)?;
    }
    if given_up { Err(Refusal::GivenUp) } else { Ok(()) }
}

/// Whether an abort has closed a session of a record before it could see the record. It has to be asked again while an
/// abort is about to see it, or to close the session.
async fn is_given_up(place: &Place, record: &Record, markers: &[String]) -> std::result::Result<bool, Refusal> {
    let markers: HashSet<&str> = markers.iter().map(String::as_str).collect();
    let mut undecided = None;
    for sessions in record.sessions.chunks(LOOKS) {
        let ends = try_join_all(sessions.iter().map(|session| list::end(place, session))).await.map_err(refusal)?;
        for (session, end) in sessions.iter().zip(ends) {
            match end {
                End::Closed(code) if code != ErrorCode::NoError.code() => return Ok(true),
                End::Open if !markers.contains(session.as_str()) => undecided = Some(session.clone()),
                End::Closed(_) | End::Open | End::Gone => {}
            }
        }
    }
    undecided.map_or(Ok(false), |session| Err(Refusal::StillOpen(session)))
}

/// The list of a prepared session; then its marker goes.
async fn close(place: &Place, folder: &str, session: &str, code: ErrorCode) -> Result<()> {
    list::close_left(place, session, record::closed(code)).await?;
    gone(place.store().delete(&place.path(&format!("{folder}/{session}"))).await)
}

/// Whatever another server has removed meanwhile is gone as well.
fn gone(removed: Result<()>) -> Result<()> {
    match removed {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn name_folder(key: &str) -> String {
    format!("{FOLDER}/{}", hex(&Sha256::digest(key.as_bytes())))
}

fn folder(of: &Transaction) -> String {
    let folder = name_folder(&of.key);
    match of.owner.folder() {
        Some(owner) => format!("{folder}/{owner}"),
        None => folder,
    }
}

/// Whether an object lies in a folder itself, and not deeper.
fn is_in(folder: &Path, object: &Path) -> bool {
    object.prefix_match(folder).is_some_and(|parts| parts.count() == 1)
}

async fn read_record(place: &Place, folder: &str) -> Result<Option<Record>> {
    read_at(place, &place.path(&format!("{folder}/{RECORD}"))).await
}

async fn read_at(place: &Place, path: &Path) -> Result<Option<Record>> {
    let octets = match place.store().get(path).await {
        Ok(found) => found.bytes().await?,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let broken = |error| Error::Generic { store: "sink", source: Box::new(error) };
    serde_json::from_slice(&octets).map(Some).map_err(broken)
}

fn refusal(error: Error) -> Refusal {
    Refusal::Storage(io::Error::other(plain(&error)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::super::super::owner::Owner;
    use super::*;

    const QUERY: &str = "01234567-89ab-cdef-0123-456789abcdef";
    const SESSION: &str = "11111111111111111111111111111111";
    const OTHER: &str = "22222222222222222222222222222222";

    fn of(key: &str, owner: Owner) -> Transaction {
        Transaction { key: key.into(), owner }
    }

    /// Sessions that have ended, and a commit of them.
    async fn prepare_all(place: &Place, of: &Transaction, sessions: &[&str]) {
        for session in sessions {
            prepare(place, of, session).await.unwrap();
        }
    }

    fn order(of: &Transaction, sessions: &[&str], exclusive: bool) -> Order {
        let sessions = sessions.iter().map(|session| (*session).to_owned()).collect();
        Order { of: of.clone(), act: Act::Commit { sessions, exclusive } }
    }

    async fn code(place: &Place, order: &Order) -> Option<ErrorCode> {
        carry_out(place, order).await.err().map(|refusal| refusal.reason("k").code)
    }

    async fn commit_all(place: &Place, keys: &[String]) {
        for key in keys {
            let of = of(key, Owner::Anyone);
            prepare_all(place, &of, &[OTHER]).await;
            carry_out(place, &order(&of, &[OTHER], false)).await.unwrap();
        }
    }

    /// Which of these transactions have a record.
    async fn kept<'a>(place: &Place, keys: &'a [String]) -> Vec<&'a str> {
        let mut kept = Vec::new();
        for key in keys {
            if !committed(place, key).await.unwrap().is_empty() {
                kept.push(key.as_str());
            }
        }
        kept
    }

    #[test]
    fn records_of_micro_batches_that_cannot_run_again_go_with_later_commits() {
        let place = Place::of(Arc::new(InMemory::new()), "sink");
        let batch = |number: u64| format!("spark/{QUERY}/{number}");
        let keys = [batch(3), batch(4), batch(5), batch(6), "spark/daily/3".into(), "job".into()];
        crate::runtime::block_on(async {
            commit_all(&place, &keys).await;
            // A session that is to be closed first: its server was killed.
            let marker = place.path(&format!("{}/{SESSION}", name_folder(&batch(4))));
            place.store().put(&marker, PutPayload::default()).await.unwrap();
            commit_all(&place, &[batch(105)]).await;
            assert_eq!(kept(&place, &keys).await, [batch(4).as_str(), &batch(6), "spark/daily/3", "job"]);
        })
        .unwrap();
    }

    #[test]
    fn records_of_jobs_that_cannot_run_again_go_when_they_are_old_and_no_others() {
        let place = Place::of(Arc::new(InMemory::new()), "sink");
        let keys = [format!("spark/{}", "ab".repeat(16)), format!("spark/{QUERY}/0"), "spark/nightly".into()];
        crate::runtime::block_on(async {
            commit_all(&place, &keys).await;
            // Each start looks from anywhere on; so many of them see everything.
            for (later, left) in [(FINISHED / 2, 3), (FINISHED * 2, 2)] {
                for _ in 0..100 {
                    redo(&place, SystemTime::now() + later).await.unwrap();
                }
                assert_eq!(kept(&place, &keys).await, keys[3 - left..]);
            }
        })
        .unwrap();
    }

    #[test]
    fn transactions_of_different_owners_do_not_touch_one_another() {
        let place = Place::of(Arc::new(InMemory::new()), "sink");
        let (mine, theirs, anyones) =
            (of("k", Owner::Token([1; 32])), of("k", Owner::Certificate([1; 32])), of("k", Owner::Anyone));
        crate::runtime::block_on(async {
            prepare_all(&place, &mine, &[SESSION]).await;
            for other in [&theirs, &anyones] {
                assert_eq!(code(&place, &order(other, &[], false)).await, Some(ErrorCode::Other(0x44)));
                assert_eq!(code(&place, &order(other, &[SESSION], false)).await, Some(ErrorCode::Other(0x44)));
                let named = Order { of: other.clone(), act: Act::Abort(Some(vec![SESSION.to_owned()])) };
                assert_eq!(code(&place, &named).await, Some(ErrorCode::Other(0x44)));
            }
            assert_eq!(code(&place, &Order { of: theirs.clone(), act: Act::Abort(None) }).await, None, "its own");
            prepare_all(&place, &theirs, &[OTHER]).await;
            assert_eq!(code(&place, &order(&theirs, &[OTHER], false)).await, None);
            assert_eq!(prepared(&place, "k").await.unwrap(), [SESSION]);
            assert_eq!(code(&place, &order(&mine, &[SESSION], true)).await, Some(ErrorCode::Other(0x44)));
            for _ in 0..2 {
                assert_eq!(code(&place, &order(&mine, &[SESSION], false)).await, None);
            }
            let mut committed = committed(&place, "k").await.unwrap();
            committed.sort();
            assert_eq!(committed, [[SESSION], [OTHER]]);
            assert_eq!(code(&place, &order(&mine, &[OTHER], false)).await, Some(ErrorCode::Other(0x43)));
        })
        .unwrap();
    }

    #[test]
    fn a_record_of_a_server_that_knew_no_owners_is_read_and_stands() {
        let place = Place::of(Arc::new(InMemory::new()), "sink");
        let old = format!("{{\"transaction\":\"k\",\"sessions\":[\"{OTHER}\"]}}");
        crate::runtime::block_on(async {
            let path = place.path(&format!("{}/{RECORD}", name_folder("k")));
            place.store().put(&path, old.into()).await.unwrap();
            assert_eq!(committed(&place, "k").await.unwrap(), [[OTHER]]);
            assert_eq!(code(&place, &order(&of("k", Owner::Anyone), &[OTHER], false)).await, None, "the same again");
            let mine = of("k", Owner::Token([1; 32]));
            prepare_all(&place, &mine, &[SESSION]).await;
            assert_eq!(code(&place, &order(&mine, &[SESSION], false)).await, Some(ErrorCode::Other(0x44)));
        })
        .unwrap();
    }

    async fn end(place: &Place, session: &str) -> End {
        list::end(place, session).await.unwrap()
    }

    /// Sessions that have ended, with their lists in pieces.
    async fn prepare_with_lists(place: &Place, of: &Transaction) {
        for session in [SESSION, OTHER] {
            let piece = place.path(&format!("{}/{session}/0000000000-0000000000.jsonl", list::OPEN));
            place.store().put(&piece, PutPayload::default()).await.unwrap();
        }
        prepare_all(place, of, &[SESSION, OTHER]).await;
    }

    #[test]
    fn a_commit_that_comes_while_a_session_is_being_given_up_commits_nothing_and_says_so() {
        let (place, of) = (Place::of(Arc::new(InMemory::new()), "sink"), of("k", Owner::Token([1; 32])));
        let (commit, readable) = (order(&of, &[SESSION, OTHER], false), End::Closed(0));
        crate::runtime::block_on(async {
            prepare_with_lists(&place, &of).await;
            // What an abort does that has not seen the record, step by step.
            let marker = place.path(&format!("{}/{SESSION}", folder(&of)));
            place.store().delete(&marker).await.unwrap();
            let sessions = vec![SESSION.to_owned(), OTHER.to_owned()];
            let octets = serde_json::to_vec(&Record::new(&of, sessions)).unwrap();
            place.store().put(&place.path(&format!("{}/{RECORD}", folder(&of))), octets.into()).await.unwrap();
            assert_eq!(code(&place, &commit).await, Some(ErrorCode::Other(0x40)));
            assert_eq!([end(&place, SESSION).await, end(&place, OTHER).await], [End::Open; 2]);
            list::close_left(&place, SESSION, record::closed(GIVEN_UP)).await.unwrap();
            for _ in 0..2 {
                assert_eq!(code(&place, &commit).await, Some(ErrorCode::Other(0x43)));
                assert!(end(&place, SESSION).await != readable && end(&place, OTHER).await != readable);
            }
            redo(&place, SystemTime::now()).await.unwrap();
            assert_eq!(code(&place, &Order { of: of.clone(), act: Act::Abort(None) }).await, None);
        })
        .unwrap();
    }

    #[test]
    fn an_abort_that_sees_the_record_of_a_commit_leaves_it_its_sessions() {
        let (place, of) = (Place::of(Arc::new(InMemory::new()), "sink"), of("k", Owner::Token([1; 32])));
        crate::runtime::block_on(async {
            prepare_with_lists(&place, &of).await;
            let sessions = vec![SESSION.to_owned(), OTHER.to_owned()];
            let octets = serde_json::to_vec(&Record::new(&of, sessions.clone())).unwrap();
            place.store().put(&place.path(&format!("{}/{RECORD}", folder(&of))), octets.into()).await.unwrap();
            // It had looked for the record before that was there.
            give_up(&place, &of, sessions).await.unwrap();
            assert_eq!([end(&place, SESSION).await, end(&place, OTHER).await], [End::Closed(0); 2]);
            assert_eq!(code(&place, &order(&of, &[SESSION, OTHER], false)).await, None);
        })
        .unwrap();
    }

    #[test]
    fn a_session_that_is_open_under_an_id_that_was_used_before_has_not_ended_yet() {
        let (place, of) = (Place::of(Arc::new(InMemory::new()), "sink"), of("k", Owner::Token([1; 32])));
        crate::runtime::block_on(async {
            let list = place.path(&format!("{SESSION}/entities.jsonl"));
            place.store().put(&list, PutPayload::from(record::closed(ErrorCode::NoError))).await.unwrap();
            let commit = order(&of, &[SESSION], false);
            assert_eq!(code(&place, &commit).await, Some(ErrorCode::EntityInvalid));
            let piece = place.path(&format!("{}/{SESSION}.1/0000000000-0000000000.jsonl", list::OPEN));
            place.store().put(&piece, PutPayload::default()).await.unwrap();
            assert_eq!(code(&place, &commit).await, Some(ErrorCode::Other(0x40)));
        })
        .unwrap();
    }
}
