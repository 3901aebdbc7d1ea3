//! A spool in an object store, with the same names and bytes as in a folder. The owner of the claim
//! (`claim.rs`) writes each segment at once, with its footer, and only if no object has that name.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use object_store::{ObjectStoreExt as _, PutMode};
use penstock_io::runtime::block_on;
use penstock_io::storage::ObjectPrefix;
use penstock_io::sync::lock;
use penstock_io::{DriverError as _, Problem, hex};

use crate::claim::Claim;
use crate::dedup::Recent;
use crate::format::{FOOTER_TAIL, MAX_HEADER, SpoolId, footer_length, read_first_header, read_footer, read_header};
use crate::index::{Backing, Index, Segment, next_number, read_readers};
use crate::names::{ID, READERS, parse_id, segment_name, segment_number};
use crate::options::Ack;
use crate::requests::{failed, get, list, put, remove};
use crate::shared::{Counters, Shared};
use crate::store::{Position, SegmentInfo, Store};
use crate::target::{Durable, Target, TargetState};
use crate::{Error, Misuse, Result};

/// The most concurrent requests.
const CONCURRENT: usize = 32;

fn read_id(place: &ObjectPrefix) -> Result<Option<SpoolId>> {
    let Some(bytes) = get(place, ID)? else { return Ok(None) };
    let wrong = || Error::content(format!("{}/{ID}", place.uri()), Problem::Not("the ID of a spool"));
    std::str::from_utf8(&bytes).ok().and_then(parse_id).map(Some).ok_or_else(wrong)
}

/// List the segments from a number on, with their sizes in bytes.
fn list_segments(place: &ObjectPrefix, from: u64) -> Result<BTreeMap<u64, u64>> {
    // The names of all other objects sort after those of segments.
    let found = list(place, &segment_name(from.saturating_sub(1)))?;
    let numbers = found.into_iter().filter_map(|object| {
        let number = object.location.filename().and_then(segment_number)?;
        (number >= from).then_some((number, object.size))
    });
    Ok(numbers.collect())
}

/// Open a prefix for writing.
pub(super) fn open(place: &ObjectPrefix, ack: Ack) -> Result<TargetState> {
    let spool = match read_id(place)? {
        Some(spool) => spool,
        None => {
            let spool: SpoolId = fastrand::u128(..).to_be_bytes();
            put(place, ID, hex::encode(spool).into_bytes(), PutMode::Create)?;
            spool
        }
    };
    // Everything is read after the claim is taken: from then on, the previous owner acknowledges
    // nothing.
    let claim = Arc::new(Claim::take(place)?);
    let readers = match get(place, READERS)? {
        None => BTreeMap::new(),
        Some(bytes) => {
            read_readers(&bytes).map_err(|error| Error::io(format!("{}/{READERS}", place.uri()), error.to_string()))?
        }
    };
    let sizes = list_segments(place, 0)?;
    let segments = sizes
        .iter()
        .map(|(number, bytes)| (*number, Segment { bytes: *bytes, sealed: true, ..Segment::default() }))
        .collect();
    let next = next_number(sizes.last_key_value().map(|(number, _)| *number), &readers);
    let store = ObjectStore { place: place.clone(), seen: Mutex::default() };
    let recent = Recent::of(&store, sizes.into_keys())?;
    let backing = Box::new(ObjectBacking { place: place.clone(), claim: Arc::clone(&claim) });
    let index = Index::new(spool, (segments, next), readers, backing);
    let shared = Shared::new(index, Counters::default(), ack);
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
        remove(&self.place, &segment_name(segment))
    }
}

/// The rows of a spool in an object store.
#[derive(Debug)]
pub struct ObjectStore {
    place: ObjectPrefix,
    seen: Mutex<HashMap<u64, SegmentInfo>>,
}

impl ObjectStore {
    /// Open a prefix for reading.
    ///
    /// Fails as a misuse if there is no spool.
    pub fn open(place: ObjectPrefix) -> Result<Self> {
        if read_id(&place)?.is_none() {
            return Err(Misuse::NoSpoolObject { place: place.uri().to_owned(), object: ID }.into());
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
        let missing = || Misuse::NoSpool { place: self.place.uri().to_owned() };
        Ok(hex::encode(read_id(&self.place)?.ok_or_else(missing)?))
    }

    fn segments(&self, from: u64, max: usize) -> Result<Vec<SegmentInfo>> {
        let sizes = list_segments(&self.place, from)?;
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
        Err(Misuse::ReadOnly.into())
    }
}

/// The same rows, in the process that writes the spool.
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
