use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use penstock_io::admission::{self, Admission};
use penstock_io::metrics::{Histogram, Page};
use penstock_io::sync::lock;
use penstock_lumberjack::ErrorKind;

use crate::receiver::budget::Budget;
use crate::receiver::protocol_sniff::DetectedProtocol;

/// The most peers that are counted separately; later ones are "other", which bounds the metrics page.
const PEERS: usize = 256;
const OTHER: &str = "other";
const KINDS: [ErrorKind; 6] = [
    ErrorKind::Malformed,
    ErrorKind::Violation,
    ErrorKind::Limit,
    ErrorKind::Misuse,
    ErrorKind::Io,
    ErrorKind::Deadline,
];
const FOREIGN: [DetectedProtocol; 4] =
    [DetectedProtocol::Http, DetectedProtocol::Tls, DetectedProtocol::PlainLumberjack, DetectedProtocol::Plain];

/// The counters of a receiver.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) connections: AtomicU64,
    pub(super) admission: Arc<admission::Counters>,
    pub(super) handshakes_failed: AtomicU64,
    pub(super) windows: AtomicU64,
    pub(super) batches: AtomicU64,
    pub(super) acknowledged: AtomicU64,
    pub(super) keepalives: AtomicU64,
    pub(super) not_taken: AtomicU64,
    pub(super) aged: AtomicU64,
    pub(super) safe_seconds: Histogram,
    errors: [AtomicU64; KINDS.len()],
    foreign: [AtomicU64; FOREIGN.len()],
    all: Arc<Peer>,
    peers: Mutex<HashMap<Arc<str>, Arc<Peer>>>,
}

/// The counters of one peer, by its certificate's name or its address without the port.
#[derive(Debug, Default)]
pub(super) struct Peer {
    events: AtomicU64,
    bytes: AtomicU64,
    wire: AtomicU64,
}

/// A snapshot of a receiver's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverCounters {
    /// Accepted connections.
    pub connections: u64,
    /// Connections that are open.
    pub open: u64,
    /// Connections that were closed at once: too many were open, in total or from their address, or
    /// descriptors ran out.
    pub refused: u64,
    /// TLS handshakes that failed.
    pub handshakes_failed: u64,
    /// Received events.
    pub events: u64,
    /// Bytes of these events.
    pub bytes: u64,
    /// Received bytes, after TLS and before decompression.
    pub wire_bytes: u64,
    /// Complete windows.
    pub windows: u64,
    /// Events that were acknowledged.
    pub acknowledged: u64,
    /// Bytes in memory now: incomplete frames, events on their way into batches, batches that are not durable yet.
    pub held_bytes: u64,
    /// Connections that ended with an error, by its kind.
    pub errors: Vec<(&'static str, u64)>,
    /// Connections of clients that speak another protocol, by its name.
    pub foreign: Vec<(&'static str, u64)>,
    /// Events and bytes by peer: certificate or address. The first 256, then "other".
    pub peers: Vec<(String, u64, u64)>,
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

pub(super) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl Peer {
    pub(super) fn events(&self, events: usize, bytes: usize) {
        add(&self.events, events);
        add(&self.bytes, bytes);
    }

    pub(super) fn wire(&self, bytes: usize) {
        add(&self.wire, bytes);
    }
}

impl Counters {
    /// Return the counters for a peer's events: the total and the peer's own.
    pub(super) fn peer(&self, name: &str) -> [Arc<Peer>; 2] {
        let mut peers = lock(&self.peers);
        let name = if peers.len() < PEERS || peers.contains_key(name) { name } else { OTHER };
        let peer = match peers.get(name) {
            Some(peer) => Arc::clone(peer),
            None => Arc::clone(peers.entry(name.into()).or_default()),
        };
        [peer, Arc::clone(&self.all)]
    }

    pub(super) fn error(&self, kind: ErrorKind) {
        if let Some((_, counter)) = KINDS.iter().zip(&self.errors).find(|(each, _)| **each == kind) {
            add(counter, 1);
        }
    }

    pub(super) fn foreign(&self, speaks: DetectedProtocol) {
        if let Some((_, counter)) = FOREIGN.iter().zip(&self.foreign).find(|(each, _)| **each == speaks) {
            add(counter, 1);
        }
    }

    pub(super) fn snapshot(&self, budget: &Budget, admission: &Admission) -> ReceiverCounters {
        let peers = lock(&self.peers);
        let mut peers: Vec<_> =
            peers.iter().map(|(name, peer)| (name.to_string(), read(&peer.events), read(&peer.bytes))).collect();
        peers.sort_unstable();
        ReceiverCounters {
            connections: read(&self.connections),
            open: admission.open(),
            refused: self.admission.refused(),
            handshakes_failed: read(&self.handshakes_failed),
            events: read(&self.all.events),
            bytes: read(&self.all.bytes),
            wire_bytes: read(&self.all.wire),
            windows: read(&self.windows),
            acknowledged: read(&self.acknowledged),
            held_bytes: u64::try_from(budget.held()).unwrap_or(u64::MAX),
            errors: KINDS.iter().zip(&self.errors).map(|(kind, counter)| (kind.name(), read(counter))).collect(),
            foreign: FOREIGN.iter().zip(&self.foreign).map(|(what, counter)| (what.name(), read(counter))).collect(),
            peers,
        }
    }

    /// Write the metrics. docs/operations-lumberjack.md lists them, and a test compares both.
    pub(super) fn write(&self, page: &mut Page<'_>, budget: &Budget, admission: &Admission) -> fmt::Result {
        let now = self.snapshot(budget, admission);
        for (name, help, value) in [
            ("connections", "Accepted connections.", now.connections),
            ("connections_refused", "Connections closed immediately because too many were open.", now.refused),
            ("connections_aged", "Connections ended at their age limit.", read(&self.aged)),
            ("handshakes_failed", "TLS handshakes that failed.", now.handshakes_failed),
            ("events", "Received events.", now.events),
            ("event_bytes", "Bytes of these events.", now.bytes),
            ("wire_bytes", "Received bytes, before decompression.", now.wire_bytes),
            ("windows", "Complete windows.", now.windows),
            ("batches", "Batches passed to the destination.", read(&self.batches)),
            ("batches_not_taken", "Batches that could not be made safe.", read(&self.not_taken)),
            ("acknowledged_events", "Events acknowledged.", now.acknowledged),
            ("keepalives", "Acknowledgements sent only as keep-alives.", read(&self.keepalives)),
        ] {
            page.counter(&format!("penstock_lumberjack_{name}"), help, value)?;
        }
        self.admission.write(page, "penstock_lumberjack")?;
        page.gauge("penstock_lumberjack_open_connections", "Connections open.", now.open)?;
        page.gauge("penstock_lumberjack_held_bytes", "Bytes of events that are not durable yet.", now.held_bytes)?;
        page.counters("penstock_lumberjack_errors", "Connections that ended with an error.", "kind", now.errors)?;
        page.counters(
            "penstock_lumberjack_foreign",
            "Connections of clients that speak another protocol.",
            "protocol",
            now.foreign,
        )?;
        let peers = |of: fn(&(String, u64, u64)) -> u64| now.peers.iter().map(move |peer| (peer.0.as_str(), of(peer)));
        page.counters("penstock_lumberjack_peer_events", "Events by peer.", "peer", peers(|peer| peer.1))?;
        page.counters("penstock_lumberjack_peer_bytes", "Bytes of events by peer.", "peer", peers(|peer| peer.2))?;
        page.histogram("penstock_lumberjack_safe_seconds", "Time until a batch is durable.", &self.safe_seconds)
    }
}
