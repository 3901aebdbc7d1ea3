//! What the segments hold, and where.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_pimp::{Job, JobId};

use super::recent::Recent;
use super::record::{self, Chunk, Encoded, HEADER, Scanned};
use crate::pimp::Usage;
use crate::{Error, Result};

const SUFFIX: &str = ".chunks";

/// Where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) segment: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl Place {
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.length))
    }
}

/// A job that was told to this store, and not yet forgotten.
#[derive(Debug)]
pub(super) struct Entry {
    /// `None`: it was deleted, which must be known as long as older records of it may lie about.
    pub(super) job: Option<Job>,
    pub(super) until: u64,
    /// The segment of its newest record.
    pub(super) record: u64,
    pub(super) chunks: BTreeMap<u32, Place>,
}

/// A file of the log.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: Arc<File>,
    pub(super) path: PathBuf,
    pub(super) octets: u64,
    /// Octets of chunks that count.
    pub(super) live: u64,
    /// Jobs whose newest record is here.
    pub(super) records: u64,
}

/// Everything that is known about the log.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) jobs: HashMap<JobId, Entry>,
    pub(super) segments: BTreeMap<u64, Segment>,
    pub(super) recent: Recent,
}

/// The file of a segment.
pub(super) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:020}{SUFFIX}"))
}

impl State {
    /// Reads all segments of a folder, oldest first. What was cut at the end of one was never answered for.
    pub(super) fn recover(folder: &Path) -> Result<Self> {
        let failed = |error: io::Error| Error::file("cannot list", folder, &error);
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let number = entry.file_name().to_str().and_then(|name| name.strip_suffix(SUFFIX)?.parse::<u64>().ok());
            if let Some(number) = number {
                files.insert(number, entry.path());
            }
        }
        let mut state = Self::default();
        for (number, path) in files {
            state.read_segment(number, path)?;
        }
        state.forget_strangers();
        Ok(state)
    }

    /// Chunks of a job that was deleted and made again may have been found without the record of its end.
    fn forget_strangers(&mut self) {
        let Self { jobs, segments, .. } = self;
        for entry in jobs.values_mut() {
            let Entry { job, chunks, .. } = entry;
            chunks.retain(|index, place| {
                let known = job.as_ref().is_some_and(|job| job.indices().contains(*index));
                if let Some(segment) = segments.get_mut(&place.segment).filter(|_| !known) {
                    segment.live = segment.live.saturating_sub(u64::from(place.length));
                }
                known
            });
        }
    }

    fn read_segment(&mut self, number: u64, path: PathBuf) -> Result<()> {
        let octets = fs::read(&path).map_err(|error| Error::file("cannot read", &path, &error))?;
        match record::number(&octets) {
            Some(found) if found == number => {}
            Some(found) => {
                return Err(Error::Misuse(format!("{} is segment {found} by its content", path.display())));
            }
            // The process died when it had just made it.
            None if octets.len() < HEADER => {
                return fs::remove_file(&path).map_err(|error| Error::file("cannot remove", &path, &error));
            }
            None => return Err(Error::Misuse(format!("{} is no segment of a PIMP store", path.display()))),
        }
        let file = File::open(&path).map_err(|error| Error::file("cannot open", &path, &error))?;
        let segment =
            Segment { file: Arc::new(file), path: path.clone(), octets: octets.len() as u64, live: 0, records: 0 };
        self.segments.insert(number, segment);
        let mut at = HEADER;
        loop {
            match record::scan(octets.get(at..).unwrap_or_default()) {
                Scanned::Record(encoded, length) => {
                    self.apply(number, at as u64, *encoded);
                    at += length;
                }
                Scanned::Torn => break,
                Scanned::Foreign => {
                    return Err(Error::Misuse(format!(
                        "{} has a record of another version at octet {at}",
                        path.display()
                    )));
                }
            }
        }
        if at < octets.len() {
            let torn = octets.len() - at;
            tracing::warn!(file = %path.display(), torn, "octets at the end of a segment were cut off or broken, and not read");
        }
        Ok(())
    }

    /// A record is at this place of the log, and counts from now on.
    pub(super) fn apply(&mut self, segment: u64, at: u64, encoded: Encoded) {
        let Encoded { id, until, job, chunks, recent, .. } = encoded;
        let fresh = || Entry { job: None, until, record: segment, chunks: BTreeMap::new() };
        let mut entry = match self.jobs.remove(&id) {
            None => fresh(),
            Some(entry) => {
                self.count(entry.record, |segment| segment.records = segment.records.saturating_sub(1));
                entry
            }
        };
        if job.as_ref().is_none_or(Job::is_deleted) {
            self.drop_chunks(&mut entry);
            self.recent.forget(id);
        }
        self.recent.add(id, recent);
        (entry.job, entry.until, entry.record) = (job, until, segment);
        self.count(segment, |segment| segment.records += 1);
        for chunk in chunks {
            self.place(&mut entry, segment, at, chunk);
        }
        self.jobs.insert(id, entry);
    }

    fn place(&mut self, entry: &mut Entry, segment: u64, at: u64, (index, offset, length): Chunk) {
        let place = Place { segment, offset: at.saturating_add(offset), length };
        if let Some(old) = entry.chunks.insert(index, place) {
            self.count(old.segment, |segment| segment.live = segment.live.saturating_sub(u64::from(old.length)));
        }
        self.count(segment, |segment| segment.live += u64::from(length));
    }

    fn count(&mut self, segment: u64, change: impl FnOnce(&mut Segment)) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            change(segment);
        }
    }

    fn drop_chunks(&mut self, entry: &mut Entry) {
        for place in std::mem::take(&mut entry.chunks).into_values() {
            self.count(place.segment, |segment| segment.live = segment.live.saturating_sub(u64::from(place.length)));
        }
    }

    /// Drops the chunks of what has expired, and what is to be forgotten.
    pub(super) fn expire(&mut self, now: u64) {
        for (id, mut entry) in std::mem::take(&mut self.jobs) {
            if entry.job.as_ref().is_some_and(|job| now >= job.expires_at()) {
                self.drop_chunks(&mut entry);
            }
            if now < entry.until {
                self.jobs.insert(id, entry);
            } else {
                self.drop_chunks(&mut entry);
                self.count(entry.record, |segment| segment.records = segment.records.saturating_sub(1));
            }
        }
        let jobs = &self.jobs;
        self.recent.retain(|id| jobs.get(&id).is_some_and(|entry| !entry.chunks.is_empty()));
    }

    pub(super) fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).and_then(|entry| entry.job.as_ref())
    }

    /// Where chunks lie, up to one that is not there, and the files, which stay readable although they be removed.
    pub(super) fn places(&self, id: JobId, indices: &[u32]) -> Vec<(Arc<File>, Place)> {
        let Some(entry) = self.jobs.get(&id) else { return Vec::new() };
        let place = |index| {
            let place = *entry.chunks.get(index)?;
            Some((Arc::clone(&self.segments.get(&place.segment)?.file), place))
        };
        indices.iter().map_while(place).collect()
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            jobs: self.jobs.values().filter(|entry| entry.job.is_some()).count() as u64,
            chunk_octets: self.segments.values().map(|segment| segment.live).sum(),
            disk_octets: self.segments.values().map(|segment| segment.octets).sum(),
        }
    }
}
