//! The rows of a piece as Arrow batches. The next batch is read while the caller uses the last one.

use std::sync::Arc;

use arrow_array::RecordBatch;
use penstock_io::DriverError as _;
use penstock_io::runtime::{self, PerProcess};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::read::batch::{BatchLimits, read_rows};
use crate::read::client::RemoteSink;
use crate::read::rows::{RowColumns, record_batch};
use crate::read::store::Store;
use crate::read::tasks::blocking;
use crate::{Error, Result};

/// A batch, and the start of the next one.
type Rows = (RecordBatch, Option<u64>);

/// Where the rows come from.
#[derive(Debug, Clone)]
pub(super) enum RowSource {
    Store(Arc<dyn Store>),
    Server(RemoteSink),
}

/// The rows that a reader returns.
#[derive(Debug, Clone)]
pub(super) struct RowRange {
    pub(super) source: RowSource,
    pub(super) session: Arc<str>,
    pub(super) end: u64,
    pub(super) limits: BatchLimits,
}

/// A reader of a piece's rows, one batch at a time.
#[derive(Debug)]
pub struct PieceReader(PerProcess<Mutex<Progress>>);

#[derive(Debug)]
struct Progress {
    range: RowRange,
    /// The start of the next batch to read; `None` while a batch is being read, at the end and
    /// after an error.
    next: Option<u64>,
    ahead: Option<JoinHandle<Result<Rows>>>,
}

impl PieceReader {
    pub(super) fn new(range: RowRange, start: u64) -> Self {
        Self(PerProcess::new(Mutex::new(Progress { range, next: Some(start), ahead: None })))
    }

    /// Return the next batch of rows; `None` at the end of the piece, and after an error.
    /// Concurrent callers get batches in turn. Safe to cancel: the next call returns the batch that
    /// was being read.
    pub async fn next(&self) -> Result<Option<RecordBatch>> {
        let mut progress = self.0.get()?.lock().await;
        loop {
            progress.read_ahead()?;
            let Some(reading) = &mut progress.ahead else { return Ok(None) };
            let read = reading.await;
            progress.ahead = None;
            let (batch, next) = read.unwrap_or_else(|died| Err(Error::task(died)))?;
            progress.next = next;
            progress.read_ahead()?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
    }
}

impl Progress {
    /// Start reading the next batch, unless one is being read already.
    fn read_ahead(&mut self) -> Result<()> {
        if self.ahead.is_none()
            && let Some(start) = self.next.take()
        {
            let range = self.range.clone();
            self.ahead = Some(runtime::spawn(async move { range.read(start).await })?);
        }
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(ahead) = &self.ahead {
            ahead.abort();
        }
    }
}

impl RowRange {
    async fn read(self, start: u64) -> Result<Rows> {
        let Self { source, session, end, limits } = self;
        let max_content = limits.content.then_some(limits.max_content);
        match source {
            RowSource::Store(store) => {
                blocking(move || {
                    let mut rows = RowColumns::default();
                    let (content, next) = read_rows(&*store, &session, start, end, limits, |line, size| {
                        rows.push(&session, line, size, max_content)
                    })?;
                    Ok((rows.finish(content)?, next))
                })
                .await
            }
            RowSource::Server(server) => {
                let batch = server.batch(&session, start, end, limits).await?;
                blocking(move || {
                    let next = batch.next;
                    Ok((record_batch(&session, batch, max_content)?, next))
                })
                .await
            }
        }
    }
}
