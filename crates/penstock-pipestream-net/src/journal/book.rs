//! What the log holds of each session, and where: in memory are places, the bytes lie on disk.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use penstock_io::records;
use penstock_log::{DiskFile, Entry as Read, Hole, Replay};
use penstock_pipestream::SessionId;

use crate::journal::labels::{Ended, Key, decode_ended, key_of_label};
use crate::journal::record::{Entry, FORMAT, Form, HEAD, Kind, View, first_part, read_body};

/// What is shorter than this is never written again as a snapshot.
const LONG: u64 = 1 << 18;
/// How many times as long as its snapshot a session may get.
const TIMES: u64 = 4;
/// Bytes of the shortest record: what is shorter holds none.
const SHORTEST: u64 = HEAD as u64 + 40;

/// Where something lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    segment: u32,
    offset: u32,
    length: u32,
}

impl Place {
    /// None beyond 4 GiB of a segment, or as many segments, which the log does not come to.
    fn new(segment: u64, offset: u64, length: usize) -> Option<Self> {
        let (segment, offset) = (u32::try_from(segment).ok()?, u32::try_from(offset).ok()?);
        Some(Self { segment, offset, length: u32::try_from(length).ok()? })
    }
}

/// Where a record cannot be read any more, or something is missing.
#[derive(Debug, Clone, Copy)]
struct Damage {
    segment: u64,
    at: u64,
}

/// What counts of a session.
#[derive(Debug, Default)]
struct Kept {
    /// Records since the last that stands for all before it.
    records: Vec<Place>,
    /// Bytes of their parts but those of labels, and of the snapshot that they begin with.
    bytes: u64,
    begun: u64,
    /// By the label: its part.
    labels: HashMap<Key, Place>,
    /// How many there should be, as the last record says, and where that lies.
    known: u32,
    last: Option<Damage>,
    /// A record of it was lost, or those before the first that is there; since then nothing has stood for all of them.
    damage: Option<Damage>,
}

impl Kept {
    /// Where something of it was lost.
    fn damage(&self) -> Option<Damage> {
        let is_short = self.labels.len() != self.known as usize;
        self.damage.or(self.last.filter(|_| is_short))
    }
}

#[derive(Debug)]
struct Segment {
    file: Arc<dyn DiskFile>,
    /// Bytes that count.
    live: u64,
}

/// The sessions of a log.
#[derive(Debug)]
pub(super) struct Book {
    folder: PathBuf,
    /// A session takes the place of the one before it.
    keeps_one: bool,
    sessions: HashMap<SessionId, Kept>,
    segments: BTreeMap<u64, Segment>,
    /// A damaged place of which nothing says whose it was, where no session has begun or ended behind it.
    stray: Option<Damage>,
    /// Segments below it do not count.
    horizon: u64,
}

impl Book {
    pub(super) fn new(folder: &Path, keeps_one: bool) -> Self {
        let (sessions, segments) = (HashMap::new(), BTreeMap::new());
        Self { folder: folder.to_owned(), keeps_one, sessions, segments, stray: None, horizon: 0 }
    }

    /// Takes a segment, before what is in it.
    pub(super) fn add_segment(&mut self, number: u64, file: &Arc<dyn DiskFile>) {
        self.segments.entry(number).or_insert_with(|| Segment { file: Arc::clone(file), live: 0 });
    }

    /// Takes a record whose body begins at a place. None where it is of another version.
    pub(super) fn apply(&mut self, segment: u64, offset: u64, record: View<'_>) -> Option<()> {
        let View { session, form, labels, parts } = record;
        match form {
            Form::Horizon => self.forget_before(u64::from_be_bytes(*parts.first_chunk()?)),
            Form::Gone => self.forget(session),
            Form::New => {
                let others = if self.keeps_one { self.sessions() } else { vec![session] };
                others.into_iter().for_each(|other| self.forget(other));
                self.sessions.insert(session, Kept::default());
                self.add(segment, offset, record)?;
            }
            Form::Whole => {
                let Kept { records, .. } = self.sessions.entry(session).or_default();
                let before = std::mem::take(records);
                before.into_iter().for_each(|place| self.release(place));
                self.add(segment, offset, record)?;
                // It says again all that was lost, but what was a label's: of those the number is known.
                self.sessions.get_mut(&session)?.damage = None;
            }
            Form::More => {
                // Those before it are lost, or something comes that stands for them, or for nothing.
                let damage = Some(Damage { segment, at: offset });
                self.sessions.entry(session).or_insert_with(|| Kept { damage, ..Kept::default() });
                self.add(segment, offset, record)?;
            }
        }
        if let Some(kept) = self.sessions.get_mut(&session) {
            (kept.known, kept.last) = (labels, Some(Damage { segment, at: offset }));
        }
        Some(())
    }

    /// Adds the parts of a record to what counts of its session.
    fn add(&mut self, segment: u64, offset: u64, record: View<'_>) -> Option<()> {
        let View { session, form, parts, .. } = record;
        let (mut rest, mut at) = (parts, offset + HEAD as u64);
        // Bytes of the parts that are no labels', and of those up to the first of the core, which is the snapshot.
        let (mut others, mut snapshot) = (0, None);
        while !rest.is_empty() {
            let (kind, body, length) = first_part(rest)?;
            if kind == Kind::Label {
                let place = Place::new(segment, at, length)?;
                let (label, _) = decode_ended(body)?;
                self.claim(place);
                let before = self.sessions.get_mut(&session)?.labels.insert(key_of_label(&label), place);
                before.into_iter().for_each(|before| self.release(before));
            } else {
                others += length as u64;
                if kind == Kind::Core {
                    snapshot.get_or_insert(others);
                }
            }
            (rest, at) = (rest.get(length..)?, at + length as u64);
        }
        if others == 0 {
            return Some(());
        }
        let place = Place::new(segment, offset, HEAD + parts.len())?;
        self.claim(place);
        let kept = self.sessions.get_mut(&session)?;
        if form != Form::More {
            (kept.bytes, kept.begun) = (0, snapshot.unwrap_or(others));
        }
        kept.bytes += others;
        kept.records.push(place);
        Some(())
    }

    fn claim(&mut self, place: Place) {
        if let Some(segment) = self.segments.get_mut(&place.segment.into()) {
            segment.live += u64::from(place.length);
        }
    }

    fn release(&mut self, place: Place) {
        if let Some(segment) = self.segments.get_mut(&place.segment.into()) {
            segment.live = segment.live.saturating_sub(place.length.into());
        }
    }

    /// Nothing of a session counts any more.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.stray = None;
        let Some(kept) = self.sessions.remove(&session) else { return };
        kept.records.into_iter().chain(kept.labels.into_values()).for_each(|place| self.release(place));
    }

    /// Segments below this number do not count: those that are there a crash has brought back.
    fn forget_before(&mut self, number: u64) {
        self.horizon = number;
        let counts = |place: &Place| u64::from(place.segment) >= number;
        self.sessions.retain(|_, kept| {
            kept.records.retain(counts);
            kept.labels.retain(|_, place| counts(place));
            !kept.records.is_empty() || kept.damage.is_some_and(|damage| damage.segment >= number)
        });
        self.segments.retain(|segment, _| *segment >= number);
    }

    /// A record was lost: of this session, or it is not known of which.
    fn lose(&mut self, session: Option<SessionId>, hole: &Hole<'_>) {
        let damage = Damage { segment: hole.segment, at: hole.start };
        if let Some(session) = session {
            self.sessions.entry(session).or_default().damage.get_or_insert(damage);
            return;
        }
        for kept in self.sessions.values_mut() {
            kept.damage.get_or_insert(damage);
        }
        self.stray.get_or_insert(damage);
    }

    /// The first segment that counts.
    pub(super) const fn horizon(&self) -> u64 {
        self.horizon
    }

    /// All sessions, in an order that does not change.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        let mut sessions: Vec<_> = self.sessions.keys().copied().collect();
        sessions.sort_unstable();
        sessions
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    pub(super) fn knows(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// How many labels of a session have ended.
    pub(super) fn labels(&self, session: SessionId) -> u32 {
        let labels = self.sessions.get(&session).map_or(0, |kept| kept.labels.len());
        u32::try_from(labels).unwrap_or(u32::MAX)
    }

    /// An error where something was lost of a session, or of one that nothing else is known of.
    pub(super) fn check(&self, session: Option<SessionId>) -> io::Result<()> {
        let damage = session.map_or(self.stray, |session| self.sessions.get(&session)?.damage());
        damage.map_or(Ok(()), |damage| Err(self.unreadable(damage)))
    }

    /// Whether a snapshot of the session is due.
    pub(super) fn is_long(&self, session: SessionId) -> bool {
        let kept = self.sessions.get(&session);
        kept.is_some_and(|kept| kept.bytes > LONG.max(kept.begun.saturating_mul(TIMES)))
    }

    fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let segment = self.segments.get(&place.segment.into()).ok_or_else(|| io::Error::other("no such segment"))?;
        let mut bytes = vec![0; place.length as usize];
        segment.file.read_at(&mut bytes, place.offset.into())?;
        Ok(bytes)
    }

    /// What counts of a session, oldest first: all parts but those of labels.
    pub(super) fn parts(&self, session: SessionId) -> io::Result<Vec<u8>> {
        let mut parts = Vec::new();
        for place in self.sessions.get(&session).into_iter().flat_map(|kept| &kept.records) {
            let body = self.read(*place)?;
            let mut rest = body.get(HEAD..).unwrap_or_default();
            while let Some((kind, _, length)) = first_part(rest) {
                let (part, more) = rest.split_at_checked(length).unwrap_or((rest, &[]));
                if kind != Kind::Label {
                    parts.extend_from_slice(part);
                }
                rest = more;
            }
            if !rest.is_empty() {
                return Err(self.unreadable(*place));
            }
        }
        Ok(parts)
    }

    /// The parts of its labels that lie below a segment.
    fn label_parts(&self, session: SessionId, below: u64) -> io::Result<Vec<u8>> {
        let places = self.sessions.get(&session).into_iter().flat_map(|kept| kept.labels.values());
        let mut parts = Vec::new();
        for place in places.filter(|place| u64::from(place.segment) < below) {
            let part = self.read(*place)?;
            first_part(&part).ok_or_else(|| self.unreadable(*place))?;
            parts.extend(part);
        }
        Ok(parts)
    }

    /// All that counts of a session, in one record.
    pub(super) fn copy(&self, session: SessionId) -> io::Result<Entry> {
        let parts = [self.parts(session)?, self.label_parts(session, u64::MAX)?].concat();
        // Without a beginning, what has lost something cannot be taken for whole.
        let form = if self.check(Some(session)).is_ok() { Form::New } else { Form::More };
        Ok(Entry::new(session, form, self.labels(session), parts))
    }

    /// What has become of a label's entity.
    pub(super) fn find(&self, session: SessionId, label: &Bytes) -> io::Result<Option<Ended>> {
        let place = self.sessions.get(&session).and_then(|kept| kept.labels.get(&key_of_label(label)));
        let Some(place) = place else { return Ok(None) };
        let part = self.read(*place)?;
        let found = first_part(&part).and_then(|(_, body, _)| decode_ended(body));
        let (found, ended) = found.ok_or_else(|| self.unreadable(*place))?;
        Ok((found == *label).then_some(ended))
    }

    fn unreadable(&self, damage: impl Into<Damage>) -> io::Error {
        let Damage { segment, at } = damage.into();
        let path = self.folder.join(format!("{segment:020}{}", FORMAT.suffix));
        records::damaged(format!("{}: the record at byte {at} is damaged", path.display()))
    }

    /// Bytes of a segment that count; of all segments together.
    pub(super) fn live(&self, segment: u64) -> u64 {
        self.segments.get(&segment).map_or(0, |segment| segment.live)
    }

    pub(super) fn all_live(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }

    /// Return the lowest segment where something was lost of a session that is still there.
    pub(super) fn oldest_damage(&self) -> Option<u64> {
        self.sessions.values().filter_map(|kept| Some(kept.damage()?.segment)).min()
    }

    /// A record that says again what counts of a session in the segments below one.
    pub(super) fn rescue(&self, session: SessionId, below: u64) -> io::Result<Option<Entry>> {
        let labels = self.label_parts(session, below)?;
        let is_below = |kept: &Kept| kept.records.iter().any(|place| u64::from(place.segment) < below);
        let (form, parts) = match (self.sessions.get(&session).is_some_and(is_below), labels.is_empty()) {
            (true, _) => (Form::Whole, [self.parts(session)?, labels].concat()),
            (false, false) => (Form::More, labels),
            (false, true) => return Ok(None),
        };
        Ok(Some(Entry::new(session, form, self.labels(session), parts)))
    }

    /// All segments are gone.
    pub(super) fn clear(&mut self) {
        *self = Self::new(&self.folder, self.keeps_one);
    }
}

impl Replay for Book {
    fn segment(&mut self, number: u64, file: &Arc<dyn DiskFile>) {
        self.add_segment(number, file);
    }

    fn record(&mut self, entry: &Read<'_>) -> Option<()> {
        self.apply(entry.segment, entry.offset, read_body(entry.body)?)
    }

    fn hole(&mut self, hole: &Hole<'_>) {
        let body = hole.body.and_then(|(offset, body)| self.apply(hole.segment, offset, read_body(body)?));
        match (body, hole.label.map(SessionId::new)) {
            (Some(()), _) => {}
            // At worst a segment counts that has come back.
            (None, Some(session)) if *session.bytes() == [0; 16] => {}
            (None, Some(session)) => self.lose(Some(session), hole),
            (None, None) if hole.loses && hole.end - hole.start >= SHORTEST => self.lose(None, hole),
            (None, None) => {}
        }
    }
}

impl From<Place> for Damage {
    fn from(place: Place) -> Self {
        Self { segment: place.segment.into(), at: place.offset.into() }
    }
}
