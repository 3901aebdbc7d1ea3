//! tar: old, ustar, GNU and pax archives, walked header by header. No file is ever created from a name or a link.
//!
//! ```text
//! [header for the next member: long name, pax] header data padding | ... | zeros
//! ```
//! The library decodes headers. The walk is implemented here, because the library reads long names completely and
//! expands sparse files.

mod header;

use std::io::{Read, SeekFrom};

use ::tar::{EntryType, Header};

use crate::child::{Child, Walker};
use crate::context::{Context, Meter, Origin, PIECE};
use crate::failure::Failure;
use crate::name;
use crate::workspace::Source;
pub(crate) use header::is_header;
use header::{BLOCK, ExtendedHeaders};

/// The maximum size of a long name or a set of pax records, in bytes.
const MAX_EXTENSION: u64 = 1024 * 1024;
/// The positions of the flag that announces a continuation block: in GNU's old sparse header, and in each continuation
/// block.
const SPARSE_CONTINUED: u64 = 482;
const SPARSE_BLOCK_CONTINUED: u64 = 504;

/// Walks a tar archive.
pub(crate) struct TarWalker {
    source: Box<dyn Source>,
    length: u64,
    /// The position of the next header.
    next: u64,
    /// Whether a block of zeros was seen since the last header.
    ended: bool,
    done: bool,
}

/// The result of reading one header.
enum Step {
    Child(Child),
    Continue,
}

impl TarWalker {
    pub(crate) fn new(source: Box<dyn Source>, length: u64) -> Self {
        Self { source, length, next: 0, ended: false, done: false }
    }

    /// End the walk with one failed part that stands for the rest of the archive.
    fn give_up(&mut self, failure: Failure) -> Child {
        self.done = true;
        Child::failed(None, failure)
    }

    /// Return the next header, after zeros if there are any. `Ok(None)` at the end of the archive.
    fn next_header(&mut self) -> Result<Option<Header>, Failure> {
        self.skip_zeros()?;
        if self.next >= self.length {
            return match self.ended {
                true => Ok(None),
                false => Err(Failure::broken("the archive ends without an end marker; members may be missing")),
            };
        }
        let at = self.next;
        let block = self.read(at, BLOCK)?;
        if (block.len() as u64) < BLOCK {
            return Err(Failure::broken(format!("the archive ends within the header at byte {at}")));
        }
        let Some(header) = header::decode(&block) else {
            let rest = self.length - at;
            let reason = format!("no header at byte {at}; the remaining {rest} bytes cannot be read");
            return Err(Failure::broken(reason));
        };
        self.ended = false;
        self.next = at + BLOCK;
        Ok(Some(header))
    }

    fn skip_zeros(&mut self) -> Result<(), Failure> {
        loop {
            let at = self.next;
            let piece = self.read(at, PIECE as u64)?;
            let blocks = piece.chunks(BLOCK as usize).take_while(|block| block.iter().all(|&byte| byte == 0)).count();
            self.ended |= blocks > 0;
            self.next = at.saturating_add(blocks as u64 * BLOCK).min(self.length);
            if blocks < PIECE / BLOCK as usize {
                return Ok(());
            }
        }
    }

    fn read(&mut self, at: u64, length: u64) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        let position = self.source.seek(SeekFrom::Start(at));
        position
            .and_then(|_| (&mut self.source).take(length).read_to_end(&mut bytes))
            .map_err(|error| Failure::io("reading the container failed", &error))?;
        Ok(bytes)
    }

    /// Skip `size` bytes of data at the current position, and return where they begin and end.
    fn skip(&mut self, size: u64) -> Result<(u64, u64), Failure> {
        let start = self.next;
        let present = self.length.saturating_sub(start);
        if size > present {
            return Err(Failure::broken(format!("the archive ends after {present} of the member's {size} bytes")));
        }
        self.next = start.saturating_add(size.div_ceil(BLOCK).saturating_mul(BLOCK)).min(self.length);
        Ok((start, start + size))
    }

    fn take_header(
        &mut self,
        header: &Header,
        extended: &mut ExtendedHeaders,
        context: &mut Context<'_>,
    ) -> Result<Step, Failure> {
        let kind = header.entry_type();
        let own_size = || header.entry_size().map_err(|_| Failure::broken("the member's size is malformed"));
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions() || kind.as_byte() == b'X'
        {
            let (start, end) = self.skip(own_size()?)?;
            if end - start > MAX_EXTENSION {
                let reason = format!("a name or a pax header of more than {MAX_EXTENSION} bytes");
                extended.damage = Some(Failure::limit(reason));
                return Ok(Step::Continue);
            }
            let bytes = self.read(start, end - start)?;
            match kind.is_gnu_longname() || kind.is_gnu_longlink() {
                true => extended.take_long(kind, &bytes),
                false => extended.take_pax(&bytes),
            }
            return Ok(Step::Continue);
        }
        if kind.is_pax_global_extensions() || matches!(kind.as_byte(), b'V' | b'D') {
            self.skip(own_size()?)?;
            return Ok(Step::Continue);
        }
        let size = extended.size.map_or_else(own_size, Ok);
        self.take_member(header, std::mem::take(extended), size, context)
    }

    fn take_member(
        &mut self,
        header: &Header,
        mut extended: ExtendedHeaders,
        size: Result<u64, Failure>,
        context: &mut Context<'_>,
    ) -> Result<Step, Failure> {
        let bytes = extended.name.take().unwrap_or_else(|| header.path_bytes().into_owned());
        let name = Some(name::decode(&bytes, context.limits.max_name)).filter(|name| !name.is_empty());
        let kind = header.entry_type();
        // Archives older than ustar have no type for directories. `kind` is the same for the types 0 and '0'.
        let old_directory = header.as_old().linkflag == [0] && bytes.ends_with(b"/") && matches!(size, Ok(0));
        if kind.is_dir() || old_directory {
            return Ok(Step::Continue);
        }
        let with_data = kind.is_hard_link() && self.has_link_data(&size)?;
        let mut child = match special(kind).filter(|_| !with_data) {
            Some(media_type) => take_special(name, media_type, header, extended, context),
            None => self.take_data(name, header, extended, size, context)?,
        };
        if kind.is_hard_link() {
            child.metadata.insert("tar.link".to_owned(), "hard".to_owned());
        }
        Ok(Step::Child(child))
    }

    /// Return whether the data of a hard link of `size` bytes follow its header, as pax allows. Other writers state the
    /// size of the linked file without its data, so the next header or the end of the archive follows.
    fn has_link_data(&mut self, size: &Result<u64, Failure>) -> Result<bool, Failure> {
        let Ok(1..) = size else { return Ok(false) };
        let at = self.next;
        let block = self.read(at, BLOCK)?;
        Ok(block.iter().any(|&byte| byte != 0) && !is_header(&block))
    }

    /// Return the member whose data begin at the current position.
    fn take_data(
        &mut self,
        name: Option<String>,
        header: &Header,
        extended: ExtendedHeaders,
        size: Result<u64, Failure>,
        context: &mut Context<'_>,
    ) -> Result<Child, Failure> {
        let kind = header.entry_type();
        let mut unsupported = extended.sparse.then(|| Failure::unsupported("the member is a sparse file"));
        if kind.is_gnu_sparse() {
            unsupported = Some(Failure::unsupported("the member is a sparse file"));
            self.skip_sparse_map(header)?;
        } else if kind.as_byte() == b'M' {
            unsupported = Some(Failure::unsupported("the member continues one of another volume"));
        }
        let (start, end) = match size.and_then(|size| self.skip(size)) {
            Ok(range) => range,
            Err(failure) => {
                // The position of the next header is unknown.
                self.done = true;
                return Ok(Child::failed(name, failure));
            }
        };
        if let Some(failure) = extended.damage.or(unsupported) {
            return Ok(Child::failed(name, failure));
        }
        if let Some(nothing) = context.skip(end - start) {
            return Ok(Child::fetched(name, Ok(nothing)));
        }
        self.source
            .seek(SeekFrom::Start(start))
            .map_err(|error| Failure::io("reading the container failed", &error))?;
        let meter = Meter::default();
        let mut reader = meter.tap((&mut self.source).take(end - start));
        Ok(Child::fetched(name, context.fetch(&mut reader, &meter, Origin::Plain)))
    }

    fn skip_sparse_map(&mut self, header: &Header) -> Result<(), Failure> {
        let mut continued = header.as_bytes().get(SPARSE_CONTINUED as usize).is_some_and(|&byte| byte != 0);
        while continued {
            let at = self.next.saturating_add(SPARSE_BLOCK_CONTINUED);
            continued = self.read(at, 1)?.first().is_some_and(|&byte| byte != 0);
            self.skip(BLOCK)?;
        }
        Ok(())
    }
}

impl Walker for TarWalker {
    fn next_child(&mut self, context: &mut Context<'_>) -> Option<Child> {
        let mut extended = ExtendedHeaders::default();
        let deadline = context.deadline();
        while !self.done {
            let step = context.check(&deadline).and_then(|()| self.next_header()).and_then(|header| match header {
                Some(header) => self.take_header(&header, &mut extended, context).map(Some),
                None => Ok(None),
            });
            match step {
                Ok(Some(Step::Child(child))) => return Some(child),
                Ok(Some(Step::Continue)) => {}
                Ok(None) => self.done = true,
                Err(failure) => return Some(self.give_up(failure)),
            }
        }
        None
    }

    fn divisible(&self) -> bool {
        true
    }
}

/// Return the media type of a file system entry that is not a regular file. Links are never followed.
fn special(kind: EntryType) -> Option<&'static str> {
    match kind.as_byte() {
        b'1' | b'2' => Some("inode/symlink"),
        b'3' => Some("inode/chardevice"),
        b'4' => Some("inode/blockdevice"),
        b'6' => Some("inode/fifo"),
        _ => None,
    }
}

/// Return a link, whose bytes are its target, or a special file, which has no bytes.
fn take_special(
    name: Option<String>,
    media_type: &'static str,
    header: &Header,
    extended: ExtendedHeaders,
    context: &mut Context<'_>,
) -> Child {
    let target = match media_type {
        "inode/symlink" => extended.link.or_else(|| header.link_name_bytes().map(|link| link.into_owned())),
        _ => None,
    };
    let fetched = context.keep(&target.unwrap_or_default());
    Child::typed(name, media_type, extended.damage.map_or(fetched, Err))
}
