//! File descriptors: as many as the connections need, and a reserve that connections never use.

use std::os::fd::{AsFd, AsRawFd as _};
use std::sync::atomic::{AtomicU64, Ordering};

use super::RESERVED;
use crate::{DriverError as _, Error, Result};

/// Descriptors promised to the servers of this process. A server that is idle now may need all of its share later.
static PROMISED: AtomicU64 = AtomicU64::new(0);

/// Descriptors of one server, promised to it until this is dropped.
#[derive(Debug)]
pub(super) struct Descriptors {
    connections: u64,
    promised: u64,
}

impl Descriptors {
    /// Raise the process's limit so that this many connections, each with this many descriptors,
    /// fit beside the open descriptors, those promised to other servers, and the reserve. If the
    /// hard limit is lower, raise to that, and reduce the number of connections only if they do not
    /// fit beside the open descriptors and the reserve: other servers may never use what they were
    /// promised. Log that the limit is too low.
    ///
    /// Fail if not even one connection would fit.
    pub(super) fn provide(what: &str, connections: u64, each: u64) -> Result<Self> {
        let each = each.max(1);
        let requested = connections.saturating_mul(each);
        let promised_before = PROMISED.fetch_add(requested, Ordering::Relaxed);
        let mut promised = Self { connections, promised: requested };
        promised.connections = possible(what, connections, each, promised_before)?;
        let needed = promised.connections.saturating_mul(each);
        PROMISED.fetch_sub(requested.saturating_sub(needed), Ordering::Relaxed);
        promised.promised = needed;
        Ok(promised)
    }

    /// Return the number of connections that have descriptors.
    pub(super) const fn connections(&self) -> u64 {
        self.connections
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        PROMISED.fetch_sub(self.promised, Ordering::Relaxed);
    }
}

fn possible(what: &str, connections: u64, each: u64, promised_before: u64) -> Result<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let own = open().saturating_add(RESERVED);
    let needed = connections.saturating_mul(each).saturating_add(own).saturating_add(promised_before);
    let limit = getrlimit(Resource::Nofile);
    // `None` means that there is no limit.
    let Some(soft) = limit.current else { return Ok(connections) };
    if soft >= needed {
        return Ok(connections);
    }
    let raised = limit.maximum.map_or(needed, |hard| hard.min(needed));
    let soft = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) => raised,
        Err(_) => soft,
    };
    if soft >= needed {
        return Ok(connections);
    }
    let possible = fewer(soft, own, each, connections);
    if possible == 0 {
        let message = format!("{what} needs at least {} descriptors; the system's limit is {soft}", own + each);
        return Err(Error::io("raise the limit of descriptors (ulimit -n)", message));
    }
    tracing::warn!(
        what,
        requested = connections,
        connections = possible,
        descriptors = soft,
        reserved = RESERVED,
        promised_before,
        "the limit of descriptors (ulimit -n) is too low for all connections that the servers of this process may have: \
         {needed} would do"
    );
    Ok(possible)
}

/// Return how many connections fit under a limit that is too low for all. Leave an eighth of the
/// remaining descriptors to servers that start later, for example metrics.
fn fewer(soft: u64, own: u64, each: u64, connections: u64) -> u64 {
    let free = soft.saturating_sub(own);
    let possible = (free - free / 8) / each;
    // If just enough is free for one connection, leaving an eighth would not allow even that.
    possible.max(u64::from(free >= each)).min(connections)
}

/// Return the number of open descriptors, or a guess where the system does not report it.
fn open() -> u64 {
    const GUESS: u64 = 16;
    ["/proc/self/fd", "/dev/fd"]
        .iter()
        .find_map(|folder| std::fs::read_dir(folder).ok())
        .map_or(GUESS, |entries| entries.count() as u64)
}

/// Return whether this is one of the last descriptors, which are reserved for files. The system assigns the lowest free
/// number, so all below it are in use.
pub(super) fn is_in_reserve(descriptor: &impl AsFd, reserved: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let number = u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    limit.is_some_and(|limit| number >= limit.saturating_sub(reserved))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_leaves_what_is_reserved_to_files_and_an_eighth_to_later_servers() {
        assert_eq!(fewer(128, 10 + RESERVED, 1, 16_384), 76);
        assert_eq!(fewer(128, 10 + RESERVED, 2, 16_384), 38);
        assert_eq!(fewer(128, 10 + RESERVED, 1, 64), 64);
        assert_eq!(fewer(128, 86 + RESERVED, 1, 8), 8, "metrics, beside a server that has taken what it could");
        assert_eq!(fewer(43, 10 + RESERVED, 1, 64), 1);
        assert_eq!(fewer(40, 10 + RESERVED, 1, 64), 0);
    }

    #[test]
    fn what_was_promised_is_given_back() {
        // Other tests of this process run servers too, so only a large change counts.
        const MANY: u64 = 1 << 40;
        let promised = Descriptors { connections: MANY, promised: MANY };
        PROMISED.fetch_add(MANY, Ordering::Relaxed);
        assert!(PROMISED.load(Ordering::Relaxed) >= MANY);
        drop(promised);
        assert!(PROMISED.load(Ordering::Relaxed) < MANY);
    }
}
