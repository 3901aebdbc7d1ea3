//! Congestion control that never holds CONNECTION_CLOSE back.
//!
//! quinn-proto 0.11.19 counts CONNECTION_CLOSE as data: while the congestion window is full, the
//! packet waits, and no acknowledgement makes room any more once the connection is closed. The peer
//! would learn nothing until its idle timeout (quinn's issue 2785, fixed after that release). So
//! the window of a connection that is about to close is unlimited, which affects only this one
//! packet: a closed connection sends no data.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use quinn::congestion::{Controller, ControllerFactory, ControllerMetrics, CubicConfig};
use quinn::{Connection, VarInt};
use quinn_proto::RttEstimator;

/// A window so large that quinn neither holds back nor paces any packet.
const UNLIMITED: u64 = 1 << 40;

/// The factory of congestion controllers: CUBIC with the exception for CONNECTION_CLOSE.
#[derive(Debug)]
pub(crate) struct CongestionConfig(Arc<CubicConfig>);

impl CongestionConfig {
    /// Return a configuration with this many bytes in flight at first.
    pub(crate) fn new(initial_window: u64) -> Self {
        let mut cubic = CubicConfig::default();
        cubic.initial_window(initial_window);
        Self(Arc::new(cubic))
    }
}

impl ControllerFactory for CongestionConfig {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let cubic = Arc::clone(&self.0).build(now, current_mtu);
        Box::new(Congestion { cubic, is_closing: Arc::default() })
    }
}

struct Congestion {
    cubic: Box<dyn Controller>,
    /// Shared with the copies that quinn hands out.
    is_closing: Arc<AtomicBool>,
}

impl Controller for Congestion {
    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.cubic.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, app_limited: bool, rtt: &RttEstimator) {
        self.cubic.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest_packet_num_acked: Option<u64>) {
        self.cubic.on_end_acks(now, in_flight, app_limited, largest_packet_num_acked);
    }

    fn on_congestion_event(&mut self, now: Instant, sent: Instant, is_persistent_congestion: bool, lost_bytes: u64) {
        self.cubic.on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.cubic.on_mtu_update(new_mtu);
    }

    fn window(&self) -> u64 {
        if self.is_closing.load(Ordering::Relaxed) { UNLIMITED } else { self.cubic.window() }
    }

    fn metrics(&self) -> ControllerMetrics {
        self.cubic.metrics()
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self { cubic: self.cubic.clone_box(), is_closing: Arc::clone(&self.is_closing) })
    }

    fn initial_window(&self) -> u64 {
        self.cubic.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Close a connection with a code and a reason, which reach the peer even if the congestion window
/// is full.
pub(crate) fn close(connection: &Connection, code: VarInt, reason: &[u8]) {
    lift_window(connection);
    connection.close(code, reason);
}

/// Make the window of a connection unlimited, because its endpoint is about to close.
pub(crate) fn lift_window(connection: &Connection) {
    if let Ok(congestion) = connection.congestion_state().into_any().downcast::<Congestion>() {
        congestion.is_closing.store(true, Ordering::Relaxed);
    }
}
