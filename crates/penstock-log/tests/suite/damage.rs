use std::sync::atomic::{AtomicUsize, Ordering};

use penstock_log::{Disk as _, make_folder};
use penstock_testkit::cores::divide;
use penstock_testkit::disk::MemoryDisk;

use crate::support::{FORMAT, HEAD, HEADER, Heard, Numbered, Said, folder, kept, label, open, path, run, written};

fn bytes(disk: &MemoryDisk, segment: u64) -> Vec<u8> {
    disk.read(&path(segment)).unwrap()
}

/// Replace the bytes of a segment in a copy of the disk, and open the log there.
fn with(disk: &MemoryDisk, segment: u64, bytes: Vec<u8>) -> (MemoryDisk, Heard) {
    let image = disk.copy();
    image.damage(&path(segment), bytes).unwrap();
    let (log, heard) = open(&image).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(log.damaged(), heard.holes.len() as u64);
    (image, heard)
}

#[test]
fn a_last_segment_that_is_cut_at_any_byte_has_all_records_before_it() {
    let (disk, all, segments) = written();
    let last = *segments.last().unwrap();
    let (_, whole) = open(&disk.copy()).unwrap();
    let bytes = bytes(&disk, last);
    for cut in 0..=bytes.len() {
        let (image, heard) = with(&disk, last, bytes[..cut].to_vec());
        let is_there = |number: &&u64| whole.ends[number].0 != last || whole.ends[number].1 <= cut;
        let expected: Vec<u64> = all.iter().filter(is_there).copied().collect();
        assert_eq!((heard.numbers, heard.holes), (expected.clone(), vec![]), "cut at {cut}");
        // The next start finds the same, and new records follow.
        let (mut log, heard) = open(&image).unwrap();
        assert_eq!((heard.numbers, heard.holes), (expected, vec![]), "cut at {cut}");
        log.append(&[Numbered::new(10_000)]).unwrap();
        assert_eq!(open(&image).unwrap().1.numbers.last(), Some(&10_000));
    }
}

#[test]
fn an_earlier_segment_that_is_cut_at_any_byte_is_a_hole_up_to_where_it_ended() {
    let (disk, all, segments) = written();
    let (_, whole) = open(&disk.copy()).unwrap();
    let first = segments[0];
    let bytes = bytes(&disk, first);
    for cut in HEADER..bytes.len() {
        let (image, heard) = with(&disk, first, bytes[..cut].to_vec());
        let is_there = |number: &&u64| whole.ends[number].0 != first || whole.ends[number].1 <= cut;
        let expected: Vec<u64> = all.iter().filter(is_there).copied().collect();
        assert_eq!(heard.numbers, expected, "cut at {cut}");
        assert_eq!(heard.holes.last().map(|hole| (hole.0, hole.1.end)), Some((first, bytes.len())), "cut at {cut}");
        assert_eq!(heard.holes[0].1.start.min(cut), heard.holes[0].1.start, "cut at {cut}");
        assert_eq!(image.read(&kept(first)).unwrap(), bytes[..cut]);
    }
}

#[test]
fn a_bit_that_flips_costs_at_most_its_record_and_is_always_told() {
    let (disk, all, segments) = written();
    let (_, whole) = open(&disk.copy()).unwrap();
    let last = *segments.last().unwrap();
    let (lost, repaired) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for segment in [segments[0], last] {
        let bytes = bytes(&disk, segment);
        let check = |bit: usize| {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let (image, heard) = with(&disk, segment, broken.clone());
            let at = bit / 8;
            // The record whose body or tail has the bit.
            let hit = whole.ends.iter().find(|(number, (of, end))| {
                *of == segment && (end - Numbered::new(**number).size() + HEAD..*end).contains(&at)
            });
            let hit = hit.map(|(number, _)| *number);
            let expected: Vec<u64> = all.iter().copied().filter(|number| Some(*number) != hit).collect();
            assert_eq!(heard.numbers, expected, "bit {bit} of segment {segment}");
            // No later head says that the last seal was synced.
            if segment == last && at >= bytes.len() - HEAD {
                assert_eq!(heard.holes, [], "bit {bit}");
                return;
            }
            let [(of, bounds, label, loses)] = heard.holes.as_slice() else { panic!("bit {bit}: {:?}", heard.holes) };
            assert!(*of == segment && bounds.contains(&at), "bit {bit}: {bounds:?}");
            assert_eq!((*label, *loses), (hit, hit.is_some()), "bit {bit} of segment {segment}");
            if bit.is_multiple_of(64) {
                assert_eq!(image.read(&kept(segment)).unwrap(), broken);
                let (mut log, again) = open(&image).unwrap();
                assert_eq!(again, heard, "it is told again");
                log.append(&[Numbered::new(10_000)]).unwrap();
            }
            let count = if hit.is_some() { &lost } else { &repaired };
            count.fetch_add(1, Ordering::Relaxed);
        };
        divide(bytes.len() * 8, |bits| bits.for_each(check));
    }
    let (lost, repaired) = (lost.into_inner(), repaired.into_inner());
    assert!(lost > 10_000 && repaired > 2_000, "{lost} lost, {repaired} not");
}

#[test]
fn a_head_that_is_lost_leaves_its_body_and_no_other_record_is() {
    let (disk, all, segments) = written();
    let (_, whole) = open(&disk.copy()).unwrap();
    let segment = segments[0];
    for (number, (of, end)) in &whole.ends {
        let record = Numbered::new(*number);
        if *of != segment {
            continue;
        }
        let mut broken = bytes(&disk, segment);
        let start = end - record.size();
        broken[start..start + HEAD].fill(0);
        let (_, heard) = with(&disk, segment, broken);
        let expected: Vec<u64> = all.iter().copied().filter(|other| other != number).collect();
        assert_eq!((heard.numbers, heard.holes), (expected, vec![(segment, start..*end, None, true)]));
        let body = Some(record.bytes()).filter(|body| !body.is_empty());
        assert_eq!(heard.bodies, Vec::from_iter(body));
    }
}

#[test]
fn a_header_that_is_lost_costs_no_record() {
    let (disk, all, segments) = written();
    for segment in &segments {
        let mut broken = bytes(&disk, *segment);
        broken[..HEADER].fill(0);
        let (_, heard) = with(&disk, *segment, broken);
        assert_eq!((heard.numbers, heard.holes), (all.clone(), vec![(*segment, 0..HEADER, None, false)]));
    }
    // A single segment is read too, although no other header tells the log's number.
    let alone = MemoryDisk::default();
    penstock_log::make_folder(&alone, folder()).unwrap();
    let (mut log, _) = open(&alone).unwrap();
    Said::default().append(&mut log, 3).unwrap();
    let mut broken = bytes(&alone, 1);
    broken[..HEADER].fill(0xee);
    let (image, heard) = with(&alone, 1, broken);
    assert_eq!(heard.numbers, [0, 1, 2]);
    assert_eq!(open(&image).unwrap().1.numbers, [0, 1, 2], "it was sealed");
}

#[test]
fn a_place_that_was_never_synced_is_cut_and_one_that_was_is_a_hole() {
    let disk = MemoryDisk::default();
    penstock_log::make_folder(&disk, folder()).unwrap();
    let (mut log, _) = open(&disk).unwrap();
    let mut said = Said::default();
    said.append(&mut log, 2).unwrap();
    let two = bytes(&disk, 1).len();
    said.append(&mut log, 2).unwrap();
    let four = bytes(&disk, 1);
    // The first record is broken, and the second group says that it was synced.
    let mut broken = four.clone();
    broken[HEADER + HEAD] ^= 1;
    let (_, heard) = with(&disk, 1, broken);
    assert_eq!((heard.numbers.as_slice(), heard.holes[0].2), ([1, 2, 3].as_slice(), Some(0)));
    // The first record of the second group is broken, and no head says that it was synced: the
    // whole group is cut off.
    let mut broken = four.clone();
    broken[two + HEAD] ^= 1;
    let (image, heard) = with(&disk, 1, broken.clone());
    assert_eq!((heard.numbers.as_slice(), heard.holes.as_slice()), ([0, 1].as_slice(), [].as_slice()));
    assert!(image.read(&kept(1)).is_err());
    // A seal after it says so.
    log.seal().unwrap();
    broken.extend_from_slice(&bytes(&disk, 1)[four.len()..]);
    let (_, heard) = with(&disk, 1, broken);
    assert_eq!((heard.numbers.as_slice(), heard.holes[0].2), ([0, 1, 3].as_slice(), Some(2)));
}

#[test]
fn no_payload_is_taken_for_a_record() {
    struct Payload(Vec<u8>);
    impl penstock_log::Record for Payload {
        fn label(&self) -> penstock_log::Label {
            label(1_000)
        }
        fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>) {
            parts.push(&self.0);
        }
    }
    let (other, _, segments) = written();
    let forged = bytes(&other, segments[0]);
    for shift in 0..8 {
        let disk = MemoryDisk::default();
        penstock_log::make_folder(&disk, folder()).unwrap();
        let (mut log, _) = open(&disk).unwrap();
        log.append(&[Payload([&forged[..shift], &forged].concat())]).unwrap();
        let mut said = Said::default();
        said.append(&mut log, 1).unwrap();
        let mut broken = bytes(&disk, 1);
        broken[HEADER..HEADER + 8].fill(0);
        let (_, heard) = with(&disk, 1, broken);
        assert_eq!((heard.numbers, heard.holes.len()), (vec![0], 1), "shifted by {shift}");
    }
}

#[test]
fn much_damage_is_read_in_one_pass() {
    let disk = MemoryDisk::default();
    penstock_log::make_folder(&disk, folder()).unwrap();
    let format = penstock_log::Format { segment: 8 << 20, ..FORMAT };
    let mut log =
        penstock_log::Log::open(std::sync::Arc::new(disk.clone()), folder(), format, &mut Heard::default()).unwrap();
    // One group, so that only the seal at the end says that all of it was synced.
    Said::default().append(&mut log, 4_000).unwrap();
    log.seal().unwrap();
    let mut broken = bytes(&disk, 1);
    let (_, whole) = open(&disk.copy()).unwrap();
    for (number, (_, end)) in &whole.ends {
        if number % 2 == 0 {
            let start = end - Numbered::new(*number).size();
            broken[start..start + HEAD].fill(0xff);
        }
    }
    let (_, heard) = with(&disk, 1, broken);
    assert_eq!((heard.numbers.len(), heard.holes.len()), (2_000, 2_000));
}

#[test]
fn a_segment_that_is_removed_leaves_the_others() {
    let (disk, all, segments) = written();
    let (_, whole) = open(&disk.copy()).unwrap();
    for victim in &segments {
        let image = disk.copy();
        let (mut log, _) = open(&image).unwrap();
        log.remove([*victim]);
        drop(log);
        let expected: Vec<u64> = all.iter().copied().filter(|number| whole.ends[number].0 != *victim).collect();
        let (_, heard) = open(&image).unwrap();
        assert_eq!((heard.numbers, heard.holes), (expected, vec![]));
        assert!(!image.list(folder()).unwrap().iter().any(|name| path(*victim).ends_with(name)));
    }
    let empty = MemoryDisk::default();
    assert!(run(&empty).refused.is_empty());
}

#[test]
fn what_breaks_behind_a_process_that_was_killed_is_damage_where_it_had_said_that_it_was_synced() {
    for seals in [false, true] {
        let disk = MemoryDisk::default();
        make_folder(&disk, folder()).unwrap();
        let (mut log, _) = open(&disk).unwrap();
        let mut said = Said::default();
        said.append(&mut log, 3).unwrap();
        let calls = disk.calls();
        if seals {
            log.seal_unsynced().unwrap();
            log.seal_unsynced().unwrap();
            assert_eq!(disk.calls() - calls, 1, "once, and without a sync");
        }
        drop(log);
        let mut bytes = bytes(&disk, 1);
        bytes[HEADER + HEAD] ^= 1;
        let (_, heard) = with(&disk, 1, bytes);
        let expected = if seals { (vec![1, 2], 1) } else { (vec![], 0) };
        assert_eq!((heard.numbers, heard.holes.len()), expected);
    }
}

#[test]
fn a_folder_of_an_engine_whose_name_is_a_long_number_is_no_segment_that_was_given_up() {
    let disk = MemoryDisk::default();
    make_folder(&disk, folder()).unwrap();
    make_folder(&disk, &folder().join(format!("{:032}.damaged", 7))).unwrap();
    let mut log = open(&disk).unwrap().0;
    assert_eq!(log.append(&[Numbered::new(1)]).unwrap().segment, 1);
    drop(log);
    assert_eq!(open(&disk).unwrap().0.damaged(), 0);
}

#[test]
fn each_damage_is_kept_under_a_name_of_its_own_and_only_once() {
    let disk = MemoryDisk::default();
    make_folder(&disk, folder()).unwrap();
    let (mut log, _) = open(&disk).unwrap();
    log.append(&[1, 2, 4].map(Numbered::new)).unwrap();
    // A start writes the segment again, so later copies are those of another file.
    log.append(&[Numbered::new(5)]).unwrap();
    drop(log);
    let second = folder().join("00000000000000000001.log.2.damaged");
    let mut found = Vec::new();
    for body in [HEADER + HEAD, HEADER + Numbered::new(1).size() + HEAD] {
        let mut bytes = disk.read(&path(1)).unwrap();
        bytes[body] ^= 1;
        disk.damage(&path(1), bytes.clone()).unwrap();
        found.push(bytes);
        for _ in 0..2 {
            assert_eq!(open(&disk).unwrap().1.holes.len(), found.len());
            assert_eq!(disk.read(&kept(1)).unwrap(), found[0]);
            assert_eq!(disk.read(&second).ok().as_ref(), found.get(1));
        }
    }
    assert_eq!(disk.list(folder()).unwrap().len(), 3);
}

#[test]
fn what_is_missing_at_the_end_of_a_segment_is_told_at_each_start_though_the_next_has_no_record() {
    let (disk, _, segments) = written();
    let mut last = open(&disk).unwrap().0;
    last.append(&[Numbered::new(90)]).unwrap();
    let number = last.open_segment().unwrap();
    drop(last);
    assert!(number > segments[0]);
    let header = disk.read(&path(number)).unwrap()[..HEADER].to_vec();
    disk.damage(&path(number), header).unwrap();
    let before = disk.read(&path(number - 1)).unwrap();
    disk.damage(&path(number - 1), before[..before.len() - HEAD - 1].to_vec()).unwrap();
    for _ in 0..3 {
        let (_, heard) = open(&disk).unwrap();
        let told = heard.holes.iter().any(|(segment, bounds, ..)| (*segment, bounds.end) == (number - 1, before.len()));
        assert!(told, "{:?}", heard.holes);
    }
}
