use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::transport::quic_code;
use bytes::Bytes;
use penstock_io::sync::lock;
use penstock_pipestream::ErrorCode;
use quinn::{ReadError, RecvStream};
use tokio::sync::oneshot;

/// Maximum number of pieces of a stream taken at a time; a piece is the content of one packet.
const PIECES: usize = 128;

/// Why a stream has no more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The peer reset it.
    Reset(u64),
    /// The session stopped it.
    Stopped(ErrorCode),
    /// The connection is lost.
    Lost,
}

impl From<ReadError> for StreamEnd {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Reset(code) => Self::Reset(code.into_inner()),
            ReadError::ConnectionLost(_)
            | ReadError::ClosedStream
            | ReadError::IllegalOrderedRead
            | ReadError::ZeroRttRejected => Self::Lost,
        }
    }
}

/// The payload of an entity that is still arriving.
#[derive(Debug)]
pub struct StreamBody {
    stream: RecvStream,
    /// Bytes that arrived with the header.
    first: Bytes,
    /// The end of the stream, if it ended while the header was read.
    end: Option<StreamEnd>,
    stop: oneshot::Receiver<ErrorCode>,
    /// Number of the stream in the session.
    name: u64,
    /// Set when the stream was read to its end.
    whole: Arc<AtomicBool>,
}

impl StreamBody {
    pub(crate) fn new(
        stream: RecvStream,
        first: Bytes,
        end: Option<StreamEnd>,
        stop: oneshot::Receiver<ErrorCode>,
        name: u64,
        whole: Arc<AtomicBool>,
    ) -> Self {
        Self { stream, first, end, stop, name, whole }
    }

    /// Return the stream's number in the session.
    pub const fn name(&self) -> u64 {
        self.name
    }

    /// Return the bytes that have arrived, in order, at least one; `None` when the stream has ended. Nothing is
    /// buffered here, so a caller that does not call this holds the peer back.
    pub async fn next(&mut self) -> Result<Option<VecDeque<Bytes>>, StreamEnd> {
        if let Some(end) = self.end {
            return Err(end);
        }
        if !self.first.is_empty() {
            return Ok(Some(VecDeque::from([std::mem::take(&mut self.first)])));
        }
        let mut pieces = [const { Bytes::new() }; PIECES];
        let read = tokio::select! {
            biased;
            // When the sender is gone, nothing more arrives, and the receiver must not be polled
            // again.
            Ok(code) = &mut self.stop, if !self.stop.is_terminated() => {
                self.stop(code);
                return Err(StreamEnd::Stopped(code));
            }
            read = self.stream.read_chunks(&mut pieces) => read,
        };
        match read {
            Ok(Some(count)) => Ok(Some(pieces.into_iter().take(count).collect())),
            Ok(None) => {
                self.whole.store(true, Ordering::Release);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Send STOP_SENDING.
    pub fn stop(&mut self, code: ErrorCode) {
        // An error means that the stream has already ended.
        let _ = self.stream.stop(quic_code(code));
    }
}

/// A file that is removed unless it is kept.
#[derive(Debug)]
pub struct TempFile {
    path: Option<PathBuf>,
}

impl TempFile {
    /// Take charge of a file that was just created.
    pub fn new(path: PathBuf) -> Self {
        Self { path: Some(path) }
    }

    /// Return its path.
    pub fn path(&self) -> &Path {
        self.path.as_deref().unwrap_or(Path::new(""))
    }

    /// Keep the file: it has been renamed and is no longer temporary.
    pub fn keep(mut self) {
        self.path = None;
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && let Err(error) = std::fs::remove_file(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a temporary file");
        }
    }
}

/// Where the chunks of an entity are assembled: an anonymous file, or one in the sink that becomes the entity's.
#[derive(Debug)]
pub struct Spool {
    file: File,
    temp: Mutex<Option<TempFile>>,
}

impl Spool {
    /// Create a spool of a file that has no name.
    pub fn anonymous(file: File) -> Self {
        Self { file, temp: Mutex::new(None) }
    }

    /// Create a spool of a file in a sink, which is deleted with the spool unless its name is taken
    /// over.
    pub fn named(file: File, temp: TempFile) -> Self {
        Self { file, temp: Mutex::new(Some(temp)) }
    }

    /// Return the file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Return the file's name, which the caller now keeps or drops.
    pub fn take_temp(&self) -> Option<TempFile> {
        lock(&self.temp).take()
    }

    /// Write a chunk's bytes at an offset. Blocks on the disk.
    pub fn write_all(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        write_all_at(&self.file, bytes, offset)
    }

    /// Read at an offset. Blocks on the disk.
    pub fn read(&self, max: usize, offset: u64) -> io::Result<Bytes> {
        let mut buffer = vec![0; max];
        let count = read_at(&self.file, &mut buffer, offset)?;
        buffer.truncate(count);
        Ok(buffer.into())
    }
}

/// Location of an entity's bytes when it is handed over.
#[derive(Debug)]
pub enum Body {
    /// All in memory.
    Whole(Bytes),
    /// Still arriving.
    Stream(Box<StreamBody>),
    /// In a file, assembled from chunks.
    Spooled(Arc<Spool>),
}

fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt as _;
    file.write_all_at(bytes, offset)
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    use std::os::unix::fs::FileExt as _;
    file.read_at(buffer, offset)
}
