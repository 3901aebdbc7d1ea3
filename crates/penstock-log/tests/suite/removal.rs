//! Removal in an order: after a power cut at any call, the remaining segments are the last ones of
//! that order.

use std::collections::BTreeSet;

use penstock_log::{Disk as _, Log};
use penstock_testkit::disk::{Fault, MemoryDisk};

use crate::support::{folder, open, path, written};

/// The number of images of each crash.
const IMAGES: u64 = 12;

/// Return these segments in both orders.
fn orders(segments: &[u64]) -> [Vec<u64>; 2] {
    [segments.to_vec(), segments.iter().rev().copied().collect()]
}

/// Return the segments that a disk has, in this order.
fn left(disk: &MemoryDisk, order: &[u64]) -> Vec<u64> {
    let names = disk.list(folder()).unwrap();
    let is_there = |number: &u64| names.iter().any(|name| path(*number).ends_with(name));
    order.iter().copied().filter(is_there).collect()
}

/// Return a copy of the disk that loses power at this call of the removal, and whether the removal
/// finished.
fn cut(disk: &MemoryDisk, call: u64, remove: &dyn Fn(&mut Log) -> bool) -> (MemoryDisk, bool) {
    let disk = disk.copy();
    let (mut log, _) = open(&disk).unwrap();
    disk.fail(disk.calls() + call, Fault::Power, 1);
    let ended = remove(&mut log);
    (disk, ended)
}

#[test]
fn the_segments_that_a_crash_leaves_are_the_last_ones_of_the_order() {
    let (disk, all, segments) = written();
    let (_, whole) = open(&disk.copy()).unwrap();
    for order in orders(&segments) {
        let (mut seen, mut ended, mut call) = (BTreeSet::new(), false, 0);
        while !ended {
            let (cut, is_done) = cut(&disk, call, &|log| log.remove_in_order(order.iter().copied()).is_ok());
            for seed in 0..IMAGES {
                let when = format!("{order:?}, call {call}, image {seed}");
                let image = cut.crash(seed);
                let left = left(&image, &order);
                assert!(order.ends_with(&left), "{when}: {left:?}");
                // The last removal is not durable yet.
                assert!(!is_done || left.len() <= 1, "{when}: {left:?}");
                seen.insert(left.len());
                let is_left = |number: &u64| left.contains(&whole.ends[number].0);
                let expected: Vec<u64> = all.iter().copied().filter(is_left).collect();
                let (_, heard) = open(&image).unwrap_or_else(|error| panic!("{when}: {error}"));
                assert_eq!((heard.numbers, heard.holes), (expected, vec![]), "{when}");
            }
            (ended, call) = (is_done, call + 1);
        }
        assert_eq!(seen, BTreeSet::from_iter(0..=order.len()), "{order:?}");
    }
}

#[test]
fn segments_that_went_in_no_order_do_not_come_back_once_others_have_gone_in_order() {
    let (disk, _, segments) = written();
    let (first, rest) = segments.split_at(2);
    let (mut back, mut gone, mut ended, mut call) = (0, 0, false, 0);
    while !ended {
        let (cut, is_done) = cut(&disk, call, &|log| {
            log.remove(first.iter().copied());
            log.remove_in_order(rest.iter().copied()).is_ok()
        });
        for seed in 0..IMAGES {
            let image = cut.crash(seed);
            let (first_left, rest_left) = (left(&image, first), left(&image, rest));
            let is_whole = rest_left == rest;
            assert!(is_whole || first_left.is_empty(), "call {call}, image {seed}: {first_left:?}, {rest_left:?}");
            assert!(rest.ends_with(&rest_left), "call {call}, image {seed}: {rest_left:?}");
            (back, gone) = (back + usize::from(first_left == segments[..1]), gone + usize::from(!is_whole));
        }
        (ended, call) = (is_done, call + 1);
    }
    // Without an order, the first segment may come back after the second has gone.
    assert!(back > 0 && gone > 0, "{back}, {gone}");
}

#[test]
fn a_removal_in_order_stops_at_a_failure_and_the_log_has_the_segments_that_are_left() {
    let (disk, _, segments) = written();
    for order in orders(&segments) {
        // A sync of the folder and a removal for each segment.
        for call in 0..2 * order.len() {
            for fault in [Fault::Io, Fault::Full] {
                let when = format!("{order:?}, {fault:?} at call {call}");
                let disk = disk.copy();
                let (mut log, _) = open(&disk).unwrap();
                disk.fail(disk.calls() + call as u64, fault, 1);
                log.remove_in_order(order.iter().copied()).unwrap_err();
                let rest = &order[call / 2..];
                let known: BTreeSet<u64> = log.segments().map(|(number, _)| number).collect();
                assert_eq!(known, BTreeSet::from_iter(rest.iter().copied()), "{when}");
                assert_eq!(left(&disk, &order), rest, "{when}");
                for seed in 0..IMAGES {
                    let left = left(&disk.crash(seed), &order);
                    assert!(order.ends_with(&left), "{when}, image {seed}: {left:?}");
                }
                log.remove_in_order(rest.iter().copied()).unwrap();
                assert_eq!(log.segments().count(), 0, "{when}");
                assert_eq!(left(&disk, &order), [0_u64; 0], "{when}");
            }
        }
    }
}
