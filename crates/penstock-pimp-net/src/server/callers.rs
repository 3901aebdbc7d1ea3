//! The limits of callers: the requests with one key, and the wrong keys from one address.

use std::net::IpAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use penstock_io::sync::lock;
use penstock_pimp::Digest;

use super::rates::Rates;
use super::refused::Refused;

/// Wrong keys that an address may try in a burst, and how many more per second.
const GUESSES: (u32, f64) = (50, 5.0);
/// Requests that may use one key in a burst, and how many more per second.
const REQUESTS: (u32, f64) = (2_000, 1_000.0);

/// The requests and the wrong keys of callers.
pub(super) struct Callers {
    guesses: Mutex<Rates<IpAddr>>,
    requests: Mutex<Rates<Digest>>,
}

impl Default for Callers {
    fn default() -> Self {
        Self {
            guesses: Mutex::new(Rates::new(GUESSES.0, GUESSES.1)),
            requests: Mutex::new(Rates::new(REQUESTS.0, REQUESTS.1)),
        }
    }
}

impl Callers {
    /// Refuse a caller that guesses keys or sends too many requests; otherwise count the request.
    pub(super) fn check(&self, key: Option<&str>, peer: IpAddr) -> Result<(), Refused> {
        self.check_guesses(peer)?;
        let Some(key) = key.map(|key| Digest::of(key.as_bytes())) else { return Ok(()) };
        let (now, mut requests) = (Instant::now(), lock(&self.requests));
        requests.check(now, &key).map_err(too_often)?;
        requests.take(now, key);
        Ok(())
    }

    /// Refuse a caller that has tried too many wrong keys.
    pub(super) fn check_guesses(&self, peer: IpAddr) -> Result<(), Refused> {
        lock(&self.guesses).check(Instant::now(), &peer).map_err(too_often)
    }

    /// Count a wrong key.
    pub(super) fn count_guess(&self, peer: IpAddr) {
        lock(&self.guesses).take(Instant::now(), peer);
    }
}

fn too_often(wait: Duration) -> Refused {
    Refused::TooOften(wait.as_secs() + 1)
}
