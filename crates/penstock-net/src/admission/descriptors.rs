//! Descriptors: as many as the connections need, and some that connections never get.

#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd as _};

use super::RESERVED;
use crate::{Error, Result};

/// Lets the process have descriptors for so many connections, each of which needs so many, beside what is open and what is
/// reserved. Gives how many connections there can be: all, or fewer where the hard limit is lower, which the log says.
///
/// Fails where there could be none.
#[cfg(unix)]
pub(super) fn provide(what: &str, connections: u64, each: u64) -> Result<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let each = each.max(1);
    let own = open().saturating_add(RESERVED);
    let needed = connections.saturating_mul(each).saturating_add(own);
    let limit = getrlimit(Resource::Nofile);
    // No number means that there is no limit.
    let Some(soft) = limit.current else { return Ok(connections) };
    if soft >= needed {
        return Ok(connections);
    }
    let raised = limit.maximum.map_or(needed, |hard| hard.min(needed));
    let soft = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum: limit.maximum }) {
        Ok(()) => raised,
        Err(_) => soft,
    };
    let possible = fewer(soft, own, each, connections);
    if possible == 0 {
        let message = format!("{what} needs at least {} descriptors, and the system gives {soft}", own + each);
        return Err(Error::Io { context: "raise the limit of descriptors (ulimit -n)".to_owned(), message });
    }
    if possible < connections {
        tracing::warn!(
            what,
            asked = connections,
            connections = possible,
            descriptors = soft,
            reserved = RESERVED,
            "fewer connections than asked for: the limit of descriptors (ulimit -n) is too low, {needed} would do"
        );
    }
    Ok(possible)
}

/// Connections that a limit has room for.
fn fewer(soft: u64, own: u64, each: u64, connections: u64) -> u64 {
    (soft.saturating_sub(own) / each).min(connections)
}

/// Descriptors that are open now; a guess where the system does not say.
#[cfg(unix)]
fn open() -> u64 {
    const GUESS: u64 = 16;
    ["/proc/self/fd", "/dev/fd"]
        .iter()
        .find_map(|folder| std::fs::read_dir(folder).ok())
        .map_or(GUESS, |entries| entries.count() as u64)
}

/// Whether this is one of the last descriptors, which are kept for files. The system gives the lowest that is free, so all
/// below it are in use.
#[cfg(unix)]
pub(super) fn is_in_reserve(descriptor: &impl AsFd, reserved: u64) -> bool {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let number = u64::try_from(descriptor.as_fd().as_raw_fd()).unwrap_or(0);
    limit.is_some_and(|limit| number >= limit.saturating_sub(reserved))
}

#[cfg(not(unix))]
pub(super) fn provide(_what: &str, connections: u64, _each: u64) -> Result<u64> {
    Ok(connections)
}

#[cfg(not(unix))]
pub(super) fn is_in_reserve<T>(_descriptor: &T, _reserved: u64) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_limit_leaves_what_is_reserved_to_files() {
        assert_eq!(fewer(128, 10 + RESERVED, 1, 16_384), 86);
        assert_eq!(fewer(128, 10 + RESERVED, 2, 16_384), 43);
        assert_eq!(fewer(128, 10 + RESERVED, 1, 64), 64);
        assert_eq!(fewer(40, 10 + RESERVED, 1, 64), 0);
    }
}
