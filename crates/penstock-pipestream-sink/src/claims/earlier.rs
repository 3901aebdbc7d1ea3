//! The file of claim checks that an earlier version has written: a start moves it into the log.
//! Objects of a store still have this format.
//!
//! ```text
//!  claims.log    "penstock claims 1\n", then records (penstock_io::records), each a change
//! ```

use std::io;
use std::path::Path;

use penstock_io::DriverError as _;
use penstock_io::records;
use penstock_log::{Disk, read};

use crate::claims::record::{Change, read_change};
use crate::{Error, Result};

pub(super) const MAGIC: &[u8] = b"penstock claims 1\n";
pub(super) const NAME: &str = "claims.log";
/// Maximum length of a record: it contains a claim check's state in a token of at most 16 MiB.
const MAX_RECORD: usize = 32 << 20;

/// Append the record of a change.
pub(super) fn append(change: &[u8], bytes: &mut Vec<u8>) {
    records::append(change, bytes);
}

/// Read the file of a folder; return `None` if there is none. A last record that a crash has cut
/// off was not reported to any peer, and is skipped.
///
/// # Errors
///
/// If a record is damaged; the error says where.
pub(super) fn look(disk: &dyn Disk, folder: &Path, mut each: impl FnMut(Change)) -> Result<Option<()>> {
    let path = folder.join(NAME);
    let failed = |error| Error::file("cannot read", &path, error);
    let bytes = match disk.open_to_read(&path).and_then(|file| read(&*file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(failed)?,
    };
    // A shorter file is new, or was cut off in its first line.
    if !MAGIC.starts_with(&bytes) {
        read_all(&bytes, &mut each).map_err(failed)?;
    }
    Ok(Some(()))
}

/// Read all records, after the first line.
pub(super) fn read_all(bytes: &[u8], each: &mut impl FnMut(Change)) -> io::Result<()> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(records::damaged("it is no file of claim checks".to_owned()));
    };
    let take = |body: &[u8]| read_change(body).map(&mut *each);
    records::read(rest, MAGIC.len(), MAX_RECORD, take).map(drop)
}
