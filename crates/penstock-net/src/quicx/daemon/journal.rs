//! The journal's folder: `00000000000000000001.journal`, and a lock, so that it has one daemon at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use penstock_quicx::{Journal, Queue, QueueConfig, Recovery, Write};
use tokio::task::spawn_blocking;

use super::state::Shared;
use super::thrown;
use crate::folder_lock::FolderLock;
use crate::{Error, Result};

const LOCK: &str = ".lock";
const SUFFIX: &str = ".journal";
/// Octets after which a new segment begins.
const SEGMENT: u64 = 16 << 20;

/// A folder that this process writes.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    open: Option<(u64, File)>,
    /// Held as long as the journal is written.
    _guard: FolderLock,
}

impl Folder {
    /// Takes the folder, which is made if need be, and brings back the tasks that it holds.
    ///
    /// Fails where another process has it, it holds something else, or its tasks do not fit into the pool.
    pub(super) fn open(path: &Path, now: Instant, config: &QueueConfig) -> Result<(Self, Queue)> {
        fs::create_dir_all(path).map_err(|error| Error::file("cannot make", path, &error))?;
        let guard = FolderLock::take(path, LOCK, "another daemon has this journal")?;
        let mut recovery = Recovery::default();
        let mut files = BTreeMap::new();
        for (number, file) in segments(path)? {
            let octets = fs::read(&file).map_err(|error| Error::file("cannot read", &file, &error))?;
            let named = |error: penstock_quicx::Error| Error::Misuse(format!("{}: {error}", file.display()));
            match recovery.scan(&octets).map_err(named)? {
                Some(found) if found == number => {
                    files.insert(number, file);
                }
                Some(found) => {
                    return Err(Error::Misuse(format!("{} is segment {found} by its content", file.display())));
                }
                // The process died when it had just made it.
                None => fs::remove_file(&file).map_err(|error| Error::file("cannot remove", &file, &error))?,
            }
        }
        recovery.check(&config.pool)?;
        if recovery.torn() > 0 {
            tracing::warn!(octets = recovery.torn(), "octets of the journal were cut off or broken, and not read");
        }
        let journal = Journal::new(SEGMENT, recovery.segments());
        let mut queue = Queue::with_journal(now, config.clone(), journal)?;
        for file in files.values() {
            let octets = fs::read(file).map_err(|error| Error::file("cannot read", file, &error))?;
            for (task, content) in recovery.content(&octets) {
                queue.restore(now, task, content)?;
            }
        }
        if queue.tasks() > 0 {
            tracing::info!(tasks = queue.tasks(), dead = queue.dead(), "tasks came back from the journal");
        }
        Ok((Self { path: path.to_owned(), open: None, _guard: guard }, queue))
    }

    fn append(&mut self, segment: u64, octets: &[u8]) -> io::Result<()> {
        let fresh = self.open.as_ref().is_none_or(|(open, _)| *open != segment);
        if fresh {
            let file = OpenOptions::new().create(true).append(true).open(self.path.join(name(segment)))?;
            self.open = Some((segment, file));
        }
        let Some((_, file)) = &mut self.open else { return Ok(()) };
        file.write_all(octets)?;
        file.sync_data()?;
        if fresh {
            File::open(&self.path)?.sync_all()?;
        }
        Ok(())
    }

    fn remove(&self, segment: u64) {
        let path = self.path.join(name(segment));
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // It holds nothing that counts, so a restart with it is the same.
            Err(error) => tracing::warn!(file = %path.display(), %error, "an old segment cannot be removed"),
        }
    }
}

fn name(segment: u64) -> String {
    format!("{segment:020}{SUFFIX}")
}

fn segments(path: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    let failed = |error: io::Error| Error::file("cannot list", path, &error);
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let number = entry.file_name().to_str().and_then(|name| name.strip_suffix(SUFFIX)?.parse().ok());
        if let Some(number) = number {
            found.insert(number, entry.path());
        }
    }
    Ok(found)
}

/// Writes what the queue has to write, and tells it when that is durable.
pub(super) async fn keep(mut folder: Folder, shared: Arc<Shared>) {
    loop {
        let write = shared.lock().queue.poll_write();
        match write {
            None => {
                tokio::select! {
                    () = shared.write.notified() => {}
                    () = thrown(&shared.cut) => return,
                }
            }
            Some(Write::Remove { segment }) => folder.remove(segment),
            Some(Write::Append { segment, octets, .. }) => {
                let began = Instant::now();
                let appending = spawn_blocking(move || {
                    let written = folder.append(segment, &octets);
                    (folder, written)
                });
                // An error means that the process ends.
                let Ok((back, written)) = appending.await else { return };
                folder = back;
                shared.commit_seconds.observe(began.elapsed());
                let mut state = shared.lock();
                match written {
                    Ok(()) => state.queue.handle_durable(Instant::now()),
                    Err(error) => {
                        folder.open = None;
                        state.queue.handle_write_failed(Instant::now(), &error.to_string());
                    }
                }
                shared.settle(&mut state, None);
                drop(state);
                shared.wrote.notify_waiters();
            }
        }
    }
}
