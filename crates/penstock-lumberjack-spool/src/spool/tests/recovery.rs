//! Damage on disk: which rows it loses, and which it must not lose.

use std::path::PathBuf;

use penstock_testkit::cores::divide;

use super::*;

pub(super) const NAME: &str = "00000000000000000001.segment";
/// The rows of each record.
const ROWS: [u32; 4] = [2, 1, 3, 2];

/// An open segment of several records, in a folder with the spool's ID.
pub(super) struct Image {
    pub(super) folder: tempfile::TempDir,
    pub(super) whole: Vec<u8>,
    /// The ends of the header and of each record, in bytes.
    pub(super) ends: Vec<usize>,
}

impl Image {
    pub(super) fn new() -> Self {
        let (origin, folder) = (tempfile::tempdir().unwrap(), quick_folder());
        let spool = Spool::open(options(origin.path())).unwrap();
        let (mut first, mut ends, mut whole) = (0, Vec::new(), Vec::new());
        for rows in ROWS {
            take(&spool, 1, first..first + rows).unwrap();
            first += rows;
            whole = fs::read(origin.path().join(NAME)).unwrap();
            ends.push(whole.len());
        }
        let header = spool.store().unwrap().segments(1, 1).unwrap()[0].header;
        ends.insert(0, usize::try_from(header).unwrap());
        fs::copy(origin.path().join("spool"), folder.path().join("spool")).unwrap();
        Self { folder, whole, ends }
    }

    /// Replace the segment and its copies by a segment of these bytes.
    pub(super) fn put(&self, bytes: &[u8]) {
        for entry in fs::read_dir(self.folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some() {
                fs::remove_file(path).unwrap();
            }
        }
        fs::write(self.folder.path().join(NAME), bytes).unwrap();
    }

    pub(super) fn copies(&self, suffix: &str) -> Vec<PathBuf> {
        let names = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = names.filter(|path| path.to_string_lossy().contains(&format!(".{suffix}"))).collect();
        found.sort();
        found
    }

    pub(super) fn open(&self) -> Arc<Spool> {
        Spool::open(options(self.folder.path())).unwrap()
    }

    /// Change a bit, and check which rows are lost.
    fn change(&self, at: usize, bit: usize) {
        let all_rows: u64 = ROWS.iter().map(|rows| u64::from(*rows)).sum();
        let record = self.ends.iter().filter(|end| **end <= at).count().checked_sub(1);
        // Damage to the header loses no row.
        let lost = record.map_or(0..0, Self::rows_of);
        let mut changed = self.whole.clone();
        changed[at] ^= 1 << bit;
        self.put(&changed);
        let spool = self.open();
        let store = spool.store().unwrap();
        let (found, errors) = readable(&store);
        for row in (0..all_rows).filter(|row| !lost.contains(&u32::try_from(*row).unwrap())) {
            assert_eq!(found.get(&row), Some(&u32::try_from(row).unwrap()), "row {row}, bit {bit} of byte {at}");
        }
        assert_eq!(found.len(), usize::try_from(all_rows).unwrap() - lost.len());
        let rows = lost.clone().last().map(|last| (u64::from(lost.start), u64::from(last)));
        assert_eq!(errors.len(), usize::from(rows.is_some()), "{errors:?}");
        assert_eq!(errors.first().and_then(lost_rows), rows, "{errors:?}");
        assert!(errors.iter().all(|error| error.to_string().contains("segment 1")), "{errors:?}");
        assert_eq!(self.copies("damaged").len(), 1);
        assert_eq!(fs::read(&self.copies("damaged")[0]).unwrap(), changed);
        assert!(self.copies("torn").is_empty());
        assert_eq!(spool.counters().unwrap().damaged, 1);
        if at.is_multiple_of(97) && bit == 3 {
            self.go_on(spool, &store, found.len(), lost.is_empty());
        }
    }

    /// Check that skipped rows are reported once, and that new rows follow the damage.
    fn go_on(&self, spool: Arc<Spool>, store: &Arc<dyn Store>, found: usize, whole: bool) {
        let pieces = plan(&**store, Position::default(), None, ALL).unwrap().pieces;
        let readers =
            pieces.into_iter().map(|piece| Reader::new(Arc::clone(store), piece, Layout::raw()).skip_damaged());
        let rows = |mut reader: Reader| {
            std::iter::from_fn(move || reader.next_batch().unwrap()).map(|batch| batch.num_rows()).sum::<usize>()
        };
        assert_eq!(readers.map(rows).sum::<usize>(), found);
        take(&spool, 2, 90..91).unwrap();
        drop(spool);
        let again = self.open();
        assert_eq!(again.counters().unwrap().damaged, 0, "it was told once");
        let (once_more, errors) = readable(&again.store().unwrap());
        assert_eq!((once_more.len(), errors.len()), (found + 1, usize::from(!whole)));
        assert_eq!(self.copies("damaged").len(), 1);
    }

    /// Return the rows of a record, which equal the numbers in them.
    fn rows_of(record: usize) -> std::ops::Range<u32> {
        let first = ROWS[..record].iter().sum();
        first..first + ROWS[record]
    }
}

/// Read a spool; return the numbers by their rows, and the errors of the other rows.
pub(super) fn readable(store: &Arc<dyn Store>) -> (BTreeMap<u64, u32>, Vec<Error>) {
    let (mut found, mut errors, mut row) = (BTreeMap::new(), Vec::new(), 0);
    // One piece per record.
    let limits = PlanLimits { piece: 1, ..ALL };
    for piece in plan(&**store, Position::default(), None, limits).unwrap().pieces {
        let mut reader = Reader::new(Arc::clone(store), piece, Layout::raw());
        let mut at = row;
        loop {
            match reader.next_batch() {
                Ok(None) => break,
                Ok(Some(batch)) => {
                    let sequence = batch.column_by_name("sequence").unwrap().as_primitive::<Int64Type>().clone();
                    for number in sequence.values() {
                        found.insert(at, u32::try_from(*number).unwrap());
                        at += 1;
                    }
                }
                Err(error) => {
                    errors.push(error);
                    break;
                }
            }
        }
        row += piece.rows;
    }
    (found, errors)
}

#[test]
fn a_bit_that_changed_in_an_open_segment_costs_its_record_and_nothing_else() {
    divide(Image::new().whole.len(), |bytes| {
        let image = Image::new();
        for at in bytes {
            for bit in 0..8 {
                image.change(at, bit);
            }
        }
    });
}

#[test]
fn another_process_reads_around_damage_and_waits_for_what_is_being_written() {
    let image = Image::new();
    for record in 0..ROWS.len() {
        let mut changed = image.whole.clone();
        changed[image.ends[record] + 50] ^= 4;
        image.put(&changed);
        let (found, errors) = readable(&folder_store(image.folder.path()));
        // For a reader in another process, the last record may still be in the middle of a write.
        let expected = usize::from(record + 1 < ROWS.len());
        assert_eq!(errors.len(), expected, "{errors:?}");
        let lost = Image::rows_of(record);
        assert_eq!(
            found.into_values().collect::<Vec<_>>(),
            (0..8).filter(|row| !lost.contains(row)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn several_damaged_records_and_a_torn_end_are_told_apart() {
    let image = Image::new();
    let mut changed = image.whole.clone();
    // The head of one record, the middle of the next, and the last one cut off.
    changed[image.ends[0] + 2] ^= 1;
    changed[image.ends[1] + 100] ^= 1;
    changed.truncate(image.ends[4] - 20);
    image.put(&changed);
    let spool = image.open();
    let (found, errors) = readable(&spool.store().unwrap());
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [(3, 3), (4, 4), (5, 5)]);
    assert_eq!(errors.len(), 2);
    assert_eq!(errors.iter().map(lost_rows).collect::<Vec<_>>(), [Some((0, 1)), Some((2, 2))], "{errors:?}");
    assert_eq!(spool.counters().unwrap().damaged, 2);
    assert_eq!(fs::read(&image.copies("damaged")[0]).unwrap(), changed);
    // A position in the middle of the lost rows, and positions after them.
    let store = spool.store().unwrap();
    for (row, numbers) in [(1, None), (3, Some(vec![3, 4, 5])), (5, Some(vec![5]))] {
        let found = plan(&*store, Position { segment: 1, row }, None, ALL).unwrap();
        if let Some(numbers) = numbers {
            assert_eq!(numbers_of(&store, &found.pieces), numbers);
        } else {
            let error = Reader::new(Arc::clone(&store), found.pieces[0], Layout::raw()).next_batch().unwrap_err();
            assert_eq!(lost_rows(&error), Some((0, 1)), "{error}");
        }
    }
}

#[test]
fn a_footer_that_changed_costs_nothing_and_an_earlier_copy_is_kept() {
    let image = Image::new();
    image.put(&image.whole);
    drop(image.open());
    let sealed = fs::read(image.folder.path().join(NAME)).unwrap();
    for (times, at) in [image.whole.len() + 1, sealed.len() - 3].into_iter().enumerate() {
        let mut changed = sealed.clone();
        changed[at] ^= 8;
        fs::write(image.folder.path().join(NAME), &changed).unwrap();
        let spool = image.open();
        assert_eq!(all(&spool.store().unwrap()), (0..8).collect::<Vec<_>>());
        assert_eq!(fs::read(&image.copies("damaged")[times]).unwrap(), changed);
        drop(spool);
        assert_eq!(fs::read(image.folder.path().join(NAME)).unwrap(), sealed);
    }
}

#[test]
fn what_was_torn_is_copied_before_it_is_cut_off() {
    let image = Image::new();
    let torn = &image.whole[..image.ends[3] + 90];
    image.put(torn);
    let spool = image.open();
    assert_eq!(all(&spool.store().unwrap()), (0..6).collect::<Vec<_>>());
    assert_eq!(fs::read(&image.copies("torn")[0]).unwrap(), torn);
    assert_eq!((image.copies("damaged").len(), spool.counters().unwrap().damaged), (0, 0));
    drop(spool);
    // Zeros at the end are cut off too.
    image.put(&[&image.whole[..], &[0; 4_096]].concat());
    assert_eq!(all(&image.open().store().unwrap()), (0..8).collect::<Vec<_>>());
    assert_eq!(image.copies("torn").len(), 1);
}

#[test]
fn a_header_is_written_again_where_its_pages_are_zeros() {
    let image = Image::new();
    let mut changed = image.whole.clone();
    changed[..image.ends[0] + 40].fill(0);
    image.put(&changed);
    let (found, errors) = readable(&image.open().store().unwrap());
    assert_eq!(found.into_keys().collect::<Vec<_>>(), (2..8).collect::<Vec<_>>());
    assert_eq!(lost_rows(&errors[0]), Some((0, 1)), "{errors:?}");
    // No record of this spool follows the header.
    image.put(&[&b"PSPOOL2\n"[..], &[7; 4_096]].concat());
    let error = Spool::open(options(image.folder.path())).unwrap_err();
    assert_eq!(unreadable(&error), Some(&Unreadable::Headless), "{error}");
    assert!(!error.to_string().contains("lose"), "{error}");
    let error = folder_store(image.folder.path()).segments(1, 1).unwrap_err();
    assert_eq!(unreadable(&error), Some(&Unreadable::Headless), "{error}");
}

#[test]
fn a_last_record_that_is_damaged_is_a_hole_once_whatever_is_behind_it() {
    let image = Image::new();
    image.put(&image.whole);
    drop(image.open());
    let sealed = fs::read(image.folder.path().join(NAME)).unwrap();
    let with = |bytes: &[u8], places: &[usize]| {
        let mut bytes = bytes.to_vec();
        places.iter().for_each(|at| bytes[*at] ^= 4);
        bytes
    };
    let (head, middle) = (image.ends[3] + 5, image.ends[3] + 70);
    for changed in [
        [with(&image.whole, &[middle]), vec![0; 4_096]].concat(),
        [with(&image.whole, &[head]), vec![0; 4_096]].concat(),
        [with(&image.whole, &[middle]), vec![1; 20]].concat(),
        with(&sealed, &[middle, sealed.len() - 3]),
        with(&sealed, &[middle, image.whole.len() + 1, image.whole.len() + 9]),
    ] {
        image.put(&changed);
        for _ in 0..2 {
            let spool = image.open();
            for store in [spool.store().unwrap(), folder_store(image.folder.path())] {
                let (found, errors) = readable(&store);
                assert_eq!(found.into_values().collect::<Vec<_>>(), (0..6).collect::<Vec<_>>());
                assert!(errors.len() == 1 && lost_rows(&errors[0]) == Some((6, 7)), "{errors:?}");
            }
        }
        assert_eq!(image.copies("damaged").len(), 1);
        assert_eq!(fs::read(&image.copies("damaged")[0]).unwrap(), changed);
    }
}

#[test]
fn a_reader_that_was_behind_a_last_record_goes_on_though_nobody_knows_its_rows() {
    let image = Image::new();
    let mut changed = image.whole.clone();
    changed[image.ends[3]..image.ends[3] + 12].fill(0xA5);
    image.put(&changed);
    let spool = image.open();
    take(&spool, 2, 90..91).unwrap();
    for store in [spool.store().unwrap(), folder_store(image.folder.path())] {
        let read = Position { segment: 1, row: 8 };
        assert_eq!(numbers_of(&store, &plan(&*store, read, None, ALL).unwrap().pieces), [90]);
        plan(&*store, Position::default(), Some(read), ALL).unwrap();
        assert!(lost_rows(&readable(&store).1[0]).is_some());
    }
}

#[test]
fn only_the_last_segment_may_be_torn() {
    let image = Image::new();
    image.put(&image.whole);
    let spool = image.open();
    take(&spool, 2, 90..91).unwrap();
    drop(spool);
    let (second, first) = (image.folder.path().join("00000000000000000002.segment"), image.folder.path().join(NAME));
    let (second_bytes, sealed) = (fs::read(second).unwrap(), fs::read(first).unwrap());
    let last = image.ends[3];
    // The bytes from some place on are zeros, with the footer or without.
    for (from, length, rows) in
        [(last + 100, sealed.len(), (6, 7)), (last, sealed.len(), (6, 6)), (last + 8, image.whole.len(), (6, 6))]
    {
        let mut changed = sealed[..length].to_vec();
        changed[from..].fill(0);
        image.put(&changed);
        fs::write(image.folder.path().join("00000000000000000002.segment"), &second_bytes).unwrap();
        // A reader in another process, before a receiver has opened the spool, does not pass over
        // the rows either.
        let (_, errors) = readable(&folder_store(image.folder.path()));
        assert!(errors.len() == 1, "{errors:?}");
        for _ in 0..2 {
            let (found, errors) = readable(&image.open().store().unwrap());
            assert_eq!(found.into_values().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 90]);
            assert!(errors.len() == 1 && lost_rows(&errors[0]) == Some(rows), "{errors:?}");
        }
        assert_eq!((image.copies("damaged").len(), image.copies("torn").len()), (1, 0));
    }
    // A half-written footer loses no row.
    image.put(&sealed[..image.whole.len() + 9]);
    fs::write(image.folder.path().join("00000000000000000002.segment"), &second_bytes).unwrap();
    assert_eq!(all(&image.open().store().unwrap()), [0, 1, 2, 3, 4, 5, 6, 7, 90]);
    assert_eq!((image.copies("damaged").len(), image.copies("torn").len()), (0, 1));
}

#[test]
fn events_that_look_like_records_are_not_taken_for_some() {
    let (origin, image) = (tempfile::tempdir().unwrap(), quick_folder());
    let other = Image::new();
    let spool = Spool::open(options(origin.path())).unwrap();
    // An event contains another spool's segment, at every distance from a multiple of 8.
    let mut builder = Builder::new(&Layout::raw());
    for number in 0..8 {
        builder.push_json(number, &[&b"        "[..number as usize], &other.whole].concat());
    }
    let batch = builder.finish(&Origin { peer: "192.0.2.1:9".into(), identity: None, received: 1 }).unwrap();
    block_on(spool.take(Delivery { batch, hashes: Vec::new(), ..delivery(1, 0..1) })).unwrap().unwrap();
    take(&spool, 1, 8..9).unwrap();
    let mut changed = fs::read(origin.path().join(NAME)).unwrap();
    fs::copy(origin.path().join("spool"), image.path().join("spool")).unwrap();
    let header = usize::try_from(spool.store().unwrap().segments(1, 1).unwrap()[0].header).unwrap();
    changed[header] ^= 1;
    fs::write(image.path().join(NAME), changed).unwrap();
    let spool = Spool::open(options(image.path())).unwrap();
    let (found, errors) = readable(&spool.store().unwrap());
    assert_eq!((found.into_iter().collect::<Vec<_>>(), errors.len()), (vec![(8, 8)], 1));
}

#[test]
fn a_hole_is_the_same_for_readers_elsewhere() {
    let image = Image::new();
    let mut changed = image.whole.clone();
    changed[image.ends[1] + 60] ^= 1;
    image.put(&changed);
    let spool = image.open();
    let tls = ServerTls { identity: Identity::Development { dir: image.folder.path().join("tls") }, client_ca: None };
    let key = ReadKey::new("sixteen bytes...").unwrap();
    let service = Service::bind(([127, 0, 0, 1], 0).into(), &tls, key, spool.store().unwrap()).unwrap();
    let client = ClientTls { trust: Trust::Fingerprint(service.fingerprint()), identity: None };
    let remote = RemoteStore::new(&client, service.address(), Some("localhost"), "sixteen bytes...").unwrap();
    let store: Arc<dyn Store> = Arc::new(remote);
    let (found, errors) = readable(&store);
    assert_eq!(found.len(), 7);
    assert_eq!(lost_rows(&errors[0]), Some((2, 2)), "{errors:?}");
    service.close();
}

#[test]
fn no_copy_takes_the_name_of_another() {
    let image = Image::new();
    let mut changed = image.whole.clone();
    changed[image.ends[1] + 60] ^= 1;
    image.put(&changed);
    let taken = image.folder.path().join(NAME).with_extension("damaged");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.with_extension("damaged.1"), b"an earlier copy").unwrap();
    let spool = image.open();
    assert_eq!(readable(&spool.store().unwrap()).0.len(), 7);
    assert_eq!(fs::read(taken.with_extension("damaged.2")).unwrap(), changed);
    assert_eq!(fs::read(taken.with_extension("damaged.1")).unwrap(), b"an earlier copy");
}

#[test]
fn a_damaged_record_is_the_same_error_however_often_its_reader_asks() {
    let folder = quick_folder();
    let spool = Spool::open(options(folder.path())).unwrap();
    (0..3).for_each(|round| take(&spool, 1, round * 3..round * 3 + 3).unwrap());
    spool.close().unwrap();
    let store = folder_store(folder.path());
    let pieces = plan(&*store, Position::default(), None, ALL).unwrap().pieces;
    let [piece] = pieces.as_slice() else { panic!("{pieces:?}") };
    let entries = store.segments(1, 1).unwrap().remove(0).entries;
    let path = folder.path().join("00000000000000000001.segment");
    let mut bytes = fs::read(&path).unwrap();
    let end = piece.start + u64::from(entries[0].bytes) + u64::from(entries[1].bytes);
    bytes[usize::try_from(end).unwrap() - 20] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let mut reader = Reader::new(Arc::clone(&store), *piece, Layout::raw());
    let errors: Vec<_> = (0..3).map(|_| reader.next_batch().unwrap_err()).collect();
    assert_eq!(errors.iter().map(lost_rows).collect::<Vec<_>>(), [Some((3, 5)); 3], "{errors:?}");
    let mut skipping = Reader::new(Arc::clone(&store), *piece, Layout::raw()).skip_damaged();
    let rows = std::iter::from_fn(|| skipping.next_batch().unwrap()).map(|batch| batch.num_rows()).sum::<usize>();
    assert_eq!(rows, 6);
}

#[test]
fn a_damaged_footer_costs_no_row_for_a_reader_that_has_seen_the_segment_without_it() {
    let folder = quick_folder();
    let spool = Spool::open(options(folder.path())).unwrap();
    let store = folder_store(folder.path());
    take(&spool, 1, 0..3).unwrap();
    assert_eq!(all(&store), [0, 1, 2]);
    take(&spool, 1, 3..5).unwrap();
    spool.close().unwrap();
    let spool = Spool::open(options(folder.path())).unwrap();
    take(&spool, 2, 5..6).unwrap();
    let path = folder.path().join("00000000000000000001.segment");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(all(&store), [0, 1, 2, 3, 4, 5]);
    assert_eq!(all(&folder_store(folder.path())), [0, 1, 2, 3, 4, 5]);
}
