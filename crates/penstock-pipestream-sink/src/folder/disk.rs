use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::counters::SinkCounters;

/// A step at which a disk may fail. Tests inject failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Create,
    Write,
    Sync,
    Rename,
    Append,
}

type Fault = dyn Fn(Step, &Path) -> io::Result<()> + Send + Sync;

/// The faults that a test injects; none in a server.
#[derive(Clone, Default)]
pub(super) struct Faults(Option<Arc<Fault>>);

impl Faults {
    #[cfg(test)]
    pub(super) fn new(fault: impl Fn(Step, &Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(fault)))
    }

    pub(super) fn check(&self, step: Step, path: &Path) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), |fault| fault(step, path))
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults").field(&self.0.is_some()).finish()
    }
}

/// The disk of a sink, which makes files durable in batches.
///
/// One `fdatasync` of a file costs about 0.13 ms, whatever its size; one `syncfs` of the whole file
/// system costs about 0.4 ms and serves a thousand files, but it also waits for writes of other
/// processes. So both are measured continuously, and the cheaper one is used.
#[derive(Debug)]
pub(super) struct Disk {
    root: File,
    faults: Faults,
    counters: Arc<SinkCounters>,
    /// Moving averages in microseconds: the cost of one file, and of the file system.
    one: f64,
    all: f64,
}

/// Weight of the latest measurement.
const NEWEST: f64 = 0.2;
/// Factor by which the measured cost of `syncfs` decays while it is not used, so that it is tried
/// again.
const FORGET: f64 = 0.98;

impl Disk {
    pub(super) fn new(dir: &Path, faults: Faults, counters: Arc<SinkCounters>) -> io::Result<Self> {
        Ok(Self { root: File::open(dir)?, faults, counters, one: 130.0, all: 400.0 })
    }

    /// Make files and folders durable. Return a result for each.
    pub(super) fn sync(&mut self, paths: &[PathBuf]) -> Vec<io::Result<()>> {
        let started = Instant::now();
        let count = u32::try_from(paths.len()).map_or(f64::from(u32::MAX), f64::from);
        if CAN_SYNC_ALL && count * self.one > self.all {
            let synced = self.sync_all();
            SinkCounters::add(&self.counters.system_syncs, 1);
            self.all = blend(self.all, micros(started));
            return paths
                .iter()
                .map(|path| {
                    self.faults.check(Step::Sync, path)?;
                    synced.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string())).copied()
                })
                .collect();
        }
        let results = paths.iter().map(|path| self.sync_one(path)).collect();
        SinkCounters::add(&self.counters.file_syncs, paths.len());
        if count > 0.0 {
            self.one = blend(self.one, micros(started) / count);
            self.all *= FORGET;
        }
        results
    }

    fn sync_one(&self, path: &Path) -> io::Result<()> {
        self.faults.check(Step::Sync, path)?;
        let file = File::open(path)?;
        // Names are a folder's data.
        if file.metadata()?.is_dir() { file.sync_all() } else { file.sync_data() }
    }

    #[cfg(target_os = "linux")]
    fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }

    #[cfg(not(target_os = "linux"))]
    fn sync_all(&self) -> io::Result<()> {
        self.root.sync_all()
    }

    /// Rename a file to a name that is not in use.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.check(Step::Rename, to)?;
        std::fs::rename(from, to)
    }

    pub(super) fn faults(&self) -> &Faults {
        &self.faults
    }
}

/// Whether one call can make all written files durable.
const CAN_SYNC_ALL: bool = cfg!(target_os = "linux");

fn blend(old: f64, new: f64) -> f64 {
    old + NEWEST * (new - old)
}

fn micros(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_files_and_many_are_made_durable() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(dir.path(), Faults::default(), Arc::default()).unwrap();
        for count in [1, 100] {
            let mut paths: Vec<_> = (0..count).map(|n| dir.path().join(n.to_string())).collect();
            paths.iter().for_each(|path| std::fs::write(path, b"bytes").unwrap());
            paths.push(dir.path().to_owned());
            assert!(disk.sync(&paths).iter().all(Result::is_ok));
        }
    }

    #[test]
    fn a_file_that_cannot_be_synced_does_not_hide_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("there");
        std::fs::write(&there, b"bytes").unwrap();
        let mut disk = Disk::new(dir.path(), Faults::default(), Arc::default()).unwrap();
        let results = disk.sync(&[dir.path().join("gone"), there]);
        assert!(results[0].is_err() && results[1].is_ok());
    }
}
