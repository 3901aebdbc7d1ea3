//! Transactions of an object sink.
//!
//! ```text
//! PREFIX/.transactions/SHA256(KEY)/SESSION           a session's end: it is prepared, its list still in pieces
//! PREFIX/.transactions/SHA256(KEY)/committed.json    {"transaction": KEY, "sessions": [ID, ...]}: never changed
//! ```
//!
//! A session's marker is put once all pieces of its list are there. The record is put only where there is none, which
//! stores decide among all who try: from then on the transaction is committed. What follows (whole lists, then the
//! markers go) is done again by whoever finds a record beside markers: the next order, or a start.

use std::io;

use futures_util::stream::TryStreamExt as _;
use object_store::{Error, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, Result};
use penstock_pipestream::ErrorCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::super::super::transport::hex;
use super::super::record;
use super::super::records::Standing;
use super::super::transaction::{Act, GIVEN_UP, Order, Refusal, is_session};
use super::list;
use crate::storage::{Place, plain};

/// Where all of it lies, below the sink. No session has such a name.
const FOLDER: &str = ".transactions";
const RECORD: &str = "committed.json";

/// A commit.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    transaction: String,
    sessions: Vec<String>,
}

/// A session has ended as it should, and all of its list is in the store.
pub(super) async fn prepare(place: &Place, key: &str, session: &str) -> Result<Standing> {
    let folder = folder(key);
    let marker = place.path(&format!("{folder}/{session}"));
    place.store().put(&marker, PutPayload::from(key.as_bytes().to_vec())).await?;
    // Whoever commits looks for markers after the record; so one of the two sees the other.
    if read_record(place, &folder).await?.is_none() {
        return Ok(Standing::Prepared);
    }
    place.store().delete(&marker).await?;
    Ok(Standing::TooLate)
}

/// Makes the sessions of a commit readable, all or none, and those of an abort unreadable for ever.
pub(super) async fn carry_out(place: &Place, order: &Order) -> std::result::Result<(), Refusal> {
    let Order { key, act } = order;
    let folder = folder(key);
    let committed = read_record(place, &folder).await.map_err(refusal)?.is_some();
    match act {
        Act::Commit(sessions) if !committed => commit(place, key, &folder, sessions).await?,
        Act::Abort(sessions) if !committed => {
            for session in markers(place, &folder).await.map_err(refusal)? {
                if sessions.as_ref().is_none_or(|named| named.contains(&session)) {
                    close(place, &folder, &session, GIVEN_UP).await.map_err(refusal)?;
                }
            }
            return Ok(());
        }
        Act::Commit(_) | Act::Abort(_) => {}
    }
    settle(place, &folder).await.map_err(refusal)
}

async fn commit(place: &Place, key: &str, folder: &str, sessions: &[String]) -> std::result::Result<(), Refusal> {
    let prepared = markers(place, folder).await.map_err(refusal)?;
    if let Some(session) = sessions.iter().find(|session| !prepared.contains(session)) {
        return Err(if list::is_open(place, session).await.map_err(refusal)? {
            Refusal::StillOpen(session.clone())
        } else {
            Refusal::Unknown(session.clone())
        });
    }
    let record = Record { transaction: key.to_owned(), sessions: sessions.to_vec() };
    let octets = serde_json::to_vec(&record).map_err(io::Error::from)?;
    let path = place.path(&format!("{folder}/{RECORD}"));
    let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    match place.store().put_opts(&path, octets.into(), options).await {
        // Another server was faster: its word counts.
        Ok(_) | Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(()),
        Err(error) => Err(refusal(error)),
    }
}

/// Brings to their ends what servers that crashed had committed, as far as this start looks.
pub(super) async fn redo(place: &Place) -> Result<()> {
    let found = list::some(place, FOLDER).await?;
    let mut folders: Vec<String> = Vec::new();
    for object in &found {
        let mut names = object.location.as_ref().rsplit('/');
        // What is committed and settled has no marker.
        if let (Some(marker), Some(folder)) = (names.next(), names.next())
            && is_session(marker)
            && folders.last().is_none_or(|last| last != folder)
        {
            folders.push(folder.to_owned());
        }
    }
    for folder in folders {
        settle(place, &format!("{FOLDER}/{folder}")).await?;
    }
    Ok(())
}

/// Whole lists for the sessions of a transaction that is committed.
async fn settle(place: &Place, folder: &str) -> Result<()> {
    let Some(record) = read_record(place, folder).await? else { return Ok(()) };
    for session in markers(place, folder).await? {
        let code = if record.sessions.contains(&session) { ErrorCode::NoError } else { GIVEN_UP };
        close(place, folder, &session, code).await?;
    }
    Ok(())
}

/// The list of a prepared session; then its marker goes.
async fn close(place: &Place, folder: &str, session: &str, code: ErrorCode) -> Result<()> {
    list::close_prepared(place, session, record::closed(code)).await?;
    match place.store().delete(&place.path(&format!("{folder}/{session}"))).await {
        Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn folder(key: &str) -> String {
    format!("{FOLDER}/{}", hex(&Sha256::digest(key.as_bytes())))
}

async fn read_record(place: &Place, folder: &str) -> Result<Option<Record>> {
    let path = place.path(&format!("{folder}/{RECORD}"));
    let octets = match place.store().get(&path).await {
        Ok(found) => found.bytes().await?,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let broken = |error| Error::Generic { store: "sink", source: Box::new(error) };
    serde_json::from_slice(&octets).map(Some).map_err(broken)
}

/// The sessions that are prepared.
async fn markers(place: &Place, folder: &str) -> Result<Vec<String>> {
    let found: Vec<_> = place.store().list(Some(&place.path(folder))).try_collect().await?;
    let names = found.iter().filter_map(|object| object.location.filename()).filter(|name| is_session(name));
    Ok(names.map(str::to_owned).collect())
}

fn refusal(error: Error) -> Refusal {
    Refusal::Storage(io::Error::other(plain(&error)))
}
