//! A pointer becomes its batch.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use penstock_vgi::Limits;
use penstock_vgi::external::{Opened, Pointer};
use penstock_wire::ErrorKind;

use super::fetch::Fetcher;
use crate::{Check, Error, Result};

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
            let opened = fetched.and_then(|fetched| Ok(pointer.open(fetched, &self.limits, most)?));
            let error = match opened {
                Ok(opened) => return Ok(opened),
                Err(error) => error,
            };
            tried += 1;
            let passes = matches!(error.kind(), ErrorKind::Io | ErrorKind::Deadline | ErrorKind::Malformed);
            if !passes || tried >= tries || matches!(error, Error::Interrupted) {
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
