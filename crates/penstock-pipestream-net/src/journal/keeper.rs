//! Who writes the records of sessions: one thread of the pool at a time, as long as something waits. All that came while it
//! was busy becomes durable together.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use penstock_io::folder_lock::FolderLock;
use penstock_io::runtime::spawn_blocking;
use tokio::sync::oneshot;

use crate::counters::JournalCounters;
use crate::journal::labels::Labels;
use crate::journal::log::Log;
use crate::outcomes::lock;

/// What a session's records are in.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) log: Log,
    pub(super) labels: Labels,
}

/// What is to be written.
#[derive(Debug)]
pub(super) enum Write {
    /// Records behind the others.
    Append(Vec<u8>),
    /// Records that stand for all before them.
    Replace(Vec<u8>),
    /// Nothing is needed any more.
    Remove,
}

#[derive(Debug)]
struct Pending {
    files: Arc<Mutex<Files>>,
    write: Write,
    done: oneshot::Sender<io::Result<()>>,
}

#[derive(Debug, Default)]
struct Waiting {
    pending: Vec<Pending>,
    writing: bool,
}

/// The end of the records of all sessions of a folder.
#[derive(Debug)]
pub(crate) struct Keeper {
    waiting: Mutex<Waiting>,
    pub(crate) counters: JournalCounters,
    _lock: FolderLock,
}

impl Keeper {
    /// Takes a folder, as long as a session writes in it.
    pub(super) fn new(folder: &Path) -> crate::Result<Arc<Self>> {
        let lock = FolderLock::take(folder, ".lock", "another process goes on with what is in there")?;
        Ok(Arc::new(Self { waiting: Mutex::default(), counters: JournalCounters::default(), _lock: lock }))
    }

    /// Hands something over; the answer comes when it is durable.
    pub(super) async fn write(self: &Arc<Self>, files: &Arc<Mutex<Files>>, write: Write) -> io::Result<()> {
        let (done, answer) = oneshot::channel();
        {
            let mut waiting = lock(&self.waiting);
            waiting.pending.push(Pending { files: Arc::clone(files), write, done });
            if !waiting.writing {
                let keeper = Arc::clone(self);
                spawn_blocking(move || keeper.run()).map_err(io::Error::other)?;
                waiting.writing = true;
            }
        }
        answer.await.unwrap_or_else(|_| Err(io::Error::other("the thread that stores sessions has ended")))
    }

    fn run(&self) {
        loop {
            let pending = {
                let mut waiting = lock(&self.waiting);
                if waiting.pending.is_empty() {
                    waiting.writing = false;
                    return;
                }
                std::mem::take(&mut waiting.pending)
            };
            let began = Instant::now();
            self.counters.records.fetch_add(pending.len() as u64, Ordering::Relaxed);
            let mut appended = Vec::new();
            for Pending { files, write, done } in pending {
                let written = lock(&files).write(write);
                match written {
                    Ok(true) => appended.push((files, done)),
                    // Whoever waited may have given up.
                    Ok(false) => drop(done.send(Ok(()))),
                    Err(error) => drop(done.send(Err(error))),
                }
            }
            for (files, done) in appended {
                let synced = lock(&files).log.sync();
                let _ = done.send(synced);
            }
            self.counters.commits.observe(began.elapsed());
        }
    }
}

impl Files {
    /// Whether what was written is to be made durable yet.
    fn write(&mut self, write: Write) -> io::Result<bool> {
        match write {
            Write::Append(bytes) => self.log.append(&bytes).map(|()| true),
            Write::Replace(bytes) => {
                // They must not go with the file that they are in.
                self.labels.store()?;
                self.log.replace(&bytes).map(|()| false)
            }
            Write::Remove => {
                self.labels.remove()?;
                self.log.remove().map(|()| false)
            }
        }
    }
}
