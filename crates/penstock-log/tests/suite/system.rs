use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use penstock_log::{
    Disk as _, FolderLock, Log, PrivateDisk, SystemDisk, keep_aside, make_folder, read, read_range, replace,
};

use crate::support::{FORMAT, Heard, Numbered};

#[test]
fn the_disk_of_this_machine_holds_what_was_appended_in_more_parts_than_one_call_takes() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("not/yet/there");
    make_folder(&SystemDisk, &folder).unwrap();
    let _lock = FolderLock::take(&folder, ".lock", "another test has it").unwrap();
    let open = |heard: &mut Heard| Log::open(Arc::new(SystemDisk), &folder, FORMAT, heard).unwrap();
    let mut log = open(&mut Heard::default());
    let records: Vec<Numbered> = (0..3_000).map(Numbered::new).collect();
    let appended = log.append(&records).unwrap();
    for (record, offset) in records.iter().zip(&appended.offsets) {
        let mut body = vec![0; record.bytes().len()];
        appended.file.read_at(&mut body, *offset).unwrap();
        assert_eq!(body, record.bytes());
    }
    log.append(&[Numbered::new(3_000)]).unwrap();
    assert_eq!(log.segments().count(), 2);
    drop(log);
    let mut heard = Heard::default();
    let log = open(&mut heard);
    assert_eq!((heard.numbers, heard.holes), ((0..=3_000).collect(), vec![]));
    let on_disk: u64 =
        log.segments().map(|(number, _)| fs::metadata(folder.join(format!("{number:020}.log"))).unwrap().len()).sum();
    assert_eq!(on_disk, log.bytes().load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn a_log_has_a_descriptor_of_the_segment_alone_that_it_appends_to() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Log::open(Arc::new(SystemDisk), folder.path(), FORMAT, &mut Heard::default()).unwrap();
    let descriptors = || {
        let all = fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        all.filter(|path| path.starts_with(folder.path())).count()
    };
    let mut log = open();
    for number in 0..8 {
        log.append(&[Numbered::new(number)]).unwrap();
        assert_eq!(descriptors(), 1);
        log.end_segment();
    }
    assert_eq!((log.segments().count(), descriptors()), (8, 0));
    drop(log);
    let log = open();
    assert_eq!((log.segments().count(), descriptors()), (8, 0));
}

#[test]
fn a_file_of_this_machine_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    for bytes in [&b"old"[..], b"", b"new"] {
        replace(&SystemDisk, &file, bytes).unwrap();
        assert_eq!(fs::read(&file).unwrap(), bytes);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

#[test]
fn a_file_is_read_by_its_range_and_none_that_it_does_not_have_takes_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, b"0123456789").unwrap();
    let mut rights = fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    fs::set_permissions(&path, rights).unwrap();
    let file = SystemDisk.open_to_read(&path).unwrap();
    assert_eq!(read(&*file).unwrap(), b"0123456789");
    for (range, expected) in [(0..3, &b"012"[..]), (7..10, b"789"), (10..10, b"")] {
        assert_eq!(read_range(&*file, range).unwrap(), expected);
    }
    for beyond in [0..11, 11..11, u64::MAX - 1..u64::MAX, 0..u64::MAX, std::ops::Range { start: 3, end: 2 }] {
        assert_eq!(read_range(&*file, beyond).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }
}

#[test]
fn a_file_that_is_kept_aside_stays_what_it_was_when_it_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, kept) = (folder.path().join("file"), folder.path().join("kept"));
    for bytes in [&b"first"[..], b"second"] {
        replace(&SystemDisk, &path, bytes).unwrap();
        keep_aside(&SystemDisk, &path, &kept).unwrap();
    }
    assert_eq!((fs::read(&path).unwrap(), fs::read(&kept).unwrap()), (b"second".to_vec(), b"first".to_vec()));
}

#[test]
fn what_a_private_disk_makes_is_its_owners_alone() {
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("not/yet");
    make_folder(&PrivateDisk, &folder).unwrap();
    for file in ["file", "file", "log"].map(|name| folder.join(name)) {
        replace(&PrivateDisk, &file, b"secret").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
    for folder in [above.path().join("not"), folder.clone()] {
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
    PrivateDisk.rename(&folder.join("log"), &folder.join("file")).unwrap();
    PrivateDisk.link(&folder.join("file"), &folder.join("other")).unwrap();
    PrivateDisk.remove(&folder.join("file")).unwrap();
    assert_eq!(
        (PrivateDisk.list(&folder).unwrap(), PrivateDisk.open(&folder.join("other")).unwrap().length().unwrap()),
        (vec!["other".to_owned()], 6)
    );
}
