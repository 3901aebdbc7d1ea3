use penstock_log::{Disk as _, make_folder};
use penstock_testkit::disk::{Fault, MemoryDisk};

use crate::support::{HEAD, Said, folder, open, run};

const IMAGES: u64 = 4;

#[test]
fn a_failed_call_fails_its_waiters_and_what_failed_does_not_come_back() {
    let whole = MemoryDisk::default();
    run(&whole);
    let (mut refused, mut images) = (0, 0);
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        for in_a_row in [1, 2, 3, 5, 1_000] {
            for call in 0..whole.calls() {
                let disk = MemoryDisk::default();
                disk.fail(call, fault, in_a_row);
                let mut said = run(&disk);
                disk.heal();
                refused += said.refused.len();
                make_folder(&disk, folder()).unwrap();
                let when = format!("{fault:?} at call {call}, {in_a_row} in a row");
                let (mut log, heard) = open(&disk).unwrap_or_else(|error| panic!("{when}: {error}"));
                said.check(&heard, false, &when);
                said.append(&mut log, 1).unwrap();
                for seed in 0..IMAGES {
                    let image = disk.crash(seed);
                    let (_, mut heard) = open(&image).unwrap_or_else(|error| panic!("{when}, image {seed}: {error}"));
                    if in_a_row > 1 {
                        // The sync of a seal failed, and so did the truncation: a start sees the
                        // seal, and the disk never had it. It is reported as damage, and loses no
                        // record.
                        heard.holes.retain(|(_, bounds, ..)| bounds.len() != HEAD);
                    }
                    said.check(&heard, false, &format!("{when}, image {seed}"));
                    images += 1;
                }
            }
        }
    }
    assert!(refused > 1_000 && images > 3_000, "{refused} refused, {images} images");
}

#[test]
fn what_was_refused_is_gone_once_the_same_process_has_appended_more() {
    let whole = MemoryDisk::default();
    make_folder(&whole, folder()).unwrap();
    let (mut log, _) = open(&whole).unwrap();
    let first = whole.calls();
    let mut settled = 0;
    let workload = |log: &mut penstock_log::Log| {
        let mut said = Said::default();
        for group in 0..12 {
            let _ = said.append(log, 1 + group % 3);
        }
        said
    };
    workload(&mut log);
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        for in_a_row in [1, 2, 3] {
            for call in first..whole.calls() {
                let disk = MemoryDisk::default();
                make_folder(&disk, folder()).unwrap();
                let (mut log, _) = open(&disk).unwrap();
                disk.fail(call, fault, in_a_row);
                let mut said = workload(&mut log);
                disk.heal();
                said.append(&mut log, 1).unwrap();
                settled += said.refused.len();
                drop(log);
                for image in [disk.copy(), disk.crash(1), disk.crash(2), disk.crash(3)] {
                    let (_, heard) = open(&image).unwrap();
                    said.check(&heard, true, &format!("{fault:?} at call {call}, {in_a_row} in a row"));
                }
            }
        }
    }
    assert!(settled > 200, "{settled}");
}

#[test]
fn nothing_is_written_to_a_segment_again_after_a_failure() {
    let disk = MemoryDisk::default();
    make_folder(&disk, folder()).unwrap();
    let (mut log, _) = open(&disk).unwrap();
    let mut said = Said::default();
    said.append(&mut log, 1).unwrap();
    let first = log.open_segment();
    // The write succeeds, and its sync fails.
    disk.fail(disk.calls() + 1, Fault::Io, 1);
    assert_eq!(said.append(&mut log, 1).unwrap_err().raw_os_error(), Some(5));
    assert_eq!(log.open_segment(), None);
    said.append(&mut log, 1).unwrap();
    assert_eq!(log.open_segment(), first.map(|number| number + 1));
}

#[test]
fn a_disk_that_is_full_does_not_get_a_file_with_each_try() {
    let disk = MemoryDisk::default();
    make_folder(&disk, folder()).unwrap();
    let (mut log, _) = open(&disk).unwrap();
    let mut said = Said::default();
    said.append(&mut log, 1).unwrap();
    for _ in 0..20 {
        // The header still fits, and the record does not.
        log.end_segment();
        disk.fail(disk.calls() + 4, Fault::Short, 1);
        said.append(&mut log, 1).unwrap_err();
    }
    assert_eq!(disk.list(folder()).unwrap().len(), 1);
    assert_eq!(log.segments().map(|(number, _)| number).collect::<Vec<_>>(), [1]);
    disk.heal();
    said.append(&mut log, 1).unwrap();
    assert_eq!(log.open_segment(), Some(2));
    let bytes = log.bytes().load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(bytes, log.segments().map(|(_, bytes)| bytes).sum::<u64>());
}

#[test]
fn what_was_refused_stays_away_where_the_power_goes_once_the_next_segment_was_begun() {
    for seed in 0..30 {
        let disk = MemoryDisk::default();
        make_folder(&disk, folder()).unwrap();
        let (mut log, _) = open(&disk).unwrap();
        let mut said = Said::default();
        said.append(&mut log, 1).unwrap();
        // The record is written, and its sync and the truncation fail.
        disk.fail(disk.calls() + 1, Fault::Io, 2);
        said.append(&mut log, 1).unwrap_err();
        // The next segment has a header and no record.
        disk.fail(disk.calls() + 4, Fault::Power, 1);
        said.append(&mut log, 1).unwrap_err();
        // The process dies, or the power fails.
        let image = if seed == 0 { disk.copy() } else { disk.crash(seed) };
        for start in 0..2 {
            let (log, heard) = open(&image).unwrap();
            said.check(&heard, true, &format!("image {seed}, start {start}"));
            assert_eq!(log.segments().map(|(number, _)| number).collect::<Vec<_>>(), [1]);
        }
    }
}
