//! Places of the log, and reads from them: these need no lock on the book, which all sessions
//! share, and succeed even if the segments are removed meanwhile.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use penstock_io::records;
use penstock_log::DiskFile;
use penstock_pipestream::SessionId;

use crate::journal::labels::decode_ended;
use crate::journal::record::{Entry, Form, Kind, SUFFIX, first_part, read_body};
use crate::port::Ended;

/// A place in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u32,
    offset: u32,
    pub(super) length: u32,
}

impl Place {
    /// Create a place. Return `None` for a segment or an offset beyond 32 bits, which the log does
    /// not reach.
    pub(super) fn new(segment: u64, offset: u64, length: usize) -> Option<Self> {
        let (segment, offset) = (u32::try_from(segment).ok()?, u32::try_from(offset).ok()?);
        Some(Self { segment, offset, length: u32::try_from(length).ok()? })
    }
}

/// The place of a damaged or missing record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Damage {
    pub(super) segment: u64,
    pub(super) at: u64,
}

impl From<Place> for Damage {
    fn from(place: Place) -> Self {
        Self { segment: place.segment.into(), at: place.offset.into() }
    }
}

/// Return the error that names a damaged record.
pub(super) fn unreadable(folder: &Path, damage: impl Into<Damage>) -> io::Error {
    let Damage { segment, at } = damage.into();
    let path = folder.join(format!("{segment:020}{SUFFIX}"));
    records::damaged(format!("{}: the record at byte {at} is damaged", path.display()))
}

/// The files of the segments of some places.
#[derive(Debug)]
pub(super) struct Files {
    folder: Arc<Path>,
    files: BTreeMap<u32, Arc<dyn DiskFile>>,
}

impl Files {
    pub(super) fn new(folder: &Arc<Path>, files: impl IntoIterator<Item = (u32, Arc<dyn DiskFile>)>) -> Self {
        Self { folder: Arc::clone(folder), files: files.into_iter().collect() }
    }

    fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let file = self.files.get(&place.segment).ok_or_else(|| io::Error::other("no such segment"))?;
        let mut bytes = vec![0; place.length as usize];
        file.read_at(&mut bytes, place.offset.into())?;
        Ok(bytes)
    }

    /// Append all parts of a record to `parts`, except those of labels.
    fn read_record(&self, place: Place, parts: &mut Vec<u8>) -> io::Result<()> {
        let body = self.read(place)?;
        let mut rest = read_body(&body).ok_or_else(|| unreadable(&self.folder, place))?.parts;
        while let Some((kind, _, length)) = first_part(rest) {
            let (part, more) = rest.split_at_checked(length).unwrap_or((rest, &[]));
            if kind != Kind::Label {
                parts.extend_from_slice(part);
            }
            rest = more;
        }
        if rest.is_empty() { Ok(()) } else { Err(unreadable(&self.folder, place)) }
    }

    /// Read the part of a label.
    fn read_label(&self, place: Place) -> io::Result<Vec<u8>> {
        let part = self.read(place)?;
        first_part(&part).ok_or_else(|| unreadable(&self.folder, place))?;
        Ok(part)
    }

    /// Return the outcome of a label's entity, if this place records that label.
    pub(super) fn find(&self, place: Place, label: &Bytes) -> io::Result<Option<Ended>> {
        let part = self.read(place)?;
        let found = first_part(&part).and_then(|(_, body, _)| decode_ended(body));
        let (found, ended) = found.ok_or_else(|| unreadable(&self.folder, place))?;
        Ok((found == *label).then_some(ended))
    }
}

/// The live data of a session, as places from which one record is to be read.
#[derive(Debug)]
pub(super) struct Extract {
    pub(super) session: SessionId,
    pub(super) form: Form,
    /// Number of labels that have ended.
    pub(super) known: u32,
    /// Records, oldest first.
    pub(super) records: Vec<Place>,
    pub(super) labels: Vec<Place>,
    pub(super) files: Files,
}

impl Extract {
    /// Read all parts except those of labels, oldest first.
    pub(super) fn parts(&self) -> io::Result<Vec<u8>> {
        let mut parts = Vec::new();
        self.records.iter().try_for_each(|place| self.files.read_record(*place, &mut parts))?;
        Ok(parts)
    }

    /// Read everything into one record.
    pub(super) fn entry(&self) -> io::Result<Entry> {
        let mut parts = self.parts()?;
        for place in &self.labels {
            parts.extend(self.files.read_label(*place)?);
        }
        Ok(Entry::new(self.session, self.form, self.known, parts))
    }
}
