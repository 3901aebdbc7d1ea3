use std::time::{Instant, SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;
use penstock_lumberjack::{Event, Events};
use twox_hash::XxHash3_64;

use super::super::columns::Builder;
use super::super::delivery::{Destination, Origin};
use crate::Result;

/// Events on their way into a batch.
#[derive(Debug)]
pub(super) struct Intake {
    builder: Option<Builder>,
    /// The seed and the hashes, if the destination needs hashes.
    hashes: Option<(u64, Vec<u64>)>,
    rows: usize,
    bytes: usize,
    window_ended: bool,
    /// The time at which the last event arrived; updated once for each read.
    pub(super) last: Instant,
}

impl Intake {
    pub(super) fn new(destination: &dyn Destination) -> Self {
        Self {
            builder: destination.layout().map(Builder::new),
            hashes: destination.hash_seed().map(|seed| (seed, Vec::new())),
            rows: 0,
            bytes: 0,
            window_ended: false,
            last: Instant::now(),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Return the size of the collected events on the wire, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Return whether the last event was the last of its window.
    pub(super) fn window_ended(&self) -> bool {
        self.window_ended
    }

    /// Return the collected events; the intake is empty afterwards.
    pub(super) fn finish(&mut self, mut origin: Origin) -> Result<IntakeTotals> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        origin.received = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let batch = match &mut self.builder {
            Some(builder) => builder.finish(&origin)?,
            None => RecordBatch::new_empty(std::sync::Arc::new(arrow_schema::Schema::empty())),
        };
        let rows = std::mem::take(&mut self.rows);
        let ended = std::mem::take(&mut self.window_ended);
        Ok(IntakeTotals {
            batch,
            rows,
            bytes: std::mem::take(&mut self.bytes),
            origin,
            hashes: self.hashes.as_mut().map(|(_, hashes)| std::mem::take(hashes)).unwrap_or_default(),
            windows: ended.then(|| u32::try_from(rows).unwrap_or(u32::MAX)).into_iter().collect(),
        })
    }
}

/// The events of an [`Intake`].
#[derive(Debug)]
pub(super) struct IntakeTotals {
    pub(super) batch: RecordBatch,
    pub(super) rows: usize,
    pub(super) bytes: usize,
    pub(super) origin: Origin,
    pub(super) hashes: Vec<u64>,
    pub(super) windows: Vec<u32>,
}

impl Events for Intake {
    fn event(&mut self, sequence: u32, event: Event<'_>) {
        self.rows += 1;
        match event {
            Event::Json(payload) => {
                self.bytes += payload.len();
                if let Some((seed, hashes)) = &mut self.hashes {
                    hashes.push(XxHash3_64::oneshot_with_seed(*seed, payload));
                }
                if let Some(builder) = &mut self.builder {
                    builder.push_json(sequence, payload);
                }
            }
            Event::Data(pairs) => {
                self.bytes += pairs.bytes();
                if let Some((seed, hashes)) = &mut self.hashes {
                    let strings = pairs.flat_map(|(key, value)| [key, value]);
                    hashes.push(strings.fold(*seed, XxHash3_64::oneshot_with_seed));
                }
                if let Some(builder) = &mut self.builder {
                    builder.push_map(sequence, pairs);
                }
            }
        }
    }

    fn window_end(&mut self) -> bool {
        self.window_ended = true;
        // A batch is a window, so a window that is sent again is the same batch.
        false
    }
}
