//! The metrics of a PipeStream server in `--metrics`. docs/operations.md lists them, and a test
//! compares the two.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use penstock_io::metrics::Page;
use quinn::ConnectionStats;

use crate::counters::{ByCode, Counters, Gauges, JournalCounters, LogCounters};
use crate::port::{ClaimCounters, EntitySink};

/// Sums of QUIC's counters over connections: those that have ended, or all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Transport {
    blocked_streams: u64,
    blocked_connection: u64,
    blocked_stream: u64,
    bytes_in: u64,
    bytes_out: u64,
    packets_out: u64,
    packets_lost: u64,
}

impl Transport {
    pub(crate) fn add(&mut self, stats: &ConnectionStats) {
        self.blocked_streams += stats.frame_rx.streams_blocked_uni;
        self.blocked_connection += stats.frame_rx.data_blocked;
        self.blocked_stream += stats.frame_rx.stream_data_blocked;
        self.bytes_in += stats.udp_rx.bytes;
        self.bytes_out += stats.udp_tx.bytes;
        self.packets_out += stats.path.sent_packets;
        self.packets_lost += stats.path.lost_packets;
    }
}

/// Sums of the gauges of the open sessions.
#[derive(Debug, Default)]
pub(crate) struct OpenTotals {
    sums: [u64; GAUGES.len()],
    /// Events that wait to be taken.
    pub(crate) events: u64,
}

type Gauge = (&'static str, &'static str, fn(&Gauges) -> &AtomicUsize);

const GAUGES: [Gauge; 8] = [
    ("open_entities", "Received entities without a terminal status.", |gauges| &gauges.open_received),
    ("open_sent_entities", "Sent entities without a terminal status.", |gauges| &gauges.open_owned),
    ("manifest_entries", "Parents in the assembly manifests.", |gauges| &gauges.manifest_entries),
    ("open_scopes", "Scopes that are open.", |gauges| &gauges.scopes),
    ("held_header_bytes", "Bytes of headers that wait for their announcement.", |gauges| &gauges.held_bytes),
    ("open_checkpoints", "Checkpoints of clients without a response.", |gauges| &gauges.checkpoints),
    ("control_queue_bytes", "Bytes for stream 0 that clients have not read.", |gauges| &gauges.control_bytes),
    ("open_entity_streams", "Entity streams that are being received.", |gauges| &gauges.streams),
];

impl OpenTotals {
    pub(crate) fn add(&mut self, gauges: &Gauges) {
        for (sum, (_, _, gauge)) in self.sums.iter_mut().zip(GAUGES) {
            *sum += u64::try_from(gauge(gauges).load(Ordering::Relaxed)).unwrap_or(u64::MAX);
        }
    }
}

/// One scrape of a server.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) counters: &'a Counters,
    /// Claim checks in the store.
    pub(crate) claims: u64,
    pub(crate) claim_counters: &'a ClaimCounters,
    pub(crate) transport: Transport,
    pub(crate) totals: OpenTotals,
    pub(crate) sink: &'a dyn EntitySink,
    pub(crate) log: Option<&'a LogCounters>,
    /// Present if sessions are on disk.
    pub(crate) journal: Option<&'a JournalCounters>,
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn named(codes: &ByCode) -> Vec<(&'static str, u64)> {
    codes.read().map(|(code, count)| (code.name(), count)).collect()
}

impl Report<'_> {
    pub(crate) fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        self.connections(page)?;
        self.entities(page)?;
        self.limits(page)?;
        for ((name, help, _), sum) in GAUGES.iter().zip(self.totals.sums) {
            page.gauge(&format!("penstock_pipestream_{name}"), help, sum)?;
        }
        page.gauge("penstock_pipestream_claims", "Claim checks in the store.", self.claims)?;
        page.counter(
            "penstock_pipestream_claims_damaged",
            "Damaged records in the log of claim checks at the start.",
            read(&self.claim_counters.damaged),
        )?;
        page.gauge("penstock_pipestream_waiting_events", "Events that wait to be taken.", self.totals.events)?;
        self.sink.write_metrics(page)?;
        if let Some(journal) = self.journal {
            write_journal(page, journal)?;
        }
        if let Some(log) = self.log {
            page.counter(
                "penstock_pipestream_event_lines_lost",
                "Lines that --events could not write.",
                read(&log.lost),
            )?;
            page.counter(
                "penstock_pipestream_event_waits",
                "Times that a session waited for --events.",
                read(&log.waits),
            )?;
        }
        Ok(())
    }

    fn connections(&self, page: &mut Page<'_>) -> fmt::Result {
        let counters = self.counters;
        page.counter("penstock_pipestream_connections", "Connections accepted.", read(&counters.connections_total))?;
        let help = "Connections refused, by the limit that was reached.";
        let refused = counters.admission.by_limit();
        page.counters("penstock_pipestream_connections_refused", help, "reason", refused)?;
        page.gauge("penstock_pipestream_open_connections", "Connections open.", read(&counters.connections_open))?;
        counters.admission.write_reloads(page, "penstock_pipestream")?;
        page.counter(
            "penstock_pipestream_address_checks",
            "Clients that had to prove their address.",
            read(&counters.retries),
        )?;
        page.counter(
            "penstock_pipestream_reconnects",
            "Connections over which sessions continued after another one was lost.",
            read(&counters.reconnects),
        )?;
        page.counter(
            "penstock_pipestream_handshakes_failed",
            "Handshakes that failed.",
            read(&counters.handshakes_failed),
        )?;
        page.counters(
            "penstock_pipestream_sessions_ended",
            "Sessions by code of their end.",
            "code",
            named(&counters.ends),
        )?;
        let Transport { bytes_in, bytes_out, packets_out, packets_lost, .. } = self.transport;
        page.counters(
            "penstock_pipestream_datagram_bytes",
            "Bytes of UDP datagrams.",
            "direction",
            [("in", bytes_in), ("out", bytes_out)],
        )?;
        page.counter("penstock_pipestream_packets_sent", "QUIC packets sent.", packets_out)?;
        page.counter("penstock_pipestream_packets_lost", "QUIC packets lost.", packets_lost)
    }

    fn entities(&self, page: &mut Page<'_>) -> fmt::Result {
        let counters = self.counters;
        let sessions = &counters.sessions;
        page.counters(
            "penstock_pipestream_entities",
            "Received entities by terminal status.",
            "status",
            [
                ("COMPLETE", read(&counters.completed)),
                ("FAILED", read(&counters.failed)),
                ("ABANDONED", read(&counters.abandoned)),
                ("SKIPPED", read(&counters.skipped)),
                ("DEFERRED", read(&counters.deferred)),
            ],
        )?;
        page.counters(
            "penstock_pipestream_entity_failures",
            "Received entities that failed, by code.",
            "code",
            named(&counters.entity_failures),
        )?;
        page.counter(
            "penstock_pipestream_payload_bytes",
            "Bytes of completely received payloads.",
            read(&counters.bytes),
        )?;
        for (name, help, counter) in [
            (
                "root_entities",
                "Received root entities that are terminal: documents, if they are sent so.",
                &counters.roots,
            ),
            ("announced", "Entities that clients have announced.", &sessions.received),
            ("sent_announced", "Entities that this server has announced.", &sessions.announced),
            ("held_streams", "Entity streams that had to wait for their announcement.", &sessions.held_streams),
            ("late_streams", "Entity streams dropped because their entity was resolved.", &sessions.late_streams),
            ("late_statuses", "Statuses dropped because their entity was resolved.", &sessions.late_statuses),
            ("skipped_frames", "Private-use frames skipped.", &sessions.skipped_frames),
            ("attempts_failed", "Attempts at entities that failed and were not the last.", &sessions.attempts_failed),
            ("yields", "Times that an entity of a client was made to wait.", &sessions.yields),
            ("announcements_blocked", "Times that an announcement of ours had to wait.", &sessions.blocked),
            ("events_lost", "Events dropped because they were not taken.", &counters.events_lost),
        ] {
            page.counter(&format!("penstock_pipestream_{name}"), help, read(counter))?;
        }
        Ok(())
    }

    fn limits(&self, page: &mut Page<'_>) -> fmt::Result {
        let sink = self.sink.limits_exceeded();
        let own = self.counters.limits().chain(self.claim_counters.limits());
        let limits = own.chain([("sink_headers", sink.headers), ("sink_lines", sink.lines)]);
        page.counters("penstock_pipestream_limit_exceeded", "Times that a limit was exceeded.", "limit", limits)?;
        let Transport { blocked_streams, blocked_connection, blocked_stream, .. } = self.transport;
        page.counters(
            "penstock_pipestream_client_blocked",
            "Times that a client reported that a QUIC window blocks it.",
            "window",
            [("streams", blocked_streams), ("connection_bytes", blocked_connection), ("stream_bytes", blocked_stream)],
        )
    }
}

fn write_journal(page: &mut Page<'_>, journal: &JournalCounters) -> fmt::Result {
    let JournalCounters { restored, in_vain, records, commits } = journal;
    let help = "Sessions of an earlier process that waited for their client.";
    page.counter("penstock_pipestream_sessions_restored", help, read(restored))?;
    let help = "Restored sessions whose client did not return, and sessions that could not be restored.";
    page.counter("penstock_pipestream_sessions_restored_in_vain", help, read(in_vain))?;
    page.counter("penstock_pipestream_session_records", "Records of sessions that were stored.", read(records))?;
    let help = "How long it took to make records durable.";
    page.histogram("penstock_pipestream_session_commit_seconds", help, commits)
}
