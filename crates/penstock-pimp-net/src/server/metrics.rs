//! The counters of a buffer.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::StatusCode;
use penstock_io::metrics::Page;

/// The statuses that are counted separately.
const STATUSES: [(u16, &str); 13] = [
    (200, "200"),
    (201, "201"),
    (204, "204"),
    (206, "206"),
    (400, "400"),
    (401, "401"),
    (404, "404"),
    (409, "409"),
    (410, "410"),
    (412, "412"),
    (413, "413"),
    (429, "429"),
    (503, "503"),
];

/// Counters since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    answers: [AtomicU64; STATUSES.len()],
    others: AtomicU64,
    chunks: AtomicU64,
    duplicates: AtomicU64,
}

impl Counters {
    pub(super) fn count(&self, status: StatusCode) {
        let place = STATUSES.iter().position(|(code, _)| *code == status.as_u16());
        place.and_then(|place| self.answers.get(place)).unwrap_or(&self.others).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn wrote(&self, chunks: u64, duplicates: u64) {
        self.chunks.fetch_add(chunks, Ordering::Relaxed);
        self.duplicates.fetch_add(duplicates, Ordering::Relaxed);
    }

    pub(super) fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let answers = STATUSES.iter().zip(&self.answers).map(|((_, name), count)| (*name, read(count)));
        let all = answers.chain([("other", read(&self.others))]);
        page.counters("penstock_pimp_answers", "Responses, by status.", "status", all)?;
        page.counter("penstock_pimp_chunks", "Accepted chunks.", read(&self.chunks))?;
        page.counter("penstock_pimp_duplicates", "Chunks that were written again.", read(&self.duplicates))
    }
}
