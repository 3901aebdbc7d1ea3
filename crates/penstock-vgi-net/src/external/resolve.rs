//! Replacing a pointer with its batch.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_vgi::Limits;
use penstock_vgi::external::{Pointer, StoredBatch};
use penstock_wire::ErrorKind;

use super::fetch::Fetcher;
use crate::{Check, Error, Result};

/// The most attempts, whatever the options say (section 12).
const TRIES: u32 = 3;
/// The interval at which the caller is asked whether to continue.
const SLICE: Duration = Duration::from_millis(100);

/// A resolver, which fetches the batches behind pointers.
#[derive(Debug, Clone)]
pub struct Resolver {
    /// The fetcher.
    pub fetcher: Arc<Fetcher>,
    /// The most retries of a transient failure, of which at most two are made.
    pub max_retries: u32,
    /// The pause before each retry.
    pub retry_delay: Duration,
    /// The limits of a batch.
    pub limits: Limits,
}

impl Resolver {
    /// Fetch the batch behind a pointer. Retry after failures of the network or of HTTP, and after
    /// bytes that are not Arrow, but not after violations of a rule or a limit.
    pub fn resolve(&self, pointer: &Pointer, check: Check<'_>) -> Result<StoredBatch> {
        let tries = self.max_retries.saturating_add(1).min(TRIES);
        let most = self.fetcher.options().max_bytes;
        let mut tried = 0;
        loop {
            let fetched = self.fetcher.fetch(&pointer.url, &mut *check);
            let opened = fetched.and_then(|fetched| Ok(pointer.open(fetched, &self.limits, most)?));
            let error = match opened {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            if error.ends_wait() {
                return Err(error);
            }
            tried += 1;
            let passes = matches!(error.kind(), ErrorKind::Io | ErrorKind::Deadline | ErrorKind::Malformed);
            if !passes || tried >= tries {
                return Err(Error::External { tries: tried, source: Box::new(error) });
            }
            pause(self.retry_delay, &mut *check)?;
        }
    }
}

fn pause(delay: Duration, check: Check<'_>) -> Result<()> {
    let end = Instant::now().checked_add(delay);
    while let Some(left) = end.map(|end| end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero()) {
        check().map_err(|_| Error::Interrupted)?;
        sleep(left.min(SLICE));
    }
    Ok(())
}
