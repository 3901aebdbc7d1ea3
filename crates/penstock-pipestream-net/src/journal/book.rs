//! The index of the log: which data of each session are live, and where. Memory holds only places;
//! the bytes are on disk.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use penstock_log::{DiskFile, Entry as Read, Hole, Replay};
use penstock_pipestream::SessionId;

use crate::journal::labels::{Key, decode_ended, key_of_label};
use crate::journal::places::{Damage, Extract, Files, Place, unreadable};
use crate::journal::record::{EARLIER_KIND, Entry, Form, Kind, SHORTEST, View, first_part, read_body};

/// A session with at most this number of bytes needs no new snapshot.
const LONG: u64 = 1 << 18;
/// Maximum size of a session, as a multiple of its snapshot, before a new one is due.
const TIMES: u64 = 4;
/// Number of bytes that the log adds to the body of a record.
const AROUND: u64 = 40;

/// The live data of a session.
#[derive(Debug, Default)]
struct Kept {
    /// The last record that replaced all before it, and those since.
    records: Vec<Place>,
    /// Bytes of their parts except those of labels; `begun` is the share of the snapshot.
    bytes: u64,
    begun: u64,
    /// The places of the labels' parts.
    labels: HashMap<Key, Place>,
    /// The number of labels that there should be, according to the last record, and its place.
    known: u32,
    last: Option<Damage>,
    /// The number of the last record, if it has one.
    number: Option<u32>,
    /// Where a record of this session was lost. A later record that replaces all others clears
    /// this.
    damage: Option<Damage>,
    /// Where, after the last record, a record of an unknown session was lost.
    suspicion: Option<Damage>,
}

impl Kept {
    /// Return where something of the session was lost.
    fn damage(&self) -> Option<Damage> {
        let is_short = self.labels.len() != self.known as usize;
        self.damage.or(self.suspicion).or(self.last.filter(|_| is_short))
    }

    /// Check the number of a record that replaces no others: a gap means that a lost record was
    /// this session's. Without a gap, the suspicion is cleared.
    fn note_number(&mut self, number: Option<u32>, place: Damage) {
        if let Some((number, before)) = number.zip(self.number) {
            let suspicion = self.suspicion.take();
            if number != before.wrapping_add(1) {
                self.damage.get_or_insert(suspicion.unwrap_or(place));
            }
        }
    }
}

#[derive(Debug)]
struct Segment {
    file: Arc<dyn DiskFile>,
    /// Number of live bytes.
    live: u64,
}

/// The index of the sessions of a log.
#[derive(Debug)]
pub(super) struct Book {
    folder: Arc<Path>,
    /// Whether a new session replaces the one before it.
    keeps_one: bool,
    sessions: HashMap<SessionId, Kept>,
    segments: BTreeMap<u64, Segment>,
    /// A damaged place of an unknown session, if no session has begun or ended after it.
    stray: Option<Damage>,
    /// Segments below this number do not count.
    horizon: u64,
}

impl Book {
    pub(super) fn new(folder: &Path, keeps_one: bool) -> Self {
        let (sessions, segments) = (HashMap::new(), BTreeMap::new());
        Self { folder: folder.into(), keeps_one, sessions, segments, stray: None, horizon: 0 }
    }

    /// Add a segment, before its records.
    pub(super) fn add_segment(&mut self, number: u64, file: &Arc<dyn DiskFile>) {
        self.segments.entry(number).or_insert_with(|| Segment { file: Arc::clone(file), live: 0 });
    }

    /// Apply a record whose body begins at an offset. Return `None` if another version has written
    /// it.
    pub(super) fn apply(&mut self, segment: u64, offset: u64, record: View<'_>) -> Option<()> {
        let View { session, form, labels, number, parts, .. } = record;
        let place = Damage { segment, at: offset };
        match form {
            Form::Horizon => {
                self.forget_before(u64::from_be_bytes(*parts.first_chunk()?));
                return Some(());
            }
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
                // The record repeats everything that was lost except labels, whose number it gives.
                let kept = self.sessions.get_mut(&session)?;
                (kept.damage, kept.suspicion) = (None, None);
            }
            Form::More => {
                // For an unknown session the records before are lost, unless a later one replaces
                // them.
                let lost = || Kept { damage: Some(place), ..Kept::default() };
                self.sessions.entry(session).or_insert_with(lost).note_number(number, place);
                self.add(segment, offset, record)?;
            }
        }
        if let Some(kept) = self.sessions.get_mut(&session) {
            (kept.known, kept.last, kept.number) = (labels, Some(place), number);
        }
        Some(())
    }

    /// Add the parts of a record to the live data of its session.
    fn add(&mut self, segment: u64, offset: u64, record: View<'_>) -> Option<()> {
        let View { session, form, parts, head, .. } = record;
        let (mut rest, mut at) = (parts, offset + head as u64);
        // Bytes of the parts except labels: of all, and up to the first one of the core, the
        // snapshot.
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
        let place = Place::new(segment, offset, head + parts.len())?;
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

    /// Remove a session: none of its data is live any more.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.stray = None;
        let Some(kept) = self.sessions.remove(&session) else { return };
        kept.records.into_iter().chain(kept.labels.into_values()).for_each(|place| self.release(place));
    }

    /// Drop the segments below this number, which a crash has brought back.
    fn forget_before(&mut self, number: u64) {
        self.horizon = number;
        let counts = |place: &Place| u64::from(place.segment) >= number;
        self.sessions.retain(|_, kept| {
            kept.records.retain(counts);
            kept.labels.retain(|_, place| counts(place));
            !kept.records.is_empty() || kept.damage.or(kept.suspicion).is_some_and(|damage| damage.segment >= number)
        });
        self.segments.retain(|segment, _| *segment >= number);
    }

    /// Record the loss of a record, of this session or of an unknown one.
    fn lose(&mut self, session: Option<SessionId>, hole: &Hole<'_>) {
        let damage = Damage { segment: hole.segment, at: hole.start };
        if let Some(session) = session {
            self.sessions.entry(session).or_default().damage.get_or_insert(damage);
            return;
        }
        for kept in self.sessions.values_mut() {
            kept.suspicion.get_or_insert(damage);
        }
        self.stray.get_or_insert(damage);
    }

    /// Return the number of the first segment that counts.
    pub(super) const fn horizon(&self) -> u64 {
        self.horizon
    }

    /// Return all sessions in a stable order.
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

    /// Return the number of a session's labels that have ended.
    pub(super) fn labels(&self, session: SessionId) -> u32 {
        let labels = self.sessions.get(&session).map_or(0, |kept| kept.labels.len());
        u32::try_from(labels).unwrap_or(u32::MAX)
    }

    /// Return an error if something of this session was lost; for `None`, of an unknown session.
    pub(super) fn check(&self, session: Option<SessionId>) -> io::Result<()> {
        let damage = session.map_or(self.stray, |session| self.sessions.get(&session)?.damage());
        damage.map_or(Ok(()), |damage| Err(unreadable(&self.folder, damage)))
    }

    /// Return whether a snapshot of the session is due.
    pub(super) fn is_long(&self, session: SessionId) -> bool {
        let kept = self.sessions.get(&session);
        kept.is_some_and(|kept| kept.bytes > LONG.max(kept.begun.saturating_mul(TIMES)))
    }

    /// Collect data for a record of this form: the session's records, unless it is [`Form::More`],
    /// and the labels in segments below `below`.
    fn extract(&self, session: SessionId, form: Form, below: u64) -> Extract {
        let kept = self.sessions.get(&session);
        let records = kept.filter(|_| form != Form::More).map_or_else(Vec::new, |kept| kept.records.clone());
        let labels = kept.into_iter().flat_map(|kept| kept.labels.values()).copied();
        let labels: Vec<_> = labels.filter(|place| u64::from(place.segment) < below).collect();
        let files = self.files(records.iter().chain(&labels));
        Extract { session, form, known: self.labels(session), records, labels, files }
    }

    fn files<'a>(&self, places: impl Iterator<Item = &'a Place>) -> Files {
        let mut numbers: Vec<_> = places.map(|place| place.segment).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let file = |number: u32| Some((number, Arc::clone(&self.segments.get(&number.into())?.file)));
        Files::new(&self.folder, numbers.into_iter().filter_map(file))
    }

    /// Return the live data of a session without its labels.
    pub(super) fn records(&self, session: SessionId) -> Extract {
        self.extract(session, Form::Whole, 0)
    }

    /// Return all live data of a session, for one record.
    pub(super) fn copy(&self, session: SessionId) -> Extract {
        let copy = self.extract(session, Form::New, u64::MAX);
        // A damaged session gets no beginning, so that it cannot be taken for a whole one.
        if self.check(Some(session)).is_ok() { copy } else { Extract { form: Form::More, ..copy } }
    }

    /// Return the place of the outcome of a label's entity.
    pub(super) fn find(&self, session: SessionId, label: &Bytes) -> Option<(Place, Files)> {
        let place = self.sessions.get(&session)?.labels.get(&key_of_label(label))?;
        Some((*place, self.files([place].into_iter())))
    }

    /// Return the number of live bytes of a segment.
    pub(super) fn live(&self, segment: u64) -> u64 {
        self.segments.get(&segment).map_or(0, |segment| segment.live)
    }

    pub(super) fn all_live(&self) -> u64 {
        self.segments.values().map(|segment| segment.live).sum()
    }

    /// Return the lowest segment in which something of a current session was lost.
    pub(super) fn oldest_damage(&self) -> Option<u64> {
        self.sessions.values().filter_map(|kept| Some(kept.damage()?.segment)).min()
    }

    /// Return a record that repeats the session's live data in the segments below this one.
    pub(super) fn rescue(&self, session: SessionId, below: u64) -> Option<Extract> {
        let is_below = |kept: &Kept| kept.records.iter().any(|place| u64::from(place.segment) < below);
        let form = if self.sessions.get(&session).is_some_and(is_below) { Form::Whole } else { Form::More };
        let extract = self.extract(session, form, below);
        (!extract.records.is_empty() || !extract.labels.is_empty()).then_some(extract)
    }

    /// Number records consecutively, after the last record of each session.
    pub(super) fn number(&self, entries: &mut [Entry]) {
        let mut last = HashMap::new();
        for entry in entries.iter_mut().filter(|entry| entry.form.has_number()) {
            let before = || self.sessions.get(&entry.session).and_then(|kept| kept.number);
            let number = last.entry(entry.session).or_insert_with(before);
            let next = if entry.form == Form::New { 0 } else { number.map_or(1, |number| number.wrapping_add(1)) };
            *number = Some(next);
            entry.set_number(next);
        }
    }

    /// Forget everything, because all segments are removed.
    pub(super) fn clear(&mut self) {
        *self = Self::new(&self.folder, self.keeps_one);
    }
}

impl Replay for Book {
    fn is_kind(&self, kind: [u8; 8]) -> bool {
        kind == EARLIER_KIND
    }

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
            // The lost record is a horizon: at worst, a segment counts that a crash brought back.
            // No record of a session with the ID of zeros has this length.
            (None, Some(session)) if is_horizon(session, hole) => {}
            (None, Some(session)) => self.lose(Some(session), hole),
            // A shorter hole contains no record.
            (None, None) if hole.loses && hole.end - hole.start >= SHORTEST as u64 + AROUND => self.lose(None, hole),
            (None, None) => {}
        }
    }
}

/// Return whether a damaged record is a horizon, which its label of zeros and its length show.
fn is_horizon(session: SessionId, hole: &Hole<'_>) -> bool {
    let horizon = Entry::horizon(0);
    session == horizon.session && hole.end - hole.start == horizon.length() as u64 + AROUND
}
