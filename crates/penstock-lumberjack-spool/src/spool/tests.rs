use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use arrow_array::cast::AsArray as _;
use arrow_array::types::Int64Type;
use object_store::memory::InMemory;
use penstock_io::runtime::{block_on, wait};
use penstock_io::storage::ObjectPrefix;
use penstock_io::tls::{ClientTls, Identity, ServerTls, Trust};
use penstock_io::{Problem, ReadKey};
use penstock_lumberjack_net::Origin;
use penstock_lumberjack_net::columns::Builder;
use penstock_testkit::disk::{Fault, MemoryDisk};
use twox_hash::XxHash3_64;

use super::*;
use crate::{
    Ack, FolderStore, Missing, Misuse, ObjectStore, Plan, PlanLimits, Reader, RemoteStore, RowRange, Service,
    Unreadable, plan,
};

/// Make a folder in memory where possible, because thousands of crash images are opened.
fn quick_folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn delivery(connection: u64, events: std::ops::Range<u32>) -> Delivery {
    let mut builder = Builder::new(&Layout::raw());
    let mut hashes = Vec::new();
    for number in events {
        let text = format!("{{\"n\":{number}}}");
        builder.push_json(number, text.as_bytes());
        hashes.push(XxHash3_64::oneshot(text.as_bytes()));
    }
    let origin = Origin { peer: "192.0.2.1:9".into(), identity: None, received: 1 };
    let bytes = builder.bytes();
    let batch = builder.finish(&origin).unwrap();
    Delivery {
        batch,
        bytes,
        origin,
        sender: "192.0.2.1".into(),
        connection,
        first: 0,
        confirmed: 0,
        hashes,
        windows: Vec::new(),
    }
}

fn options(folder: &Path) -> SpoolOptions {
    SpoolOptions::new(Keep::Folder(folder.to_owned()))
}

fn take(spool: &Spool, connection: u64, events: std::ops::Range<u32>) -> Result<()> {
    block_on(spool.take(delivery(connection, events))).unwrap()
}

const ALL: PlanLimits = PlanLimits { rows: u64::MAX, bytes: u64::MAX, piece: 1 << 20 };

fn numbers_of(store: &Arc<dyn Store>, pieces: &[RowRange]) -> Vec<u32> {
    let mut found = Vec::new();
    for piece in pieces {
        let mut reader = Reader::new(Arc::clone(store), *piece, Layout::raw());
        while let Some(batch) = reader.next_batch().unwrap() {
            let sequence = batch.column_by_name("sequence").unwrap().as_primitive::<Int64Type>().clone();
            found.extend(sequence.values().iter().map(|number| u32::try_from(*number).unwrap()));
        }
    }
    found
}

fn all(store: &Arc<dyn Store>) -> Vec<u32> {
    let planned = plan(&**store, Position::default(), None, ALL).unwrap();
    numbers_of(store, &planned.pieces)
}

fn is_full(error: &Error) -> bool {
    let sources = std::iter::successors(std::error::Error::source(error), |error| error.source());
    sources.filter_map(|source| source.downcast_ref()).any(penstock_log::is_full)
}

fn missing(error: &Error) -> Option<Missing> {
    std::error::Error::source(error)?.downcast_ref().copied()
}

fn unreadable(error: &Error) -> Option<&Unreadable> {
    std::error::Error::source(error)?.downcast_ref()
}

/// Return the first and the last row that an error names as lost.
fn lost_rows(error: &Error) -> Option<(u64, u64)> {
    match unreadable(error)? {
        Unreadable::Rows { first, last, .. } => Some((*first, *last)),
        Unreadable::EarlierFormat | Unreadable::Header | Unreadable::Headless | Unreadable::Record { .. } => None,
    }
}

fn folder_store(folder: &Path) -> Arc<dyn Store> {
    Arc::new(FolderStore::open(folder).unwrap())
}

/// Open a spool on a disk in memory; the real folder has only its lock.
fn open_on(disk: &MemoryDisk, folder: &Path) -> Arc<Spool> {
    let opened = folder::open(Arc::new(disk.clone()), folder, Ack::Spool).unwrap();
    Spool::with(options(folder), opened).unwrap()
}

fn store_on(disk: &MemoryDisk, folder: &Path) -> Arc<dyn Store> {
    Arc::new(FolderStore::on(Arc::new(disk.clone()), folder).unwrap())
}

#[test]
fn what_is_acknowledged_is_there_after_a_restart_and_for_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let spool = Spool::open(options(folder.path())).unwrap();
        take(&spool, 1, round * 10..round * 10 + 4).unwrap();
        let expected: Vec<u32> = (0..=round).flat_map(|round| round * 10..round * 10 + 4).collect();
        assert_eq!(all(&spool.store().unwrap()), expected);
        // The segment is still being written.
        assert_eq!(all(&folder_store(folder.path())), expected);
        assert!(matches!(Spool::open(options(folder.path())), Err(Error::Local(penstock_io::Error::Busy(_)))));
        spool.close().unwrap();
        assert!(take(&spool, 1, 0..1).is_err());
        assert_eq!(all(&folder_store(folder.path())), expected);
    }
}

#[test]
fn what_was_sent_again_is_forgotten_on_disk_too() {
    let folder = tempfile::tempdir().unwrap();
    // Connection 1 breaks and 2 repeats its events; then equal events are new, also after another
    // restart.
    for (connection, clean, duplicates) in [(1, false, 0), (2, true, 2), (3, true, 0), (4, true, 0)] {
        let spool = Spool::open(options(folder.path())).unwrap();
        take(&spool, connection, 0..2).unwrap();
        spool.ended(ConnectionEnd { sender: "192.0.2.1".into(), connection, clean });
        spool.close().unwrap();
        assert_eq!(spool.counters().unwrap().duplicates, duplicates, "connection {connection}");
    }
    assert_eq!(all(&folder_store(folder.path())), [0, 1, 0, 1, 0, 1]);
}

#[test]
fn a_segment_that_is_torn_at_any_byte_has_its_whole_records() {
    let (origin, image) = (tempfile::tempdir().unwrap(), quick_folder());
    let spool = Spool::open(options(origin.path())).unwrap();
    let name = "00000000000000000001.segment";
    let mut ends = Vec::new();
    for round in 0..3 {
        take(&spool, 1, round * 2..round * 2 + 2).unwrap();
        ends.push(fs::read(origin.path().join(name)).unwrap().len());
    }
    let whole = fs::read(origin.path().join(name)).unwrap();
    fs::copy(origin.path().join("spool"), image.path().join("spool")).unwrap();
    for cut in 0..=whole.len() {
        let mut torn = whole[..cut].to_vec();
        if cut % 8 == 0 {
            // The sectors were written out of order: zeros follow.
            torn.resize(cut + cut % 97, 0);
        }
        fs::write(image.path().join(name), torn).unwrap();
        let expected = u32::try_from(ends.iter().filter(|end| **end <= cut).count() * 2).unwrap();
        let expected: Vec<u32> = (0..expected).collect();
        assert_eq!(all(&folder_store(image.path())), expected, "torn at {cut}, before recovery");
        let spool = Spool::open(options(image.path())).unwrap();
        assert_eq!(all(&spool.store().unwrap()), expected, "torn at {cut}");
        if cut % 101 == 0 {
            take(&spool, 2, 90..91).unwrap();
            assert_eq!(all(&spool.store().unwrap()).last(), Some(&90));
        }
        drop(spool);
        for entry in fs::read_dir(image.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "segment" || extension == "torn") {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

#[test]
fn an_byte_that_changed_on_disk_is_never_taken_for_an_event() {
    let (origin, image) = (tempfile::tempdir().unwrap(), quick_folder());
    let spool = Spool::open(options(origin.path())).unwrap();
    take(&spool, 1, 0..2).unwrap();
    spool.close().unwrap();
    let name = "00000000000000000001.segment";
    let whole = fs::read(origin.path().join(name)).unwrap();
    fs::copy(origin.path().join("spool"), image.path().join("spool")).unwrap();
    for at in (0..whole.len()).step_by(7) {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        fs::write(image.path().join(name), changed).unwrap();
        let store = folder_store(image.path());
        let read = plan(&*store, Position::default(), None, ALL).and_then(|plan| {
            let mut rows = 0;
            for piece in plan.pieces {
                let mut reader = Reader::new(Arc::clone(&store), piece, Layout::raw());
                while let Some(batch) = reader.next_batch()? {
                    rows += batch.num_rows();
                }
            }
            Ok(rows)
        });
        // A damaged index is rebuilt from the records.
        assert!(matches!(read, Ok(2) | Err(_)), "byte {at}: {read:?}");
    }
}

#[test]
fn a_segment_whose_header_changed_is_named_and_written_again_where_a_record_is_behind_it() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(SpoolOptions { segment_bytes: 1, ..options(folder.path()) }).unwrap();
    (0..3).for_each(|round| take(&spool, 1, round * 5..round * 5 + 5).unwrap());
    spool.close().unwrap();
    let paths = [1, 2, 3].map(|number| folder.path().join(format!("{number:020}.segment")));
    for path in &paths {
        let whole = fs::read(path).unwrap();
        let (mut changed, mut zeroed) = (whole.clone(), whole.clone());
        changed[50] ^= 0x41;
        zeroed[..752].fill(0);
        // Only the last segment may be torn.
        let torn = (path != &paths[2]).then(|| whole[..100].to_vec());
        for damaged in [changed, zeroed].into_iter().chain(torn) {
            fs::write(path, &damaged).unwrap();
            let read = plan(&*folder_store(folder.path()), Position::default(), None, ALL).map(drop);
            let opened = Spool::open(options(folder.path())).map(drop);
            let is_mended = damaged.len() > 100;
            assert_eq!(opened.is_ok(), is_mended);
            for error in [read.err(), opened.err()].into_iter().flatten() {
                let reason = if is_mended { Unreadable::Header } else { Unreadable::Headless };
                assert_eq!(unreadable(&error), Some(&reason), "{error}");
                assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
            }
            assert_eq!(&fs::read(path).unwrap(), if is_mended { &whole } else { &damaged });
        }
        fs::write(path, &whole).unwrap();
    }
    assert_eq!(all(&folder_store(folder.path())).len(), 15);
    fs::copy(&paths[0], &paths[1]).unwrap();
    let planned = plan(&*folder_store(folder.path()), Position::default(), None, ALL);
    assert!(matches!(
        planned,
        Err(Error::Local(penstock_io::Error::Content { problem: Problem::Foreign("spool"), .. }))
    ));
}

#[test]
fn a_number_is_never_used_again_and_no_position_is_beyond_the_end() {
    let folder = tempfile::tempdir().unwrap();
    drop(Spool::open(options(folder.path())).unwrap());
    fs::write(folder.path().join("00000000000000000001.segment"), b"PSPOOL2\n").unwrap();
    let store = folder_store(folder.path());
    assert_eq!(all(&store), Vec::<u32>::new());
    let spool = Spool::open(options(folder.path())).unwrap();
    assert!(folder.path().join("00000000000000000001.torn").is_file());
    take(&spool, 1, 0..5).unwrap();
    let at = |segment, row| Position { segment, row };
    spool.commit("a", at(2, 5)).unwrap();
    for store in [spool.store().unwrap(), store] {
        // A reader that had seen the first segment empty continues.
        assert_eq!(plan(&*store, at(1, 0), None, ALL).unwrap().end, at(2, 5));
        for fits in [at(2, 5), at(3, 0)] {
            assert_eq!(plan(&*store, fits, None, ALL).unwrap(), Plan { pieces: Vec::new(), end: fits });
            assert_eq!(plan(&*store, at(1, 0), Some(fits), ALL).unwrap().end, at(2, 5));
        }
        for beyond in [at(1, 1), at(2, 6), at(3, 1), at(4, 0)] {
            let error = plan(&*store, beyond, None, ALL).unwrap_err();
            assert_eq!(missing(&error), Some(Missing::Row { segment: beyond.segment, row: beyond.row }), "{error}");
        }
        let error = plan(&*store, at(2, 0), Some(at(2, 6)), ALL).unwrap_err();
        assert_eq!(missing(&error), Some(Missing::Row { segment: 2, row: 6 }), "{error}");
    }
    drop(spool);
    fs::remove_file(folder.path().join("00000000000000000002.segment")).unwrap();
    let spool = Spool::open(options(folder.path())).unwrap();
    take(&spool, 1, 0..1).unwrap();
    let store = spool.store().unwrap();
    assert_eq!(plan(&*store, at(1, 0), None, ALL).unwrap().end, at(3, 1));
    let error = plan(&*store, at(2, 5), None, ALL).unwrap_err();
    assert_eq!(missing(&error), Some(Missing::Segment { segment: 2 }), "{error}");
}

fn ended(spool: &Spool, connection: u64, clean: bool) {
    spool.ended(ConnectionEnd { sender: "192.0.2.1".into(), connection, clean });
}

#[test]
fn what_is_sent_again_is_acknowledged_and_not_stored_twice_even_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(options(folder.path())).unwrap();
    take(&spool, 1, 0..10).unwrap();
    // A part of a window, and then the whole window over a new connection.
    block_on(spool.take(Delivery { first: 10, ..delivery(1, 10..13) })).unwrap().unwrap();
    ended(&spool, 1, false);
    take(&spool, 2, 10..20).unwrap();
    assert_eq!(all(&spool.store().unwrap()), (0..20).collect::<Vec<_>>());
    assert_eq!(spool.counters().unwrap().duplicates, 3);
    drop(spool);
    let spool = Spool::open(options(folder.path())).unwrap();
    // Events that connection 2 had sent again count as well.
    take(&spool, 1, 10..20).unwrap();
    block_on(spool.take(Delivery { first: 10, ..delivery(1, 20..22) })).unwrap().unwrap();
    assert_eq!(all(&spool.store().unwrap()), (0..22).collect::<Vec<_>>());
    let counters = spool.counters().unwrap();
    assert_eq!((counters.events, counters.duplicates), (2, 10));
    drop(spool);
    let spool = Spool::open(SpoolOptions { dedup: false, ..options(folder.path()) }).unwrap();
    assert_eq!(spool.hash_seed(), None);
    block_on(spool.take(Delivery { hashes: Vec::new(), ..delivery(5, 20..22) })).unwrap().unwrap();
    assert_eq!(all(&spool.store().unwrap()).len(), 24);
}

#[test]
fn equal_events_of_connections_that_ended_are_all_stored_even_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let spool = Spool::open(options(folder.path())).unwrap();
        for connection in 0..5 {
            take(&spool, connection, 7..8).unwrap();
            ended(&spool, connection, true);
        }
        // Two open connections send the same event.
        take(&spool, 10, 7..8).unwrap();
        take(&spool, 11, 7..8).unwrap();
        ended(&spool, 10, true);
        ended(&spool, 11, true);
        assert_eq!(all(&spool.store().unwrap()), vec![7; 7 * (round + 1)]);
        assert_eq!(spool.counters().unwrap().duplicates, 0);
        // The ends of connections lie between the rows of a piece, and do not split it.
        let planned = plan(&*folder_store(folder.path()), Position::default(), None, ALL).unwrap();
        assert_eq!(planned.pieces.len(), round + 1, "a piece for each segment");
    }
}

#[test]
fn an_end_that_waits_for_the_disk_with_what_was_sent_again_is_heard_first() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(options(folder.path())).unwrap();
    // All messages may be in one group.
    let before = spool.take(delivery(1, 0..3));
    let first = spool.take(Delivery { first: 3, ..delivery(1, 3..5) });
    ended(&spool, 1, false);
    let again = spool.take(delivery(2, 3..6));
    ended(&spool, 2, true);
    let new = spool.take(delivery(3, 3..6));
    [before, first, again, new].into_iter().for_each(|safe| block_on(safe).unwrap().unwrap());
    assert_eq!(all(&spool.store().unwrap()), [0, 1, 2, 3, 4, 5, 3, 4, 5]);
    assert_eq!(spool.counters().unwrap().duplicates, 2);
}

#[test]
fn only_the_last_two_windows_of_a_connection_may_be_sent_again() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(options(folder.path())).unwrap();
    for window in 0..4_u32 {
        let (first, confirmed) = (u64::from(window) * 2, u64::from(window.saturating_sub(1)) * 2);
        let batch = Delivery { first, confirmed, ..delivery(1, window * 2..window * 2 + 2) };
        block_on(spool.take(batch)).unwrap().unwrap();
    }
    drop(spool);
    let spool = Spool::open(options(folder.path())).unwrap();
    take(&spool, 2, 2..4).unwrap();
    assert_eq!(spool.counters().unwrap().duplicates, 0, "their acknowledgement had arrived");
    take(&spool, 3, 4..8).unwrap();
    assert_eq!(spool.counters().unwrap().duplicates, 4);
}

#[test]
fn a_full_disk_refuses_and_what_was_refused_may_come_again() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::default());
    let spool = open_on(&disk, folder.path());
    let store = spool.store().unwrap();
    take(&spool, 1, 0..3).unwrap();
    // A partial record is in the file, after a record and then after a header, and the first
    // truncation fails.
    for (connection, before) in [(1, 0), (2, 4)] {
        disk.fail(disk.calls() + before, Fault::Short, 2);
        assert!(is_full(&take(&spool, connection, 3..6).unwrap_err()));
        assert_eq!(all(&store), [0, 1, 2]);
    }
    disk.heal();
    take(&spool, 3, 3..6).unwrap();
    assert_eq!(all(&store), [0, 1, 2, 3, 4, 5]);
    assert_eq!(spool.counters().unwrap().refused, 2);
    spool.close().unwrap();
    assert_eq!(all(&store_on(&disk, folder.path())), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_full_spool_waits_until_every_reader_has_committed() {
    let folder = tempfile::tempdir().unwrap();
    let small = SpoolOptions { segment_bytes: 1, max_bytes: 12_000, ..options(folder.path()) };
    let spool = Spool::open(small.clone()).unwrap();
    let store = spool.store().unwrap();
    for reader in ["a", "b"] {
        spool.commit(reader, Position::default()).unwrap();
    }
    let mut waiting = None;
    for round in 0..100 {
        let mut taken = spool.take(delivery(1, round..round + 1));
        let deadline = std::time::Instant::now() + Duration::from_millis(300);
        if wait(&mut taken, Some(deadline), &mut || Ok(())).is_err() {
            waiting = Some(taken);
            break;
        }
    }
    let waiting = waiting.expect("it is full after a few");
    let kept = all(&store).len();
    let end = plan(&*store, Position::default(), None, ALL).unwrap().end;
    spool.commit("a", end).unwrap();
    assert_eq!(all(&store).len(), kept, "the other one has not");
    spool.commit("b", end).unwrap();
    block_on(waiting).unwrap().unwrap();
    assert!(all(&store).len() <= 4 && spool.counters().unwrap().bytes < 12_000);
    let gone = plan(&*store, Position { segment: 1, row: 0 }, None, ALL).unwrap_err();
    assert_eq!(missing(&gone), Some(Missing::Segment { segment: 1 }), "{gone}");
    drop(spool);
    // The readers' positions survive a restart.
    let spool = Spool::open(small).unwrap();
    assert!(spool.commit("c", Position { segment: 1_000, row: 0 }).is_err());
    spool.commit("a", Position::default()).unwrap();
}

#[test]
fn a_reader_commits_on_a_full_disk_and_makes_room() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), MemoryDisk::default());
    let small = SpoolOptions { segment_bytes: 1, ..options(folder.path()) };
    let open = || folder::open(Arc::new(disk.clone()), folder.path(), Ack::Spool).unwrap();
    let spool = Spool::with(small, open()).unwrap();
    spool.commit("query", Position::default()).unwrap();
    (0..6).for_each(|round| take(&spool, 1, round..round + 1).unwrap());
    let store = spool.store().unwrap();
    let end = plan(&*store, Position::default(), None, ALL).unwrap().end;
    // There is no room to store the position until a segment is removed.
    disk.fail(disk.calls(), Fault::Full, 1);
    spool.commit("query", end).unwrap();
    assert!(all(&store).len() < 4, "{:?}", all(&store));
    let readers = String::from_utf8(disk.read(&folder.path().join("readers.json")).unwrap()).unwrap();
    assert!(readers.contains(&format!("[{},{}]", end.segment, end.row)), "{readers}");
    // Where no segment can be removed, the commit fails.
    take(&spool, 1, 6..7).unwrap();
    let next = plan(&*store, end, None, ALL).unwrap().end;
    disk.fail(disk.calls(), Fault::Full, 100);
    assert!(is_full(&spool.commit("query", next).unwrap_err()));
}

#[test]
fn with_ack_commit_nothing_is_acknowledged_before_it_is_committed() {
    let folder = tempfile::tempdir().unwrap();
    let commit = SpoolOptions { ack: Ack::Commit, ..options(folder.path()) };
    let spool = Spool::open(commit.clone()).unwrap();
    let store = spool.store().unwrap();
    let mut taken = spool.take(delivery(1, 0..5));
    while all(&store).len() < 5 {
        std::thread::yield_now();
    }
    let soon = std::time::Instant::now() + Duration::from_millis(50);
    assert!(wait(&mut taken, Some(soon), &mut || Ok(())).is_err());
    spool.commit("query", Position { segment: 1, row: 4 }).unwrap();
    assert!(wait(&mut taken, Some(soon), &mut || Ok(())).is_err());
    drop(spool);
    assert!(block_on(taken).unwrap().is_err(), "nobody may think that it is committed");
    let spool = Spool::open(commit).unwrap();
    spool.commit("query", Position { segment: 1, row: 5 }).unwrap();
    // Sent again, because it was not acknowledged; the spool has the events, and they are
    // committed.
    take(&spool, 1, 0..5).unwrap();
    assert_eq!(all(&spool.store().unwrap()).len(), 5);
}

#[test]
fn positions_divide_the_rows_however_large_the_steps_are() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(SpoolOptions { segment_bytes: 9_000, ..options(folder.path()) }).unwrap();
    let mut count = 0;
    for rows in [1, 300, 7, 50, 2, 2, 900, 1] {
        take(&spool, 1, count..count + rows).unwrap();
        count += rows;
    }
    let store = spool.store().unwrap();
    let every: Vec<u32> = (0..count).collect();
    for (rows, bytes) in [(1_u64, u64::MAX), (7, u64::MAX), (250, u64::MAX), (u64::MAX, 1), (u64::MAX, 5_000)] {
        let (mut at, mut found, mut ends) = (Position::default(), Vec::new(), Vec::new());
        loop {
            let step = plan(&*store, at, None, PlanLimits { rows, bytes, piece: 4_000 }).unwrap();
            let read = numbers_of(&store, &step.pieces);
            if read.is_empty() {
                break;
            }
            assert!(read.len() as u64 <= rows);
            let again = plan(&*store, at, Some(step.end), ALL).unwrap();
            assert_eq!(numbers_of(&store, &again.pieces), read);
            found.extend(read);
            ends.push(step.end);
            at = step.end;
        }
        assert_eq!(found, every, "{rows} rows, {bytes} bytes");
        assert!(ends.is_sorted());
    }
}

#[test]
fn a_reader_elsewhere_needs_the_key_and_sees_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let spool = Spool::open(options(folder.path())).unwrap();
    take(&spool, 1, 0..500).unwrap();
    let tls = ServerTls { identity: Identity::Development { dir: folder.path().join("tls") }, client_ca: None };
    let key = ReadKey::new("sixteen bytes...").unwrap();
    let service = Service::bind(([127, 0, 0, 1], 0).into(), &tls, key, spool.store().unwrap()).unwrap();
    let client = ClientTls { trust: Trust::Fingerprint(service.fingerprint()), identity: None };
    let remote = |key: &str| RemoteStore::new(&client, service.address(), Some("localhost"), key).unwrap();
    let store: Arc<dyn Store> = Arc::new(remote("sixteen bytes..."));
    assert_eq!(store.spool().unwrap(), spool.store().unwrap().spool().unwrap());
    assert_eq!(all(&store), (0..500).collect::<Vec<_>>());
    store.commit("a query/1", Position { segment: 1, row: 500 }).unwrap();
    assert!(fs::read_to_string(folder.path().join("readers.json")).unwrap().contains("\"a query/1\":[1,500]"));
    let error = store.read(9, 0..10).unwrap_err().to_string();
    assert!(error.contains("segment 9 of the spool is gone"), "{error}");
    let error = remote("another key, 20 oct.").spool().unwrap_err();
    assert!(matches!(&error, Error::Misuse(Misuse::ReadKey { .. })), "{error:?}");
    let stranger = ClientTls { trust: Trust::Fingerprint("00".repeat(32).parse().unwrap()), identity: None };
    let stranger = RemoteStore::new(&stranger, service.address(), Some("localhost"), "sixteen bytes...").unwrap();
    assert!(stranger.spool().is_err());
    // The certificate changes while the service is open: connected readers continue, and new ones
    // get the new certificate.
    let before = service.fingerprint();
    assert!(!service.reload().unwrap());
    let other = ServerTls { identity: Identity::Development { dir: folder.path().join("other") }, client_ca: None };
    let other = Service::bind(
        ([127, 0, 0, 1], 0).into(),
        &other,
        ReadKey::new("sixteen bytes...").unwrap(),
        spool.store().unwrap(),
    );
    let other = other.unwrap().fingerprint();
    for name in ["cert.pem", "key.pem"] {
        fs::rename(folder.path().join("other").join(name), folder.path().join("tls").join(name)).unwrap();
    }
    assert!(service.reload().unwrap());
    assert_eq!((service.fingerprint(), other == before), (other, false));
    let client = ClientTls { trust: Trust::Fingerprint(other), identity: None };
    let new = RemoteStore::new(&client, service.address(), Some("localhost"), "sixteen bytes...").unwrap();
    assert_eq!(new.spool().unwrap(), store.spool().unwrap());
    service.close();
}

#[test]
fn an_object_store_keeps_the_same_spool() {
    let memory: Arc<InMemory> = Arc::new(InMemory::new());
    let place = || ObjectPrefix::of(memory.clone(), "logs/spool");
    let in_store = || SpoolOptions { linger: Duration::from_millis(5), ..SpoolOptions::new(Keep::Objects(place())) };
    let spool = Spool::open(in_store()).unwrap();
    take(&spool, 1, 0..5).unwrap();
    block_on(spool.take(Delivery { first: 5, ..delivery(1, 5..9) })).unwrap().unwrap();
    drop(spool);
    let spool = Spool::open(in_store()).unwrap();
    take(&spool, 1, 5..12).unwrap();
    let live = spool.store().unwrap();
    let elsewhere: Arc<dyn Store> = Arc::new(ObjectStore::open(place()).unwrap());
    for store in [&live, &elsewhere] {
        assert_eq!(all(store), (0..12).collect::<Vec<_>>());
    }
    assert_eq!(live.spool().unwrap(), elsewhere.spool().unwrap());
    let end = plan(&*elsewhere, Position::default(), None, ALL).unwrap().end;
    spool.commit("query", end).unwrap();
    let left: BTreeMap<u64, usize> =
        elsewhere.segments(0, 9).unwrap().into_iter().map(|info| (info.number, info.entries.len())).collect();
    assert_eq!(left.keys().copied().collect::<Vec<_>>(), [2, 3]);
    assert!(elsewhere.commit("query", end).is_err());
}

mod claims;
mod crashes;
mod earlier;
mod failures;
mod recovery;
mod serving;
