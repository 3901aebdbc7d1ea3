//! Spools of the first format.

use super::recovery::{Image, NAME, readable};
use super::*;
use crate::format::{MAX_HEADER, read_header, read_record};

fn seal(bytes: &mut Vec<u8>, start: usize) {
    let hash = XxHash3_64::oneshot(&bytes[start..]);
    bytes.extend_from_slice(&hash.to_le_bytes());
}

/// Convert a segment to the first format; also return where each of its records ends.
fn first_format(image: &Image, with_footer: bool) -> (Vec<u8>, Vec<usize>) {
    let header = read_header(&image.whole[..image.whole.len().min(MAX_HEADER as usize)]).unwrap();
    let mut bytes = image.whole[..image.ends[0] - 8].to_vec();
    bytes[..8].copy_from_slice(b"PSPOOL1\n");
    seal(&mut bytes, 0);
    assert_eq!(bytes.len() as u64, header.length);
    let (mut ends, mut index) = (vec![bytes.len()], Vec::new());
    for record in image.ends.windows(2).map(|ends| &image.whole[ends[0]..ends[1]]) {
        let (start, parts) = (bytes.len(), read_record(record).unwrap());
        let (message, sender) = (&record[parts.message], parts.sent.sender.as_bytes());
        let origin = (16 + parts.sent.hashes.len() * 8 + sender.len()).next_multiple_of(8);
        bytes.extend_from_slice(b"RECD");
        for number in [parts.entry.rows, origin as u32, message.len() as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&parts.sent.connection.to_le_bytes());
        for number in [parts.sent.hashes.len() as u32, sender.len() as u32] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        parts.sent.hashes.iter().for_each(|hash| bytes.extend_from_slice(&hash.to_le_bytes()));
        bytes.extend_from_slice(sender);
        bytes.resize(start + 16 + origin, 0);
        bytes.extend_from_slice(message);
        seal(&mut bytes, start);
        index.push((bytes.len() - start, parts.entry.rows));
        ends.push(bytes.len());
    }
    if with_footer {
        let start = bytes.len();
        bytes.extend_from_slice(b"FOOT");
        bytes.extend_from_slice(&(index.len() as u32).to_le_bytes());
        for (length, rows) in index {
            bytes.extend_from_slice(&(length as u32).to_le_bytes());
            bytes.extend_from_slice(&rows.to_le_bytes());
        }
        bytes.extend_from_slice(&((bytes.len() - start + 16) as u64).to_le_bytes());
        seal(&mut bytes, start);
    }
    (bytes, ends)
}

#[test]
fn a_spool_of_an_earlier_build_is_read_and_every_position_stays_what_it_was() {
    let image = Image::new();
    for with_footer in [true, false] {
        image.put(&first_format(&image, with_footer).0);
        let error = folder_store(image.folder.path()).segments(1, 1).unwrap_err();
        assert_eq!(unreadable(&error), Some(&Unreadable::EarlierFormat), "{error}");
        for round in 0..2 {
            let spool = image.open();
            let store = spool.store().unwrap();
            let rest = plan(&*store, Position { segment: 1, row: 5 }, None, ALL).unwrap();
            assert_eq!(numbers_of(&store, &rest.pieces)[..3], [5, 6, 7]);
            assert_eq!(all(&folder_store(image.folder.path()))[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
            // Hashes of the first format are not used.
            take(&spool, 10 + round, 0..2).unwrap();
            spool.ended(ConnectionEnd { sender: "192.0.2.1".into(), connection: 10 + round, clean: true });
            spool.close().unwrap();
            let counters = spool.counters().unwrap();
            assert_eq!((counters.duplicates, counters.damaged), (0, 0));
        }
        assert!(image.copies("damaged").is_empty() && image.copies("torn").is_empty());
    }
}

#[test]
fn what_is_not_whole_in_a_spool_of_an_earlier_build_is_kept_and_told() {
    let image = Image::new();
    let (mut sealed, ends) = first_format(&image, true);
    sealed[ends[1] + 60] ^= 1;
    image.put(&sealed);
    for damaged in [1, 0] {
        let spool = image.open();
        let (found, errors) = readable(&spool.store().unwrap());
        assert_eq!(found.into_values().collect::<Vec<_>>(), [0, 1, 3, 4, 5, 6, 7]);
        assert!(errors.len() == 1 && lost_rows(&errors[0]) == Some((2, 2)), "{errors:?}");
        assert_eq!(spool.counters().unwrap().damaged, damaged);
    }
    assert_eq!(fs::read(&image.copies("damaged")[0]).unwrap(), sealed);
    let (open, ends) = first_format(&image, false);
    image.put(&open[..ends[4] - 9]);
    assert_eq!(all(&image.open().store().unwrap()), (0..6).collect::<Vec<_>>());
    assert_eq!(fs::read(&image.copies("torn")[0]).unwrap(), &open[..ends[4] - 9]);
    assert_eq!(
        fs::read_dir(image.folder.path())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().path().ends_with(NAME) })
            .count(),
        1
    );
}
