//! A journal of format 3, as the last version with that format wrote it in two processes, the
//! second of which was killed.

use super::*;

/// Tasks 1 to 6: the first is done, the second was delivered twice, the third is dead, the fourth
/// was dead and is queued again after the others, the fifth has a key, and the sixth is dead
/// because a worker reported its failure.
const FIRST: &str = "\
    51554943584a0003000000000000000100000014c6ae900b01000000010000000000000001000001616f6e65000000174578bece0100000002000000 \
    00000000020000046d61696c74776f00000016b0f5b00601000000030000000000000003000001617468726565000000156404726a01000000040000 \
    00000000000400000161666f7572000000253e7edae50600000005000000000000000500000161666976653031323334353637383961626364656600 \
    00001408e9c16d010000000600000000000000060000016173697800000007825e4d2402000000020001000000071b571c9e02000000020002000000 \
    078018f37d02000000010001000000058663cf5b03000000010000002442adc51e0400000003000574686520776f726b6572277320636f6e6e656374 \
    696f6e20656e6465640000000b6459bf81040000000400056c6174650000000da0b2f65a0500000004000000000000000700000016287d973f070000 \
    000600016e6f20737563682061646472657373";
/// Task 8, the second task written again, task 9, which has ended, and task 10.
const SECOND: &str = "\
    51554943584a0003000000000000000200000016950ddeec01000000080000000000000008000001616569676874000000176b8e9648010000000200 \
    000000000000020002046d61696c74776f000000156c292c2f01000000090000000000000009000001616e696e650000000588b84769030000000900 \
    000014a54aeb32010000000a000000000000000a0000016174656e";
const HEADER: usize = 16;
const WAITING: [&str; 5] = ["2 mail two", "5 a five", "4 a four", "8 a eight", "10 a ten"];
const DEAD: [&str; 2] = ["3 5 the worker's connection ended", "6 1 no such address"];

fn bytes(text: &str) -> Vec<u8> {
    text.replace(' ', "")
        .as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect()
}

fn written(first: &[u8], second: &[u8]) -> Place {
    let place = Place::new();
    place.put(1, first);
    place.put(2, second);
    place
}

#[test]
fn a_journal_of_the_format_before_is_read_and_goes_on_in_this_one() {
    let (mut first, mut second) = (bytes(FIRST), bytes(SECOND));
    // Formats 1 and 2 only lack some kinds of records.
    for format in 1..=3 {
        (first[7], second[7]) = (format, format);
        let place = written(&first, &second);
        for start in 0..3 {
            let (mut folder, mut queue) = place.open().unwrap();
            assert_eq!(
                (waiting(&mut queue), dead(&mut queue)),
                (WAITING.map(String::from).into(), DEAD.map(String::from).into())
            );
            assert_eq!(queue.counters().damaged, 0, "format {format}, start {start}");
            let producer = queue.open(false);
            let known = SubmitOnce { key: *b"0123456789abcdef", submit: Submit { kind: b"a", payload: b"five" } };
            send(&mut queue, producer, &[Frame::SubmitOnce(known)]);
            assert_eq!(hears(&mut queue, producer), ["OK 5"]);
            // The deliveries to the worker are not on the disk yet.
            drop(folder);
            if start == 2 {
                (folder, queue) = place.open().unwrap();
                let producer = queue.open(false);
                send(&mut queue, producer, &[submit(b"new")]);
                drain(&mut folder, &mut queue);
                assert_eq!(hears(&mut queue, producer), ["OK 11"]);
            }
        }
        assert!(place.disk.read(&place.segment(3)).unwrap().starts_with(b"PENSLOG1quicx  4"));
        assert_eq!(place.disk.read(&place.segment(1)).unwrap(), first);
        let (_folder, mut queue) = place.open().unwrap();
        assert_eq!(waiting(&mut queue).last().map(String::as_str), Some("11 a new"));
    }
}

#[test]
fn segments_of_the_format_before_go_when_nothing_in_them_counts() {
    let place = written(&bytes(FIRST), &bytes(SECOND));
    let (mut folder, mut queue) = place.open().unwrap();
    let worker = queue.open(false);
    send(&mut queue, worker, &[Frame::Prefetch(Prefetch(500)), Frame::Ready]);
    for id in [2, 5, 4, 8, 10] {
        send(&mut queue, worker, &[Frame::Done(TaskId(id))]);
    }
    for id in [3, 6] {
        send(&mut queue, worker, &[Frame::DeadDrop(TaskId(id))]);
    }
    drain(&mut folder, &mut queue);
    assert_eq!(folder.log.segments().map(|(number, _)| number).collect::<Vec<_>>(), [3]);
    drop(folder);
    assert_eq!(place.open().unwrap().1.tasks(), 0);
}

#[test]
fn a_segment_of_the_format_before_that_is_cut_anywhere_holds_what_was_whole_and_is_not_damaged() {
    let (first, second) = (bytes(FIRST), bytes(SECOND));
    let mut ends: Vec<usize> = vec![HEADER];
    while *ends.last().unwrap() < second.len() {
        let at = *ends.last().unwrap();
        ends.push(at + 8 + u32::from_be_bytes(*second[at..].first_chunk().unwrap()) as usize);
    }
    let states = [vec![], vec!["8 a eight"], vec!["8 a eight"], vec!["8 a eight", "9 a nine"], vec!["8 a eight"]];
    for cut in 0..second.len() {
        // The cut segment is the last one, or a later process has begun another after it.
        for behind in [false, true] {
            if behind && cut < HEADER {
                continue;
            }
            let place = written(&first, &second[..cut]);
            if behind {
                let mut third = second[..HEADER].to_vec();
                third[15] = 3;
                place.put(3, &third);
            }
            let whole = ends.iter().rposition(|end| *end <= cut).unwrap_or(0);
            for _ in 0..2 {
                let (_folder, mut queue) = place.open().unwrap();
                let expected: Vec<_> = WAITING[..3].iter().chain(&states[whole]).map(ToString::to_string).collect();
                assert_eq!((waiting(&mut queue), queue.counters().damaged), (expected, 0), "cut at {cut}");
            }
            assert_eq!(place.kept(2), None);
        }
    }
}

#[test]
fn a_bit_that_flips_in_a_segment_of_the_format_before_costs_one_record_at_most_and_is_told() {
    let (first, second) = (bytes(FIRST), bytes(SECOND));
    for number in 1..=2 {
        let whole = if number == 1 { &first } else { &second };
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let place = if number == 1 { written(&flipped, &second) } else { written(&first, &flipped) };
            let (_folder, mut queue) = place.open().unwrap();
            let when = format!("bit {bit} of segment {number}");
            // Format 3 with one bit cleared is format 1 or 2, which reads the same.
            let told = !(bit / 8 == 7 && matches!(flipped[7], 1 | 2));
            assert_eq!(queue.counters().damaged, u64::from(told), "{when}");
            assert_eq!(place.kept(number), told.then_some(flipped), "{when}");
            let missing =
                |found: &[String], of: &[&str]| of.iter().filter(|task| !found.contains(&(**task).to_owned())).count();
            let (waiting, dead) = (waiting(&mut queue), dead(&mut queue));
            let lost = missing(&waiting, &WAITING) + missing(&dead, &DEAD);
            if bit < HEADER * 8 {
                assert_eq!((lost, waiting.len(), dead.len()), (0, 5, 2), "{when}");
            }
            // A task whose GONE is lost comes back, and a dead task may be alive again.
            assert!(lost <= 1 && waiting.len() + dead.len() <= 8, "{when}: {waiting:?}, {dead:?}");
        }
    }
}

#[test]
fn a_segment_of_the_format_before_whose_header_is_lost_is_known_by_its_records_and_a_blank_one_is_passed_over() {
    let (first, second) = (bytes(FIRST), bytes(SECOND));
    let headless = [&[0xA5; HEADER], &second[HEADER..]].concat();
    let place = written(&first, &headless);
    let (_folder, mut queue) = place.open().unwrap();
    assert_eq!((waiting(&mut queue), queue.counters().damaged), (WAITING.map(String::from).into(), 1));
    let place = written(&first, &[0; 5_000]);
    let (_folder, mut queue) = place.open().unwrap();
    assert_eq!(waiting(&mut queue), WAITING[..3]);
    assert!(queue.counters().damaged > 0 && place.kept(2).is_some());
}

#[test]
fn another_format_or_number_is_not_taken_for_damage() {
    let (first, second) = (bytes(FIRST), bytes(SECOND));
    for format in [4, 8, 16] {
        let mut newer = second.clone();
        newer[7] = format;
        let place = written(&first, &newer);
        let refused = place.open().map(drop).unwrap_err();
        let found = mismatch(&refused);
        assert!(matches!(found, Some(Mismatch::Kind { .. } | Mismatch::Unknown { .. })), "{refused}");
        assert_eq!(place.disk.read(&place.segment(2)).unwrap(), newer);
    }
    let place = written(&first, &second);
    place.put(6, &first);
    let refused = place.open().map(drop).unwrap_err();
    assert_eq!(mismatch(&refused), Some(Mismatch::Number { found: 1 }), "{refused}");
}
