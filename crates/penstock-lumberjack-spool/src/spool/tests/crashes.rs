//! Power cuts and failed calls, at every call.

use std::collections::BTreeSet;

use penstock_log::{Disk as _, Writer as _, make_folder};

use super::failures::{write_end, write_group};
use super::recovery::readable;
use super::*;

/// The answers to batches of events; every event has its own number.
#[derive(Debug, Default)]
struct Said {
    taken: BTreeSet<u32>,
    refused: BTreeSet<u32>,
    next: u32,
}

impl Said {
    /// Write a group of this many batches.
    fn group(&mut self, writer: &mut Writer, batches: u32) {
        let events = (self.next..self.next + batches).map(|number| (u64::from(number), 2 * number..2 * number + 2));
        let events: Vec<_> = events.collect();
        self.next += batches;
        for ((_, numbers), answer) in events.iter().cloned().zip(write_group(writer, &events)) {
            if answer.is_ok() { self.taken.extend(numbers) } else { self.refused.extend(numbers) }
        }
    }

    /// Write some groups of a process, with ends of connections among them.
    fn groups(&mut self, writer: &mut Writer) {
        for group in 0..6 {
            self.group(writer, 1 + group % 2);
            if group % 2 == 1 {
                write_end(writer, u64::from(self.next - 1));
            }
        }
    }

    /// Check that a start finds the acknowledged events once and in order, and can write more.
    /// Where `settled`, no refused event may be there.
    fn check(&self, disk: &MemoryDisk, folder: &Path, settled: bool, when: &str) {
        let spool = open_on(disk, folder);
        let store = spool.store().unwrap();
        let found: Vec<u32> = readable(&store).0.into_values().collect();
        assert!(found.is_sorted_by(|a, b| a < b), "{when}: {found:?}");
        let found: BTreeSet<u32> = found.into_iter().collect();
        let missing: Vec<_> = self.taken.difference(&found).collect();
        assert!(missing.is_empty(), "{when}: {missing:?} are missing of {found:?}");
        let back: Vec<_> = self.refused.intersection(&found).collect();
        assert!(!settled || back.is_empty(), "{when}: {back:?} have come back");
        let more = 1_000_000;
        take(&spool, 99, more..more + 1).unwrap();
        let end = plan(&*store, Position::default(), None, ALL).unwrap().end;
        assert!(end.row == 1 && readable(&store).0.into_values().next_back() == Some(more), "{when}");
    }
}

fn open(disk: &MemoryDisk, folder: &Path) -> Result<Writer> {
    // A few groups fill a segment.
    let options = SpoolOptions { segment_bytes: 3_000, ..options(folder) };
    Writer::new(options, folder::open(Arc::new(disk.clone()), folder, Ack::Spool)?)
}

/// Run two processes, of which the first one is killed.
fn run(disk: &MemoryDisk, folder: &Path) -> Said {
    let mut said = Said::default();
    for is_killed in [true, false] {
        let Ok(mut writer) = open(disk, folder) else { continue };
        said.groups(&mut writer);
        if !is_killed {
            writer.end();
        }
    }
    said
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_that_was_acknowledged_nor_does_another_one_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let whole = MemoryDisk::default();
    let said = run(&whole, folder.path());
    assert!(said.refused.is_empty() && said.taken.len() == 36, "{said:?}");
    assert!(store_on(&whole, folder.path()).segments(1, 100).unwrap().len() > 4);
    let (mut images, mut acknowledged) = (0, 0);
    for call in 0..whole.calls() {
        let disk = MemoryDisk::default();
        disk.fail(call, Fault::Power, 1);
        let said = run(&disk, folder.path());
        acknowledged += said.taken.len();
        for seed in 0..3 {
            let image = disk.crash(seed);
            let when = format!("power cut at call {call}, image {seed}");
            let again = image.copy();
            said.check(&image, folder.path(), false, &when);
            for later in 0..8 {
                let start = again.copy();
                start.fail(later, Fault::Power, 1);
                drop(open(&start, folder.path()));
                said.check(
                    &start.crash(later),
                    folder.path(),
                    false,
                    &format!("{when}, and at call {later} of the start"),
                );
                images += 1;
            }
        }
    }
    assert!(images > 1_500 && acknowledged > 1_000, "{images} images, {acknowledged} events");
}

#[test]
fn a_call_that_fails_refuses_its_group_and_loses_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let whole = MemoryDisk::default();
    run(&whole, folder.path());
    let (mut images, mut refused) = (0, 0);
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        for in_a_row in [1, 2, 3, 5, 1_000] {
            for call in 0..whole.calls() {
                let disk = MemoryDisk::default();
                disk.fail(call, fault, in_a_row);
                let said = run(&disk, folder.path());
                disk.heal();
                refused += said.refused.len();
                for (seed, image) in [disk.copy(), disk.crash(1)].into_iter().enumerate() {
                    let when = format!("{fault:?} at call {call}, {in_a_row} in a row, image {seed}");
                    said.check(&image, folder.path(), false, &when);
                    images += 1;
                }
            }
        }
    }
    assert!(images > 1_500 && refused > 1_000, "{images} images, {refused} refused");
}

#[test]
fn what_was_refused_does_not_come_back_once_the_same_process_has_written_more() {
    let folder = tempfile::tempdir().unwrap();
    let whole = MemoryDisk::default();
    let mut writer = open(&whole, folder.path()).unwrap();
    let first = whole.calls();
    Said::default().groups(&mut writer);
    drop(writer);
    let mut refused = 0;
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        for in_a_row in [1, 2, 3, 5] {
            for call in first..whole.calls() {
                let (disk, mut said) = (MemoryDisk::default(), Said::default());
                let mut writer = open(&disk, folder.path()).unwrap();
                disk.fail(call, fault, in_a_row);
                said.groups(&mut writer);
                disk.heal();
                said.group(&mut writer, 1);
                drop(writer);
                refused += said.refused.len();
                for (seed, image) in [disk.copy(), disk.crash(1), disk.crash(2)].into_iter().enumerate() {
                    let when = format!("{fault:?} at call {call}, {in_a_row} in a row, image {seed}");
                    said.check(&image, folder.path(), true, &when);
                }
            }
        }
    }
    assert!(refused > 300, "{refused}");
}

/// Make a spool whose process was killed, with two records in an open segment.
fn killed(folder: &Path) -> (MemoryDisk, std::path::PathBuf) {
    let disk = MemoryDisk::default();
    let opened = folder::open(Arc::new(disk.clone()), folder, Ack::Spool).unwrap();
    Said::default().group(&mut Writer::new(options(folder), opened).unwrap(), 2);
    (disk, folder.join("00000000000000000001.segment"))
}

/// Make the disk full for some calls, after the first `before` calls of a start.
fn fill(disk: &MemoryDisk, folder: &Path, before: u64, calls: u64) {
    let first = disk.calls();
    make_folder(disk, folder).unwrap();
    let made = disk.calls() - first;
    disk.fail(disk.calls() + made + before, Fault::Full, calls);
}

#[test]
fn a_disk_without_room_for_a_segment_gets_the_index_alone_where_nothing_else_changes() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, path) = killed(folder.path());
    let found = disk.read(&path).unwrap();
    fill(&disk, folder.path(), 0, 1);
    drop(open(&disk, folder.path()).unwrap());
    let sealed = disk.read(&path).unwrap();
    assert!(sealed.len() > found.len() && sealed.starts_with(&found));
    assert_eq!(all(&store_on(&disk, folder.path())), [0, 1, 2, 3]);
    drop(open(&disk, folder.path()).unwrap());
    assert_eq!(disk.read(&path).unwrap(), sealed);
}

#[test]
fn a_damaged_segment_that_cannot_be_written_again_stays_as_it_is_with_one_copy_however_often_it_is_tried() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, path) = killed(folder.path());
    let mut damaged = disk.read(&path).unwrap();
    let last = damaged.len() - 20;
    damaged[last] ^= 1;
    disk.damage(&path, damaged.clone()).unwrap();
    let copies = || {
        let names = disk.list(folder.path()).unwrap();
        names.into_iter().filter(|name| name.contains(".damaged")).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        // The copy is made: the file was synced and linked, and the folder synced.
        fill(&disk, folder.path(), 3, 1_000);
        let error = open(&disk, folder.path()).map(drop).unwrap_err().to_string();
        assert!(error.contains("cannot copy, so nothing is changed"), "{error}");
        assert_eq!(disk.read(&path).unwrap(), damaged);
        disk.heal();
    }
    let spool = open_on(&disk, folder.path());
    assert_eq!(spool.counters().unwrap().damaged, 1);
    assert_eq!(copies(), ["00000000000000000001.damaged"]);
    assert_eq!(disk.read(&path.with_extension("damaged")).unwrap(), damaged);
    assert_ne!(disk.read(&path).unwrap(), damaged);
    assert_eq!(readable(&spool.store().unwrap()).0.into_values().collect::<Vec<_>>(), [0, 1]);
}
