//! The records of one session on disk.
//!
//! ```text
//!  00000001.session    "penstock session 1\n", then records (records.rs), each of a kind:
//!                      B  the session's name, the digest of its client's certificate; the first record
//!                      F  the name of its folder in the sink, at a server; the last one counts
//!                      R  a record of the core (core: session/journal.rs); the first is a snapshot
//!                      L  an entity of ours with a label has ended, JSON
//!                      D  a scope of ours was released, JSON
//!                      E  the session's end, and the core's last record
//! ```
//!
//! A snapshot begins the file with the next number, which has its name when all of it is durable; then the one before goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use penstock_io::records::{self, sync_folder};
use penstock_pipestream::SessionId;

const MAGIC: &[u8] = b"penstock session 1\n";
const SUFFIX: &str = ".session";
const NEW: &str = "new.tmp";
/// No record is longer: a snapshot has what waits for a million entities.
const MAX_RECORD: usize = 1 << 30;
/// A file shorter than this is never begun anew.
const LONG: u64 = 1 << 20;
/// How many times as long as its beginning a file may get.
const TIMES: u64 = 4;

/// A record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Begin,
    Folder,
    Core,
    Label,
    Released,
    End,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Begin, Self::Folder, Self::Core, Self::Label, Self::Released, Self::End];

    const fn letter(self) -> u8 {
        match self {
            Self::Begin => b'B',
            Self::Folder => b'F',
            Self::Core => b'R',
            Self::Label => b'L',
            Self::Released => b'D',
            Self::End => b'E',
        }
    }
}

/// Appends a record to what is to be written.
pub(super) fn put(kind: Kind, body: &[u8], bytes: &mut Vec<u8>) {
    records::append(&[&[kind.letter()], body].concat(), bytes);
}

/// Whose session it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) session: SessionId,
    /// SHA-256 of its client's certificate, at a server.
    pub(crate) certificate: Option<[u8; 32]>,
}

impl Owner {
    fn encode(&self) -> Vec<u8> {
        let certificate = self.certificate.as_ref().map_or(&[][..], |digest| digest.as_slice());
        [self.session.bytes().as_slice(), certificate].concat()
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let (session, certificate) = body.split_first_chunk()?;
        let certificate = if certificate.is_empty() { None } else { Some(certificate.try_into().ok()?) };
        Some(Self { session: SessionId::new(*session), certificate })
    }
}

/// What was read of a session.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) owner: Owner,
    /// Its folder in the sink; none where a server wrote this that kept no names, or died before it had one.
    pub(super) sink_folder: Option<String>,
    pub(super) core: Vec<Vec<u8>>,
    pub(super) labels: Vec<Vec<u8>>,
    pub(super) released: Vec<Vec<u8>>,
    /// The code that it has ended with.
    pub(super) end: Option<u64>,
}

/// A session's file.
#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    owner: Owner,
    /// What its folder in the sink is called.
    pub(super) sink_folder: Option<String>,
    number: u64,
    open: Option<File>,
    /// Bytes that count, and those that the file began with.
    length: u64,
    begun: u64,
}

impl Log {
    /// One that is yet to be written.
    pub(super) fn new(folder: PathBuf, owner: Owner) -> Self {
        Self { folder, owner, sink_folder: None, number: 0, open: None, length: 0, begun: 0 }
    }

    /// Reads what is in a folder; `None` where no session is. Older files go, and what was being written. Where the newest
    /// file is damaged nothing is removed: the older ones may tell an operator more.
    pub(super) fn read(folder: &Path) -> io::Result<Option<(Self, Found)>> {
        let mut numbers = numbers(folder)?;
        let Some(number) = numbers.pop() else { return Ok(None) };
        let path = path(folder, number);
        let mut file = OpenOptions::new().read(true).write(true).open(&path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (found, length) =
            parse(&bytes).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        if length < bytes.len() as u64 {
            let bytes = bytes.len() as u64 - length;
            tracing::warn!(path = %path.display(), bytes, "what was being written of a session is gone");
            file.set_len(length)?;
            file.sync_all()?;
        }
        for old in numbers {
            fs::remove_file(self::path(folder, old))?;
        }
        file.seek(SeekFrom::Start(length))?;
        let (owner, sink_folder, begun) = (found.owner, found.sink_folder.clone(), bytes.len() as u64);
        let log = Self { folder: folder.to_owned(), owner, sink_folder, number, open: Some(file), length, begun };
        Ok(Some((log, found)))
    }

    /// Whether a snapshot is due.
    pub(super) fn is_long(&self) -> bool {
        self.length > LONG.max(self.begun.saturating_mul(TIMES))
    }

    /// Writes records behind the others; [`sync`](Self::sync) makes them durable.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let file = self.open.as_mut().ok_or_else(|| io::Error::other("its file could not be written before"))?;
        // What a write that failed has left is written over.
        let written = file.seek(SeekFrom::Start(self.length)).and_then(|_| file.write_all(bytes));
        if written.is_err() {
            let _ = file.set_len(self.length);
        }
        written?;
        self.length = self.length.saturating_add(bytes.len() as u64);
        Ok(())
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), File::sync_data)
    }

    /// Writes records that stand for all before them.
    pub(super) fn replace(&mut self, bytes: &[u8]) -> io::Result<()> {
        make_folder(&self.folder)?;
        // A session that had the same ID may have left its records, because its list could not be closed.
        let before = if self.number > 0 { self.number } else { numbers(&self.folder)?.pop().unwrap_or(0) };
        let new = self.folder.join(NEW);
        let mut file = options().truncate(true).open(&new)?;
        let mut begin = MAGIC.to_vec();
        put(Kind::Begin, &self.owner.encode(), &mut begin);
        if let Some(name) = &self.sink_folder {
            put(Kind::Folder, name.as_bytes(), &mut begin);
        }
        let number = before.saturating_add(1);
        let place = path(&self.folder, number);
        let written = file
            .write_all(&begin)
            .and_then(|()| file.write_all(bytes))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&new, &place))
            .and_then(|()| sync_folder(&place));
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        if before > 0 {
            // What is left is not read.
            let _ = fs::remove_file(path(&self.folder, before));
        }
        self.length = (begin.len() + bytes.len()) as u64;
        (self.number, self.open, self.begun) = (number, Some(file), self.length);
        Ok(())
    }

    /// Nothing of the session is needed any more.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        self.open = None;
        for number in numbers(&self.folder)? {
            fs::remove_file(path(&self.folder, number))?;
        }
        // A process that was killed may have left half of a snapshot.
        let _ = fs::remove_file(self.folder.join(NEW));
        // A client's has its key and its lock, and stays.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> io::Result<(Found, u64)> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| records::damaged("it is no file of a session".to_owned()))?;
    let (mut owner, mut sink_folder, mut end) = (None, None, None);
    let (mut core, mut labels, mut released) = (Vec::new(), Vec::new(), Vec::new());
    let length = records::read(rest, MAGIC.len(), MAX_RECORD, |record| {
        let (letter, body) = record.split_first()?;
        match Kind::ALL.into_iter().find(|kind| kind.letter() == *letter)? {
            Kind::Begin => owner = Some(Owner::decode(body)?),
            Kind::Folder => sink_folder = Some(String::from_utf8(body.to_vec()).ok()?),
            Kind::Core => core.push(body.to_vec()),
            Kind::Label => labels.push(body.to_vec()),
            Kind::Released => released.push(body.to_vec()),
            Kind::End => end = Some(u64::from_be_bytes(body.first_chunk().copied()?)),
        }
        Some(())
    })?;
    let owner = owner.ok_or_else(|| records::damaged("it does not say whose session it is".to_owned()))?;
    Ok((Found { owner, sink_folder, core, labels, released, end }, length as u64))
}

/// Makes a folder that nobody else may look into.
pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)?;
    sync_folder(folder)
}

/// For files that nobody else may look into.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}{SUFFIX}"))
}

/// The files of a session, oldest first.
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

    const OWNER: Owner = Owner { session: SessionId::new([7; 16]), certificate: Some([9; 32]) };

    fn record(number: u8) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(Kind::Core, &vec![number; usize::from(number) * 3], &mut bytes);
        bytes
    }

    fn written(folder: &Path) -> PathBuf {
        let mut log = Log::new(folder.to_owned(), OWNER);
        log.replace(&record(1)).unwrap();
        for number in 2..6 {
            log.append(&record(number)).unwrap();
            log.sync().unwrap();
        }
        path(folder, 1)
    }

    #[test]
    fn a_file_that_is_cut_off_at_any_byte_has_all_records_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = written(dir.path());
        let whole = fs::read(&file).unwrap();
        let (_, first) = parse(&whole).unwrap();
        assert_eq!(first, whole.len() as u64);
        let begin = whole.len() - (2..6).map(|number| record(number).len()).sum::<usize>();
        for length in begin..whole.len() {
            fs::write(&file, &whole[..length]).unwrap();
            let (mut log, found) = Log::read(dir.path()).unwrap().unwrap();
            let mut there = begin;
            let expected = 1
                + (2..6)
                    .take_while(|number| {
                        there += record(*number).len();
                        there <= length
                    })
                    .count();
            assert_eq!((found.core.len(), found.owner), (expected, OWNER), "cut off at {length}");
            // What comes next is behind the last whole one.
            log.append(&record(9)).unwrap();
            let (_, found) = Log::read(dir.path()).unwrap().unwrap();
            assert_eq!(found.core.len(), expected + 1);
            assert_eq!(found.core.last().unwrap(), &vec![9; 27]);
        }
    }

    #[test]
    fn damage_before_the_last_record_is_an_error_that_says_where() {
        let dir = tempfile::tempdir().unwrap();
        let file = written(dir.path());
        let whole = fs::read(&file).unwrap();
        let last = whole.len() - record(5).len();
        for at in MAGIC.len()..last {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            fs::write(&file, &damaged).unwrap();
            let error = Log::read(dir.path()).unwrap_err().to_string();
            assert!(error.contains("00000001.session: the record at byte "), "{at}: {error}");
            assert_eq!(fs::read(&file).unwrap(), damaged, "what is damaged stays as it is");
        }
    }

    #[test]
    fn beside_a_damaged_file_the_one_before_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path());
        let before = fs::read(path(dir.path(), 1)).unwrap();
        let (mut log, _) = Log::read(dir.path()).unwrap().unwrap();
        log.replace(&record(8)).unwrap();
        // The process was killed before the one before went.
        fs::write(path(dir.path(), 1), &before).unwrap();
        let whole = fs::read(path(dir.path(), 2)).unwrap();
        let mut damaged = whole.clone();
        damaged[MAGIC.len() + 9] ^= 0x55;
        fs::write(path(dir.path(), 2), &damaged).unwrap();
        assert!(Log::read(dir.path()).unwrap_err().to_string().contains("00000002.session"));
        assert_eq!(fs::read(path(dir.path(), 1)).unwrap(), before);
        fs::write(path(dir.path(), 2), &whole).unwrap();
        assert_eq!(Log::read(dir.path()).unwrap().unwrap().1.core, [vec![8; 24]]);
        assert!(!path(dir.path(), 1).exists());
    }

    #[test]
    fn a_session_of_the_same_id_takes_the_place_of_records_that_were_left() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path());
        let (mut old, _) = Log::read(dir.path()).unwrap().unwrap();
        old.replace(&record(8)).unwrap();
        Log::new(dir.path().to_owned(), OWNER).replace(&record(7)).unwrap();
        assert_eq!(Log::read(dir.path()).unwrap().unwrap().1.core, [vec![7; 21]]);
    }

    #[test]
    fn a_snapshot_stands_for_what_was_before_it() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path());
        let (mut log, _) = Log::read(dir.path()).unwrap().unwrap();
        log.replace(&record(8)).unwrap();
        log.append(&record(2)).unwrap();
        // Half a snapshot.
        fs::write(dir.path().join(NEW), b"penst").unwrap();
        let (mut log, found) = Log::read(dir.path()).unwrap().unwrap();
        assert_eq!(found.core, [vec![8; 24], vec![2; 6]]);
        assert!(!path(dir.path(), 1).exists());
        log.remove().unwrap();
        assert!(!dir.path().exists());
    }

    #[test]
    fn nobody_else_may_look_into_it() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a").join("b");
        let file = written(&folder);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file)), (0o700, 0o600));
    }
}
