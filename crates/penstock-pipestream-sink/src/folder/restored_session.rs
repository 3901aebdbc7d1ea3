//! The stored part of a session that an earlier process had open.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use penstock_io::hex;
use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Status};

use crate::entries::StoredEntity;
use crate::folder::lists::lock;
use crate::format::encode::{self, PayloadProperties};
use crate::format::line::Line;
use crate::format::{LOG, OWNER};
use crate::references::ReferenceFields;
use crate::transactions::Membership;

/// Temporary name for rebuilding the list. Hidden, so that it is removed if the rebuild is not
/// finished.
const NEW: &str = ".tmp-list";

/// The stored part of a session, as read from its folder.
#[derive(Debug, Default)]
pub(super) struct RestoredSession {
    /// The name of the session's folder.
    pub(super) folder: String,
    entities: HashMap<EntityKey, StoredEntity>,
    pub(super) membership: Membership,
    /// The length of the list in bytes, without half a line at its end.
    length: u64,
    list: ListState,
    /// The ranges of the requested entities' lines.
    lines: HashMap<EntityKey, Vec<Range<u64>>>,
    /// The ranges of void lines, in ascending order.
    void: Vec<Range<u64>>,
}

/// The end of a session's list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ListState {
    /// More lines may follow.
    #[default]
    Open,
    /// The list has its last line, and is never changed again.
    Closed,
}

impl RestoredSession {
    /// Return whether an entity is stored and has its line.
    pub(super) fn has(&self, key: EntityKey) -> bool {
        self.entities.contains_key(&key)
    }

    /// Return whether the list has its last line.
    pub(super) const fn is_closed(&self) -> bool {
        match self.list {
            ListState::Open => false,
            ListState::Closed => true,
        }
    }

    /// Return the stored entities.
    pub(super) fn entities(&self) -> impl Iterator<Item = &StoredEntity> {
        self.entities.values()
    }

    pub(super) fn into_entities(self) -> impl Iterator<Item = StoredEntity> {
        self.entities.into_values()
    }

    /// Read the list in a session's folder for these entities, none of which was reported as
    /// terminal. The last line of each counts, if its payload exists.
    pub(super) fn read(sink: &Path, folder: String, keys: &HashSet<EntityKey>) -> io::Result<Self> {
        let path = sink.join(&folder).join(LOG);
        let mut found = Self { folder, ..Self::default() };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(error),
        };
        let mut reader = BufReader::new(file);
        let mut text = Vec::new();
        loop {
            text.clear();
            let count = reader.read_until(b'\n', &mut text)?;
            if text.last() != Some(&b'\n') {
                found.check_payloads(sink);
                return Ok(found);
            }
            found.list = if text.starts_with(b"{\"closed\":") { ListState::Closed } else { ListState::Open };
            if found.list == ListState::Open {
                let damaged = |problem: &dyn fmt::Display| {
                    let message = format!("{}: the line at byte {}: {problem}", path.display(), found.length);
                    io::Error::new(io::ErrorKind::InvalidData, message)
                };
                let line = Line::parse(&text).map_err(|error| damaged(&error))?;
                let key = line.key().ok_or_else(|| damaged(&"there is no such scope"))?;
                let key = found.take(key, &line, &text, keys);
                let end = found.length.saturating_add(count as u64);
                if let Some(key) = key {
                    found.lines.entry(key).or_default().push(found.length..end);
                }
            }
            found.length = found.length.saturating_add(count as u64);
        }
    }

    /// Compare each payload's length with its line. If they differ, the entity has to be sent
    /// again: a failed entity's file is removed before its FAILED line is written, and a disk that
    /// fails may lose that line. All other lines of these entities are void.
    fn check_payloads(&mut self, sink: &Path) {
        for (key, mut lines) in std::mem::take(&mut self.lines) {
            if let Some(found) = self.entities.get(&key) {
                match found.placed.check(sink) {
                    Ok(()) => drop(lines.pop()),
                    Err(error) => {
                        tracing::warn!(folder = self.folder, %error, "a listed payload is missing or incomplete: its entity must be sent again");
                        self.entities.remove(&key);
                    }
                }
            }
            self.void.extend(lines);
        }
        self.void.sort_unstable_by_key(|line| line.start);
    }

    /// Remove half a line at the list's end and all void lines, because readers would see an entity
    /// twice, or one whose payload is missing. Return the list's file.
    pub(super) fn repair(&mut self, sink: &Path, mut list: File) -> io::Result<File> {
        list.set_len(self.length)?;
        // Readers may already have read a closed list, and hold positions in it.
        if self.void.is_empty() || self.is_closed() {
            return Ok(list);
        }
        let folder = sink.join(&self.folder);
        let new = folder.join(NEW);
        let _ = fs::remove_file(&new);
        let mut repaired = OpenOptions::new().read(true).append(true).create_new(true).open(&new)?;
        lock(&repaired)?;
        let mut from = 0;
        for void in self.void.iter().cloned().chain(std::iter::once(self.length..self.length)) {
            list.seek(SeekFrom::Start(from))?;
            io::copy(&mut (&list).take(void.start.saturating_sub(from)), &mut repaired)?;
            from = void.end;
        }
        repaired.sync_all()?;
        fs::rename(&new, folder.join(LOG))?;
        File::open(&folder)?.sync_all()?;
        self.length = repaired.metadata()?.len();
        self.void.clear();
        Ok(repaired)
    }

    /// Close the list of a session that cannot change any more, unless the session belongs to a
    /// transaction.
    pub(super) fn close(&mut self, sink: &Path) -> io::Result<()> {
        let is_alone = match &self.membership {
            Membership::Unknown | Membership::None => true,
            Membership::Of { .. } => false,
        };
        let path = sink.join(&self.folder).join(LOG);
        if self.is_closed() {
            // The process that wrote the last line may have died before it was durable.
            return File::open(&path)?.sync_all();
        }
        if !is_alone {
            return Ok(());
        }
        let list = OpenOptions::new().read(true).append(true).open(&path)?;
        let mut list = self.repair(sink, list)?;
        let last = encode::closed(ErrorCode::NoError);
        list.write_all(&last)?;
        list.sync_all()?;
        self.length = self.length.saturating_add(last.len() as u64);
        self.list = ListState::Closed;
        Ok(())
    }

    /// Apply an entity's line, which was parsed from `text`. Return the entity's key, if it was
    /// requested.
    fn take(&mut self, key: EntityKey, line: &Line<'_>, text: &[u8], keys: &HashSet<EntityKey>) -> Option<EntityKey> {
        let pairs = line.metadata.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        let owner = line.transaction_owner.as_ref().map(|owner| (OWNER.to_owned(), owner.as_ref().to_owned()));
        let header = EntityHeader {
            entity_id: key.entity,
            parent_id: line.parent.unwrap_or_default(),
            scope_id: line.scope,
            layer: line.layer.unwrap_or_default(),
            content_type: line.content_type.as_ref().map(|text| text.as_ref().to_owned()).unwrap_or_default(),
            metadata: pairs.chain(owner).collect(),
            ..EntityHeader::default()
        };
        if line.layer.is_some() {
            // The earlier process admitted the entity; one that does not fit the session has failed
            // since.
            let _ = self.membership.admit(key, &header);
        }
        if !keys.contains(&key) {
            return None;
        }
        let sha256 = line.sha256.as_ref().and_then(|text| hex::decode(text.as_ref()));
        match (line.status == Status::Complete.name(), line.bytes.zip(sha256)) {
            (true, Some((bytes, sha256))) => {
                let file = line.file.as_ref().map(|text| text.as_ref().to_owned());
                let reference = ReferenceFields::of_line(text).map(Arc::new);
                let placed = PayloadProperties { file, bytes, sha256, reference };
                self.entities.insert(key, StoredEntity { key, header: Arc::new(header), placed });
            }
            // The entity failed, and that was not reported yet, so it is sent again.
            (_, _) => drop(self.entities.remove(&key)),
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use penstock_io::runtime::block_on;
    use penstock_pipestream_net::port::{NewSession, SinkEvent, SinkSession as _};

    use super::*;
    use crate::folder::tests::recorded::RecordingControl;
    use crate::folder::{FolderSink, open};

    const ID: &str = "11111111111111111111111111111111";

    const fn key(entity: u32) -> EntityKey {
        EntityKey { scope: 0, scope_use: 0, entity, entity_use: 0 }
    }

    fn complete(entity: u32, bytes: u64) -> Vec<u8> {
        let file = Some(format!("{ID}/0/{entity}"));
        let placed = PayloadProperties { file, bytes, sha256: [7; 32], reference: None };
        encode::complete(key(entity), 0, &EntityHeader::default(), &placed)
    }

    fn failed(entity: u32) -> Vec<u8> {
        let end = encode::End { parent_id: 0, status: Status::Failed, reason: None, failures: 0, claim: None };
        encode::failed(key(entity), &end, None, None)
    }

    /// Return a sink with one session that has these payloads of 6 bytes and these lines.
    fn sink(payloads: &[u32], lines: &[Vec<u8>]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join(ID).join("0")).unwrap();
        for entity in payloads {
            fs::write(dir.path().join(format!("{ID}/0/{entity}")), b"6bytes").unwrap();
        }
        fs::write(dir.path().join(ID).join(LOG), lines.concat()).unwrap();
        dir
    }

    fn list(dir: &Path) -> String {
        fs::read_to_string(dir.join(ID).join(LOG)).unwrap()
    }

    fn text(lines: &[Vec<u8>]) -> String {
        String::from_utf8(lines.concat()).unwrap()
    }

    /// Return the folder of an earlier process: 1 is correct, 2 is missing, 3 is too short, 4 has
    /// failed; 5 is terminal, so it is not requested.
    fn left() -> (tempfile::TempDir, HashSet<EntityKey>) {
        let lines = [
            complete(1, 6),
            complete(2, 6),
            failed(1),
            complete(3, 7),
            complete(5, 6),
            complete(4, 6),
            failed(4),
            complete(1, 6),
            b"{\"scope\":0,\"ent".to_vec(),
        ];
        (sink(&[1, 3, 4], &lines), (1..=4).map(key).collect())
    }

    #[test]
    fn what_a_list_says_is_there_is_looked_for() {
        let (dir, keys) = left();
        let found = RestoredSession::read(dir.path(), ID.to_owned(), &keys).unwrap();
        assert_eq!((1..=5).filter(|entity| found.has(key(*entity))).collect::<Vec<_>>(), [1]);
        // Reading changes nothing.
        assert!(list(dir.path()).ends_with("\"ent"));
    }

    fn new_session() -> NewSession {
        let control = Arc::new(RecordingControl::default());
        NewSession { id: ID.into(), control, defer: None, certificate: None, handle: None }
    }

    #[test]
    fn a_restored_entity_that_fails_leaves_no_file_of_a_fetched_object() {
        let reference = format!(",\"reference\":{{\"stored\":\"object\",\"message\":\"{ID}/0/1.reference\"}}}}\n");
        let line = String::from_utf8(complete(1, 6)).unwrap().replace("}\n", &reference);
        let dir = sink(&[1], &[line.into_bytes()]);
        let scope = dir.path().join(ID).join("0");
        fs::write(scope.join("1.reference"), b"message").unwrap();
        let sink = FolderSink::open(dir.path(), None).unwrap();
        let found = RestoredSession::read(dir.path(), ID.to_owned(), &[key(1)].into()).unwrap();
        let (session, _ended) = open(sink.shared.get().unwrap(), new_session(), Some(found)).unwrap();
        let failed = SinkEvent::Resolved {
            key: key(1),
            parent_id: 0,
            status: Status::Failed,
            reason: None,
            failures: 0,
            claim: None,
            header: None,
        };
        assert!(session.observe(vec![failed]).is_none());
        assert!(block_on(session.flush()).unwrap());
        assert_eq!(fs::read_dir(scope).unwrap().count(), 0);
    }

    #[test]
    fn lines_of_what_comes_again_go_before_the_session_goes_on() {
        let (dir, keys) = left();
        let sink = FolderSink::open(dir.path(), None).unwrap();
        let found = RestoredSession::read(dir.path(), ID.to_owned(), &keys).unwrap();
        let (session, _ended) = open(sink.shared.get().unwrap(), new_session(), Some(found)).unwrap();
        assert_eq!(list(dir.path()), text(&[complete(5, 6), complete(1, 6)]));
        // The new list belongs to this process like the old one: it is locked, and appended to.
        let log = File::open(dir.path().join(ID).join(LOG)).unwrap();
        assert!(log.try_lock().is_err());
        let names: Vec<_> =
            fs::read_dir(dir.path().join(ID)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        drop(session);
    }

    #[test]
    fn a_list_that_is_closed_is_never_changed() {
        let lines = [complete(2, 6), failed(1), encode::closed(ErrorCode::NoError)];
        let dir = sink(&[], &lines);
        let mut found = RestoredSession::read(dir.path(), ID.to_owned(), &[key(1), key(2)].into()).unwrap();
        assert!(!found.has(key(2)) && found.is_closed());
        let list_file = OpenOptions::new().read(true).append(true).open(dir.path().join(ID).join(LOG)).unwrap();
        found.repair(dir.path(), list_file).unwrap();
        assert_eq!(list(dir.path()), text(&lines));
    }

    #[test]
    fn a_list_is_repaired_before_its_last_line() {
        let dir = sink(&[1], &[failed(1), complete(1, 6), b"{\"sc".to_vec()]);
        let mut found = RestoredSession::read(dir.path(), ID.to_owned(), &[key(1)].into()).unwrap();
        found.close(dir.path()).unwrap();
        assert_eq!(list(dir.path()), text(&[complete(1, 6), encode::closed(ErrorCode::NoError)]));
        assert_eq!(found.length, list(dir.path()).len() as u64);
    }
}
