//! What has become of the entities of ours that have a label and have ended.
//!
//! ```text
//!  labels    "penstock labels 1\n", then a record (records.rs) for each, JSON
//! ```
//!
//! They lie on disk: in memory are those since the last snapshot, and 24 bytes for each of the others.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use penstock_io::records::{self, sync_folder};
use penstock_pipestream::{EntityKey, ErrorCode, Reason, ScopeDigest, ScopeKey, Status, Ticket};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::journal::log::options;
use crate::types::Resolution;

const MAGIC: &[u8] = b"penstock labels 1\n";
const NAME: &str = "labels";
/// No record is longer: a label of 1 KiB and a reason of 64 KiB, with escapes.
const MAX_RECORD: usize = 1 << 20;

/// The outcome of an entity of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) ticket: Ticket,
    pub(crate) resolution: Resolution,
    /// The digest of its children's scope.
    pub(crate) digest: Option<ScopeDigest>,
}

/// The same in a file.
#[derive(Serialize, Deserialize)]
struct EndedRecord {
    label: Vec<u8>,
    key: (u16, u32, u32, u32),
    parent: u32,
    depth: u8,
    child: Option<(u16, u32)>,
    status: u8,
    reason: Option<(u64, String)>,
    attempts: u32,
    claim: Option<u64>,
    digest: Option<DigestRecord>,
}

#[derive(Serialize, Deserialize)]
struct DigestRecord {
    scope: u16,
    counts: [u64; 4],
    root: [u8; 32],
}

/// A scope of ours that was released, by its parent.
#[derive(Serialize, Deserialize)]
struct ReleasedRecord {
    parent: (u16, u32, u32, u32),
    digest: DigestRecord,
}

const fn key_fields(key: EntityKey) -> (u16, u32, u32, u32) {
    (key.scope, key.scope_use, key.entity, key.entity_use)
}

const fn key_of((scope, scope_use, entity, entity_use): (u16, u32, u32, u32)) -> EntityKey {
    EntityKey { scope, scope_use, entity, entity_use }
}

impl From<&ScopeDigest> for DigestRecord {
    fn from(digest: &ScopeDigest) -> Self {
        let counts = [digest.processed, digest.succeeded, digest.failed, digest.deferred];
        Self { scope: digest.scope_id, counts, root: digest.merkle_root }
    }
}

impl From<DigestRecord> for ScopeDigest {
    fn from(record: DigestRecord) -> Self {
        let [processed, succeeded, failed, deferred] = record.counts;
        Self { scope_id: record.scope, processed, succeeded, failed, deferred, merkle_root: record.root }
    }
}

fn encode(record: &impl Serialize) -> Vec<u8> {
    // Every key is a string and a Vec takes everything, so this does not fail.
    serde_json::to_vec(record).unwrap_or_default()
}

/// The record of a label.
pub(super) fn encode_ended(label: &Bytes, ended: &Ended) -> Vec<u8> {
    let Ended { ticket, resolution, digest } = ended;
    encode(&EndedRecord {
        label: label.to_vec(),
        key: key_fields(ticket.key),
        parent: ticket.parent_id,
        depth: ticket.depth,
        child: ticket.child_scope.map(|scope| (scope.scope, scope.scope_use)),
        status: resolution.status.code(),
        reason: resolution.reason.as_ref().map(|reason| (reason.code.code(), reason.message.clone())),
        attempts: resolution.attempts,
        claim: resolution.claim,
        digest: digest.as_ref().map(Into::into),
    })
}

fn decode_ended(bytes: &[u8]) -> Option<(Bytes, Ended)> {
    let record: EndedRecord = serde_json::from_slice(bytes).ok()?;
    let ticket = Ticket {
        key: key_of(record.key),
        parent_id: record.parent,
        depth: record.depth,
        child_scope: record.child.map(|(scope, scope_use)| ScopeKey { scope, scope_use }),
    };
    let reason = record.reason.map(|(code, message)| Reason { code: ErrorCode::from_code(code), message });
    let status = Status::try_from(record.status).ok()?;
    let resolution = Resolution { status, reason, attempts: record.attempts, claim: record.claim };
    Some((record.label.into(), Ended { ticket, resolution, digest: record.digest.map(Into::into) }))
}

/// The record of a scope.
pub(super) fn encode_released(parent: EntityKey, digest: &ScopeDigest) -> Vec<u8> {
    encode(&ReleasedRecord { parent: key_fields(parent), digest: digest.into() })
}

pub(super) fn decode_released(bytes: &[u8]) -> Option<(EntityKey, ScopeDigest)> {
    let record: ReleasedRecord = serde_json::from_slice(bytes).ok()?;
    Some((key_of(record.parent), record.digest.into()))
}

/// The labels of a session.
#[derive(Debug)]
pub(super) struct Labels {
    path: PathBuf,
    file: Option<File>,
    length: u64,
    /// By the first half of the label's SHA-256: where its record begins.
    places: HashMap<[u8; 16], u64>,
    /// Those since the last snapshot; their records are in the session's file.
    recent: HashMap<Bytes, Ended>,
}

impl Labels {
    /// None yet.
    pub(super) fn new(folder: &Path) -> Self {
        let (places, recent) = (HashMap::new(), HashMap::new());
        Self { path: folder.join(NAME), file: None, length: 0, places, recent }
    }

    /// Those of a folder, and of records in the session's file.
    pub(super) fn read(folder: &Path, recent: &[Vec<u8>]) -> io::Result<Self> {
        let mut labels = Self::new(folder);
        labels.recent = recent.iter().filter_map(|record| decode_ended(record)).collect();
        let path = labels.path.clone();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(labels),
            Err(error) => return Err(error),
        };
        let file = options().open(&path)?;
        if MAGIC.starts_with(&bytes) {
            file.set_len(0)?;
        } else {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
            labels.length = labels.index(&bytes).map_err(named)?;
            file.set_len(labels.length)?;
        }
        labels.file = Some(file);
        Ok(labels)
    }

    fn index(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| records::damaged("it is no file of labels".to_owned()))?;
        let mut at = MAGIC.len() as u64;
        let length = records::read(rest, MAGIC.len(), MAX_RECORD, |body| {
            let (label, _) = decode_ended(body)?;
            self.places.insert(digest(&label), at);
            at += 8 + body.len() as u64;
            Some(())
        })?;
        Ok(length as u64)
    }

    /// An entity with this label has ended.
    pub(super) fn insert(&mut self, label: Bytes, ended: Ended) {
        self.recent.insert(label, ended);
    }

    /// What has become of it.
    pub(super) fn find(&mut self, label: &Bytes) -> io::Result<Option<Ended>> {
        if let Some(ended) = self.recent.get(label) {
            return Ok(Some(ended.clone()));
        }
        let (Some(at), Some(file)) = (self.places.get(&digest(label)), &mut self.file) else { return Ok(None) };
        file.seek(SeekFrom::Start(*at))?;
        let mut head = [0; 4];
        file.read_exact(&mut head)?;
        let length = usize::try_from(u32::from_be_bytes(head)).unwrap_or(usize::MAX).min(MAX_RECORD);
        let mut record = head.to_vec();
        record.resize(8 + length, 0);
        file.read_exact(record.get_mut(4..).unwrap_or_default())?;
        let found = records::first(&record, MAX_RECORD).and_then(|(body, _)| decode_ended(body));
        let Some((found, ended)) = found else {
            return Err(records::damaged(format!("{}: the record at byte {at} is damaged", self.path.display())));
        };
        Ok((found == *label).then_some(ended))
    }

    /// Puts those in memory into the file, durable.
    pub(super) fn store(&mut self) -> io::Result<()> {
        if self.recent.is_empty() {
            return Ok(());
        }
        let mut bytes = if self.length == 0 { MAGIC.to_vec() } else { Vec::new() };
        let mut places = Vec::with_capacity(self.recent.len());
        for (label, ended) in &self.recent {
            places.push((digest(label), self.length + bytes.len() as u64));
            records::append(&encode_ended(label, ended), &mut bytes);
        }
        let fresh = self.file.is_none();
        let file = match &mut self.file {
            Some(file) => file,
            // What is there is of a session that has ended.
            None => self.file.insert(options().truncate(true).open(&self.path)?),
        };
        // What a write that failed has left is written over.
        file.seek(SeekFrom::Start(self.length))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        if fresh {
            sync_folder(&self.path)?;
        }
        self.length += bytes.len() as u64;
        self.places.extend(places);
        self.recent.clear();
        Ok(())
    }

    /// Nobody will ask for them.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        self.file = None;
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

fn digest(label: &Bytes) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(label).into();
    digest.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(entity: u32) -> Ended {
        let key = EntityKey { scope: 2, scope_use: 1, entity, entity_use: 0 };
        let child_scope = entity.is_multiple_of(2).then_some(ScopeKey { scope: 4, scope_use: 0 });
        let reason = Reason { code: ErrorCode::IntegrityError, message: "why \"so\"".into() };
        let digest = ScopeDigest {
            scope_id: 4,
            processed: 3,
            succeeded: 1,
            failed: 1,
            deferred: 1,
            merkle_root: [entity.to_be_bytes()[3]; 32],
        };
        Ended {
            ticket: Ticket { key, parent_id: 7, depth: 1, child_scope },
            resolution: Resolution { status: Status::Failed, reason: Some(reason), attempts: 2, claim: Some(u64::MAX) },
            digest: child_scope.map(|_| digest),
        }
    }

    fn label(number: u32) -> Bytes {
        Bytes::from(format!("part {number} \u{1f4c4}"))
    }

    #[test]
    fn a_label_is_known_before_and_after_it_is_stored_and_to_the_next_process() {
        let dir = tempfile::tempdir().unwrap();
        let mut labels = Labels::new(dir.path());
        let mut records = Vec::new();
        for number in 0..10 {
            labels.insert(label(number), ended(number));
            if number == 6 {
                labels.store().unwrap();
            }
            if number > 6 {
                records.push(encode_ended(&label(number), &ended(number)));
            }
        }
        let mut again = Labels::read(dir.path(), &records).unwrap();
        for labels in [&mut labels, &mut again] {
            for number in 0..10 {
                assert_eq!(labels.find(&label(number)).unwrap(), Some(ended(number)));
            }
            assert_eq!(labels.find(&label(11)).unwrap(), None);
        }
        again.remove().unwrap();
        assert_eq!(Labels::read(dir.path(), &[]).unwrap().find(&label(1)).unwrap(), None);
    }

    #[test]
    fn a_file_that_is_cut_off_at_any_byte_has_what_is_before() {
        let dir = tempfile::tempdir().unwrap();
        let mut labels = Labels::new(dir.path());
        for number in 0..3 {
            labels.insert(label(number), ended(number));
            labels.store().unwrap();
        }
        let path = dir.path().join(NAME);
        let whole = fs::read(&path).unwrap();
        for length in 0..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let mut labels = Labels::read(dir.path(), &[]).unwrap();
            let there = (0..3).take_while(|number| labels.find(&label(*number)).unwrap().is_some()).count();
            assert!(there < 3);
            labels.insert(label(9), ended(9));
            labels.store().unwrap();
            let mut labels = Labels::read(dir.path(), &[]).unwrap();
            assert_eq!(labels.find(&label(9)).unwrap(), Some(ended(9)), "cut off at {length}");
        }
    }
}
