//! The end of the only session of a client's folder: after a crash, all of it is there or nothing.

use super::*;
use crate::journal::record::CLIENT;

fn open_client(disk: &MemoryDisk, segment: u64) -> Store {
    make_folder(disk, folder()).unwrap();
    Store::open(Arc::new(disk.clone()), folder(), Format { segment, ..CLIENT }, true).unwrap()
}

/// Create a session whose records are in one segment, or in many.
fn told(disk: &MemoryDisk, segment: u64) -> (Store, Told) {
    let (mut store, mut told) = (open_client(disk, segment), Told::default());
    for number in 0..12 {
        let form = if number == 0 { Form::New } else { Form::More };
        store.write(vec![told.tell(1, form, number, number % 3 == 0)]).unwrap();
    }
    (store, told)
}

#[test]
fn a_session_that_ends_is_there_as_a_whole_or_not_at_all_wherever_the_power_goes() {
    for segment in [512, 1 << 20] {
        let whole = MemoryDisk::default();
        let (mut store, _) = told(&whole, segment);
        let first = whole.calls();
        store.write(vec![Entry::gone(owner(1).session)]).unwrap();
        assert_eq!(whole.list(folder()).unwrap().len(), 0);
        let (mut gone, mut there) = (0, 0);
        for call in first..=whole.calls() {
            let disk = MemoryDisk::default();
            let (mut store, told) = told(&disk, segment);
            disk.fail(call, Fault::Power, 1);
            let _ = store.write(vec![Entry::gone(owner(1).session)]);
            for seed in 0..8 {
                let found = all_found(&open_client(&disk.crash(seed), segment));
                assert!(
                    found.is_empty() || found == Model::from([(1, told.clone())]),
                    "call {call}, {seed}: {found:?}"
                );
                (gone, there) = (gone + u32::from(found.is_empty()), there + u32::from(!found.is_empty()));
            }
        }
        assert!(gone > 7 && there > 0, "{gone}, {there}");
    }
}

#[test]
fn a_session_that_ends_does_not_come_back_as_it_was_in_segments_that_had_gone_before() {
    // Each record has its own segment, and the last is a snapshot: no earlier segment has live
    // data.
    let prepare = |disk: &MemoryDisk| {
        let (mut store, mut told) = (open_client(disk, 512), Told::default());
        for (number, form) in [(200, Form::New), (201, Form::More), (202, Form::Whole)] {
            store.write(vec![told.tell(1, form, number, false)]).unwrap();
        }
        assert_eq!(disk.list(folder()).unwrap().len(), 3);
        store.tidy();
        assert_eq!(disk.list(folder()).unwrap().len(), 1);
        (store, told)
    };
    let whole = MemoryDisk::default();
    let (mut store, _) = prepare(&whole);
    let first = whole.calls();
    store.write(vec![Entry::gone(owner(1).session)]).unwrap();
    for call in first..=whole.calls() {
        let disk = MemoryDisk::default();
        let (mut store, told) = prepare(&disk);
        disk.fail(call, Fault::Power, 1);
        let _ = store.write(vec![Entry::gone(owner(1).session)]);
        for seed in 0..16 {
            let found = all_found(&open_client(&disk.crash(seed), 512));
            assert!(found.is_empty() || found == Model::from([(1, told.clone())]), "call {call}, {seed}: {found:?}");
        }
    }
}

#[test]
fn a_segment_that_is_not_removed_is_an_error_and_does_not_go_before_the_ones_it_speaks_of() {
    for segment in [512, 1 << 20] {
        let whole = MemoryDisk::default();
        let (mut store, _) = told(&whole, segment);
        let first = whole.calls();
        store.write(vec![Entry::gone(owner(1).session)]).unwrap();
        let mut refused = 0;
        for call in first..whole.calls() {
            for in_a_row in [1, 2, 1_000] {
                let disk = MemoryDisk::default();
                let (mut store, told) = told(&disk, segment);
                disk.fail(call, Fault::Io, in_a_row);
                let when = format!("{in_a_row} from call {call}");
                let ended = store.write(vec![Entry::gone(owner(1).session)]);
                refused += u32::from(ended.is_err());
                let left = disk.list(folder()).unwrap();
                assert!(ended.is_err() || left.is_empty(), "{when}: {left:?}");
                disk.heal();
                let found = all_found(&open_client(&disk.copy(), segment));
                assert!(found.is_empty() || found == Model::from([(1, told)]), "{when}: {found:?}");
                // The next session replaces it.
                let mut next = Told::default();
                store.write(vec![next.tell(2, Form::New, 7, true)]).unwrap();
                drop(store);
                assert_eq!(all_found(&open_client(&disk.crash(call), segment)), Model::from([(2, next)]), "{when}");
            }
        }
        assert!(refused > 2, "{refused}");
    }
}

#[test]
fn a_session_begins_in_the_same_group_though_the_one_before_it_cannot_be_removed() {
    let disk = MemoryDisk::default();
    let (mut store, _) = told(&disk, 1 << 20);
    let mut next = Told::default();
    disk.fail(disk.calls(), Fault::Io, 1);
    store.write(vec![Entry::gone(owner(1).session), next.tell(2, Form::New, 7, true)]).unwrap();
    drop(store);
    assert_eq!(all_found(&open_client(&disk.crash(1), 1 << 20)), Model::from([(2, next)]));
}
