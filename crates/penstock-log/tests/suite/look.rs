use penstock_log::{Disk as _, look};
use penstock_testkit::disk::{Fault, MemoryDisk};

use crate::support::{FORMAT, HEADER, Heard, folder, open, path, run, written};

/// Check that a look finds what a start finds, and changes nothing on the disk.
fn check(image: &MemoryDisk, when: &str) -> Option<u64> {
    let (mut heard, before) = (Heard::default(), image.calls());
    let damaged = look(image, folder(), &FORMAT, &mut heard);
    assert_eq!(image.calls(), before, "{when}");
    let (damaged, (log, started)) = match (damaged, open(image)) {
        (Ok(damaged), Ok(started)) => (damaged, started),
        (looked, started) => {
            assert_eq!(looked.unwrap_err().to_string(), started.unwrap_err().to_string(), "{when}");
            return None;
        }
    };
    assert_eq!((heard, damaged), (started, log.damaged()), "{when}");
    Some(damaged)
}

#[test]
fn a_look_finds_what_a_start_finds_wherever_the_power_went_and_changes_nothing() {
    let whole = MemoryDisk::default();
    run(&whole);
    let mut looked = 0;
    for call in 0..=whole.calls() {
        let disk = MemoryDisk::default();
        disk.fail(call, Fault::Power, 1);
        run(&disk);
        for seed in 0..4 {
            let image = disk.crash(seed);
            if image.list(folder()).is_ok() {
                assert_eq!(check(&image, &format!("call {call}, image {seed}")), Some(0));
                looked += 1;
            }
        }
    }
    assert!(looked > 100, "{looked}");
}

#[test]
fn a_look_at_damage_finds_what_a_start_finds() {
    let (disk, _, segments) = written();
    let mut damaged = 0;
    for number in [segments[1], segments[segments.len() - 1]] {
        let whole = disk.read(&path(number)).unwrap();
        for at in (0..whole.len()).step_by(5) {
            let mut broken = whole.clone();
            broken[at] ^= 0x11;
            let image = disk.copy();
            image.damage(&path(number), broken).unwrap();
            damaged += check(&image, &format!("byte {at} of segment {number}")).unwrap_or(0);
        }
        let image = disk.copy();
        image.rename(&path(number), &folder().join(format!("{number:020}.damaged"))).unwrap();
        assert!(check(&image, "one that was given up").is_some_and(|damaged| damaged > 0));
        assert!(whole.len() > HEADER);
    }
    assert!(damaged > 100, "{damaged}");
}
