//! Closed sessions as readers see them: all sessions of a transaction, or none.
//!
//! A commit closes the sessions of its transaction one after another, and a crash may stop it
//! between two of them. Its record, which is written first, names all of them, and each session
//! that is not closed yet has a marker next to the record (see the sink). While such a marker
//! exists, readers see no session of the transaction. Each owner of a transaction's name has a
//! separate record, which is examined separately.

use std::collections::{BTreeMap, HashSet};

use crate::Result;
use crate::read::lines::closed;
use crate::read::plan::examine_list;
use crate::read::session::{ClosedSession, ListedSession};
use crate::read::store::Store;

/// Closed sessions, divided by whether they may be read.
#[derive(Debug, Default)]
pub(super) struct ClosedSessions {
    /// Sessions that may be read, in the order in which they ended.
    pub(super) whole: Vec<ListedSession>,
    /// Sessions whose transaction is still being closed.
    pub(super) held: Vec<ListedSession>,
}

/// Divide the sessions that were found closed. Sessions that are `known` are not examined again;
/// `examine` examines a session that was not found, because it may have been closed since.
pub(super) fn divide(
    store: &dyn Store,
    found: Vec<ListedSession>,
    known: impl Fn(&str) -> bool,
    mut examine: impl FnMut(&str) -> Result<Option<ListedSession>>,
) -> Result<ClosedSessions> {
    let mut divided = ClosedSessions::default();
    let mut transactions: BTreeMap<String, Vec<ListedSession>> = BTreeMap::new();
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
            // A marker is removed after the last line of its session was written, so a session
            // without one is closed by now, or was removed.
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
                divided.whole.extend(examine(&session)?);
            }
        }
        // No record names these sessions: a record is removed only after its transaction has ended.
        divided.whole.extend(found);
    }
    divided.whole.sort_by(|one, other| (one.modified, &one.session.id).cmp(&(other.modified, &other.session.id)));
    Ok(divided)
}

/// Return every closed session that may be read, in the order in which they ended. Nothing is written.
///
/// # Errors
///
/// An error that names the file, if a list is damaged: a reader of a whole sink must not miss the
/// rows of a session silently.
pub fn closed_sessions(store: &dyn Store) -> Result<Vec<ClosedSession>> {
    let mut found = Vec::new();
    for name in store.sessions()? {
        found.extend(examine_list(store, &name)?);
    }
    let divided = divide(store, found, |_| false, |session| examine_list(store, session))?;
    Ok(divided.whole.into_iter().map(|found| found.session).collect())
}

/// Return one closed session; `None` if it is not closed with 0, or if its transaction is still
/// being closed.
pub fn closed_session(store: &dyn Store, session: &str) -> Result<Option<ClosedSession>> {
    let Some(found) = examine_list(store, session)? else { return Ok(None) };
    if let Some(key) = &found.transaction
        && let Some(members) = store.committed(key)?.into_iter().find(|members| members.iter().any(|it| it == session))
    {
        for prepared in store.prepared(key)?.iter().filter(|prepared| members.contains(prepared)) {
            // A crash may have come between writing a session's last line and removing its marker.
            let list = store.list(prepared)?;
            if list.map_or(Ok(None), |list| closed(store, prepared, list.length))?.is_none() {
                return Ok(None);
            }
        }
    }
    Ok(Some(found.session))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::read::{FolderStore, Journal};

    const LINE: &str = "{\"scope\":0,\"entity\":1,\"parent\":null,\"layer\":0,\"content_type\":null,\"bytes\":null,\"sha256\":null,\
                        \"metadata\":{},\"status\":\"FAILED\",\"reason\":null,\"file\":null}\n";
    const END: &str = "{\"closed\":0}\n";

    fn ids(sessions: Result<Vec<ClosedSession>>) -> Vec<String> {
        sessions.unwrap().into_iter().map(|session| session.id).collect()
    }

    #[test]
    fn a_damaged_list_fails_the_reading_of_all_and_is_named_and_may_be_moved_away() {
        let dir = tempfile::tempdir().unwrap();
        for (session, line) in [("good", LINE), ("bad", "{\"scope\":\0\0\0\0\n"), ("cut", "{\"scope\":0,\"entity\"\n")]
        {
            fs::create_dir(dir.path().join(session)).unwrap();
            fs::write(dir.path().join(session).join("entities.jsonl"), [LINE, line, END].concat()).unwrap();
        }
        let store = Arc::new(FolderStore::open(dir.path()).unwrap());
        for _ in 0..2 {
            let error = closed_sessions(&*store).unwrap_err().to_string();
            let named =
                ["bad", "cut"].into_iter().find(|name| error.contains(&format!("{name}/entities.jsonl"))).unwrap();
            assert!(error.contains(&format!("is damaged at byte {}: ", LINE.len())), "{error}");
            assert!(error.contains(&format!("move {named} out of the sink")), "{error}");
            // A reader that follows the sink gets the other sessions; the process's log names this
            // one.
            assert_eq!(ids(Ok(Journal::new(store.clone()).unwrap().follow(0, 10).unwrap().sessions)), ["good"]);
            fs::rename(dir.path().join(named), dir.path().join(format!("{named}.damaged"))).unwrap();
        }
        assert_eq!(ids(closed_sessions(&*store)), ["good"]);
    }

    #[test]
    fn a_damaged_order_says_what_it_is_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("good")).unwrap();
        fs::write(dir.path().join("good/entities.jsonl"), [LINE, END].concat()).unwrap();
        let store = Arc::new(FolderStore::open(dir.path()).unwrap());
        Journal::new(store.clone()).unwrap().follow(0, 10).unwrap();
        let order = dir.path().join("closed.jsonl");
        let text = fs::read_to_string(&order).unwrap();
        fs::write(&order, text.clone() + "{\"session\":\n").unwrap();
        let error = Journal::new(store.clone()).unwrap().follow(0, 10).unwrap_err().to_string();
        assert!(error.contains("damaged after the first 1: ") && error.contains("closed.jsonl"), "{error}");
        // Half a line is not damage: the process that was writing it was killed.
        fs::write(&order, text + "{\"session\":").unwrap();
        assert_eq!(Journal::new(store).unwrap().follow(0, 10).unwrap().length, 1);
    }
}
