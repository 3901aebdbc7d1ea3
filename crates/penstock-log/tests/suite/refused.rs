use std::io::IoSlice;
use std::path::PathBuf;

use penstock_log::{Disk as _, Error, Mismatch};
use penstock_testkit::disk::MemoryDisk;

use crate::support::{FORMAT, HEAD, HEADER, Heard, Numbered, Said, folder, open, path, written};

fn refused(disk: &MemoryDisk) -> (PathBuf, Mismatch) {
    match open(disk).map(drop) {
        Err(Error::Content { path, mismatch }) => (path, mismatch),
        other => panic!("{other:?}"),
    }
}

fn put(disk: &MemoryDisk, number: u64, bytes: &[u8]) {
    let _ = disk.remove(&path(number));
    disk.create(&path(number)).unwrap().append(&mut [IoSlice::new(bytes)]).unwrap();
}

#[test]
fn a_file_that_is_no_segment_is_refused_by_its_name_and_stays() {
    let (disk, ..) = written();
    for bytes in [&b"#!/bin/sh"[..], &[b'x'; 500], &b"PENSLOG2 and so on, with more bytes than a header has"[..]] {
        put(&disk, 90, bytes);
        assert_eq!(refused(&disk), (path(90), Mismatch::Unknown { what: FORMAT.what, number: 90 }));
        assert_eq!(disk.read(&path(90)).unwrap(), bytes);
    }
}

#[test]
fn a_segment_under_another_number_of_another_log_or_another_engine_is_refused() {
    let (disk, _, segments) = written();
    let bytes = disk.read(&path(segments[0])).unwrap();
    let image = disk.copy();
    put(&image, 90, &bytes);
    assert_eq!(refused(&image), (path(90), Mismatch::Number { found: segments[0] }));
    let (other, ..) = written();
    let image = disk.copy();
    put(&image, segments[1], &other.read(&path(segments[1])).unwrap());
    assert_eq!(refused(&image), (path(segments[1]), Mismatch::Log));
    let format = penstock_log::Format { kind: *b"other  1", ..FORMAT };
    let opened = penstock_log::Log::open(std::sync::Arc::new(disk), folder(), format, &mut Heard::default());
    let Err(Error::Content { path: file, mismatch }) = opened.map(drop) else { panic!("it is of another engine") };
    assert_eq!((file, mismatch), (path(segments[0]), Mismatch::Kind { what: FORMAT.what, found: FORMAT.kind }));
}

#[test]
fn a_log_goes_on_in_its_kind_behind_segments_of_a_kind_that_the_engine_takes_too() {
    struct Both(Heard);
    impl penstock_log::Replay for Both {
        fn record(&mut self, entry: &penstock_log::Entry<'_>) -> Option<()> {
            self.0.record(entry)
        }
        fn hole(&mut self, hole: &penstock_log::Hole<'_>) {
            self.0.hole(hole);
        }
        fn is_kind(&self, kind: [u8; 8]) -> bool {
            kind == FORMAT.kind
        }
    }
    let (disk, all, segments) = written();
    let format = penstock_log::Format { kind: *b"other  1", ..FORMAT };
    for more in 0..2_u64 {
        let mut both = Both(Heard::default());
        let mut log = penstock_log::Log::open(std::sync::Arc::new(disk.clone()), folder(), format, &mut both).unwrap();
        assert_eq!((both.0.numbers.len() as u64, both.0.holes), (all.len() as u64 + more, vec![]));
        log.append(&[Numbered::new(1_000 + more)]).unwrap();
        let header = disk.read(&path(log.open_segment().unwrap())).unwrap();
        assert!(header.starts_with(b"PENSLOG1other  1"));
        assert!(log.open_segment() > segments.last().copied());
    }
    assert_eq!(refused(&disk).1, Mismatch::Kind { what: FORMAT.what, found: format.kind });
}

#[test]
fn a_segment_that_is_given_up_is_a_hole_and_its_number_is_not_taken_again() {
    let (disk, all, segments) = written();
    let (_, whole) = open(&disk.copy()).unwrap();
    for victim in segments {
        let image = disk.copy();
        let length = image.read(&path(victim)).unwrap().len();
        image.rename(&path(victim), &path(victim).with_extension("damaged")).unwrap();
        for _ in 0..2 {
            let (mut log, heard) = open(&image).unwrap();
            let left: Vec<u64> = all.iter().copied().filter(|number| whole.ends[number].0 != victim).collect();
            assert_eq!(heard.numbers[..left.len()], left);
            assert!(heard.holes.contains(&(victim, 0..length, None, true)), "{:?}", heard.holes);
            log.append(&[Numbered::new(10_000)]).unwrap();
            assert!(log.open_segment().unwrap() > victim);
        }
    }
}

#[test]
fn a_segment_that_was_just_made_is_removed() {
    let (disk, all, segments) = written();
    let next = segments.last().unwrap() + 1;
    let header = disk.read(&path(segments[0])).unwrap()[..HEADER].to_vec();
    for bytes in [vec![], header[..9].to_vec(), header[..HEADER - 1].to_vec(), vec![0; HEADER]] {
        put(&disk, next, &bytes);
        let (_, heard) = open(&disk).unwrap();
        assert_eq!((heard.numbers, heard.holes), (all.clone(), vec![]));
        assert!(disk.read(&path(next)).is_err());
    }
}

#[test]
fn a_record_that_means_nothing_to_the_engine_stops_the_start() {
    struct Stern;
    impl penstock_log::Replay for Stern {
        fn record(&mut self, _: &penstock_log::Entry<'_>) -> Option<()> {
            None
        }
        fn hole(&mut self, _: &penstock_log::Hole<'_>) {}
    }
    let (disk, ..) = written();
    let opened = penstock_log::Log::open(std::sync::Arc::new(disk), folder(), FORMAT, &mut Stern);
    let Err(Error::Content { path: file, mismatch }) = opened.map(drop) else { panic!("it knows no record") };
    assert_eq!((file, mismatch), (path(1), Mismatch::Record { offset: (HEADER + HEAD) as u64 }));
}

#[test]
fn a_record_that_is_too_long_is_refused_before_the_disk_hears_of_it() {
    struct Long(Vec<u8>);
    impl penstock_log::Record for Long {
        fn label(&self) -> penstock_log::Label {
            Numbered::new(0).label()
        }
        fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>) {
            parts.extend(std::iter::repeat_n(self.0.as_slice(), (penstock_log::LONGEST >> 20) + 1));
        }
    }
    let disk = MemoryDisk::default();
    penstock_log::make_folder(&disk, folder()).unwrap();
    let (mut log, _) = open(&disk).unwrap();
    let mut said = Said::default();
    said.append(&mut log, 1).unwrap();
    let calls = disk.calls();
    assert_eq!(log.append(&[Long(vec![0; 1 << 20])]).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!((disk.calls(), log.open_segment()), (calls, Some(1)));
}
