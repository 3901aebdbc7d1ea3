//! A connection that is closed while its congestion window is full.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use penstock_io::runtime::spawn;
use penstock_pipestream_net::{ErrorCode, Payload, Reason, channel};
use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, Runtime as _, TokioRuntime, UdpPoller};

use crate::raw::{RawClient, eventually, run};
use crate::support::{Pair, anywhere, draft};

/// A socket that loses everything it sends while it is mute.
#[derive(Debug)]
struct Mute {
    inner: Arc<dyn AsyncUdpSocket>,
    is_mute: AtomicBool,
}

impl AsyncUdpSocket for Mute {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        if self.is_mute.load(Ordering::Relaxed) { Ok(()) } else { self.inner.try_send(transmit) }
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
}

#[test]
fn a_peer_whose_acknowledgements_are_missing_learns_why_the_connection_ends() {
    let (consumer, sessions) = channel(4);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |_| {});
    run(async {
        let inner = TokioRuntime.wrap_udp_socket(UdpSocket::bind(anywhere()).unwrap()).unwrap();
        let socket = Arc::new(Mute { inner, is_mute: AtomicBool::new(false) });
        let endpoint = Endpoint::new_with_abstract_socket(
            EndpointConfig::default(),
            None,
            Arc::clone(&socket) as Arc<dyn AsyncUdpSocket>,
            Arc::new(TokioRuntime),
        );
        let peer = RawClient::over(endpoint.unwrap(), &pair).await.agree().await;
        let session = sessions.next().await.unwrap();

        socket.is_mute.store(true, Ordering::Relaxed);
        let before = peer.connection.stats().udp_rx.bytes;
        let _sending = spawn({
            let session = session.clone();
            async move { session.send(draft("x/y"), Payload::bytes(vec![7; 900_000])).await }
        });
        // The payload is larger than the window of a new connection, so the server waits for an
        // acknowledgement.
        eventually("the window is full", || peer.connection.stats().udp_rx.bytes - before > 10_000).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        let sent = peer.connection.stats().udp_rx.bytes - before;
        assert!(sent < 900_000, "the window was never full");

        session.abort(Reason { code: ErrorCode::WindowExceeded, message: "too many".to_owned() }).unwrap();
        assert_eq!(peer.expect_closed().await, (ErrorCode::WindowExceeded.code(), "too many".to_owned()));
    });
}
