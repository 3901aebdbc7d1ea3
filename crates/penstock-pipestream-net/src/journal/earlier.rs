//! Sessions in the format of the previous version: a start moves them to the log.
//!
//! ```text
//!  NNNNNNNN.session    "penstock session 1\n", then parts, from a snapshot on; the file with the highest number counts
//!  labels              "penstock labels 1\n", then records (records.rs, JSON) of labels that ended before the snapshot
//!  new.tmp             a snapshot that was being written
//! ```
//!
//! At a server each session has a folder of its name. Such a folder may also contain a log of this
//! version, which was put aside and which an operator has renamed to the session's name.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use penstock_io::records;

use crate::journal::labels::{decode_ended, key_of_label};
use crate::journal::record::{Entry, Form, Kind, MAX_PART, StoredSession, put, read_part};

const MAGIC: &[u8] = b"penstock session 1\n";
const SUFFIX: &str = ".session";
const LABELS_MAGIC: &[u8] = b"penstock labels 1\n";
const LABELS: &str = "labels";
/// Maximum length of a label's record: a label of 1 KiB and a reason of 64 KiB, with escapes.
const MAX_LABEL: usize = 1 << 20;
const NEW: &str = "new.tmp";

/// Read the session of a folder. Return `None` if it has none. Leave out a last record whose write
/// was cut off; other damage is an error that names the place.
pub(super) fn read(folder: &Path) -> io::Result<Option<Entry>> {
    let Some(number) = numbers(folder)?.pop() else { return Ok(None) };
    let path = path(folder, number);
    let named = |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let (mut labels, mut parts) = (HashSet::new(), Vec::new());
    let labels_path = folder.join(LABELS);
    let each = |record: &[u8]| {
        labels.insert(key_of_label(&decode_ended(record)?.0));
        put(Kind::Label, record, &mut parts);
        Some(())
    };
    if let Some(bytes) = read_if_there(&labels_path)?.filter(|bytes| !LABELS_MAGIC.starts_with(bytes)) {
        read_file(&bytes, LABELS_MAGIC, MAX_LABEL, each).map_err(|error| named(&labels_path, error))?;
    }
    let bytes = fs::read(&path)?;
    let each = |part: &[u8]| {
        if let (Kind::Label, record) = read_part(part)? {
            labels.insert(key_of_label(&decode_ended(record)?.0));
        }
        records::append(part, &mut parts);
        Some(())
    };
    let length = read_file(&bytes, MAGIC, MAX_PART, each).map_err(|error| named(&path, error))?;
    if length < bytes.len() {
        let bytes = bytes.len() - length;
        tracing::warn!(path = %path.display(), bytes, "what was being written of a session is gone");
    }
    let owner = StoredSession::read(&parts).map_err(|error| named(&path, error))?.owner;
    let labels = u32::try_from(labels.len()).unwrap_or(u32::MAX);
    Ok(Some(Entry::new(owner.session, Form::New, labels, parts)))
}

fn read_file(bytes: &[u8], magic: &[u8], most: usize, each: impl FnMut(&[u8]) -> Option<()>) -> io::Result<usize> {
    let rest = bytes.strip_prefix(magic).ok_or_else(|| records::damaged("it is no file of a session".to_owned()))?;
    records::read(rest, magic.len(), most, each)
}

fn read_if_there(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// Remove the files of a folder that were moved to the log.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    let files = numbers(folder)?.into_iter().map(|number| path(folder, number));
    for file in files.chain([folder.join(LABELS), folder.join(NEW)]) {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}{SUFFIX}"))
}

/// Return the numbers of a session's files, oldest first.
fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| name.strip_suffix(SUFFIX)?.parse::<u64>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::labels::encode_ended;
    use crate::journal::record::read_body;
    use crate::journal::tests::{ended, label, owner};

    fn record(number: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(Kind::Core, &vec![number; usize::from(number) * 3], &mut bytes);
        bytes
    }

    /// Write a file in the format of the previous version.
    fn write(folder: &Path, number: u64, records: std::ops::Range<u8>) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        put(Kind::Begin, &owner(7).encode(), &mut bytes);
        records.for_each(|number| bytes.extend(record(number)));
        fs::write(path(folder, number), &bytes).unwrap();
        bytes
    }

    fn core(entry: Option<Entry>) -> Vec<u8> {
        let entry = entry.unwrap();
        let found = StoredSession::read(entry.view().parts).unwrap();
        assert_eq!((found.owner, entry.session), (owner(7), owner(7).session));
        found.core.into_iter().map(|record| record[0]).collect()
    }

    #[test]
    fn a_file_that_is_cut_off_at_any_byte_has_all_records_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let whole = write(dir.path(), 1, 1..6);
        let begin = whole.len() - (2..6).map(|number| record(number).len()).sum::<usize>();
        for length in begin..whole.len() {
            fs::write(path(dir.path(), 1), &whole[..length]).unwrap();
            let mut there = begin;
            let more = (2..6).take_while(|number| {
                there += record(*number).len();
                there <= length
            });
            let expected: Vec<u8> = [1].into_iter().chain(more).collect();
            assert_eq!(core(read(dir.path()).unwrap()), expected, "cut off at {length}");
        }
    }

    #[test]
    fn damage_before_the_last_record_is_an_error_that_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let whole = write(dir.path(), 1, 1..6);
        let last = whole.len() - record(5).len();
        for at in MAGIC.len()..last {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            fs::write(path(dir.path(), 1), &damaged).unwrap();
            let error = read(dir.path()).unwrap_err().to_string();
            assert!(error.contains("00000001.session: the record at byte "), "{at}: {error}");
            assert_eq!(fs::read(path(dir.path(), 1)).unwrap(), damaged, "what is damaged stays as it is");
        }
    }

    #[test]
    fn beside_a_damaged_file_the_one_before_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let before = write(dir.path(), 1, 1..6);
        // The process was killed before it removed the previous file.
        let whole = write(dir.path(), 2, 8..9);
        let mut damaged = whole.clone();
        damaged[MAGIC.len() + 9] ^= 0x55;
        fs::write(path(dir.path(), 2), &damaged).unwrap();
        assert!(read(dir.path()).unwrap_err().to_string().contains("00000002.session"));
        assert_eq!(fs::read(path(dir.path(), 1)).unwrap(), before);
        fs::write(path(dir.path(), 2), &whole).unwrap();
        // Half a snapshot.
        fs::write(dir.path().join(NEW), b"penst").unwrap();
        assert_eq!(core(read(dir.path()).unwrap()), [8]);
        remove(dir.path()).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn labels_of_both_files_are_known_and_those_of_a_file_that_is_cut_off_but_for_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = write(dir.path(), 1, 1..2);
        put(Kind::Label, &encode_ended(&label(9), &ended(9)), &mut bytes);
        fs::write(path(dir.path(), 1), bytes).unwrap();
        let mut whole = LABELS_MAGIC.to_vec();
        let ends: Vec<usize> = (0..3)
            .map(|number| {
                records::append(&encode_ended(&label(number), &ended(number.into())), &mut whole);
                whole.len()
            })
            .collect();
        for length in 0..=whole.len() {
            fs::write(dir.path().join(LABELS), &whole[..length]).unwrap();
            let entry = read(dir.path()).unwrap().unwrap();
            let there = 1 + ends.iter().filter(|end| **end <= length).count();
            assert_eq!(entry.view().labels as usize, there, "cut off at {length}");
        }
    }

    /// A file that the previous version wrote: a beginning, a folder in the sink, a snapshot, a
    /// label.
    const GOLDEN: &str = "70656e73746f636b2073657373696f6e20310a00000031b7624bef4207070707070707070707070707070707090909090909\
        09090909090909090909090909090909090909090909090909090000002150474d7246303730373037303730373037303730\
        3730373037303730373037303730373037000000042f9e73d552010101000000839384302f4c7b226c6162656c223a5b3131\
        325d2c226b6579223a5b322c312c332c305d2c22706172656e74223a372c226465707468223a312c226368696c64223a6e75\
        6c6c2c22737461747573223a342c22726561736f6e223a6e756c6c2c22617474656d707473223a322c22636c61696d223a6e\
        756c6c2c22646967657374223a6e756c6c7d";

    #[test]
    fn a_file_of_that_version_is_taken_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let digit = |at: usize| u8::from_str_radix(&GOLDEN[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..GOLDEN.len()).step_by(2).map(digit).collect();
        fs::write(path(dir.path(), 12), &bytes).unwrap();
        let entry = read(dir.path()).unwrap().unwrap();
        let expected = [&[7; 16][..], b"n\0\0\0\x01\0\0\0\0", &bytes[MAGIC.len()..]].concat();
        assert_eq!(read_body(&expected), Some(entry.view()));
        let found = StoredSession::read(entry.view().parts).unwrap();
        assert_eq!((found.owner, found.core), (owner(7), vec![vec![1; 3]]));
        assert_eq!(found.sink_folder, Some("07".repeat(16)));
    }
}
