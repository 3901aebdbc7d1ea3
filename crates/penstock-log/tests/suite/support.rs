use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use penstock_log::{Entry, Format, Hole, Label, Log, Record, Replay, Result, make_folder};
use penstock_testkit::disk::MemoryDisk;

pub(crate) const FORMAT: Format = Format { kind: *b"test   1", suffix: ".log", what: "a test", segment: 4_096 };
/// The bytes of a segment's header, before a body, and after a body.
pub(crate) const HEADER: usize = penstock_log::HEADER;
pub(crate) const HEAD: usize = 32;
pub(crate) const TAIL: usize = 8;

pub(crate) fn folder() -> &'static Path {
    Path::new("above/of/log")
}

pub(crate) fn path(number: u64) -> PathBuf {
    folder().join(format!("{number:020}.log"))
}

pub(crate) fn kept(number: u64) -> PathBuf {
    folder().join(format!("{number:020}.log.damaged"))
}

/// A record whose body, in three parts, is computed from its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    parts: [Vec<u8>; 3],
}

impl Numbered {
    pub(crate) fn new(number: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(number);
        // Some bodies are empty, some are longer than sectors, and some have a part that is written
        // without a copy.
        let middle = if number % 5 == 2 { 1_024..1_400 } else { 0..900 };
        let lengths = if number % 7 == 3 { [0, 0, 0] } else { [rng.usize(0..20), rng.usize(middle), 1] };
        Self { number, parts: lengths.map(|length| (0..length).map(|_| rng.u8(..)).collect()) }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.parts.concat()
    }

    /// Return its length in a segment.
    pub(crate) fn size(&self) -> usize {
        let body = self.bytes().len();
        HEAD + if body == 0 { 0 } else { body + TAIL }
    }
}

pub(crate) fn label(number: u64) -> Label {
    let mut label = [0x5a; 16];
    label[..8].copy_from_slice(&number.to_be_bytes());
    label
}

pub(crate) fn number(label: &Label) -> u64 {
    u64::from_be_bytes(*label.first_chunk().unwrap())
}

impl Record for Numbered {
    fn label(&self) -> Label {
        label(self.number)
    }

    fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>) {
        parts.extend(self.parts.iter().map(Vec::as_slice));
    }
}

/// The contents that a start has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) numbers: Vec<u64>,
    /// The segment of each record, and its end there.
    pub(crate) ends: BTreeMap<u64, (u64, usize)>,
    /// The segment, the bounds and the label of each hole, and whether it loses a record.
    pub(crate) holes: Vec<(u64, std::ops::Range<usize>, Option<u64>, bool)>,
    /// Bodies whose heads are lost.
    pub(crate) bodies: Vec<Vec<u8>>,
}

impl Replay for Heard {
    fn record(&mut self, entry: &Entry<'_>) -> Option<()> {
        let number = number(&entry.label);
        let expected = Numbered::new(number);
        assert_eq!(entry.body, expected.bytes(), "record {number} is not what was written");
        assert!(!entry.earlier);
        self.numbers.push(number);
        let start = usize::try_from(entry.offset).unwrap() - HEAD;
        self.ends.insert(number, (entry.segment, start + expected.size()));
        Some(())
    }

    fn hole(&mut self, hole: &Hole<'_>) {
        let bounds = usize::try_from(hole.start).unwrap()..usize::try_from(hole.end).unwrap();
        self.holes.push((hole.segment, bounds, hole.label.as_ref().map(number), hole.loses));
        self.bodies.extend(hole.body.map(|(_, body)| body.to_vec()));
    }
}

pub(crate) fn open(disk: &MemoryDisk) -> Result<(Log, Heard)> {
    let mut heard = Heard::default();
    let log = Log::open(Arc::new(disk.clone()), folder(), FORMAT, &mut heard)?;
    Ok((log, heard))
}

/// The answers to appended records.
#[derive(Debug, Default, Clone)]
pub(crate) struct Said {
    pub(crate) durable: BTreeSet<u64>,
    pub(crate) refused: BTreeSet<u64>,
    pub(crate) next: u64,
}

impl Said {
    /// Append some records together.
    pub(crate) fn append(&mut self, log: &mut Log, count: u64) -> io::Result<()> {
        let numbers = self.next..self.next + count;
        self.next += count;
        let records: Vec<Numbered> = numbers.clone().map(Numbered::new).collect();
        match log.append(&records) {
            Ok(_) => {
                self.durable.extend(numbers);
                Ok(())
            }
            Err(error) => {
                self.refused.extend(numbers);
                Err(error)
            }
        }
    }

    /// Check that a start finds the durable records, whole and in order, and no damage. Where
    /// `settled`, an append has succeeded after all refused ones, so no refused record is there.
    pub(crate) fn check(&self, heard: &Heard, settled: bool, when: &str) {
        assert_eq!(heard.holes, [], "{when}");
        assert!(heard.numbers.is_sorted_by(|a, b| a < b), "{when}: {:?}", heard.numbers);
        let found: BTreeSet<u64> = heard.numbers.iter().copied().collect();
        let missing: Vec<_> = self.durable.difference(&found).collect();
        assert!(missing.is_empty(), "{when}: {missing:?} are missing of {found:?}");
        let back: Vec<_> = self.refused.intersection(&found).collect();
        assert!(!settled || back.is_empty(), "{when}: {back:?} have come back");
    }
}

/// Run a log through several processes, groups, seals and segments, ignoring failures.
pub(crate) fn run(disk: &MemoryDisk) -> Said {
    let mut said = Said::default();
    for _ in 0..2 {
        if make_folder(disk, folder()).is_err() {
            continue;
        }
        let Ok((mut log, _)) = open(disk) else { continue };
        for group in 0..9 {
            let _ = said.append(&mut log, 1 + group % 3);
            match group {
                1 | 6 => drop(log.seal_unsynced()),
                3 => drop(log.seal_unsynced().and_then(|()| log.seal())),
                4 => drop(log.seal()),
                _ => {}
            }
        }
    }
    said
}

/// Make a log of several segments; return its disk, its records, and the segments' numbers.
pub(crate) fn written() -> (MemoryDisk, Vec<u64>, Vec<u64>) {
    let disk = MemoryDisk::default();
    let said = run(&disk);
    assert!(said.refused.is_empty());
    let (mut log, heard) = open(&disk).unwrap();
    said.check(&heard, true, "all is well");
    log.seal().unwrap();
    let segments: Vec<u64> = log.segments().map(|(number, _)| number).collect();
    assert!(segments.len() > 3, "{segments:?}");
    (disk.copy(), heard.numbers, segments)
}
