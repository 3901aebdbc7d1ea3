//! Failed writes, and readers that commit more than the spool has.

use std::ops::Range;

use penstock_log::{Disk as _, Writer as _};
use tokio::sync::oneshot::error::TryRecvError;

use super::*;

/// Pass batches to a writer as one group; return its answers.
pub(super) fn write_group(writer: &mut Writer, batches: &[(u64, Range<u32>)]) -> Vec<Result<()>> {
    let (mut group, mut answers) = (Vec::new(), Vec::new());
    for (connection, events) in batches {
        let (safe, answer) = oneshot::channel();
        group.push(Message::Batch { delivery: delivery(*connection, events.clone()), safe });
        answers.push(answer);
    }
    writer.write(&mut group);
    answers.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect()
}

pub(super) fn write_end(writer: &mut Writer, connection: u64) {
    writer.write(&mut vec![Message::Ended(ConnectionEnd { sender: "192.0.2.1".into(), connection, clean: true })]);
}

/// A spool on a disk that fails, without a thread.
struct Writing {
    folder: tempfile::TempDir,
    disk: MemoryDisk,
    writer: Writer,
    store: Arc<dyn Store>,
}

impl Writing {
    fn new() -> Self {
        let (folder, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::default());
        let opened = folder::open(Arc::new(disk.clone()), folder.path(), Ack::Spool).unwrap();
        let store = Arc::clone(&opened.store);
        let writer = Writer::new(options(folder.path()), opened).unwrap();
        Self { folder, disk, writer, store }
    }

    fn take(&mut self, connection: u64, events: Range<u32>) {
        write_group(&mut self.writer, &[(connection, events)]).into_iter().for_each(Result::unwrap);
    }

    fn refuse(&mut self, batches: &[(u64, Range<u32>)]) {
        write_group(&mut self.writer, batches).into_iter().for_each(|answer| assert!(answer.is_err()));
    }

    /// Check the rows, for readers in this process and in others.
    fn check(&self, expected: &[u32]) {
        assert_eq!(all(&self.store), expected);
        assert_eq!(all(&store_on(&self.disk, self.folder.path())), expected);
    }

    /// Return the folder as a killed process leaves it, and as power cuts leave it.
    fn die(self) -> (tempfile::TempDir, Vec<MemoryDisk>) {
        let images = std::iter::once(self.disk.copy()).chain((0..8).map(|seed| self.disk.crash(seed))).collect();
        (self.folder, images)
    }

    fn die_and_check(self, expected: &[u32]) {
        let (folder, images) = self.die();
        for image in images {
            assert_eq!(all(&store_on(&image, folder.path())), expected, "before recovery");
            let spool = open_on(&image, folder.path());
            assert_eq!(all(&spool.store().unwrap()), expected);
            assert_eq!(spool.counters().unwrap().damaged, 0);
        }
    }
}

#[test]
fn a_torn_end_does_not_cost_a_start_on_a_full_disk() {
    let mut writing = Writing::new();
    writing.take(1, 0..3);
    writing.take(1, 3..6);
    let (folder, images) = writing.die();
    let path = folder.path().join("00000000000000000001.segment");
    let torn = |disk: &MemoryDisk| {
        let disk = disk.copy();
        let bytes = disk.read(&path).unwrap();
        disk.damage(&path, bytes[..bytes.len() - 90].to_vec()).unwrap();
        disk
    };
    let whole = torn(&images[0]);
    drop(folder::open(Arc::new(whole.clone()), folder.path(), Ack::Spool).unwrap());
    assert!(whole.list(folder.path()).unwrap().iter().any(|name| name.ends_with(".torn")));
    let mut shortened = 0;
    for call in 0..whole.calls() {
        let disk = torn(&images[0]);
        disk.fail(call, Fault::Full, 1);
        let opened = folder::open(Arc::new(disk.clone()), folder.path(), Ack::Spool);
        let is_made = disk.list(folder.path()).unwrap().iter().any(|name| name.ends_with(".torn"));
        if opened.is_ok() && !is_made {
            shortened += 1;
        }
        drop(opened);
        disk.heal();
        for image in [disk.copy(), disk.crash(call)] {
            let spool = open_on(&image, folder.path());
            assert_eq!(all(&spool.store().unwrap()), [0, 1, 2], "call {call}");
            assert_eq!(spool.counters().unwrap().damaged, 0, "call {call}");
        }
    }
    // The new file cannot be made, written, synced or renamed.
    assert_eq!(shortened, 5);
}

/// Return the number of calls before the sync of a group: the write, and for the first group also
/// those that make the header durable.
const fn before_sync(is_first: bool) -> u64 {
    if is_first { 5 } else { 1 }
}

#[test]
fn what_a_failed_write_has_left_is_never_taken_for_an_event() {
    for before in [&[][..], &[10, 11, 12]] {
        let mut writing = Writing::new();
        if !before.is_empty() {
            writing.take(1, 10..13);
        }
        // Two refused records stay in the file: the sync fails, and the file cannot be truncated at
        // once. The next record is as long as the first of them, and has as many rows.
        writing.disk.fail(writing.disk.calls() + before_sync(before.is_empty()), Fault::Io, 2);
        writing.refuse(&[(2, 20..23), (3, 30..33)]);
        writing.take(4, 40..43);
        let expected = [before, &[40, 41, 42]].concat();
        writing.check(&expected);
        writing.die_and_check(&expected);
    }
}

#[test]
fn nothing_is_written_behind_a_failed_write_before_its_segment_has_ended() {
    for before in [&[][..], &[10, 11, 12]] {
        let mut writing = Writing::new();
        if !before.is_empty() {
            writing.take(1, 10..13);
        }
        // The sync, the truncation, and two attempts to end the segment fail.
        writing.disk.fail(writing.disk.calls() + before_sync(before.is_empty()), Fault::Io, 4);
        writing.refuse(&[(2, 20..23)]);
        // The second group finds the segment as the first one left it.
        writing.refuse(&[(3, 30..33)]);
        writing.take(4, 40..43);
        writing.take(5, 50..53);
        let expected = [before, &[40, 41, 42, 50, 51, 52]].concat();
        writing.check(&expected);
        writing.die_and_check(&expected);
    }
}

#[test]
fn the_end_of_a_connection_that_was_not_synced_outlives_a_failed_write() {
    let mut writing = Writing::new();
    writing.take(1, 10..13);
    write_end(&mut writing.writer, 1);
    let [_, end] = writing.store.segments(1, 1).unwrap()[0].entries[..] else { panic!("it is not there") };
    // The unsynced record may be lost when a sync fails.
    let path = writing.folder.path().join("00000000000000000001.segment");
    let mut bytes = writing.disk.read(&path).unwrap();
    let length = bytes.len();
    bytes[length - end.bytes as usize..].fill(0);
    writing.disk.damage(&path, bytes).unwrap();
    writing.disk.fail(writing.disk.calls() + before_sync(false), Fault::Io, 1);
    writing.refuse(&[(2, 20..23)]);
    writing.take(3, 40..43);
    let (folder, images) = writing.die();
    for image in images {
        let spool = open_on(&image, folder.path());
        take(&spool, 9, 10..13).unwrap();
        assert_eq!(all(&spool.store().unwrap()), [10, 11, 12, 40, 41, 42, 10, 11, 12]);
        assert_eq!(spool.counters().unwrap().duplicates, 0, "the first connection has ended, so these are new");
    }
}

#[test]
fn a_reader_cannot_commit_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(SpoolOptions { ack: Ack::Commit, ..options(folder.path()) }).unwrap();
    let store = spool.store().unwrap();
    let at = |segment, row| Position { segment, row };
    let refuses = |position| {
        let error = spool.commit("query", position).unwrap_err();
        let Error::Misuse(Misuse::CommitPosition { reader, row, segment, .. }) = &error else { panic!("{error:?}") };
        assert_eq!((reader.as_str(), at(*segment, *row)), ("query", position));
    };
    [at(1, 1), at(2, 0)].into_iter().for_each(refuses);
    let first = spool.take(delivery(1, 0..5));
    while all(&store).len() < 5 {
        std::thread::yield_now();
    }
    // The segment is open: more rows may arrive in it, which no reader has read.
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
    // The segment has ended, so no more rows arrive in it.
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
    // Five windows were in flight; the spool read four, and no acknowledgement arrived.
    (0..4).for_each(|number| window(1, number, number));
    ended(&spool, 1, false);
    (0..6).for_each(|number| window(2, number, number));
    ended(&spool, 2, true);
    // Equal events of a later connection are new.
    (4..6).for_each(|number| window(3, number - 4, number));
    let mut stored = all(&spool.store().unwrap());
    stored.sort_unstable();
    let counts = |number| stored.iter().filter(|stored| **stored == number).count();
    // The history does not reach back to where connection 2 began. Events may be stored twice, but
    // never be lost.
    (0..8).for_each(|number| assert!((1..=2).contains(&counts(number)), "{number}: {stored:?}"));
    (8..12).for_each(|number| assert_eq!(counts(number), 2, "{number}: {stored:?}"));
}

#[test]
fn a_position_that_could_not_be_stored_acknowledges_nothing() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::default());
    let opened = folder::open(Arc::new(disk.clone()), folder.path(), Ack::Commit).unwrap();
    let shared = Arc::clone(&opened.shared);
    let mut writer = Writer::new(SpoolOptions { ack: Ack::Commit, ..options(folder.path()) }, opened).unwrap();
    // Each connection breaks off after its batch, which the next one sends again.
    let mut send = |connection| {
        let (safe, answer) = oneshot::channel();
        writer.write(&mut vec![Message::Batch { delivery: delivery(connection, 0..5), safe }]);
        let sender = "192.0.2.1".into();
        writer.write(&mut vec![Message::Ended(ConnectionEnd { sender, connection, clean: false })]);
        answer
    };
    let mut first = send(1);
    let at = |row| Position { segment: 1, row };
    for (connection, before) in [(2, None), (3, Some(at(3)))] {
        before.into_iter().for_each(|before| shared.commit("query", before).unwrap());
        disk.fail(disk.calls(), Fault::Io, 1);
        shared.commit("query", at(5)).unwrap_err();
        assert_eq!(first.try_recv().unwrap_err(), TryRecvError::Empty, "the batch waits for the position");
        assert_eq!(send(connection).try_recv().unwrap_err(), TryRecvError::Empty);
    }
    shared.commit("query", at(5)).unwrap();
    first.try_recv().unwrap().unwrap();
    send(4).try_recv().unwrap().unwrap();
}
