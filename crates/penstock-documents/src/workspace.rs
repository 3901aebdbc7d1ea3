use std::collections::BTreeMap;
use std::io::{self, Read, Seek, Write};
use std::time::Instant;

use crate::limits::PdfLimits;

/// Bytes that can be read repeatedly.
pub trait Source: Read + Seek + Send {}

impl<T: Read + Seek + Send + ?Sized> Source for T {}

/// Storage for the bytes of one part: written once, then read.
pub trait Spool: Source + Write {}

impl<T: Source + Write + ?Sized> Spool for T {}

/// The services that the caller supplies: storage, a clock, and a PDF reader.
pub trait Workspace: Send {
    /// Return a new, empty spool, for example a temporary file that stays in memory while it is small.
    fn spool(&mut self) -> io::Result<Box<dyn Spool>>;

    /// Return the current time, for the time limit of a part.
    fn now(&self) -> Instant;

    /// Open the PDF in `source`, which is at its beginning. The error is the reason why it cannot be read.
    fn pdf(&mut self, source: &mut dyn Source, limits: &PdfLimits) -> Result<Box<dyn PdfPages>, String>;
}

/// The pages of an open PDF, in order.
pub trait PdfPages: Send {
    /// Return how many pages the document declares.
    fn page_count(&self) -> u32;

    /// Return the text of the next page, or the reason why it cannot be read; `None` after the last one.
    fn next_page(&mut self) -> Option<Result<String, String>>;

    /// Return the document's own metadata: title, author, ... The keys do not have the prefix `pdf.` yet.
    fn metadata(&self) -> BTreeMap<String, String>;
}
