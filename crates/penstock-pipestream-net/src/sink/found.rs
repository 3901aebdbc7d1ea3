//! What a folder has of a session that an earlier process had open.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::sync::Arc;

use penstock_io::hex;
use penstock_pipestream::{EntityHeader, EntityKey, ErrorCode, Status};
use serde::Deserialize;

use super::entries::LOG;
use super::owner::OWNER;
use super::record::{self, Placed};
use super::transaction::Membership;

/// A line, as far as it says what the sink has.
#[derive(Deserialize)]
struct Line {
    scope: u16,
    #[serde(default)]
    scope_use: u32,
    entity: u32,
    #[serde(default)]
    entity_use: u32,
    parent: Option<u32>,
    layer: Option<u32>,
    content_type: Option<String>,
    bytes: Option<u64>,
    sha256: Option<String>,
    metadata: BTreeMap<String, String>,
    status: String,
    file: Option<String>,
    attempts: Option<u32>,
    transaction_owner: Option<String>,
}

/// A stored entity.
#[derive(Debug)]
pub(crate) struct FoundEntity {
    pub(crate) key: EntityKey,
    pub(crate) header: Arc<EntityHeader>,
    pub(super) placed: Placed,
    pub(super) failures: u32,
}

/// What is found of a session.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// What its folder is called.
    pub(super) folder: String,
    entities: HashMap<EntityKey, FoundEntity>,
    pub(super) membership: Membership,
    /// Octets of its list, without half a line at the end.
    pub(super) length: u64,
    closed: bool,
}

impl Found {
    /// Whether an entity is stored, and its line says so.
    pub(crate) fn has(&self, key: EntityKey) -> bool {
        self.entities.contains_key(&key)
    }

    /// Whether its list has its last line.
    pub(crate) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The stored entities.
    pub(crate) fn entities(&self) -> impl Iterator<Item = &FoundEntity> {
        self.entities.values()
    }

    pub(super) fn into_entities(self) -> impl Iterator<Item = FoundEntity> {
        self.entities.into_values()
    }

    /// Reads the list in a session's folder for these entities: the last line of each counts.
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
                return Ok(found);
            }
            found.closed = text.starts_with(b"{\"closed\":");
            if !found.closed {
                let line: Line = serde_json::from_slice(&text).map_err(|error| {
                    let message = format!("{}: the line at octet {}: {error}", path.display(), found.length);
                    io::Error::new(io::ErrorKind::InvalidData, message)
                })?;
                found.take(line, keys);
            }
            found.length += count as u64;
        }
    }

    /// Closes the list of a session of which nothing more can come, unless a transaction has to be waited for.
    pub(super) fn close(&mut self, sink: &Path) -> io::Result<()> {
        let is_alone = match &self.membership {
            Membership::Unknown | Membership::None => true,
            Membership::Of { .. } => false,
        };
        if self.closed || !is_alone {
            return Ok(());
        }
        let path = sink.join(&self.folder).join(LOG);
        let mut list = OpenOptions::new().append(true).open(&path)?;
        // Half a line.
        list.set_len(self.length)?;
        let last = record::closed(ErrorCode::NoError);
        list.write_all(&last)?;
        list.sync_all()?;
        self.length = self.length.saturating_add(last.len() as u64);
        self.closed = true;
        Ok(())
    }

    fn take(&mut self, line: Line, keys: &HashSet<EntityKey>) {
        let Line { scope, scope_use, entity, entity_use, .. } = line;
        let key = EntityKey { scope, scope_use, entity, entity_use };
        let mut metadata = line.metadata;
        metadata.extend(line.transaction_owner.map(|owner| (OWNER.to_owned(), owner)));
        let header = EntityHeader {
            entity_id: entity,
            parent_id: line.parent.unwrap_or_default(),
            scope_id: u32::from(scope),
            layer: line.layer.unwrap_or_default(),
            content_type: line.content_type.unwrap_or_default(),
            metadata,
            ..EntityHeader::default()
        };
        if line.layer.is_some() {
            // It was admitted then; what does not fit has failed since.
            let _ = self.membership.admit(key, &header);
        }
        if !keys.contains(&key) {
            return;
        }
        let sha256 = line.sha256.as_deref().and_then(hex::decode);
        match (line.status == Status::Complete.name(), line.bytes.zip(sha256)) {
            (true, Some((bytes, sha256))) => {
                let placed = Placed { file: line.file, bytes, sha256, reference: None };
                let failures = line.attempts.map_or(0, |attempts| attempts.saturating_sub(1));
                let found = FoundEntity { key, header: Arc::new(header), placed, failures };
                self.entities.insert(key, found);
            }
            // It failed, and nobody has heard of that yet: it comes again.
            (_, _) => drop(self.entities.remove(&key)),
        }
    }
}
