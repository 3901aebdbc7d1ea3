//! Zip, and the formats based on it: docx, xlsx, pptx, OpenDocument, EPUB, jar.
//!
//! The directory determines names, sizes and order. It is parsed here, because existing libraries keep all entries in
//! memory and drop the first of two with the same name.

mod directory;
mod kind;
mod member;

use std::collections::BTreeMap;

pub(crate) use directory::Directory;
use directory::Entry;
pub(crate) use kind::media_type;

use crate::child::{Child, Walker};
use crate::context::{Context, Fetched};
use crate::failure::Failure;
use crate::name;
use crate::workspace::Source;

/// Walks a zip's directory.
pub(crate) struct ZipWalker {
    source: Box<dyn Source>,
    directory: Directory,
    /// The position of the next entry; `None` once the directory's end, or damage in it, was reported.
    next: Option<u64>,
    seen: u64,
    /// The start and end of the members seen so far. If two overlap, the archive is a bomb or damaged.
    taken: BTreeMap<u64, u64>,
    overlapping: bool,
}

impl ZipWalker {
    pub(crate) fn new(source: Box<dyn Source>, directory: Directory) -> Self {
        Self { source, directory, next: Some(directory.start), seen: 0, taken: BTreeMap::new(), overlapping: false }
    }

    /// Return one failed child if the number of entries differs from that in the end record.
    fn finish(&mut self) -> Option<Child> {
        self.next = None;
        let expected = self.directory.entries;
        let same = if self.directory.exact { self.seen == expected } else { self.seen & 0xffff == expected };
        let reason = format!("the zip's end record says {expected} members, its directory has {}", self.seen);
        (!same).then(|| Child::failed(None, Failure::broken(reason)))
    }

    fn take(&mut self, entry: &Entry, context: &mut Context<'_>) -> Result<Fetched, Failure> {
        // Of children that another sender sends, only the directory entry is read.
        if context.divided
            && let Some(nothing) = context.skip(entry.size)
        {
            return Ok(nothing);
        }
        let (start, end) = self.directory.data(&mut self.source, entry)?;
        self.claim(entry.header, end)?;
        // The declared size is trusted only up to the maximum ratio.
        let bytes = entry.size.min(entry.compressed.saturating_mul(context.limits.max_ratio.into()));
        if let Some(nothing) = context.skip(bytes) {
            return Ok(nothing);
        }
        member::fetch(&mut self.source, entry, (start, end), context)
    }

    fn claim(&mut self, start: u64, end: u64) -> Result<(), Failure> {
        let before = self.taken.range(..end).next_back();
        if before.is_some_and(|(_, &before)| before > start) {
            self.overlapping = true;
            return Err(Failure::broken("the member overlaps another member of the archive"));
        }
        self.taken.insert(start, end);
        Ok(())
    }
}

impl Walker for ZipWalker {
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child> {
        let deadline = context.deadline();
        loop {
            let at = self.next?;
            if let Err(failure) = context.check(&deadline) {
                // The time limit passed while only directories were found.
                self.next = None;
                return Some(Child::failed(None, failure));
            }
            if at >= self.directory.end {
                return self.finish();
            }
            let entry = match self.directory.entry(&mut self.source, at) {
                Ok(entry) => entry,
                Err(failure) => {
                    self.next = None;
                    return Some(Child::failed(None, failure));
                }
            };
            self.next = Some(entry.next);
            self.seen += 1;
            if entry.name.ends_with(b"/") && entry.size == 0 {
                continue;
            }
            let name = Some(name::decode(&entry.name, context.limits.max_name)).filter(|name| !name.is_empty());
            let fetched = self.take(&entry, context);
            return Some(match entry.symlink {
                true => Child::typed(name, "inode/symlink", fetched),
                false => Child::fetched(name, fetched),
            });
        }
    }

    fn declared(&self) -> Option<u64> {
        Some(self.directory.entries)
    }

    fn divisible(&self) -> bool {
        // Whether a member overlaps another depends on the members before it, which a divided walk skips.
        !self.overlapping
    }
}
