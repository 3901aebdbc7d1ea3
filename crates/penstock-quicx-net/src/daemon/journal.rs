//! The journal's folder: `00000000000000000001.journal`, and a lock, so that it has one daemon at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use penstock_io::DriverError as _;
use penstock_io::folder_lock::FolderLock;
use penstock_quicx::{Damage, Journal, Queue, QueueConfig, Recovery, Write};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::state::Shared;
use super::thrown;
use crate::{Error, Result};

const LOCK: &str = ".lock";
const SUFFIX: &str = ".journal";
/// Behind the name of a segment that is kept for those who want to look at what is damaged in it.
const DAMAGED: &str = ".damaged";
/// Bytes after which a new segment begins.
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
        fs::create_dir_all(path).map_err(|error| Error::file("cannot make", path, error))?;
        let guard = FolderLock::take(path, LOCK, "another daemon has this journal")?;
        let mut recovery = Recovery::default();
        let mut files = BTreeMap::new();
        for (number, file) in segments(path)? {
            let bytes = fs::read(&file).map_err(|error| Error::file("cannot read", &file, error))?;
            let named = |source| Error::Journal { path: file.clone(), source };
            if recovery.scan(number, &bytes).map_err(named)? {
                files.insert(number, file);
            } else {
                // The process died when it had just made it.
                fs::remove_file(&file).map_err(|error| Error::file("cannot remove", &file, error))?;
            }
        }
        recovery.check(&config.pool)?;
        for damage in recovery.damage() {
            files.get(&damage.segment).into_iter().for_each(|file| tell(file, damage));
        }
        let journal = Journal::new(SEGMENT, recovery.segments());
        let mut queue = Queue::with_journal(now, config.clone(), journal)?;
        queue.count_damage(recovery.damage());
        for (number, file) in &files {
            let bytes = fs::read(file).map_err(|error| Error::file("cannot read", file, error))?;
            for (task, content) in recovery.content(*number, &bytes) {
                queue.restore(now, task, content)?;
            }
        }
        if queue.tasks() > 0 {
            tracing::info!(tasks = queue.tasks(), dead = queue.dead(), "tasks came back from the journal");
        }
        Ok((Self { path: path.to_owned(), open: None, _guard: guard }, queue))
    }

    fn append(&mut self, segment: u64, bytes: &[u8]) -> io::Result<()> {
        let fresh = self.open.as_ref().is_none_or(|(open, _)| *open != segment);
        if fresh {
            // What is there of one that could not be written does not count.
            let file =
                OpenOptions::new().create(true).write(true).truncate(true).open(self.path.join(name(segment)))?;
            self.open = Some((segment, file));
        }
        let Some((_, file)) = &mut self.open else { return Ok(()) };
        file.write_all(bytes)?;
        file.sync_data()?;
        if fresh {
            File::open(&self.path)?.sync_all()?;
        }
        Ok(())
    }

    /// Appends, and tells the queue; gives what it has to write then.
    fn commit(&mut self, shared: &Shared, segment: u64, bytes: &[u8]) -> Option<Write> {
        let began = Instant::now();
        let written = self.append(segment, bytes);
        shared.commit_seconds.observe(began.elapsed());
        let mut state = shared.lock();
        match written {
            Ok(()) => state.queue.handle_durable(Instant::now()),
            Err(error) => {
                self.open = None;
                state.queue.handle_write_failed(Instant::now(), &error.to_string());
            }
        }
        let next = state.queue.poll_write();
        shared.settle(&mut state, None);
        drop(state);
        shared.wrote.notify_waiters();
        next
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

/// Says what could not be read of a segment. One that is damaged is kept aside: the queue removes its own when it needs it no more.
fn tell(file: &Path, damage: &Damage) {
    let Damage { segment: _, offset, bytes, behind, cut } = *damage;
    if cut {
        return tracing::warn!(
            file = %file.display(), offset, bytes,
            "the end of a segment is cut off, as when the power goes or the disk is full while it is written: \
             nothing there was said OK to"
        );
    }
    let kept = PathBuf::from(format!("{}{DAMAGED}", file.display()));
    let what = if damage.is_header() {
        "the header of a segment of the journal is damaged: its number is that of the file's name, and no task is lost by that"
    } else {
        "a segment of the journal is damaged: what could be read of it is back, tasks of those bytes are lost, or run again"
    };
    match keep_aside(file, &kept) {
        Ok(()) => tracing::error!(
            file = %file.display(), offset, bytes, records_behind = behind, kept = %kept.display(),
            "{what}. Check the disk; remove the file that is kept when nobody needs it"
        ),
        Err(error) => tracing::error!(
            file = %file.display(), offset, bytes, records_behind = behind, %error,
            "{what}. No copy could be kept: copy the file before its tasks are done, and check the disk"
        ),
    }
}

/// A second name for a file, so that a disk that is full can have it too.
fn keep_aside(file: &Path, kept: &Path) -> io::Result<()> {
    match fs::hard_link(file, kept) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(_) => fs::copy(file, kept).map(drop),
        Ok(()) => Ok(()),
    }
}

fn name(segment: u64) -> String {
    format!("{segment:020}{SUFFIX}")
}

fn segments(path: &Path) -> Result<BTreeMap<u64, PathBuf>> {
    let failed = |error: io::Error| Error::file("cannot list", path, error);
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

/// Starts a thread that writes what the queue has to write; what is given resolves when it has ended. A thread of its own: with
/// the disk's time counted in tens of microseconds, to hand each write to a pool of threads would take as long again.
pub(super) fn start(runtime: &Handle, folder: Folder, shared: Arc<Shared>) -> Result<oneshot::Receiver<()>> {
    let (runtime, (ended, end)) = (runtime.clone(), oneshot::channel());
    let run = move || {
        runtime.block_on(keep(folder, shared));
        // An error means that nobody waits for it.
        let _ = ended.send(());
    };
    let started = thread::Builder::new().name("penstock-journal".into()).spawn(run);
    started.map(|_| end).map_err(|error| Error::io("cannot start the journal's thread", error))
}

/// Writes what the queue has to write, and tells it when that is durable. Blocks on files: it has its thread to itself.
async fn keep(mut folder: Folder, shared: Arc<Shared>) {
    let mut next = shared.lock().queue.poll_write();
    loop {
        next = match next {
            None => {
                tokio::select! {
                    () = shared.write.notified() => {}
                    () = thrown(&shared.cut) => return,
                }
                shared.lock().queue.poll_write()
            }
            Some(Write::Remove { segment }) => {
                folder.remove(segment);
                shared.lock().queue.poll_write()
            }
            Some(Write::Append { segment, bytes, .. }) => folder.commit(&shared, segment, &bytes),
        };
    }
}
