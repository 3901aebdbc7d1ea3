//! The payloads of entities that we send.
//!
//! The header contains the checksum and precedes the payload, so a payload is hashed when it is created, on the thread
//! of the caller, and read a second time when it is sent (decision 15). A source that changes in between is detected:
//! by its length here, by its checksum at the receiver.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use penstock_io::DriverError as _;
use sha2::{Digest as _, Sha256};

use crate::limits::SMALL_PAYLOAD;
use crate::{Error, Misuse, Result};

/// A reader's bytes stay in memory up to this length, then go to an anonymous temporary file.
const SPOOL_MEMORY: usize = 1 << 20;
/// Number of bytes that are read at a time.
const READ_SIZE: usize = 128 << 10;

/// The bytes of an entity with their length and SHA-256.
#[derive(Clone)]
pub struct Payload {
    source: Source,
    length: u64,
    sha256: [u8; 32],
}

#[derive(Clone)]
enum Source {
    Memory(Bytes),
    File(Arc<File>),
}

impl Payload {
    /// Return a payload without bytes, for a container whose own bytes are not sent.
    pub fn empty() -> Self {
        Self::bytes(Bytes::new())
    }

    /// Return a payload of bytes in memory, and hash them.
    pub fn bytes(data: impl Into<Bytes>) -> Self {
        let data = data.into();
        let sha256 = Sha256::digest(&data).into();
        Self::bytes_with_sha256(data, sha256)
    }

    /// Return a payload of bytes in memory whose SHA-256 is known. If the hash is wrong, the
    /// receiver reports an error.
    pub fn bytes_with_sha256(bytes: Bytes, sha256: [u8; 32]) -> Self {
        let length = bytes.len() as u64;
        Self { source: Source::Memory(bytes), length, sha256 }
    }

    /// Return a payload of a file by name. Read the file once to hash it.
    pub fn path(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::file("cannot open", path, error))?;
        let is_file = file.metadata().map_err(|error| Error::file("cannot read", path, error))?.is_file();
        if !is_file {
            return Err(Misuse::PayloadFile { path: path.to_owned() }.into());
        }
        Self::hashed(file).map_err(|error| Error::file("cannot read", path, error))
    }

    /// Return a payload of an open file, from its start to its end regardless of its position. Read
    /// the file once to hash it; use [`reader`](Self::reader) for a pipe, which cannot be read
    /// twice.
    pub fn file(file: File) -> Result<Self> {
        Self::hashed(file).map_err(|error| Error::io("cannot read the file", error))
    }

    fn hashed(mut file: File) -> io::Result<Self> {
        file.seek(SeekFrom::Start(0))?;
        let (length, sha256) = hash(&mut file, |_| Ok(()))?;
        Ok(Self { source: Source::File(Arc::new(file)), length, sha256 })
    }

    /// Return a payload of a reader that can be read once. Keep its bytes in memory up to 1 MiB,
    /// and in an anonymous temporary file beyond that.
    pub fn reader(mut reader: impl Read) -> Result<Self> {
        let mut memory = Vec::new();
        let mut spool: Option<File> = None;
        let spooled = hash(&mut reader, |bytes| spool_bytes(&mut memory, &mut spool, bytes));
        let (length, sha256) = spooled.map_err(|error| Error::io("cannot store the payload", error))?;
        let source = match spool {
            Some(file) => Source::File(Arc::new(file)),
            None => Source::Memory(memory.into()),
        };
        Ok(Self { source, length, sha256 })
    }

    /// Return the number of bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Return whether the payload has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Return the SHA-256 of the bytes.
    pub fn sha256(&self) -> [u8; 32] {
        self.sha256
    }

    /// Return the bytes, if they are few and in memory.
    pub(crate) fn small(&self) -> Option<Bytes> {
        match &self.source {
            Source::Memory(bytes) => Some(bytes.clone()).filter(|bytes| bytes.len() <= SMALL_PAYLOAD),
            Source::File(_) => None,
        }
    }

    /// Return how much memory the payload takes while it is sent.
    pub(crate) fn footprint(&self) -> usize {
        match &self.source {
            Source::Memory(bytes) => bytes.len(),
            // One piece that is being written, and the next one, which is read ahead.
            Source::File(_) => READ_SIZE * 2,
        }
    }

    /// Return the bytes from `offset` to `end`, piece by piece.
    pub(crate) fn pieces(&self, offset: u64, end: u64) -> Pieces {
        Pieces { source: self.source.clone(), offset, end: end.min(self.length) }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("length", &self.length).finish_non_exhaustive()
    }
}

/// A part of a payload that is being sent.
pub(crate) struct Pieces {
    source: Source,
    offset: u64,
    end: u64,
}

impl Pieces {
    /// Return the whole part, if it is in memory.
    pub(crate) fn in_memory(&self) -> Option<Bytes> {
        match &self.source {
            Source::Memory(bytes) => {
                let (from, to) = (usize::try_from(self.offset).ok()?, usize::try_from(self.end).ok()?);
                (from <= to && to <= bytes.len()).then(|| bytes.slice(from..to))
            }
            Source::File(_) => None,
        }
    }

    /// Return the next piece, or `None` at the end. Blocks on the disk.
    pub(crate) fn read(&mut self) -> io::Result<Option<Bytes>> {
        let remaining = usize::try_from(self.end.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        if remaining == 0 {
            return Ok(None);
        }
        let piece = match &self.source {
            Source::Memory(_) => self.in_memory().ok_or(io::ErrorKind::UnexpectedEof)?,
            Source::File(file) => {
                let mut buffer = vec![0; remaining.min(READ_SIZE)];
                let count = read_at(file, &mut buffer, self.offset)?;
                if count == 0 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the source became shorter"));
                }
                buffer.truncate(count);
                buffer.into()
            }
        };
        self.offset = self.offset.saturating_add(piece.len() as u64);
        Ok(Some(piece))
    }
}

/// Read everything, pass each piece to `each`, and return the length and the hash.
fn hash(reader: &mut impl Read, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<(u64, [u8; 32])> {
    let mut buffer = vec![0; READ_SIZE];
    let mut hash = Sha256::new();
    let mut length = 0_u64;
    loop {
        let count = match reader.read(&mut buffer) {
            Ok(0) => return Ok((length, hash.finalize().into())),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = buffer.get(..count).unwrap_or_default();
        hash.update(bytes);
        each(bytes)?;
        length = length.saturating_add(count as u64);
    }
}

fn spool_bytes(memory: &mut Vec<u8>, spool: &mut Option<File>, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write as _;
    if let Some(file) = spool {
        return file.write_all(bytes);
    }
    memory.extend_from_slice(bytes);
    if memory.len() > SPOOL_MEMORY {
        let mut file = tempfile::tempfile()?;
        file.write_all(memory)?;
        *memory = Vec::new();
        *spool = Some(file);
    }
    Ok(())
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    use std::os::unix::fs::FileExt as _;
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn collect(payload: &Payload, from: u64, to: u64) -> Vec<u8> {
        let mut pieces = payload.pieces(from, to);
        let mut all = Vec::new();
        while let Some(piece) = pieces.read().unwrap() {
            all.extend_from_slice(&piece);
        }
        all
    }

    #[test]
    fn every_source_gives_the_same_bytes_and_hash() {
        let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&data).unwrap();
        let payloads = [
            Payload::bytes(data.clone()),
            Payload::path(file.path()).unwrap(),
            Payload::file(file.reopen().unwrap()).unwrap(),
            Payload::reader(data.as_slice()).unwrap(),
        ];
        for payload in payloads {
            assert_eq!((payload.len(), payload.sha256()), (3_000_000, Sha256::digest(&data).into()));
            assert!(collect(&payload, 0, u64::MAX) == data);
            assert!(collect(&payload, 1_000, 2_000_001) == data[1_000..2_000_001]);
        }
    }

    #[test]
    fn a_small_reader_stays_in_memory() {
        let payload = Payload::reader(&b"hello"[..]).unwrap();
        assert_eq!(payload.pieces(0, 5).in_memory().as_deref(), Some(&b"hello"[..]));
        assert_eq!(Payload::empty().sha256(), <[u8; 32]>::from(Sha256::digest(b"")));
    }

    #[test]
    fn a_source_that_became_shorter_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all(b"hello").unwrap();
        let payload = Payload::path(file.path()).unwrap();
        file.as_file().set_len(2).unwrap();
        let mut pieces = payload.pieces(0, 5);
        assert_eq!(pieces.read().unwrap().as_deref(), Some(&b"he"[..]));
        assert!(pieces.read().is_err());
    }

    #[test]
    fn a_folder_is_no_payload() {
        let dir = tempfile::tempdir().unwrap();
        let refused = Payload::path(dir.path());
        assert!(
            matches!(&refused, Err(Error::Misuse(Misuse::PayloadFile { path })) if path == dir.path()),
            "{refused:?}"
        );
    }
}
