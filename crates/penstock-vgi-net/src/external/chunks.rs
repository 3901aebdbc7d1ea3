//! Fetching an object in parallel parts; a part that is late is requested a second time.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use reqwest::header::RANGE;
use reqwest::{Client, StatusCode, Url};
use tokio::time::sleep_until;

use super::options::FetchOptions;
use super::response::{body, ok, sent, shown};
use crate::faults::LocationFault;
use crate::{Error, Result};

/// The state of a part.
#[derive(Default)]
struct Part {
    bytes: Option<Vec<u8>>,
    begun: Option<Instant>,
    /// The number of requests for the part that are running.
    running: usize,
    hedged: bool,
}

/// The parts, and the time that each completed part took.
struct Parts {
    parts: Vec<Part>,
    times: Vec<Duration>,
    hedges: usize,
    multiplier: f64,
    max_hedges: usize,
}

impl Parts {
    /// Return the time after which a part is late, or `None` if no further part may be requested
    /// again, or too few have completed to tell.
    fn late_after(&self) -> Option<Duration> {
        let may_hedge = self.max_hedges == 0 || self.hedges < self.max_hedges;
        if self.multiplier <= 0.0 || !may_hedge || self.times.len() < 2 {
            return None;
        }
        let mut times = self.times.clone();
        times.sort_unstable();
        let median = times.get(times.len() / 2)?;
        Some(median.mul_f64(self.multiplier.min(1_000_000.0)))
    }

    /// Return the oldest unfinished part that was not requested twice, and the time from which it
    /// is late.
    fn oldest(&self) -> Option<(usize, Instant)> {
        let late_after = self.late_after()?;
        let waiting = self.parts.iter().enumerate().filter(|(_, part)| part.bytes.is_none() && !part.hedged);
        let oldest = waiting.filter_map(|(index, part)| Some((index, part.begun?))).min_by_key(|(_, begun)| *begun)?;
        Some((oldest.0, oldest.1.checked_add(late_after)?))
    }

    fn begin(&mut self, index: usize, again: bool) {
        if let Some(part) = self.parts.get_mut(index) {
            part.running += 1;
            part.hedged |= again;
            if !again {
                part.begun = Some(Instant::now());
            }
        }
        self.hedges += usize::from(again);
    }

    /// Handle the end of a request. Its failure counts only if no other request for the same part is running.
    fn end(&mut self, index: usize, result: Result<Vec<u8>>) -> Result<bool> {
        let Some(part) = self.parts.get_mut(index) else { return Ok(false) };
        part.running = part.running.saturating_sub(1);
        match result {
            Ok(bytes) if part.bytes.is_none() => {
                part.bytes = Some(bytes);
                self.times.extend(part.begun.map(|begun| begun.elapsed()));
                Ok(true)
            }
            Err(error) if part.bytes.is_none() && part.running == 0 => Err(error),
            Ok(_) | Err(_) => Ok(false),
        }
    }
}

/// Fetch an object whose length is known and within its limit.
pub(super) async fn fetch(client: &Client, url: &Url, length: u64, options: &FetchOptions) -> Result<Vec<u8>> {
    let size = options.chunk_size.max(1);
    let count = usize::try_from(length.div_ceil(size)).unwrap_or(usize::MAX);
    let mut parts = Parts {
        parts: std::iter::repeat_with(Part::default).take(count).collect(),
        times: Vec::new(),
        hedges: 0,
        multiplier: options.hedge_multiplier,
        max_hedges: options.max_hedges,
    };
    let request = |index: usize| async move {
        let first = (index as u64).saturating_mul(size);
        (index, part(client, url, first, size.min(length.saturating_sub(first))).await)
    };
    let mut running = FuturesUnordered::new();
    let (mut next, mut done) = (0, 0);
    while done < count {
        while next < count && running.len() < options.max_parallel.max(1) {
            parts.begin(next, false);
            running.push(request(next));
            next += 1;
        }
        let late = parts.oldest();
        let timer = async {
            match late {
                Some((_, at)) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((index, result)) = running.next() => done += usize::from(parts.end(index, result)?),
            () = timer => if let Some((index, _)) = late {
                parts.begin(index, true);
                running.push(request(index));
            }
        }
    }
    let mut whole = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    // Each part is freed once it is copied.
    parts.parts.into_iter().filter_map(|part| part.bytes).for_each(|bytes| whole.extend_from_slice(&bytes));
    Ok(whole)
}

/// Fetch one part, which must have exactly this size.
async fn part(client: &Client, url: &Url, first: u64, size: u64) -> Result<Vec<u8>> {
    let last = first.saturating_add(size).saturating_sub(1);
    let request = client.get(url.clone()).header(RANGE, format!("bytes={first}-{last}"));
    let response = ok(url, sent(url, request).await?)?;
    if response.status() != StatusCode::PARTIAL_CONTENT {
        return Err(Error::Location(LocationFault::WholeObject { url: shown(url), first, last }));
    }
    let bytes = body(url, response, size).await?;
    if bytes.len() as u64 != size {
        let (url, bytes) = (shown(url), bytes.len());
        return Err(Error::Location(LocationFault::PartLength { url, first, last, bytes }));
    }
    Ok(bytes)
}
