//! Counters of admission.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::Page;

/// Connections that were not served, by reason, and failures of accept. Each server has one set.
#[derive(Debug, Default)]
pub struct Counters {
    /// The server was full.
    pub(super) full: AtomicU64,
    /// The address had used up its share.
    pub(super) address: AtomicU64,
    /// Only reserved descriptors were left.
    pub(super) descriptors: AtomicU64,
    /// The handshake or the first byte did not arrive in time.
    pub(super) late: AtomicU64,
    /// Calls of accept that failed.
    pub(super) accept_failures: AtomicU64,
    /// How often a new certificate was loaded, and how often one could not be used.
    pub(super) reloads: AtomicU64,
    pub(super) reload_failures: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    /// Return how many connections were closed immediately after accept.
    pub fn refused(&self) -> u64 {
        read(&self.full) + read(&self.address) + read(&self.descriptors)
    }

    /// Return how many connections were closed before they were served: immediately, or because no
    /// byte arrived in time.
    pub fn not_served(&self) -> u64 {
        self.refused() + read(&self.late)
    }

    /// Count a handshake or a first byte that arrived too late.
    pub fn late(&self) {
        count(&self.late);
    }

    /// Return the numbers of connections that were closed immediately, by the limit that they
    /// exceeded. A server that does not accept from a TCP or Unix socket has no other refusals.
    pub fn by_limit(&self) -> [(&'static str, u64); 2] {
        [("full", read(&self.full)), ("address", read(&self.address))]
    }

    /// Write `PREFIX_connections_not_served` by reason, `PREFIX_accept_failures` and the reloads of the certificate.
    pub fn write(&self, page: &mut Page<'_>, prefix: &str) -> fmt::Result {
        page.counters(
            &format!("{prefix}_connections_not_served"),
            "Connections closed before they were served, by reason.",
            "reason",
            [
                ("full", read(&self.full)),
                ("address", read(&self.address)),
                ("descriptors", read(&self.descriptors)),
                ("late", read(&self.late)),
            ],
        )?;
        page.counter(
            &format!("{prefix}_accept_failures"),
            "Calls of accept that failed.",
            read(&self.accept_failures),
        )?;
        self.write_reloads(page, prefix)
    }

    /// Write `PREFIX_certificate_reloads` and `PREFIX_certificate_reload_failures`.
    pub fn write_reloads(&self, page: &mut Page<'_>, prefix: &str) -> fmt::Result {
        page.counter(&format!("{prefix}_certificate_reloads"), "Reloads of the certificate.", read(&self.reloads))?;
        page.counter(
            &format!("{prefix}_certificate_reload_failures"),
            "New certificates that could not be loaded.",
            read(&self.reload_failures),
        )
    }
}
