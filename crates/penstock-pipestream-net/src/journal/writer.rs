//! The log of a folder, and the thread that writes it. All records that arrive while the thread is
//! busy become durable together.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use bytes::Bytes;
use penstock_io::DriverError as _;
use penstock_io::sync::lock;
use penstock_log::{Disk, FolderLock, Format, GROUP, GroupCommit, Log, Writer};
use penstock_pipestream::SessionId;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::counters::JournalCounters;
use crate::journal::book::Book;
use crate::journal::record::{Entry, Form};
use crate::port::Ended;
use crate::{Error, Result};

/// Maximum size of the log: this multiple of its live bytes, plus `BEYOND` segments.
const TIMES: u64 = 2;
const BEYOND: u64 = 2;
/// Maximum number of live bytes, in segments, that are rewritten at once to free segments.
const RESCUED: u64 = 4;
/// Maximum number of bytes that are appended at once.
const MOST: u64 = 1 << 31;

/// The log and its index.
#[derive(Debug)]
pub(super) struct Store {
    disk: Arc<dyn Disk>,
    log: Log,
    /// Size of a segment in bytes.
    segment: u64,
    book: Arc<Mutex<Book>>,
    /// Whether the log has one session at a time, whose end removes all segments.
    keeps_one: bool,
    /// The open segment when the log was last searched for removable segments.
    looked_at: Option<u64>,
    /// Size of the log from which the search is retried after a disk error.
    patience: u64,
    /// Ended sessions whose removal the disk refused to store.
    owed: Vec<SessionId>,
}

/// The order in which segments are removed.
#[derive(Debug, Clone, Copy)]
enum Removal {
    OldestFirst,
    NewestFirst,
}

impl Store {
    /// Open the log of a folder that this process has locked.
    pub(super) fn open(disk: Arc<dyn Disk>, folder: &Path, format: Format, keeps_one: bool) -> Result<Self> {
        let mut book = Book::new(folder, keeps_one);
        let mut log = Log::open(Arc::clone(&disk), folder, format, &mut book).map_err(penstock_io::Error::from)?;
        let stale: Vec<_> =
            log.segments().map(|(number, _)| number).filter(|number| *number < book.horizon()).collect();
        log.remove(stale);
        let (book, owed) = (Arc::new(Mutex::new(book)), Vec::new());
        Ok(Self { disk, log, segment: format.segment, book, keeps_one, looked_at: None, patience: 0, owed })
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Append records as one write; they are durable when this returns.
    pub(super) fn append(&mut self, entries: &mut [Entry]) -> io::Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        self.book().number(entries);
        // Beyond this length a place may not fit into 32 bits, which would show only after the
        // write.
        let length = entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.length() as u64));
        if length > MOST {
            return Err(io::Error::other(format!(
                "records of {length} bytes at once are too long: {MOST} are the most"
            )));
        }
        let entries = &*entries;
        let appended = self.log.append(entries)?;
        let mut book = lock(&self.book);
        book.add_segment(appended.segment, &appended.file);
        for (entry, offset) in entries.iter().zip(appended.offsets) {
            book.apply(appended.segment, offset, entry.view()).ok_or_else(|| io::Error::other("it is too long"))?;
        }
        Ok(())
    }

    /// Remove all segments, because the only session has ended.
    ///
    /// After a crash between the removals of several segments, the session must not be there
    /// without its end. So its removal is recorded first. Where a full disk refuses that record,
    /// the newest segments are removed first, so that the rest is the session's beginning.
    fn end_only(&mut self) -> io::Result<()> {
        let several = self.log.segments().nth(1).is_some();
        let mut gone: Vec<_> = self.book().sessions().into_iter().map(Entry::gone).collect();
        let says_gone = several && self.append(&mut gone).is_ok();
        self.remove_all(if says_gone { Removal::OldestFirst } else { Removal::NewestFirst })
    }

    /// Remove all segments, whose records are not needed.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        self.remove_all(Removal::NewestFirst)
    }

    /// Remove all segments in this order, durably.
    fn remove_all(&mut self, order: Removal) -> io::Result<()> {
        // Clear the book first, so that it has no place in a removed segment, whatever fails below.
        self.book().clear();
        let mut numbers: Vec<_> = self.log.segments().map(|(number, _)| number).collect();
        match order {
            Removal::OldestFirst => {}
            Removal::NewestFirst => numbers.reverse(),
        }
        self.log.remove_in_order(numbers)?;
        self.disk.sync_folder(self.log.folder())
    }

    /// Mark all records as durable: otherwise a start takes a damaged last record for a write that
    /// was cut off.
    pub(super) fn seal(&mut self) -> io::Result<()> {
        self.log.seal()
    }

    /// Append records, and removals of ended sessions that an earlier write could not store.
    pub(super) fn write(&mut self, mut entries: Vec<Entry>) -> io::Result<()> {
        let ends = |entry: &Entry| self.keeps_one && entry.form == Form::Gone;
        if let Some(end) = entries.iter().rposition(ends) {
            let ended = self.end_only();
            // The entries after the removal belong to the next session.
            entries.drain(..=end);
            if entries.is_empty() {
                return ended;
            }
            if let Err(error) = ended {
                // The first record of the next session replaces the one whose segments stay.
                tracing::warn!(folder = %self.log.folder().display(), %error, "the segments of a session that has ended stay");
            }
        }
        // Put these first: a session that has begun since may have the ID of one that has ended.
        entries.splice(..0, self.owed.drain(..).map(Entry::gone));
        let written = self.append(&mut entries);
        if written.is_err() {
            let gone = entries.iter().filter(|entry| entry.form == Form::Gone);
            self.owed.extend(gone.map(|entry| entry.session));
        }
        written
    }

    /// Once a new segment was begun, remove the oldest segments that have no live bytes, and
    /// rewrite the live bytes of others while most of the log is dead.
    pub(super) fn tidy(&mut self) {
        let open = self.log.open_segment();
        let bytes = self.log.bytes().load(Ordering::Relaxed);
        let Some(number) = open.filter(|_| open != self.looked_at && bytes >= self.patience) else { return };
        self.patience = 0;
        if let Err(error) = self.remove_dead(number).and_then(|()| self.remove_oldest(number)) {
            self.patience = bytes.saturating_add(self.segment);
            tracing::warn!(folder = %self.log.folder().display(), %error, "the journal of sessions cannot be made shorter");
        }
        self.looked_at = self.log.open_segment();
    }

    /// Remove the oldest segments without live bytes. This needs room for one short record.
    fn remove_dead(&mut self, open: u64) -> io::Result<()> {
        let dead: Vec<_> = {
            let book = lock(&self.book);
            let end = book.oldest_damage().map_or(open, |damaged| damaged.min(open));
            let numbers = self.log.segments().map(|(number, _)| number);
            numbers.take_while(|number| *number < end && book.live(*number) == 0).collect()
        };
        let Some(last) = dead.last() else { return Ok(()) };
        self.append(&mut [Entry::horizon(last + 1)])?;
        self.log.remove(dead);
        Ok(())
    }

    /// Rewrite the live bytes of the oldest segments while most of the log is dead, and remove
    /// them.
    fn remove_oldest(&mut self, open: u64) -> io::Result<()> {
        let (horizon, victims) = {
            let book = lock(&self.book);
            if book.oldest_damage().is_some() {
                return Ok(());
            }
            let most = book.all_live().saturating_mul(TIMES).saturating_add(BEYOND * self.segment);
            let (mut bytes, mut rescued) = (self.log.bytes().load(Ordering::Relaxed), 0);
            let mut victims = Vec::new();
            for (number, length) in self.log.segments().take_while(|(number, _)| *number < open) {
                let live = book.live(number);
                if live > 0 && (bytes <= most || (rescued > 0 && rescued + live > RESCUED * self.segment)) {
                    break;
                }
                (bytes, rescued) = (bytes.saturating_sub(length), rescued + live);
                victims.push(number);
            }
            let Some(last) = victims.last() else { return Ok(()) };
            (last + 1, victims)
        };
        let (mut entries, mut bytes) = (Vec::new(), 0);
        // Each record is valid alone, so that a crash between two appends does no harm.
        let sessions = self.book().sessions();
        for session in sessions {
            let rescued = self.book().rescue(session, horizon);
            let rescued = rescued.map(|extract| extract.entry()).transpose()?;
            bytes += rescued.as_ref().map_or(0, Entry::length);
            entries.extend(rescued);
            if bytes >= GROUP {
                self.append(&mut entries)?;
                (entries, bytes) = (Vec::new(), 0);
            }
        }
        self.append(&mut entries)?;
        // Only now: the rewritten records replace the segments, even those that a crash brings
        // back.
        self.append(&mut [Entry::horizon(horizon)])?;
        self.log.remove(victims);
        Ok(())
    }
}

/// A record that waits for the thread.
#[derive(Debug)]
struct Pending {
    entry: Entry,
    done: oneshot::Sender<io::Result<()>>,
}

/// The thread's part of the journal. It is dropped with the [`JournalWriter`], before another
/// process may lock the folder.
#[derive(Debug)]
struct StoreWriter {
    store: Store,
    counters: Arc<JournalCounters>,
    _lock: Option<FolderLock>,
}

impl Writer for StoreWriter {
    type Item = Pending;

    fn weight(item: &Pending) -> usize {
        item.entry.length()
    }

    fn write(&mut self, group: &mut Vec<Pending>) {
        let began = Instant::now();
        self.counters.records.fetch_add(group.len() as u64, Ordering::Relaxed);
        let (entries, waiting): (_, Vec<_>) = group.drain(..).map(|each| (each.entry, each.done)).unzip();
        let written = self.store.write(entries);
        for done in waiting {
            let same = written.as_ref().copied().map_err(|error| io::Error::new(error.kind(), error.to_string()));
            // The caller may have stopped waiting.
            let _ = done.send(same);
        }
        self.counters.commits.observe(began.elapsed());
        self.store.tidy();
    }
}

impl Drop for StoreWriter {
    fn drop(&mut self) {
        // After the seal, any change is damage. Without it, the next start takes a broken last
        // record for a write that was cut off.
        if let Err(error) = self.store.log.seal() {
            tracing::debug!(%error, "the journal of sessions cannot be sealed");
        }
    }
}

/// The handle by which all sessions of a folder write and find records.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    book: Arc<Mutex<Book>>,
    commit: GroupCommit<Pending>,
    pub(crate) counters: Arc<JournalCounters>,
}

impl JournalWriter {
    /// Start the thread. The folder stays locked until the returned value is dropped.
    pub(super) fn start(store: Store, lock: Option<FolderLock>) -> Result<Arc<Self>> {
        let (book, counters) = (Arc::clone(&store.book), Arc::new(JournalCounters::default()));
        let writer = StoreWriter { store, counters: Arc::clone(&counters), _lock: lock };
        let commit = GroupCommit::start("penstock-pipestream-journal", writer);
        let commit = commit.map_err(|error| Error::io("cannot start the thread that stores sessions", error))?;
        Ok(Arc::new(Self { book, commit, counters }))
    }

    pub(super) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Return the outcome of a label's entity.
    pub(super) fn find(&self, session: SessionId, label: &Bytes) -> io::Result<Option<Ended>> {
        let found = self.book().find(session, label);
        found.map_or(Ok(None), |(place, files)| files.find(place, label))
    }

    /// Pass a record to the thread. The answer arrives when the record is durable; it is an error if
    /// the thread has ended.
    fn push(&self, entry: Entry) -> oneshot::Receiver<io::Result<()>> {
        let (done, answer) = oneshot::channel();
        drop(self.commit.push(Pending { entry, done }));
        answer
    }

    /// Write a record; return when it is durable.
    pub(super) async fn write(&self, entry: Entry) -> io::Result<()> {
        self.push(entry).await.unwrap_or_else(|_| Err(io::Error::other("the thread that stores sessions has ended")))
    }

    /// Drop a reference. Dropping the last one waits for the disk, which would block all sessions
    /// on the IO thread.
    pub(super) async fn close(self: Arc<Self>) {
        if let Some(last) = Arc::into_inner(self) {
            // A panic was already reported.
            let _ = spawn_blocking(move || drop(last)).await;
        }
    }

    /// Remove a session without waiting: if a crash comes first, the session is there as before.
    pub(super) fn forget(&self, session: SessionId) {
        drop(self.push(Entry::gone(session)));
    }
}
