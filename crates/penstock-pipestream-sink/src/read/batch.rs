use crate::Result;
use crate::format::line::Line;
use crate::read::lines::{Lines, wrong};
use crate::read::store::{MAX_CONTENT, PayloadRange, Store};

/// Limits of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// The maximum size in bytes; a single line may exceed it. Default: 4 MiB.
    pub bytes: u64,
    /// The maximum number of rows. Default: 8,192.
    pub rows: usize,
    /// Whether payloads are read. Default: true.
    pub content: bool,
    /// The size in bytes beyond which a payload is not read. Default: [`MAX_CONTENT`].
    pub max_content: u64,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { bytes: 4 << 20, rows: 8_192, content: true, max_content: MAX_CONTENT }
    }
}

/// Some rows of a session.
#[derive(Debug, Default)]
pub struct Batch {
    /// The unchanged lines of the list with their newlines, including lines that are not rows.
    pub lines: Vec<u8>,
    /// The size in bytes of each row's content; `None` where the content was not read.
    pub sizes: Vec<Option<u64>>,
    /// The contents, concatenated.
    pub content: Vec<u8>,
    /// Where the next batch starts; `None` at the end of the piece.
    pub next: Option<u64>,
}

impl Batch {
    /// Call `each` for every row, in order, with the size of its content.
    pub fn rows<E: From<crate::Error>>(
        &self,
        session: &str,
        mut each: impl FnMut(Line<'_>, Option<u64>) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut sizes = self.sizes.iter();
        for bytes in self.lines.split_inclusive(|byte| *byte == b'\n') {
            let line = Line::parse(bytes).map_err(|error| wrong(session, error))?;
            if line.is_row() {
                let size = sizes.next().ok_or_else(|| wrong(session, "there are more rows than sizes"))?;
                each(line, *size)?;
            }
        }
        Ok(())
    }
}

/// The lines of a batch, and the payloads to read for them.
pub(super) struct BatchSelection {
    pub(super) lines: Vec<u8>,
    pub(super) sizes: Vec<Option<u64>>,
    pub(super) ranges: Vec<PayloadRange>,
    pub(super) next: Option<u64>,
}

/// Select lines from the start of a range until a batch is full.
pub(super) fn select(
    store: &dyn Store,
    session: &str,
    start: u64,
    end: u64,
    limits: BatchLimits,
) -> Result<BatchSelection> {
    let (mut lines, mut sizes) = (Vec::new(), Vec::new());
    let (ranges, next) = walk(store, session, start, end, limits, |text, line, size| {
        lines.extend_from_slice(text);
        lines.push(b'\n');
        sizes.extend(line.is_row().then_some(size));
        Ok::<_, crate::Error>(())
    })?;
    Ok(BatchSelection { lines, sizes, ranges, next })
}

/// Call `each` for every line of a range, with the size of its content, until a batch is full.
/// Return the payloads to read, and where the next batch starts.
fn walk<E: From<crate::Error>>(
    store: &dyn Store,
    session: &str,
    start: u64,
    end: u64,
    limits: BatchLimits,
    mut each: impl FnMut(&[u8], &Line<'_>, Option<u64>) -> std::result::Result<(), E>,
) -> std::result::Result<(Vec<PayloadRange>, Option<u64>), E> {
    let (mut parts, mut rows, mut bytes, mut first) = (Vec::new(), 0_usize, 0_u64, true);
    let mut lines = Lines::new(store, session, start, end);
    while let Some((offset, text)) = lines.next()? {
        let line = Line::parse(text).map_err(|error| wrong(session, error))?;
        let part = payload_range(&line, limits);
        let size = part.as_ref().map(|part| part.length);
        let cost = size.unwrap_or(0).saturating_add(text.len() as u64);
        if !first && (rows >= limits.rows || bytes.saturating_add(cost) > limits.bytes) {
            return Ok((parts, Some(offset)));
        }
        rows += usize::from(line.is_row());
        parts.extend(part);
        each(text, &line, size)?;
        bytes = bytes.saturating_add(cost);
        first = false;
    }
    Ok((parts, None))
}

fn payload_range(line: &Line<'_>, limits: BatchLimits) -> Option<PayloadRange> {
    let (file, length) = (line.file.as_ref()?, line.bytes?);
    let read = limits.content && line.is_row() && length <= limits.max_content.min(MAX_CONTENT);
    read.then(|| PayloadRange { file: file.as_ref().to_owned(), offset: 0, length })
}

/// Read a batch of rows from a range of a session's list.
pub fn read_batch(store: &dyn Store, session: &str, start: u64, end: u64, limits: BatchLimits) -> Result<Batch> {
    let BatchSelection { lines, sizes, ranges, next } = select(store, session, start, end, limits)?;
    let mut content = Vec::new();
    store.read_payloads(&ranges, &mut content)?;
    Ok(Batch { lines, sizes, content, next })
}

/// Read a batch as [`read_batch`] does, for callers that need not keep its lines: call `each` for
/// every row, in order, with its line and the size of its content. Return the concatenated
/// contents, and where the next batch starts.
pub fn read_rows<E: From<crate::Error>>(
    store: &dyn Store,
    session: &str,
    start: u64,
    end: u64,
    limits: BatchLimits,
    mut each: impl FnMut(&Line<'_>, Option<u64>) -> std::result::Result<(), E>,
) -> std::result::Result<(Vec<u8>, Option<u64>), E> {
    let (ranges, next) =
        walk(
            store,
            session,
            start,
            end,
            limits,
            |_, line, size| {
                if line.is_row() { each(line, size) } else { Ok(()) }
            },
        )?;
    let mut content = Vec::new();
    store.read_payloads(&ranges, &mut content)?;
    Ok((content, next))
}
