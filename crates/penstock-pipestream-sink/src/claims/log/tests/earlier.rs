//! Tests with a file of claim checks from the last version that wrote such files.

use super::*;
use crate::claims::earlier::NAME;

/// A file in which claim checks 1 to 4 were issued; 2 was redeemed, 3 was redeemed and is complete,
/// 4 was voided. 5 was already redeemed when the file was rewritten.
const FILE: &str = "\
    70656e73746f636b20636c61696d7320310a00000097eba4fa830000002801000000000000000101010101010101010101010101010101000200 \
    000001000e9326dd03c000007b22726561736f6e223a22706172742031222c22646f63756d656e74223a6e756c6c2c2270617468223a6e756c6c \
    2c22636f6e74656e745f74797065223a22612f62222c226279746573223a6e756c6c2c22736861323536223a6e756c6c2c2266696c65223a6e75 \
    6c6c7d000000960b2e577a0000002801000000000000000201010101010101010101010101010101000200000002000e9326dd03c000007b2272 \
    6561736f6e223a22706172742032222c22646f63756d656e74223a6e756c6c2c2270617468223a6e756c6c2c22636f6e74656e745f7479706522 \
    3a6e756c6c2c226279746573223a6e756c6c2c22736861323536223a6e756c6c2c2266696c65223a6e756c6c7d0000009609d4002a0000002801 \
    000000000000000301010101010101010101010101010101000200000003000e9326dd03c000007b22726561736f6e223a22706172742033222c \
    22646f63756d656e74223a6e756c6c2c2270617468223a6e756c6c2c22636f6e74656e745f74797065223a6e756c6c2c226279746573223a6e75 \
    6c6c2c22736861323536223a6e756c6c2c2266696c65223a6e756c6c7d000000960533a49a000000280100000000000000040101010101010101 \
    0101010101010101000200000004000e9326dd03c000007b22726561736f6e223a22706172742034222c22646f63756d656e74223a6e756c6c2c \
    2270617468223a6e756c6c2c22636f6e74656e745f74797065223a6e756c6c2c226279746573223a6e756c6c2c22736861323536223a6e756c6c \
    2c2266696c65223a6e756c6c7d0000001d19ffccda00000019020000000000000002090909090909090909090909090909090000001d9e590799 \
    00000019020000000000000003090909090909090909090909090909090000001e96cf47840000001a0300000000000000030909090909090909 \
    0909090909090909030000000da9e0f85d00000009040000000000000004000000a60ffcc2960000003801000000000000000501010101010101 \
    010101010101010101000200000005000e9326dd03c00001080808080808080808080808080808087b22726561736f6e223a2270617274203522 \
    2c22646f63756d656e74223a6e756c6c2c2270617468223a6e756c6c2c22636f6e74656e745f74797065223a6e756c6c2c226279746573223a6e \
    756c6c2c22736861323536223a6e756c6c2c2266696c65223a6e756c6c7d";

fn bytes() -> Vec<u8> {
    let digits = FILE.replace(' ', "");
    digits.as_bytes().chunks(2).map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn file() -> PathBuf {
    folder().join(NAME)
}

fn written(bytes: &[u8]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    make_folder(&disk, folder()).unwrap();
    penstock_log::replace(&disk, &file(), bytes).unwrap();
    disk.copy()
}

fn model() -> Model {
    let (by, other) = (session(9), session(8));
    Model::from([
        (1, ClaimState::Open),
        (2, ClaimState::Redeemed { by }),
        (3, ClaimState::Settled { by, status: Status::Complete }),
        (5, ClaimState::Redeemed { by: other }),
    ])
}

#[test]
fn a_file_of_the_version_before_is_read_and_written_anew_wherever_the_power_goes_or_the_disk_fails() {
    let whole = written(&bytes());
    let process = Process::open(&whole);
    assert_eq!((process.model(), process.doubts()), (model(), 0));
    assert_eq!(process.state.details[&1].content_type.as_deref(), Some("a/b"));
    assert!(!whole.list(folder()).unwrap().contains(&NAME.to_owned()));
    drop(process);
    assert_eq!(Process::open(&whole.crash(1)).model(), model());
    for fault in Fault::ALL {
        for call in 0..whole.calls() {
            let disk = written(&bytes());
            disk.fail(call, fault, 1);
            drop(Process::try_open(&disk, SMALL));
            for seed in 0..4 {
                let image = disk.crash(seed);
                let mut process = Process::open(&image);
                assert_eq!(process.model(), model(), "{fault:?} at call {call}, image {seed}");
                // Later records count, even if parts of the file reappear.
                process.redeem(1);
                process.save().unwrap();
                let expected = process.model();
                drop(process);
                let again = Process::open(&image.crash(seed)).model();
                assert_eq!(again, expected, "{fault:?} at call {call}, image {seed}, and once more");
            }
        }
    }
}

#[test]
fn a_file_of_the_version_before_that_is_damaged_is_refused_by_its_place_and_stays() {
    let whole = bytes();
    for at in (0..whole.len() - 200).step_by(3) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x20;
        let disk = written(&damaged);
        let error = Process::try_open(&disk, SMALL).err().map(|error| error.to_string()).unwrap();
        let named = if at < 18 { "it is no file of claim checks" } else { "the record at byte " };
        assert!(error.contains("claims.log") && error.contains(named), "{at}: {error}");
        assert_eq!(disk.read(&file()).unwrap(), damaged);
    }
}

#[test]
fn a_file_of_the_version_before_that_was_cut_off_has_what_was_whole() {
    let whole = bytes();
    let mut most = 0;
    for length in 0..whole.len() {
        let disk = written(&whole[..length]);
        let process = Process::open(&disk);
        assert!(process.model().keys().all(|id| model().contains_key(id) || *id == 4), "cut at {length}");
        assert!(!disk.list(folder()).unwrap().contains(&NAME.to_owned()));
        most = most.max(process.model().len());
    }
    assert_eq!(most, 4);
}
