//! The context that every format uses: the caller's workspace, the limits, and the only function that reads a part's
//! bytes out of a container. The limits on a part's bytes and time are enforced here.

use std::cell::{Cell, RefCell};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::time::Instant;

use sha2::{Digest, Sha256};

use crate::failure::{Failure, FailureKind};
use crate::limits::Limits;
use crate::workspace::{Source, Spool, Workspace};

/// The number of bytes read at a time. Limits are checked after each piece, so they are exceeded by at most this much.
pub(crate) const PIECE: usize = 64 * 1024;

/// The bytes of a part, read completely.
pub(crate) struct Fetched {
    pub(crate) source: Box<dyn Source>,
    pub(crate) sha256: [u8; 32],
    pub(crate) bytes: u64,
}

/// Counts the container's bytes that a decoder consumes, and records whether the container's source itself failed: a
/// decoder's error means that the part is damaged, an error of the source does not.
#[derive(Default)]
pub(crate) struct Meter {
    consumed: Cell<u64>,
    failed: RefCell<Option<io::Error>>,
}

impl Meter {
    /// Wrap `inner` with this meter.
    pub(crate) fn tap<R: Read>(&self, inner: R) -> Tap<'_, R> {
        Tap { inner, meter: self }
    }

    /// Return the failure for an error of the decoder, or for the source's error if there was one.
    pub(crate) fn blame(&self, error: &io::Error) -> Failure {
        match self.failed.borrow_mut().take() {
            Some(source) => Failure::io("reading the container failed", &source),
            None => Failure::broken(error.to_string()),
        }
    }
}

/// A reader whose bytes and errors a [`Meter`] records.
pub(crate) struct Tap<'m, R> {
    inner: R,
    meter: &'m Meter,
}

impl<R: Read> Read for Tap<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.inner.read(buffer) {
            Ok(count) => {
                self.meter.consumed.set(self.meter.consumed.get().saturating_add(count as u64));
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => {
                let kind = error.kind();
                *self.meter.failed.borrow_mut() = Some(error);
                Err(io::Error::from(kind))
            }
        }
    }
}

/// The origin of a part's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Bytes stored in the container unchanged, or nearly so, so that there is no ratio to check.
    Plain,
    /// Bytes that a decompressor produces from fewer bytes.
    Compressed,
}

/// The context of one step of the dehydrator.
pub(crate) struct Context<'a> {
    pub(crate) workspace: &'a mut dyn Workspace,
    pub(crate) limits: &'a Limits,
    /// The total bytes of the document's parts so far.
    pub(crate) total: &'a mut u64,
    /// If set, the next child is skipped: it is not extracted, and its approximate size in bytes is added here.
    pub(crate) skipped: Option<&'a mut u64>,
    /// Whether every child was already examined when the container was divided among senders, so that skipped children
    /// are not examined again.
    pub(crate) divided: bool,
}

impl Context<'_> {
    /// Return the deadline of a part that begins now.
    pub(crate) fn deadline(&self) -> Deadline {
        Deadline { at: self.workspace.now().checked_add(self.limits.part_time) }
    }

    /// Fail if `deadline` has passed.
    pub(crate) fn check(&self, deadline: &Deadline) -> Result<(), Failure> {
        if deadline.at.is_some_and(|at| self.workspace.now() >= at) {
            let reason = format!("took longer than {} s", self.limits.part_time.as_secs_f64());
            return Err(Failure::new(FailureKind::TimedOut, reason));
        }
        Ok(())
    }

    /// Return a placeholder for a skipped child of about `length` bytes; `None` if the child must be read.
    pub(crate) fn skip(&mut self, length: u64) -> Option<Fetched> {
        let skipped = self.skipped.as_mut()?;
        **skipped = skipped.saturating_add(length);
        Some(Fetched { source: Box::new(Cursor::new(Vec::new())), sha256: [0; 32], bytes: 0 })
    }

    /// Read `reader` to its end into a new spool, within all limits. Incomplete bytes are discarded on failure.
    pub(crate) fn fetch(&mut self, reader: &mut dyn Read, meter: &Meter, origin: Origin) -> Result<Fetched, Failure> {
        if let Some(nothing) = self.skip(0) {
            return Ok(nothing);
        }
        let deadline = self.deadline();
        let mut spool = self.spool()?;
        let mut hash = Sha256::new();
        let mut bytes: u64 = 0;
        let mut piece = vec![0; PIECE];
        loop {
            let count = match reader.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(meter.blame(&error)),
            };
            bytes = bytes.saturating_add(count as u64);
            *self.total = self.total.saturating_add(count as u64);
            self.admit(bytes, meter.consumed.get(), origin)?;
            self.check(&deadline)?;
            let read = piece.get(..count).unwrap_or_default();
            hash.update(read);
            spool.write_all(read).map_err(|error| Failure::io("the spool cannot be written", &error))?;
        }
        finish(spool, hash, bytes)
    }

    /// Store bytes that are in memory as one part.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> Result<Fetched, Failure> {
        self.fetch(&mut &*bytes, &Meter::default(), Origin::Plain)
    }

    /// Return a new spool.
    pub(crate) fn spool(&mut self) -> Result<Box<dyn Spool>, Failure> {
        self.workspace.spool().map_err(|error| Failure::io("no spool for the part", &error))
    }

    fn admit(&self, bytes: u64, consumed: u64, origin: Origin) -> Result<(), Failure> {
        let limits = self.limits;
        if bytes > limits.max_inflated {
            return Err(Failure::limit(format!("has more than {} bytes, the limit for one part", limits.max_inflated)));
        }
        if *self.total > limits.max_total_inflated {
            let limit = limits.max_total_inflated;
            return Err(Failure::limit(format!("the document's parts have more than {limit} bytes together")));
        }
        let allowed = consumed.max(1).saturating_mul(u64::from(limits.max_ratio));
        if origin == Origin::Compressed && bytes > Limits::RATIO_FLOOR && bytes > allowed {
            let ratio = limits.max_ratio;
            return Err(Failure::limit(format!("inflates to more than {ratio} times its compressed size")));
        }
        Ok(())
    }
}

fn finish(mut spool: Box<dyn Spool>, hash: Sha256, bytes: u64) -> Result<Fetched, Failure> {
    let rewound = spool.flush().and_then(|()| spool.seek(SeekFrom::Start(0)));
    rewound.map_err(|error| Failure::io("the spool cannot be read back", &error))?;
    Ok(Fetched { source: spool, sha256: hash.finalize().into(), bytes })
}

/// The deadline of a part; none if the clock cannot express it.
pub(crate) struct Deadline {
    at: Option<Instant>,
}

/// Read all of `source` to compute its digest, and rewind it. No limits apply, because the caller chooses the
/// document's size.
pub(crate) fn digest(mut source: Box<dyn Source>) -> Result<Fetched, Failure> {
    let failed = |error: io::Error| Failure::io("the document cannot be read", &error);
    source.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut hash = Sha256::new();
    let mut bytes: u64 = 0;
    let mut piece = vec![0; PIECE];
    loop {
        let count = match source.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failed(error)),
        };
        bytes = bytes.saturating_add(count as u64);
        hash.update(piece.get(..count).unwrap_or_default());
    }
    source.seek(SeekFrom::Start(0)).map_err(failed)?;
    Ok(Fetched { source, sha256: hash.finalize().into(), bytes })
}

/// Read up to `limit` bytes from the beginning of `source` and rewind it.
pub(crate) fn head(source: &mut dyn Source, limit: u64) -> io::Result<Vec<u8>> {
    source.seek(SeekFrom::Start(0))?;
    let mut bytes = Vec::new();
    Read::take(&mut *source, limit).read_to_end(&mut bytes)?;
    source.seek(SeekFrom::Start(0))?;
    Ok(bytes)
}
