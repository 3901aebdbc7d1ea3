//! Segments of an earlier format, whose ends no header states, and whose headers may be unreadable.

use std::io::IoSlice;
use std::sync::Arc;

use penstock_log::{
    Disk as _, EarlierSegment, Entry, Error, Framing, Head, Hole, Length, Log, Mismatch, Replay, make_folder,
};
use penstock_testkit::disk::{Fault, MemoryDisk};

use crate::support::{FORMAT, folder, kept, path};

/// A framing with a header of four bytes, and records of a length, the letters, and a full stop.
struct Letters;

impl Framing for Letters {
    fn header(&self) -> usize {
        4
    }

    fn end(&mut self, segment: &[u8]) -> Option<usize> {
        Some(segment.iter().rposition(|byte| *byte == b'.').map_or(segment.len(), |at| at + 1))
    }

    fn around(&self, _length: Length) -> (usize, usize) {
        (1, 1)
    }

    fn head(&self, bytes: &[u8]) -> Option<Head> {
        let length = u32::from(*bytes.first()?);
        (length < 32).then_some(Head { length: Length::Body(length), synced: 0, label: [0; 16] })
    }

    fn is_whole(&self, body: &[u8], tail: &[u8]) -> bool {
        tail == b"." && body.is_ascii()
    }
}

/// The bodies, and the number of damaged places.
#[derive(Default)]
struct Heard(Vec<String>, usize);

impl Replay for Heard {
    fn record(&mut self, entry: &Entry<'_>) -> Option<()> {
        assert_eq!(entry.earlier, entry.segment < 3);
        self.0.push(String::from_utf8_lossy(entry.body).into_owned());
        Some(())
    }

    fn hole(&mut self, _hole: &Hole<'_>) {
        self.1 += 1;
    }

    fn earlier(&self, number: u64, start: &[u8]) -> Option<EarlierSegment> {
        start.starts_with(b"OLD1").then(|| EarlierSegment { framing: Box::new(Letters), number, before: Some(0) })
    }

    fn headless(&self, number: u64, segment: &[u8]) -> Option<EarlierSegment> {
        segment.ends_with(b".").then(|| EarlierSegment { framing: Box::new(Letters), number, before: None })
    }
}

fn with(segments: [&[u8]; 2]) -> MemoryDisk {
    let disk = MemoryDisk::default();
    make_folder(&disk, folder()).unwrap();
    for (number, bytes) in (1..).zip(segments) {
        disk.create(&path(number)).unwrap().append(&mut [IoSlice::new(bytes)]).unwrap();
    }
    disk
}

fn open(disk: &MemoryDisk) -> penstock_log::Result<(Log, Heard)> {
    let mut heard = Heard::default();
    let log = Log::open(Arc::new(disk.clone()), folder(), FORMAT, &mut heard)?;
    Ok((log, heard))
}

#[test]
fn a_write_that_was_cut_is_none_in_any_segment_whose_format_says_where_it_ends_and_damage_before_is_some() {
    let disk = with([b"OLD1\x03one.\x03tw", b"OLD1\x05three.\x04fo\xffr.\x04five.\x03si"]);
    for start in 0..2 {
        let (_, Heard(bodies, holes)) = open(&disk).unwrap();
        assert_eq!((bodies, holes), (["one", "three", "five"].map(String::from).into(), 1), "start {start}");
    }
    assert_eq!(disk.read(&path(1)).unwrap(), b"OLD1\x03one.");
    assert!(disk.read(&kept(1)).is_err() && disk.read(&kept(2)).is_ok());
}

#[test]
fn a_segment_without_a_header_is_an_earlier_one_only_in_front_of_those_of_this_version() {
    let disk = with([b"OLD1\x03one.", b"\0\0\0\0\x03two."]);
    let (log, Heard(bodies, holes)) = open(&disk).unwrap();
    assert_eq!((bodies, holes), (["one", "two"].map(String::from).into(), 1));
    assert_eq!(log.open_segment(), Some(3), "it goes on in this version");
    drop(log);
    let mut log = open(&disk).unwrap().0;
    log.append(&[crate::support::Numbered::new(3)]).unwrap();
    drop(log);
    for _ in 0..2 {
        let (_, Heard(bodies, holes)) = open(&disk).unwrap();
        assert_eq!((bodies.len(), holes), (3, 1), "as at the first start");
    }
    disk.create(&path(4))
        .unwrap()
        .append(&mut [IoSlice::new(&[b"\0\0\0\0\x03two.".as_slice(), &[0; 100], b"."].concat())])
        .unwrap();
    let Err(Error::Content { path: file, mismatch }) = open(&disk).map(drop) else { panic!("it is no segment") };
    assert_eq!((file, mismatch), (path(4), Mismatch::Unknown { what: FORMAT.what, number: 4 }));
}

#[test]
fn a_log_of_an_earlier_version_opens_on_a_full_disk_and_goes_on_when_there_is_room() {
    let disk = with([b"OLD1\x03one.", b"OLD1\x03two."]);
    let whole = disk.copy();
    drop(open(&whole).unwrap());
    let mut waited = 0;
    // The last call syncs names that an earlier process has made, which takes no room.
    for call in 0..whole.calls() - 1 {
        for fault in [Fault::Full, Fault::Short] {
            let disk = disk.copy();
            disk.fail(call, fault, 1);
            let (mut log, Heard(bodies, holes)) = open(&disk).unwrap_or_else(|error| panic!("call {call}: {error}"));
            assert_eq!((bodies, holes), (["one", "two"].map(String::from).into(), 0), "call {call}");
            waited += u32::from(log.open_segment().is_none());
            log.append(&[crate::support::Numbered::new(3)]).unwrap();
            drop(log);
            assert_eq!(open(&disk).unwrap().1.0.len(), 3, "call {call}");
        }
    }
    assert!(waited > 3, "{waited}");
}
