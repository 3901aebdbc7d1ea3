//! The dependencies that the documents crate gets from its caller: spools that stay in memory while
//! they are small, the clock, and the PDF reader.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::Instant;

use penstock_documents::{PdfLimits, PdfPages, Source, Spool, Workspace};
use tempfile::SpooledTempFile;

use super::interrupts::Interrupts;
use super::pdf;

/// The size up to which a part's bytes stay in memory; larger parts go to an unnamed temporary
/// file.
pub(crate) const IN_MEMORY: usize = 1 << 20;

/// The workspace of a dehydrator that Python started.
pub(crate) struct PythonWorkspace {
    interrupts: Interrupts,
}

impl PythonWorkspace {
    pub(crate) fn new(interrupts: Interrupts) -> Self {
        Self { interrupts }
    }
}

impl Workspace for PythonWorkspace {
    fn spool(&mut self) -> io::Result<Box<dyn Spool>> {
        Ok(Box::new(spool(&self.interrupts)))
    }

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn pdf(&mut self, source: &mut dyn Source, limits: &PdfLimits) -> Result<Box<dyn PdfPages>, String> {
        pdf::open(source, limits, &self.interrupts)
    }
}

/// Return a new spool, whose writes Ctrl-C can interrupt.
pub(crate) fn spool(interrupts: &Interrupts) -> WatchedSpool {
    WatchedSpool { inner: SpooledTempFile::new(IN_MEMORY), interrupts: interrupts.clone() }
}

/// A spool that checks for signals while it is written.
pub(crate) struct WatchedSpool {
    inner: SpooledTempFile,
    interrupts: Interrupts,
}

impl Read for WatchedSpool {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer)
    }
}

impl Write for WatchedSpool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.interrupts.poll()?;
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl Seek for WatchedSpool {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.inner.seek(position)
    }
}
