//! Closed sessions as readers see them: those of a transaction all at once, or none.
//!
//! A commit closes the sessions of its transaction one after another, and may be killed between two of them. Its record,
//! which comes first, names them all, and a marker stays beside it for each that is not closed yet (see the sink). As
//! long as there is such a marker, nothing of the transaction is read. Each owner of a transaction's name has a record of
//! its own, and is looked at alone.

use std::collections::{BTreeMap, HashSet};
use std::time::SystemTime;

use super::Store;
use super::journal::ClosedSession;
use super::line::closed;
use super::plan::look_through;
use crate::Result;

/// A closed session that was looked through.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) session: ClosedSession,
    /// When its list was written last.
    pub(super) modified: SystemTime,
    /// The transaction that its rows name.
    pub(super) transaction: Option<String>,
}

/// Closed sessions, divided.
#[derive(Debug, Default)]
pub(super) struct Divided {
    /// Those to be read, the one that ended first at the front.
    pub(super) whole: Vec<Found>,
    /// Those whose transaction is still being closed.
    pub(super) held: Vec<Found>,
}

/// Divides what was found closed. What is `known` needs no second look; `look` looks at one that was not found: it may
/// have been closed since.
pub(super) fn divide(
    store: &dyn Store,
    found: Vec<Found>,
    known: impl Fn(&str) -> bool,
    mut look: impl FnMut(&str) -> Result<Option<Found>>,
) -> Result<Divided> {
    let mut divided = Divided::default();
    let mut transactions: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for each in found {
        match &each.transaction {
            None => divided.whole.push(each),
            Some(key) => transactions.entry(key.clone()).or_default().push(each),
        }
    }
    for (key, mut found) in transactions {
        let mut prepared = None;
        for members in store.committed(&key)? {
            let members: HashSet<String> = members.into_iter().collect();
            let (mine, others): (Vec<_>, Vec<_>) =
                found.into_iter().partition(|each| members.contains(&each.session.id));
            found = others;
            let there: HashSet<&str> = mine.iter().map(|each| each.session.id.as_str()).collect();
            let missing: Vec<_> =
                members.iter().filter(|id| !there.contains(id.as_str()) && !known(id)).cloned().collect();
            if missing.is_empty() {
                divided.whole.extend(mine);
                continue;
            }
            // A marker goes after the last line of its session was written: so what has none is closed by now, or gone.
            let prepared = match &prepared {
                Some(prepared) => prepared,
                None => prepared.insert(store.prepared(&key)?),
            };
            if prepared.iter().any(|session| missing.contains(session)) {
                divided.held.extend(mine);
                continue;
            }
            divided.whole.extend(mine);
            for session in missing {
                divided.whole.extend(look(&session)?);
            }
        }
        // A record that is gone was of a transaction that had come to its end.
        divided.whole.extend(found);
    }
    divided.whole.sort_by(|one, other| (one.modified, &one.session.id).cmp(&(other.modified, &other.session.id)));
    Ok(divided)
}

/// Every closed session that may be read, the one that ended first at the front. Nothing is written.
pub fn closed_sessions(store: &dyn Store) -> Result<Vec<ClosedSession>> {
    let mut found = Vec::new();
    for name in store.sessions()? {
        found.extend(look_through(store, &name)?);
    }
    let divided = divide(store, found, |_| false, |session| look_through(store, session))?;
    Ok(divided.whole.into_iter().map(|found| found.session).collect())
}

/// One of them; `None` where it is not closed with 0, or its transaction is still being closed.
pub fn closed_session(store: &dyn Store, session: &str) -> Result<Option<ClosedSession>> {
    let Some(found) = look_through(store, session)? else { return Ok(None) };
    if let Some(key) = &found.transaction
        && let Some(members) = store.committed(key)?.into_iter().find(|members| members.iter().any(|it| it == session))
    {
        for prepared in store.prepared(key)?.iter().filter(|prepared| members.contains(prepared)) {
            // A server may have been killed between the last line and its marker.
            let list = store.list(prepared)?;
            if list.map_or(Ok(None), |list| closed(store, prepared, list.length))?.is_none() {
                return Ok(None);
            }
        }
    }
    Ok(Some(found.session))
}
