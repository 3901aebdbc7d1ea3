//! Power failures and IO errors at every call: accepted tasks are not lost, and done tasks do not
//! come back.

use std::collections::BTreeSet;

use penstock_testkit::disk::Fault;

use super::*;

/// The fates of tasks, by their payloads.
#[derive(Default)]
struct Said {
    accepted: BTreeSet<u32>,
    /// Tasks that a worker has reported done, durable or not.
    done: BTreeSet<u32>,
    durably_done: BTreeSet<u32>,
}

impl Said {
    fn check(&self, found: &[String], when: &str) {
        let payload = |task: &String| task.rsplit(' ').next().unwrap().parse().unwrap();
        let found: BTreeSet<u32> = found.iter().map(payload).collect();
        let missing: Vec<_> = self.accepted.difference(&self.done).filter(|task| !found.contains(*task)).collect();
        assert!(missing.is_empty(), "{when}: {missing:?} are missing of {found:?}");
        let back: Vec<_> = self.durably_done.intersection(&found).collect();
        assert!(back.is_empty(), "{when}: {back:?} have come back");
    }
}

/// Run a daemon twice. All tasks except every seventh are done, so segments are removed, and some
/// tasks are written again.
fn run(place: &Place) -> Said {
    let mut said = Said::default();
    for day in 0..2 {
        let Ok((mut folder, mut queue)) = place.open() else { continue };
        let (producer, worker) = (queue.open(false), queue.open(false));
        send(&mut queue, worker, &[Frame::Prefetch(Prefetch(100)), Frame::Ready]);
        for turn in 0..14 {
            let payload = day * 100 + turn;
            send(&mut queue, producer, &[submit(format!("{payload:0>40}").as_bytes())]);
            drain(&mut folder, &mut queue);
            if hears(&mut queue, producer).iter().any(|word| word.starts_with("OK")) {
                said.accepted.insert(payload);
            }
            for task in hears(&mut queue, worker) {
                let words: Vec<_> = task.split(' ').collect();
                let (id, payload): (u32, u32) = (words[0].parse().unwrap(), words[2].parse().unwrap());
                if payload % 7 != 3 {
                    said.done.insert(payload);
                    send(&mut queue, worker, &[Frame::Done(TaskId(id))]);
                }
            }
            drain(&mut folder, &mut queue);
            if queue.is_written() {
                said.durably_done.clone_from(&said.done);
            }
        }
    }
    said
}

#[test]
fn what_was_said_ok_to_is_there_and_what_was_done_is_not_wherever_the_power_goes() {
    let whole = Place::new();
    let first = whole.disk.calls();
    let said = run(&whole);
    assert_eq!((said.accepted.len(), said.durably_done.len()), (28, 24));
    let (folder, mut queue) = whole.open().unwrap();
    said.check(&waiting(&mut queue), "all is well");
    assert!(folder.log.segments().next().unwrap().0 > 2, "segments have gone");
    drop(folder);
    let calls = whole.disk.calls();
    assert!(calls > 150, "{calls}");
    for call in first..calls {
        let place = Place::new();
        place.disk.fail(call, Fault::Power, 1);
        let said = run(&place);
        for seed in 0..8 {
            let when = format!("call {call}, image {seed}");
            let image = place.disk.crash(seed);
            make_folder(&image, place.folder.path()).unwrap();
            let (folder, mut queue) = place.on(&image).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert_eq!(queue.counters().damaged, 0, "{when}");
            said.check(&waiting(&mut queue), &when);
            drop(folder);
        }
    }
}

#[test]
fn what_was_said_ok_to_is_there_and_what_was_done_is_not_whatever_call_fails() {
    let whole = Place::new();
    let first = whole.disk.calls();
    run(&whole);
    for call in first..whole.disk.calls() {
        for in_a_row in [1, 2, 4] {
            let place = Place::new();
            place.disk.fail(call, Fault::Io, in_a_row);
            let said = run(&place);
            place.disk.heal();
            let when = format!("{in_a_row} in a row from call {call}");
            for image in [place.disk.copy(), place.disk.crash(call)] {
                make_folder(&image, place.folder.path()).unwrap();
                let (folder, mut queue) = place.on(&image).unwrap_or_else(|error| panic!("{when}: {error}"));
                said.check(&waiting(&mut queue), &when);
                drop(folder);
            }
        }
    }
}

#[test]
fn a_segment_goes_only_after_the_one_before_it() {
    // Either the sync of the folder fails, or the removal.
    for failing in 0..2 {
        let place = Place::new();
        let (mut folder, mut queue) = place.open().unwrap();
        let producer = queue.open(false);
        for payload in [b"1", b"2", b"3"] {
            folder.log.end_segment();
            send(&mut queue, producer, &[submit(payload)]);
            drain(&mut folder, &mut queue);
        }
        let left = |folder: &Folder| folder.log.segments().map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(left(&folder), [1, 2, 3]);
        place.disk.fail(place.disk.calls() + failing, Fault::Io, 1);
        folder.remove(1);
        assert_eq!(left(&folder), [1, 2, 3]);
        place.disk.fail(place.disk.calls() + failing, Fault::Io, 1);
        folder.remove(2);
        assert_eq!(left(&folder), [1, 2, 3]);
        place.disk.heal();
        folder.remove(3);
        assert_eq!(left(&folder), Vec::<u64>::new());
    }
}

#[test]
fn a_write_that_fails_refuses_its_submits_and_they_do_not_come_back() {
    for fault in [Fault::Io, Fault::Full, Fault::Short] {
        for call in 0..4 {
            let place = Place::new();
            let (mut folder, mut queue) = place.open().unwrap();
            let producer = queue.open(false);
            send(&mut queue, producer, &[submit(b"1")]);
            drain(&mut folder, &mut queue);
            place.disk.fail(place.disk.calls() + call, fault, 1);
            send(&mut queue, producer, &[submit(b"2")]);
            drain(&mut folder, &mut queue);
            let is_taken = hears(&mut queue, producer).len() == 2;
            place.disk.heal();
            // The queue retries the disk without a new submit.
            queue.handle_timeout(Instant::now() + std::time::Duration::from_secs(2));
            drain(&mut folder, &mut queue);
            assert!(queue.is_written(), "{fault:?} at call {call}");
            let image = place.disk.crash(call);
            drop(folder);
            let (_folder, mut queue) = place.on(&image).unwrap();
            let expected = if is_taken { vec!["1 a 1", "2 a 2"] } else { vec!["1 a 1"] };
            assert_eq!(waiting(&mut queue), expected, "{fault:?} at call {call}");
            assert_eq!(is_taken, call > 1, "{fault:?} at call {call}");
        }
    }
}
