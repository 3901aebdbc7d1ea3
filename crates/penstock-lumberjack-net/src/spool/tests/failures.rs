//! Writes that fail, and readers that say more than they can know.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::sync::atomic::AtomicU32;
use std::sync::mpsc;

use super::*;

/// Fails the write of one group, and as many ends of segments.
#[derive(Debug)]
struct Failing {
    target: Box<dyn Target>,
    /// Whether all of that group lies in the file all the same.
    is_left: bool,
    /// Groups that are written before.
    groups: u32,
    ends: Arc<AtomicU32>,
}

fn eio() -> Error {
    Error::io("cannot write", "Input/output error")
}

impl Target for Failing {
    fn write(&mut self, segment: u64, at: u64, bytes: &[u8], durable: Durable) -> Result<()> {
        let left = self.groups.checked_sub(1);
        self.groups = left.unwrap_or(u32::MAX);
        if left.is_some() || self.is_left {
            self.target.write(segment, at, bytes, durable)?;
        }
        if left.is_none() { Err(eio()) } else { Ok(()) }
    }

    fn end(&mut self, segment: u64, at: u64, footer: &[u8]) -> Result<()> {
        let failing = self.ends.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |ends| ends.checked_sub(1));
        if failing.is_ok() { Err(eio()) } else { self.target.end(segment, at, footer) }
    }

    fn is_whole(&self) -> bool {
        self.target.is_whole()
    }
}

type Answer = oneshot::Receiver<Result<()>>;

/// A spool whose disk fails.
struct Disk {
    folder: tempfile::TempDir,
    messages: mpsc::Sender<Message>,
    inbox: Option<(Writer, mpsc::Receiver<Message>)>,
    ends: Arc<AtomicU32>,
    store: Arc<dyn Store>,
    thread: Option<JoinHandle<()>>,
}

impl Disk {
    fn new(groups: u32, is_left: bool, ends: u32) -> Self {
        let (folder, ends) = (tempfile::tempdir().unwrap(), Arc::new(AtomicU32::new(ends)));
        let opened = folder::open(folder.path(), Ack::Spool).unwrap();
        let target = Box::new(Failing { target: opened.target, is_left, groups, ends: Arc::clone(&ends) });
        let opened = writer::Opened { target, ..opened };
        let (writer, _, store) = Writer::with(options(folder.path()), opened).unwrap();
        let (messages, inbox) = mpsc::channel();
        Self { folder, messages, inbox: Some((writer, inbox)), ends, store, thread: None }
    }

    /// Sends a batch; `last`: nothing else is in its group.
    fn send(&self, connection: u64, events: std::ops::Range<u32>, last: bool) -> Answer {
        let (safe, answer) = oneshot::channel();
        let bytes = if last { 16 << 20 } else { 1 };
        let delivery = Delivery { bytes, ..delivery(connection, events) };
        self.messages.send(Message::Batch { delivery, safe }).unwrap();
        answer
    }

    fn start(&mut self) {
        let (writer, inbox) = self.inbox.take().unwrap();
        self.thread = Some(std::thread::spawn(move || writer.run(&inbox)));
    }

    /// The folder as a killed process leaves it.
    fn image(&self) -> tempfile::TempDir {
        let image = quick_folder();
        for entry in fs::read_dir(self.folder.path()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), image.path().join(entry.file_name())).unwrap();
        }
        image
    }

    fn close(self) {
        drop(self.messages);
        self.thread.unwrap().join().unwrap();
    }
}

fn answer(answer: Answer) -> Result<()> {
    block_on(answer).unwrap().unwrap()
}

#[test]
fn what_a_failed_write_has_left_is_never_taken_for_an_event() {
    for groups in [0, 1] {
        let mut disk = Disk::new(groups, true, 0);
        let before = (groups > 0).then(|| disk.send(1, 10..13, true));
        // Two records that are refused; the next one is as long as the first of them, and has as many rows.
        let refused = [disk.send(2, 20..23, false), disk.send(3, 30..33, true)];
        let after = disk.send(4, 40..43, true);
        disk.start();
        before.into_iter().for_each(|safe| answer(safe).unwrap());
        refused.into_iter().for_each(|safe| assert!(answer(safe).is_err()));
        answer(after).unwrap();
        let expected: Vec<u32> = if groups > 0 { vec![10, 11, 12, 40, 41, 42] } else { vec![40, 41, 42] };
        assert_eq!(all(&disk.store), expected);
        assert_eq!(all(&folder_store(disk.folder.path())), expected);
        let image = disk.image();
        assert_eq!(all(&folder_store(image.path())), expected, "before recovery");
        let spool = Spool::open(options(image.path())).unwrap();
        assert_eq!(all(&spool.store().unwrap()), expected);
        assert_eq!(spool.counters().unwrap().damaged, 0);
        disk.close();
    }
}

#[test]
fn nothing_is_written_behind_a_failed_write_before_its_segment_has_ended() {
    for groups in [0, 1] {
        let mut disk = Disk::new(groups, true, 2);
        let before = (groups > 0).then(|| disk.send(1, 10..13, true));
        let refused = [disk.send(2, 20..23, true), disk.send(3, 30..33, true)];
        let after = [disk.send(4, 40..43, true), disk.send(5, 50..53, true)];
        disk.start();
        before.into_iter().for_each(|safe| answer(safe).unwrap());
        // The second one finds the segment as the first one left it.
        refused.into_iter().for_each(|safe| assert!(answer(safe).is_err()));
        after.into_iter().for_each(|safe| answer(safe).unwrap());
        assert_eq!(disk.ends.load(Ordering::SeqCst), 0);
        let expected: Vec<u32> = if groups > 0 { vec![10, 11, 12] } else { Vec::new() };
        let expected: Vec<u32> = expected.into_iter().chain(40..43).chain(50..53).collect();
        assert_eq!(all(&disk.store), expected);
        let image = disk.image();
        assert_eq!(all(&folder_store(image.path())), expected, "before recovery");
        let spool = Spool::open(options(image.path())).unwrap();
        assert_eq!(all(&spool.store().unwrap()), expected);
        assert_eq!(spool.counters().unwrap().damaged, 0);
        disk.close();
    }
}

#[test]
fn the_end_of_a_connection_that_was_not_synced_outlives_a_failed_write() {
    let mut disk = Disk::new(2, false, 0);
    let first = disk.send(1, 10..13, true);
    disk.start();
    answer(first).unwrap();
    disk.messages.send(Message::Ended(Ended { sender: "192.0.2.1".into(), connection: 1, clean: true })).unwrap();
    let end = loop {
        if let [_, end] = disk.store.segments(1, 1).unwrap()[0].entries[..] {
            break u64::from(end.bytes);
        }
        std::thread::yield_now();
    };
    // What the system may have forgotten when a sync fails.
    let path = disk.folder.path().join("00000000000000000001.segment");
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    let place = file.metadata().unwrap().len() - end;
    file.seek(SeekFrom::Start(place)).unwrap();
    file.write_all(&vec![0; usize::try_from(end).unwrap()]).unwrap();
    assert!(answer(disk.send(2, 20..23, true)).is_err());
    answer(disk.send(3, 40..43, true)).unwrap();
    let image = disk.image();
    disk.close();
    let spool = Spool::open(options(image.path())).unwrap();
    take(&spool, 9, 10..13).unwrap();
    assert_eq!(all(&spool.store().unwrap()), [10, 11, 12, 40, 41, 42, 10, 11, 12]);
    assert_eq!(spool.counters().unwrap().duplicates, 0, "the first connection has ended, so these are new");
}

#[test]
fn a_reader_cannot_commit_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(SpoolOptions { ack: Ack::Commit, ..options(folder.path()) }).unwrap();
    let store = spool.store().unwrap();
    let at = |segment, row| Position { segment, row };
    let refuses = |position| {
        let error = spool.commit("query", position).unwrap_err().to_string();
        assert!(error.contains("\"query\"") && error.contains("does not reach"), "{error}");
    };
    [at(1, 1), at(2, 0)].into_iter().for_each(refuses);
    let first = spool.take(delivery(1, 0..5));
    while all(&store).len() < 5 {
        std::thread::yield_now();
    }
    // The segment is open: more may come in it, and nobody has read that.
    [at(1, 6), at(1, u64::MAX), at(2, 0), at(2, 1), at(9, 0)].into_iter().for_each(refuses);
    spool.commit("query", at(1, 5)).unwrap();
    block_on(first).unwrap().unwrap();
    let mut second = spool.take(Delivery { first: 5, ..delivery(1, 5..7) });
    while all(&store).len() < 7 {
        std::thread::yield_now();
    }
    let now = Some(std::time::Instant::now());
    assert!(wait(&mut second, now, &mut || Ok(())).is_err(), "it is not committed");
    spool.commit("query", at(1, 7)).unwrap();
    block_on(second).unwrap().unwrap();
    spool.close().unwrap();
    // The segment has ended, and nothing comes in it.
    spool.commit("query", at(2, 0)).unwrap();
}

#[test]
fn a_writer_with_many_windows_on_their_way_loses_nothing_when_it_sends_them_again() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(options(folder.path())).unwrap();
    let window = |connection, window: u32, number: u32| {
        let (first, confirmed) = (u64::from(window) * 2, u64::from(window.saturating_sub(1)) * 2);
        let batch = Delivery { first, confirmed, ..delivery(connection, number * 2..number * 2 + 2) };
        block_on(spool.take(batch)).unwrap().unwrap();
    };
    // Five windows were on their way; four were read, and no acknowledgement arrived.
    (0..4).for_each(|number| window(1, number, number));
    ended(&spool, 1, false);
    (0..6).for_each(|number| window(2, number, number));
    ended(&spool, 2, true);
    // Equal events of a later connection are new.
    (4..6).for_each(|number| window(3, number - 4, number));
    let mut stored = all(&spool.store().unwrap());
    stored.sort_unstable();
    let counts = |number| stored.iter().filter(|stored| **stored == number).count();
    // What is remembered is not what the second one began with: twice is allowed, and not at all is not.
    (0..8).for_each(|number| assert!((1..=2).contains(&counts(number)), "{number}: {stored:?}"));
    (8..12).for_each(|number| assert_eq!(counts(number), 2, "{number}: {stored:?}"));
}
