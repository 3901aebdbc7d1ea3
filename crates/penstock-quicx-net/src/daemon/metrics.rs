//! A daemon's metrics for Prometheus; docs/quicx.md lists them.

use std::fmt;

use penstock_io::metrics::{Page, Source};

use super::state::{Phase, Shared};

impl Source for Shared {
    fn write(&self, page: &mut Page<'_>) -> fmt::Result {
        let (counters, stats, queue) = {
            let state = self.lock();
            let gauges = [
                ("held_tasks", "Tasks that workers hold.", state.queue.held()),
                ("dead_tasks", "Tasks on the dead list.", state.queue.dead()),
                ("open_connections", "Connections open.", state.queue.connections()),
                (
                    "journal_waiting_bytes",
                    "Bytes of the journal that are not durable yet.",
                    state.queue.journal_waiting(),
                ),
            ];
            (*state.queue.counters(), state.queue.stats(), gauges)
        };
        for (name, help, value) in [
            ("connections", "Accepted connections.", counters.connections),
            ("submitted", "Tasks accepted.", counters.submitted),
            ("merged", "Submits that were merged into another task.", counters.merged),
            ("delivered", "Deliveries to workers.", counters.delivered),
            ("done", "Tasks done.", counters.done),
            ("failed", "Tasks that failed permanently.", counters.failed),
            ("retried", "Failures that are retried.", counters.retried),
            ("lost", "Tasks returned by workers that disconnected.", counters.lost),
            ("late", "Tasks returned because their time was over.", counters.late),
            ("died", "Tasks that died.", counters.died),
            ("requeued", "Dead tasks queued again.", counters.requeued),
            ("dropped", "Dead tasks dropped.", counters.dropped),
            ("slow_connections", "Connections cut off because they did not read.", counters.slow),
            ("silent_workers", "Workers cut off because they did not answer.", counters.silent),
            ("silent_producers", "Producers cut off because they did not answer.", counters.silent_producers),
            ("journal_failures", "Writes of the journal that failed.", counters.write_failures),
            ("journal_damaged", "Damaged places found in the journal at the start.", counters.damaged),
        ] {
            page.counter(&format!("penstock_quicx_{name}"), help, value)?;
        }
        let codes = ["0x01", "0x02", "0x03", "0x04"];
        page.counters("penstock_quicx_errors", "ERRORs, by code.", "code", codes.into_iter().zip(counters.errors))?;
        for (name, help, value) in [
            ("queue_depth", "Tasks that wait.", u64::from(stats.queue_depth)),
            ("workers", "Workers registered.", u64::from(stats.workers_total)),
            ("idle_workers", "Workers that hold no task.", u64::from(stats.workers_idle)),
            ("pool_used_bytes", "Bytes of allocated blocks.", stats.pmad_bytes_used),
            ("pool_bytes", "Bytes of the pool.", stats.pmad_bytes_total),
        ] {
            page.gauge(&format!("penstock_quicx_{name}"), help, value)?;
        }
        self.admission.counters().write(page, "penstock_quicx")?;
        for (name, help, value) in queue {
            page.gauge(&format!("penstock_quicx_{name}"), help, value as u64)?;
        }
        page.histogram("penstock_quicx_commit_seconds", "Duration of a write of the journal.", &self.commit_seconds)
    }

    fn is_healthy(&self) -> bool {
        self.phase() == Phase::Running
    }
}
