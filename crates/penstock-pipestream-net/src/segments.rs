//! A UDP socket that never sends more bytes at a time than the system accepts.
//!
//! Segmentation offload hands up to ten packets to the system as one; together they must stay below
//! 64 KiB. quinn does not check that: the system refuses ten packets of 8,900 bytes at each try,
//! and the connection hangs.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// Maximum number of bytes of one send: a UDP packet over IPv4.
const MAX_SEND: u16 = 65_507;
/// The most segments that quinn asks for.
pub(crate) const MAX_SEGMENTS: usize = 10;

/// Return how many packets of this size one send may have.
pub(crate) fn segments(mtu: u16) -> usize {
    usize::from(MAX_SEND / mtu.max(1)).clamp(1, MAX_SEGMENTS)
}

/// A socket whose sends have at most this many packets.
pub(crate) struct SegmentedSocket {
    inner: Arc<dyn AsyncUdpSocket>,
    segments: usize,
}

impl SegmentedSocket {
    pub(crate) fn new(inner: Arc<dyn AsyncUdpSocket>, segments: usize) -> Self {
        Self { inner, segments }
    }
}

impl fmt::Debug for SegmentedSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SegmentedSocket").field("segments", &self.segments).finish_non_exhaustive()
    }
}

impl AsyncUdpSocket for SegmentedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments().min(self.segments)
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_sent_together_stay_below_what_the_system_takes() {
        for mtu in 1_200..=u16::MAX {
            let together = segments(mtu) * usize::from(mtu);
            assert!(together <= usize::from(MAX_SEND) || segments(mtu) == 1, "{mtu}");
        }
        assert_eq!((segments(6_500), segments(8_900)), (10, 7));
    }
}
