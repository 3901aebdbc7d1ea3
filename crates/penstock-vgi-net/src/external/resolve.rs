//! A pointer becomes its batch.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_vgi::external::{Opened, Pointer};
use penstock_vgi::{Error, ErrorKind, Limits, Result};

use super::fetch::Fetcher;
use crate::Check;

/// How often something is tried at most, whatever the options say (section 12).
const TRIES: u32 = 3;
/// How long the caller is not asked whether to go on.
const SLICE: Duration = Duration::from_millis(100);

/// Fetches what pointers point at.
#[derive(Debug, Clone)]
pub struct Resolver {
    /// What fetches.
    pub fetcher: Arc<Fetcher>,
    /// How often more a fetch is tried that failed in a way that may pass: twice at most.
    pub max_retries: u32,
    /// How long before each.
    pub retry_delay: Duration,
    /// What a batch may have.
    pub limits: Limits,
}

impl Resolver {
    /// What lies behind a pointer. Networks, HTTP and bytes that are no Arrow may be better the next time; whatever breaks a
    /// rule or a limit is not.
    pub fn resolve(&self, pointer: &Pointer, check: Check<'_>) -> Result<Opened> {
        let tries = self.max_retries.saturating_add(1).min(TRIES);
        let most = self.fetcher.options().max_bytes;
        let mut tried = 0;
        loop {
            let fetched = self.fetcher.fetch(&pointer.url, &mut *check);
            let error = match fetched.and_then(|fetched| pointer.open(fetched, &self.limits, most)) {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            tried += 1;
            let passes = matches!(error.kind(), ErrorKind::Io | ErrorKind::Deadline | ErrorKind::Malformed);
            if !passes || tried >= tries {
                let message = format!("an external batch cannot be had (tries: {tried}): {}", error.message());
                return Err(Error::new(error.kind(), message));
            }
            pause(self.retry_delay, &mut *check)?;
        }
    }
}

fn pause(delay: Duration, check: Check<'_>) -> Result<()> {
    let end = Instant::now().checked_add(delay);
    while let Some(left) = end.map(|end| end.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero()) {
        check().map_err(|_| Error::new(ErrorKind::Misuse, "the wait was interrupted"))?;
        sleep(left.min(SLICE));
    }
    Ok(())
}
