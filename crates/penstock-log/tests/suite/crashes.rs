use penstock_log::{make_folder, replace};
use penstock_testkit::disk::{Fault, MemoryDisk};

use crate::support::{Heard, Said, folder, open, path, run};

/// The number of images of each crash.
const IMAGES: u64 = 12;

fn start(disk: &MemoryDisk, when: &str) -> (penstock_log::Log, Heard) {
    make_folder(disk, folder()).unwrap();
    open(disk).unwrap_or_else(|error| panic!("{when}: {error}"))
}

/// Cut the power at every call of a start, and check that the next start finds the same records.
fn crash_starts(image: &MemoryDisk, said: &Said, when: &str) {
    let calls = {
        let whole = image.copy();
        start(&whole, when);
        whole.calls()
    };
    for call in 0..calls {
        let again = image.crash(0);
        again.fail(call, Fault::Power, 1);
        let _ = make_folder(&again, folder()).is_ok_and(|()| open(&again).is_ok());
        let (_, heard) = start(&again.crash(call), when);
        said.check(&heard, false, &format!("{when}, and at call {call} of the start"));
    }
}

#[test]
fn what_was_said_to_be_durable_is_there_wherever_the_power_goes() {
    let whole = MemoryDisk::default();
    let all = run(&whole);
    let calls = whole.calls();
    assert!(calls > 50 && all.refused.is_empty(), "{calls} calls");
    let mut more = 0;
    for call in 0..=calls {
        let disk = MemoryDisk::default();
        disk.fail(call, Fault::Power, 1);
        let said = run(&disk);
        for seed in 0..IMAGES {
            let when = format!("call {call}, image {seed}");
            let image = disk.crash(seed);
            if seed == 0 {
                crash_starts(&image, &said, &when);
            }
            let (mut log, heard) = start(&image, &when);
            said.check(&heard, false, &when);
            assert_eq!(log.damaged(), 0);
            more += heard.numbers.len() - said.durable.len();
            // The log continues, and the records that a start has found are durable.
            let mut said = Said { durable: heard.numbers.iter().copied().collect(), ..said.clone() };
            said.append(&mut log, 2).unwrap();
            drop(log);
            let (_, heard) = start(&image.crash(seed), &when);
            said.check(&heard, false, &format!("{when}, and once more"));
        }
    }
    // Records that were never acknowledged may be there, or not.
    assert!(more > 0);
}

#[test]
fn a_file_that_is_replaced_is_the_old_one_or_the_new_one_wherever_the_power_goes() {
    let file = path(1).with_extension("json");
    let (old, new) = (vec![1; 2_000], vec![2; 3_000]);
    let prepare = || {
        let disk = MemoryDisk::default();
        make_folder(&disk, folder()).unwrap();
        replace(&disk, &file, &old).unwrap();
        disk
    };
    let before = prepare().calls();
    let mut ended = false;
    for call in before.. {
        let disk = prepare();
        disk.fail(call, Fault::Power, 1);
        ended = replace(&disk, &file, &new).is_ok();
        for seed in 0..IMAGES {
            let image = disk.crash(seed);
            let found = image.read(&file).unwrap();
            assert!(found == new || (found == old && !ended), "call {call}, image {seed}");
            replace(&image, &file, &old).unwrap();
            assert_eq!(image.crash(seed).read(&file).unwrap(), old);
        }
        if ended {
            assert!(call - before >= 4, "{call}");
            break;
        }
    }
    assert!(ended);
}

#[test]
fn a_folder_is_there_with_those_above_it_when_it_was_made() {
    for call in 0..8 {
        let disk = MemoryDisk::default();
        disk.fail(call, Fault::Power, 1);
        let made = make_folder(&disk, folder()).is_ok();
        for seed in 0..IMAGES {
            let image = disk.crash(seed);
            assert!(!made || penstock_log::Disk::list(&image, folder()).is_ok(), "call {call}, image {seed}");
            make_folder(&image, folder()).unwrap();
            assert!(penstock_log::Disk::list(&image.crash(seed), folder()).is_ok());
        }
    }
}
