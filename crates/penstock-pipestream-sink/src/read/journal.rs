use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use penstock_io::sync::lock;
use penstock_io::{DriverError as _, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::read::file_log::FILE;
use crate::read::lines::closed;
use crate::read::plan::examine_list;
use crate::read::session::{ClosedSession, ListedSession};
use crate::read::store::{JournalLog, Store};
use crate::read::transactions::divide;
use crate::{Error, Result};

/// Maximum number of sessions in one append.
const APPEND: usize = 1_024;

/// The journal's first line, which identifies it.
#[derive(Debug, Serialize, Deserialize)]
struct JournalHeader {
    journal: String,
}

/// Sessions from a position of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalPage {
    /// The journal's ID: positions in another journal are meaningless in this one.
    pub journal: String,
    /// Number of sessions in the journal.
    pub length: u64,
    /// The sessions from the position on, at most as many as were requested.
    pub sessions: Vec<ClosedSession>,
}

/// The order of a sink's closed sessions: a list that only grows, so a position in it has the same meaning forever.
///
/// Sessions end in any order, and their folders do not record it. So a reader that follows a sink
/// records each closed session that it finds, durably and under a lock, before it reports the
/// session. Sinks do not use the journal, so it works for sinks that older versions wrote, and for
/// several servers on one folder.
#[derive(Debug)]
pub struct Journal {
    store: Arc<dyn Store>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    log: Box<dyn JournalLog>,
    id: Option<String>,
    sessions: Vec<Arc<ClosedSession>>,
    positions: HashMap<String, usize>,
    /// Sessions that are not closed yet, each with the length of its list when it was last
    /// examined.
    open: HashMap<String, u64>,
    /// Sessions that this process will not read: unreadable, or closed with another code than 0.
    dead: HashSet<String>,
    /// Closed sessions whose transaction is still being closed.
    held: HashMap<String, ListedSession>,
    /// The time of the sink's last change when its sessions were listed; `None` if it was
    /// uncertain.
    listed_at: Option<SystemTime>,
}

impl Journal {
    /// Create the journal of a sink, without reading anything yet.
    pub fn new(store: Arc<dyn Store>) -> Result<Self> {
        let log = store.journal()?;
        let state = State {
            log,
            id: None,
            sessions: Vec::new(),
            positions: HashMap::new(),
            open: HashMap::new(),
            dead: HashSet::new(),
            held: HashMap::new(),
            listed_at: None,
        };
        Ok(Self { store, state: Mutex::new(state) })
    }

    /// Return the sink.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Record sessions that were closed since the last call, and return at most `max` sessions from
    /// a position on.
    pub fn follow(&self, after: u64, max: usize) -> Result<JournalPage> {
        let mut state = lock(&self.state);
        let updated = state.update(&*self.store);
        state.log.release();
        let journal = updated?;
        let start = usize::try_from(after).unwrap_or(usize::MAX);
        let sessions = state.sessions.iter().skip(start).take(max).map(|session| session.as_ref().clone()).collect();
        Ok(JournalPage { journal, length: state.sessions.len() as u64, sessions })
    }

    /// Return a session that was in the journal at the last [`follow`](Self::follow).
    pub fn session(&self, id: &str) -> Option<Arc<ClosedSession>> {
        let state = lock(&self.state);
        state.positions.get(id).and_then(|position| state.sessions.get(*position)).map(Arc::clone)
    }
}

impl State {
    /// Read the lines that other processes have appended, append the missing sessions, and return
    /// the journal's ID.
    fn update(&mut self, store: &dyn Store) -> Result<String> {
        loop {
            let new = self.log.read_new()?;
            self.take(&new)?;
            let Some(id) = self.id.clone() else {
                let journal = new_id();
                if self.log.append(&encode(&JournalHeader { journal: journal.clone() }))? {
                    self.id = Some(journal);
                }
                continue;
            };
            let found = self.find(store)?;
            let mut all = true;
            for some in found.chunks(APPEND) {
                let lines: Vec<u8> = some.iter().flat_map(encode).collect();
                if !self.log.append(&lines)? {
                    all = false;
                    break;
                }
                some.iter().for_each(|session| self.add(session.clone()));
            }
            if all {
                return Ok(id);
            }
        }
    }

    fn take(&mut self, lines: &[u8]) -> Result<()> {
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            if self.id.is_none() {
                let header: JournalHeader = serde_json::from_slice(line).map_err(|error| damaged(0, &error))?;
                self.id = Some(header.journal);
            } else {
                let session = serde_json::from_slice(line).map_err(|error| damaged(self.sessions.len(), &error))?;
                self.add(session);
            }
        }
        Ok(())
    }

    fn add(&mut self, session: ClosedSession) {
        self.open.remove(&session.id);
        self.positions.insert(session.id.clone(), self.sessions.len());
        self.sessions.push(Arc::new(session));
    }

    /// Return the closed sessions that are not in the journal, in the order in which they ended; of
    /// each transaction, return all sessions or none.
    fn find(&mut self, store: &dyn Store) -> Result<Vec<ClosedSession>> {
        self.list_new_names(store)?;
        let (mut found, mut dead) = (Vec::new(), Vec::new());
        for (session, length) in &mut self.open {
            if let Some(held) = self.held.get(session) {
                found.push(held.clone());
                continue;
            }
            let Some(list) = store.list(session)? else { continue };
            if list.length == *length {
                continue;
            }
            match closed(store, session, list.length)? {
                None => *length = list.length,
                Some((0, _)) => match examine_durably(store, session) {
                    Some(closed) => found.push(closed),
                    None => dead.push(session.clone()),
                },
                Some(_) => dead.push(session.clone()),
            }
        }
        dead.into_iter().for_each(|session| self.give_up(session));
        let known = |session: &str| self.positions.contains_key(session) || self.dead.contains(session);
        let divided = divide(store, found, known, |session| Ok(examine_durably(store, session)))?;
        self.held = divided.held.into_iter().map(|found| (found.session.id.clone(), found)).collect();
        Ok(divided.whole.into_iter().map(|found| found.session).collect())
    }

    fn give_up(&mut self, session: String) {
        self.open.remove(&session);
        self.dead.insert(session);
    }

    fn list_new_names(&mut self, store: &dyn Store) -> Result<()> {
        let changed = store.changed()?;
        if changed.is_some() && changed == self.listed_at {
            return Ok(());
        }
        let names: HashSet<_> = store.sessions()?.into_iter().collect();
        self.open.retain(|session, _| names.contains(session));
        self.dead.retain(|session| names.contains(session));
        for name in names {
            if !self.positions.contains_key(&name) && !self.dead.contains(&name) {
                self.open.entry(name).or_insert(0);
            }
        }
        self.listed_at = changed;
        Ok(())
    }
}

/// Make a closed session's list durable, as its place in the journal will be, and examine it.
/// Return `None` if it cannot be read.
fn examine_durably(store: &dyn Store, session: &str) -> Option<ListedSession> {
    match store.make_durable(session).and_then(|()| examine_list(store, session)) {
        Ok(found) => found,
        Err(error) => {
            tracing::error!(
                %session, %error,
                "cannot read a closed session: it is skipped until its list is repaired and the reader is restarted"
            );
            None
        }
    }
}

/// Return the error for a journal that cannot be read after its first `known` sessions.
fn damaged(known: usize, error: &serde_json::Error) -> Error {
    Error::io(
        format!("the order of the sink's sessions is damaged after the first {known}"),
        format!(
            "{error}. It is {FILE} in the sink, .journal in a store: restore it from an intact copy. Without it the order \
             starts again, and a stream that follows the sink needs a new checkpoint and reads all sessions again"
        ),
    )
}

fn encode(line: &impl Serialize) -> Vec<u8> {
    // Every key is a string and writing to a Vec does not fail, so this does not fail.
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Return an ID for a new journal. It is unique, but not secret.
fn new_id() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let place = std::ptr::from_ref(&now).addr();
    let hash: [u8; 32] = Sha256::digest(format!("{now} {} {place}", std::process::id())).into();
    hex::encode(hash.get(..16).unwrap_or_default())
}
