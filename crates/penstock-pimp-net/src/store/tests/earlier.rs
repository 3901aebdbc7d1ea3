//! Stores in the previous format: they are read, and continue in the current one.

use super::*;

pub(super) const HEADER: usize = 28;
pub(super) const SEAL: usize = 36;

fn sealed(fields: &[&[u8]]) -> Vec<u8> {
    let fields = fields.concat();
    [fields.as_slice(), &crc32fast::hash(&fields).to_be_bytes()].concat()
}

/// Return the segment as the previous version would have written it, with each record synced alone.
pub(super) fn in_earlier_format(segment: &[u8]) -> Vec<u8> {
    let mut out = sealed(&[b"PIMPLOG2", &segment[24..40]]);
    let mut at = super::HEADER;
    while at < segment.len() {
        let length = u32::from_be_bytes(*segment[at..].first_chunk().expect("a head"));
        let synced = (out.len() as u64).to_be_bytes();
        if length == u32::MAX {
            out.extend(sealed(&[&[0; 4], &synced, &[0; 16]]));
            out.extend([0; 4]);
            at += super::SEAL;
            continue;
        }
        let body = &segment[at + 32..at + 32 + length as usize];
        out.extend(sealed(&[&length.to_be_bytes(), &synced, &segment[at + 8..at + 24]]));
        out.extend(sealed(&[body]));
        at += 32 + body.len() + 8;
    }
    out
}

#[test]
fn a_store_of_the_format_before_is_read_and_goes_on_in_this_one() {
    let folder = TempDir::new().expect("a folder");
    let (mut first, mut second) = (alive(), alive());
    let store = DiskStore::open(folder.path()).expect("fresh");
    for index in 1..4 {
        commit(&store, id(1), change(&mut first, id(1), index..index + 1, 30));
    }
    for index in 1..3 {
        commit(&store, id(2), change(&mut second, id(2), index..index + 1, 30));
    }
    sweep(&store, 0);
    drop(store);
    let old = in_earlier_format(&fs::read(&segments(folder.path())[0]).expect("readable"));
    // The segment ends with a seal, or without one, as a killed process leaves it.
    for (length, is_ended) in [(old.len(), true), (old.len() - SEAL, false)] {
        let image = image(&[&old[..length]]);
        let store = DiskStore::open(image.path()).expect("readable");
        assert!(is_whole(&store, id(1), &first) && is_whole(&store, id(2), &second));
        assert_eq!(segments(image.path()).len(), if is_ended { 1 } else { 2 }, "what breaks from now on is damage");
        let mut grown = first.clone();
        commit(&store, id(1), change(&mut grown, id(1), 4..5, 30));
        drop(store);
        let files = segments(image.path());
        assert!(fs::read(&files[0]).expect("readable").starts_with(b"PIMPLOG2") && files.len() == 2);
        let store = DiskStore::open(image.path()).expect("readable");
        assert!(is_whole(&store, id(1), &grown) && is_whole(&store, id(2), &second));
        assert_eq!(store.usage().damaged, 0);
        drop(store);
        // The header of the new segment states where the old one ends.
        let mut cut = fs::read(&files[0]).expect("readable");
        cut.truncate(length - SEAL - 20);
        fs::write(&files[0], cut).expect("writable");
        let store = DiskStore::open(image.path()).expect("readable");
        assert!(load(&store, id(2)).is_some_and(|job| is_lost(&job)));
    }
}

#[test]
fn a_segment_of_the_format_before_that_is_cut_anywhere_holds_the_changes_that_were_whole() {
    let folder = TempDir::new().expect("a folder");
    let store = DiskStore::open(folder.path()).expect("fresh");
    let mut job = job();
    let mut states = vec![None];
    for index in 1..5 {
        commit(&store, id(1), change(&mut job, id(1), index..index + 1, 3));
        states.push(Some(job.clone()));
    }
    sweep(&store, 0);
    drop(store);
    let new = fs::read(&segments(folder.path())[0]).expect("readable");
    let old = in_earlier_format(&new);
    // In the previous format each record is four bytes shorter, and the segment's header twenty.
    let (mut at, mut ends) = (super::HEADER, vec![HEADER]);
    while at < new.len() - super::SEAL {
        at += 40 + u32::from_be_bytes(*new[at..].first_chunk().expect("a head")) as usize;
        ends.push(at - 20 - 4 * ends.len());
    }
    for cut in 0..old.len() - SEAL {
        let image = image(&[&old[..cut]]);
        let store = DiskStore::open(image.path()).expect("readable");
        let whole = ends.iter().rposition(|end| *end <= cut).and_then(|whole| states[whole].clone());
        assert_eq!(load(&store, id(1)), whole, "cut at {cut}");
    }
}
