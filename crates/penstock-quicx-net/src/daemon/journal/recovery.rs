//! The recovery of the tasks in the log when a daemon starts.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use penstock_io::DriverError as _;
use penstock_log::{DiskFile, EarlierSegment, Entry, Hole, Replay};
use penstock_quicx::{Journal, Queue, QueueConfig, Record, Recovery};

use super::earlier;
use crate::{Error, Result};

/// The contents of the log, oldest first.
#[derive(Default)]
pub(super) struct Found {
    recovery: Recovery,
    files: BTreeMap<u64, Arc<dyn DiskFile>>,
}

impl Replay for Found {
    fn segment(&mut self, number: u64, file: &Arc<dyn DiskFile>) {
        self.files.insert(number, Arc::clone(file));
    }

    fn record(&mut self, entry: &Entry<'_>) -> Option<()> {
        let record = match entry.earlier {
            true => earlier::record(entry.body)?,
            false => Record::read(&entry.label, entry.body)?,
        };
        self.recovery.apply(entry.segment, entry.offset + entry.body.len() as u64, &record);
        Some(())
    }

    fn hole(&mut self, hole: &Hole<'_>) {
        match (hole.label, hole.body) {
            (Some(label), _) if !hole.earlier => self.recovery.apply_label(hole.segment, &label),
            (_, Some((offset, body))) if hole.earlier => {
                if let Some(record) = earlier::record(body) {
                    self.recovery.apply(hole.segment, offset + body.len() as u64, &record);
                }
            }
            // Without its label, a body of this format does not tell which task it belongs to.
            (Some(_) | None, Some(_) | None) => {}
        }
    }

    fn is_begun(&self, start: &[u8]) -> bool {
        earlier::is_begun(start)
    }

    fn earlier(&self, number: u64, start: &[u8]) -> Option<EarlierSegment> {
        earlier::earlier(number, start)
    }

    fn headless(&self, number: u64, segment: &[u8]) -> Option<EarlierSegment> {
        earlier::headless(number, segment)
    }
}

impl Found {
    /// Return a queue with the tasks that were found.
    ///
    /// Fails if they do not fit into the pool, before any of them is read.
    pub(super) fn restore(self, now: Instant, config: &QueueConfig, journal: Journal) -> Result<Queue> {
        let Self { recovery, files } = self;
        recovery.check(&config.pool)?;
        for id in recovery.lost() {
            tracing::error!(task = id.0, "a task is lost: its record in the journal is damaged");
        }
        let mut queue = Queue::with_journal(now, config.clone(), journal)?;
        let mut content = Vec::new();
        for task in recovery.tasks() {
            content.resize(task.bytes, 0);
            let file = files.get(&task.segment).ok_or_else(|| io::ErrorKind::NotFound.into());
            let read = file.and_then(|file| file.read_at(&mut content, task.offset));
            read.map_err(|error| Error::io(format!("cannot read segment {} of the journal", task.segment), error))?;
            queue.restore(now, task, &content)?;
        }
        Ok(queue)
    }
}
