use super::line::{Line, Lines, wrong};
use super::{MAX_CONTENT, Store, Wanted};
use crate::Result;

/// How much a batch holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Octets, where it has more than one row. Default: 4 MiB.
    pub octets: u64,
    /// Rows. Default: 8,192.
    pub rows: usize,
    /// Whether payloads are read. Default: true.
    pub content: bool,
    /// Larger payloads are not read. Default: [`MAX_CONTENT`].
    pub max_content: u64,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { octets: 4 << 20, rows: 8_192, content: true, max_content: MAX_CONTENT }
    }
}

/// Rows of a session.
#[derive(Debug, Default)]
pub struct Batch {
    /// The lines of the list as they are, each with its end; those that are no rows too.
    pub lines: Vec<u8>,
    /// The octets of each row's content; `None` where it was not read.
    pub sizes: Vec<Option<u64>>,
    /// The contents behind one another.
    pub content: Vec<u8>,
    /// Where the next batch starts; `None`: the piece is at its end.
    pub next: Option<u64>,
}

impl Batch {
    /// Calls back for each row, in order.
    pub fn rows<E: From<crate::Error>>(
        &self,
        session: &str,
        mut each: impl FnMut(Line<'_>, Option<u64>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut sizes = self.sizes.iter();
        for octets in self.lines.split_inclusive(|octet| *octet == b'\n') {
            let line = Line::parse(octets).map_err(|error| wrong(session, error))?;
            if line.is_row() {
                let size = sizes.next().ok_or_else(|| wrong(session, "there are more rows than sizes"))?;
                each(line, *size)?;
            }
        }
        Ok(())
    }
}

/// Lines of a batch, and what is to be read for them.
pub(super) struct Selected {
    pub(super) lines: Vec<u8>,
    pub(super) sizes: Vec<Option<u64>>,
    pub(super) wanted: Vec<Wanted>,
    pub(super) next: Option<u64>,
}

/// Takes lines of a range until a batch is full.
pub(super) fn select(store: &dyn Store, session: &str, start: u64, end: u64, limits: BatchLimits) -> Result<Selected> {
    let mut selected = Selected { lines: Vec::new(), sizes: Vec::new(), wanted: Vec::new(), next: None };
    let mut octets = 0_u64;
    let mut lines = Lines::new(store, session, start, end);
    while let Some((offset, text)) = lines.next()? {
        let line = Line::parse(text).map_err(|error| wrong(session, error))?;
        let wanted = wanted(&line, limits);
        let size = wanted.as_ref().map(|wanted| wanted.length);
        let cost = size.unwrap_or(0).saturating_add(text.len() as u64);
        let full = selected.sizes.len() >= limits.rows || octets.saturating_add(cost) > limits.octets;
        if full && !selected.lines.is_empty() {
            selected.next = Some(offset);
            break;
        }
        if line.is_row() {
            selected.sizes.push(size);
            selected.wanted.extend(wanted);
        }
        selected.lines.extend_from_slice(text);
        selected.lines.push(b'\n');
        octets = octets.saturating_add(cost);
    }
    Ok(selected)
}

fn wanted(line: &Line<'_>, limits: BatchLimits) -> Option<Wanted> {
    let (file, length) = (line.file.as_ref()?, line.bytes?);
    let read = limits.content && line.is_row() && length <= limits.max_content.min(MAX_CONTENT);
    read.then(|| Wanted { file: file.as_ref().to_owned(), offset: 0, length })
}

/// Reads rows of a piece of a store's session.
pub fn read_batch(store: &dyn Store, session: &str, start: u64, end: u64, limits: BatchLimits) -> Result<Batch> {
    let Selected { lines, sizes, wanted, next } = select(store, session, start, end, limits)?;
    let mut content = Vec::new();
    store.read_payloads(&wanted, &mut content)?;
    Ok(Batch { lines, sizes, content, next })
}
