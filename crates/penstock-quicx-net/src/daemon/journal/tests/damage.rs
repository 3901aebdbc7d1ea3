//! Damage on the disk, which is distinguished from a torn write although the process was killed
//! just after its last write.

use super::*;

const HEADER: usize = penstock_log::HEADER;
/// Bytes of a seal, and of a record before its body.
const HEAD: usize = 32;

/// A segment with three tasks of nine bytes of payload, as a killed daemon leaves it.
fn killed() -> (Place, Vec<u8>) {
    let place = Place::new();
    let (mut folder, mut queue) = place.open().unwrap();
    let producer = queue.open(false);
    send(&mut queue, producer, &[submit(b"payload 1"), submit(b"payload 2"), submit(b"payload 3")]);
    drain(&mut folder, &mut queue);
    assert_eq!(hears(&mut queue, producer), ["OK 1", "OK 2", "OK 3"]);
    let bytes = place.disk.read(&place.segment(1)).unwrap();
    assert_eq!(bytes.len(), HEADER + 3 * (HEAD + 11 + 8) + HEAD);
    (place, bytes)
}

#[test]
fn a_bit_that_flips_costs_one_task_at_most_and_is_told_and_kept() {
    let (place, whole) = killed();
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let image = Place { disk: place.disk.copy(), folder: tempfile::tempdir().unwrap() };
        make_folder(&image.disk, image.folder.path()).unwrap();
        image.put(1, &flipped);
        let (_folder, mut queue) = image.open().unwrap();
        let behind = (bit / 8).checked_sub(HEADER).map(|at| (at / 51, at % 51));
        let lost = behind.filter(|(record, at)| *record < 3 && *at >= HEAD).map(|(record, _)| record + 1);
        let expected = (1..=3).filter(|number| Some(*number) != lost);
        let expected: Vec<_> = expected.map(|number| format!("{number} a payload {number}")).collect();
        assert_eq!(waiting(&mut queue), expected, "bit {bit}");
        // Damage to the seal is not reported, because nothing shows that the seal was on the disk.
        let is_told = bit / 8 < whole.len() - HEAD;
        assert_eq!(queue.counters().damaged, u64::from(is_told), "bit {bit}");
        assert_eq!(image.kept(1), is_told.then_some(flipped), "bit {bit}");
    }
}

#[test]
fn a_dead_task_whose_reason_is_damaged_is_dead_and_a_task_that_was_over_stays_so() {
    let place = Place::new();
    let (mut folder, mut queue) = place.open().unwrap();
    drain(&mut folder, &mut queue);
    let records = [
        Record::Submit { id: TaskId(1), order: 1, attempts: 0, content: b"\x01a1", once: false },
        Record::Submit { id: TaskId(2), order: 2, attempts: 0, content: b"\x01a2", once: false },
        Record::Dead { id: TaskId(1), attempts: 5, reason: b"no such address", verdict: true },
        Record::Gone { id: TaskId(2) },
    ];
    let mut journal = Journal::new(600, []);
    for record in &records {
        journal.append(record);
    }
    let Some(Write::Append(batch)) = journal.poll_write() else { panic!("nothing to write") };
    folder.append(&batch).unwrap();
    drop(folder);
    let mut bytes = place.disk.read(&place.segment(1)).unwrap();
    let content = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|window| window == text).unwrap();
    for text in [&b"\x01a2"[..], b"no such address"] {
        let at = content(&bytes, text);
        bytes[at + 1] ^= 1;
    }
    place.put(1, &bytes);
    let (_folder, mut queue) = place.open().unwrap();
    assert_eq!((waiting(&mut queue), dead(&mut queue)), (Vec::new(), vec!["1 5 ".to_owned()]));
    assert_eq!(queue.counters().damaged, 2);
}

#[test]
fn a_file_that_is_no_segment_is_refused_and_stays() {
    let (place, _) = killed();
    place.put(2, b"#!/bin/sh\necho and so on, with more bytes than a header has");
    let refused = place.open().map(drop).unwrap_err();
    assert!(matches!(mismatch(&refused), Some(Mismatch::Unknown { number: 2, .. })), "{refused}");
    assert!(place.disk.read(&place.segment(2)).unwrap().starts_with(b"#!/bin/sh"));
}
