//! A spool in an object store: the same names and the same bytes as in a folder. A segment is written at once, with
//! its footer, and only if there is none of its name, by whoever has the claim (`claim.rs`).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::{ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use penstock_io::runtime::block_on;
use penstock_io::storage::{ObjectPrefix, plain};
use penstock_io::{DriverError as _, hex};

use super::claim::Claim;
use super::dedup::Recent;
use super::folder::{parse_id, segment_name, segment_number};
use super::format::{FOOTER_TAIL, MAX_HEADER, SpoolId, footer_length, read_first_header, read_footer, read_header};
use super::index::{Backing, Index, Segment, next_number, read_readers};
use super::reading::{SegmentInfo, Store};
use super::writer::{Durable, Target, TargetState};
use super::{Ack, Counters, Position, Shared, lock};
use crate::{Error, Result};

const ID: &str = "spool";
const READERS: &str = "readers.json";
/// Requests that are on their way at once.
const CONCURRENT: usize = 32;

pub(super) fn failed(place: &ObjectPrefix, doing: &str, name: &str, error: &object_store::Error) -> Error {
    Error::io(format!("cannot {doing} {}/{name}", place.uri()), plain(error))
}

pub(super) fn get(place: &ObjectPrefix, name: &str) -> Result<Option<Vec<u8>>> {
    let (store, path) = (Arc::clone(place.store()), place.path(name));
    match block_on(async { store.get(&path).await?.bytes().await })? {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed(place, "read", name, &error)),
    }
}

fn put(place: &ObjectPrefix, name: &str, bytes: Vec<u8>, mode: PutMode) -> Result<()> {
    let (store, path) = (Arc::clone(place.store()), place.path(name));
    let options = PutOptions { mode, ..PutOptions::default() };
    let written = block_on(async { store.put_opts(&path, PutPayload::from(bytes), options).await })?;
    written.map(|_| ()).map_err(|error| failed(place, "write", name, &error))
}

fn read_id(place: &ObjectPrefix) -> Result<Option<SpoolId>> {
    let Some(bytes) = get(place, ID)? else { return Ok(None) };
    let wrong = || Error::content(format!("{}/{ID} is not the ID of a spool", place.uri()));
    std::str::from_utf8(&bytes).ok().and_then(parse_id).map(Some).ok_or_else(wrong)
}

/// Segments from a number on, with their bytes.
fn list(place: &ObjectPrefix, from: u64) -> Result<BTreeMap<u64, u64>> {
    let store = Arc::clone(place.store());
    // Everything else that lies there sorts behind the digits.
    let offset = place.path(&segment_name(from.saturating_sub(1)));
    let listed: object_store::Result<Vec<_>> =
        block_on(async { store.list_with_offset(Some(&place.path("")), &offset).try_collect().await })?;
    let found = listed.map_err(|error| failed(place, "list", "", &error))?;
    let numbers = found.into_iter().filter_map(|object| {
        let number = object.location.filename().and_then(segment_number)?;
        (number >= from).then_some((number, object.size))
    });
    Ok(numbers.collect())
}

/// Opens a prefix to be written.
pub(super) fn open(place: &ObjectPrefix, ack: Ack) -> Result<TargetState> {
    let spool = match read_id(place)? {
        Some(spool) => spool,
        None => {
            let spool: SpoolId = fastrand::u128(..).to_be_bytes();
            put(place, ID, hex::encode(spool).into_bytes(), PutMode::Create)?;
            spool
        }
    };
    // Everything is read behind the claim, when nobody else is believed any more.
    let claim = Arc::new(Claim::take(place)?);
    let readers = match get(place, READERS)? {
        None => BTreeMap::new(),
        Some(bytes) => {
            read_readers(&bytes).map_err(|error| Error::io(format!("{}/{READERS}", place.uri()), error.to_string()))?
        }
    };
    let sizes = list(place, 0)?;
    let segments = sizes
        .iter()
        .map(|(number, bytes)| (*number, Segment { bytes: *bytes, sealed: true, ..Segment::default() }))
        .collect();
    let next = next_number(sizes.last_key_value().map(|(number, _)| *number), &readers);
    let store = ObjectStore { place: place.clone(), seen: Mutex::default() };
    let recent = Recent::of(&store, sizes.into_keys())?;
    let backing = Box::new(ObjectBacking { place: place.clone(), claim: Arc::clone(&claim) });
    let index = Index::new(spool, (segments, next), readers, backing);
    let shared = Arc::new(Shared { index, counters: Counters::default(), ack, parked: Mutex::new(BTreeMap::new()) });
    let live = Arc::new(LiveStore { store, shared: Arc::clone(&shared) });
    let target = Box::new(ObjectTarget { place: place.clone(), claim });
    Ok(TargetState { target, shared, store: live, recent, next })
}

#[derive(Debug)]
struct ObjectTarget {
    place: ObjectPrefix,
    claim: Arc<Claim>,
}

impl Target for ObjectTarget {
    fn write(&mut self, segment: u64, _at: u64, bytes: &[u8], _durable: Durable) -> Result<()> {
        self.claim.check()?;
        put(&self.place, &segment_name(segment), bytes.to_vec(), PutMode::Create)?;
        self.claim.check()
    }

    fn end(&mut self, _segment: u64, _at: u64, _footer: &[u8]) -> Result<()> {
        Ok(())
    }

    fn is_whole(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct ObjectBacking {
    place: ObjectPrefix,
    claim: Arc<Claim>,
}

impl Backing for ObjectBacking {
    fn keep_readers(&self, readers: &[u8]) -> Result<()> {
        self.claim.check()?;
        put(&self.place, READERS, readers.to_vec(), PutMode::Overwrite)?;
        self.claim.check()
    }

    fn remove(&self, segment: u64) -> Result<()> {
        self.claim.check()?;
        let (store, name) = (Arc::clone(self.place.store()), segment_name(segment));
        let path = self.place.path(&name);
        match block_on(async { store.delete(&path).await })? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(&self.place, "remove", &name, &error)),
        }
    }
}

/// The rows of a spool in an object store.
#[derive(Debug)]
pub struct ObjectStore {
    place: ObjectPrefix,
    seen: Mutex<HashMap<u64, SegmentInfo>>,
}

impl ObjectStore {
    /// Looks below a prefix.
    ///
    /// Fails as a misuse if there is no spool.
    pub fn open(place: ObjectPrefix) -> Result<Self> {
        if read_id(&place)?.is_none() {
            return Err(Error::misuse(format!("{} is no spool: it has no object {ID}", place.uri())));
        }
        Ok(Self { place, seen: Mutex::default() })
    }

    async fn look(&self, number: u64, size: u64) -> Result<SegmentInfo> {
        let name = segment_name(number);
        let (store, path) = (self.place.store(), self.place.path(&name));
        let range = |range: Range<u64>| {
            let path = path.clone();
            async move {
                let bytes = store.get_range(&path, range).await;
                bytes.map_err(|error| failed(&self.place, "read", &segment_name(number), &error))
            }
        };
        let wrong =
            || Error::io(format!("segment {number} of the spool {}", self.place.uri()), "it is not what was written");
        let head = range(0..size.min(MAX_HEADER)).await?;
        if read_first_header(&head).is_some() {
            return Err(Error::io(
                format!("segment {number} of the spool {}", self.place.uri()),
                "it was written by an earlier build (format 1), and only that one reads it",
            ));
        }
        let header = read_header(&head).ok_or_else(wrong)?;
        let tail = range(size.saturating_sub(FOOTER_TAIL)..size).await?;
        let length = footer_length(&tail).filter(|length| *length <= size).ok_or_else(wrong)?;
        let entries = read_footer(&range(size - length..size).await?).ok_or_else(wrong)?;
        Ok(SegmentInfo { number, header: header.length, entries })
    }
}

impl Store for ObjectStore {
    fn spool(&self) -> Result<String> {
        let missing = || Error::misuse(format!("{} is no spool", self.place.uri()));
        Ok(hex::encode(read_id(&self.place)?.ok_or_else(missing)?))
    }

    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>> {
        let sizes = list(&self.place, from)?;
        let wanted: Vec<(u64, u64)> = sizes.into_iter().take(max).collect();
        let unknown: Vec<(u64, u64)> = {
            let seen = lock(&self.seen);
            wanted.iter().copied().filter(|(number, _)| !seen.contains_key(number)).collect()
        };
        let found: Vec<SegmentInfo> = block_on(async {
            let requests = unknown.into_iter().map(|(number, size)| self.look(number, size));
            stream::iter(requests).buffered(CONCURRENT).try_collect().await
        })??;
        let mut seen = lock(&self.seen);
        seen.extend(found.into_iter().map(|info| (info.number, info)));
        Ok(wanted.iter().filter_map(|(number, _)| seen.get(number).cloned()).collect())
    }

    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>> {
        let name = segment_name(segment);
        let (store, path) = (Arc::clone(self.place.store()), self.place.path(&name));
        let wanted = range.end.saturating_sub(range.start);
        let bytes = block_on(async { store.get_range(&path, range).await })?;
        let bytes = bytes.map_err(|error| failed(&self.place, "read", &name, &error))?;
        if bytes.len() as u64 != wanted {
            let message = "it is shorter than it was".to_owned();
            return Err(Error::io(format!("cannot read {}/{name}", self.place.uri()), message));
        }
        Ok(bytes.into())
    }

    fn commit(&self, _reader: &str, _position: Position) -> Result<()> {
        Err(Error::misuse("only who writes a spool can take commits: connect to the receiver".into()))
    }
}

/// The same, in the process that writes it.
#[derive(Debug)]
struct LiveStore {
    store: ObjectStore,
    shared: Arc<Shared>,
}

impl Store for LiveStore {
    fn spool(&self) -> Result<String> {
        Ok(hex::encode(self.shared.index.spool))
    }

    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>> {
        self.store.segments(from, max)
    }

    fn read(&self, segment: u64, range: Range<u64>) -> Result<Vec<u8>> {
        self.store.read(segment, range)
    }

    fn commit(&self, reader: &str, position: Position) -> Result<()> {
        self.shared.commit(reader, position)
    }
}
