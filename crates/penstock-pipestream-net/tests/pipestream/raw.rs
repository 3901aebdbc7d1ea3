//! A peer made of plain quinn and the core's frames, which does what our client never would.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use penstock_pipestream::{Capabilities, EntityHeader, ErrorFrame, Frame, FrameDecoder, Status, StatusFrame};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ConnectionError, Endpoint, RecvStream, SendStream};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::support::{PATIENCE, Pair, anywhere};

/// A client that sends and reads single frames.
pub(crate) struct RawClient {
    pub(crate) connection: quinn::Connection,
    pub(crate) send: SendStream,
    receive: RecvStream,
    decoder: FrameDecoder,
    endpoint: Endpoint,
}

/// Run a raw peer on the test's own thread.
pub(crate) fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("within a minute") })
}

/// Wait until a condition is true, while the peer's tasks run.
pub(crate) async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Return a client configuration that trusts the server and speaks this protocol.
pub(crate) fn client_config(pair: &Pair, alpn: &[u8]) -> quinn::ClientConfig {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(pair.dir.path().join("tls/ca.pem")).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![alpn.to_vec()];
    quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()))
}

/// Return a connection without stream 0.
pub(crate) async fn connect(pair: &Pair, alpn: &[u8]) -> Result<(Endpoint, quinn::Connection), ConnectionError> {
    let endpoint = Endpoint::client(anywhere()).unwrap();
    let connection = connect_over(&endpoint, pair, alpn).await?;
    Ok((endpoint, connection))
}

async fn connect_over(endpoint: &Endpoint, pair: &Pair, alpn: &[u8]) -> Result<quinn::Connection, ConnectionError> {
    let config = client_config(pair, alpn);
    endpoint.connect_with(config, pair.server.local_addr().unwrap(), "localhost").unwrap().await
}

impl RawClient {
    /// Return a peer with stream 0 open that has sent nothing.
    pub(crate) async fn silent(pair: &Pair) -> Self {
        Self::over(Endpoint::client(anywhere()).unwrap(), pair).await
    }

    /// Return a peer over this endpoint, with stream 0 open, that has sent nothing.
    pub(crate) async fn over(endpoint: Endpoint, pair: &Pair) -> Self {
        let connection = connect_over(&endpoint, pair, b"pipestream/1").await.unwrap();
        let (send, receive) = connection.open_bi().await.unwrap();
        Self { connection, send, receive, decoder: FrameDecoder::new(), endpoint }
    }

    /// Return a peer that has agreed on capabilities.
    pub(crate) async fn agreed(pair: &Pair) -> Self {
        Self::silent(pair).await.agree().await
    }

    /// Agree on capabilities.
    pub(crate) async fn agree(mut self) -> Self {
        self.send_frames(&[Frame::Capabilities(capabilities())]).await;
        assert!(matches!(self.next_frame().await, Frame::Capabilities(_)));
        self
    }

    pub(crate) async fn send_frames(&mut self, frames: &[Frame]) {
        let mut bytes = BytesMut::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes));
        self.send.write_all(&bytes).await.unwrap();
    }

    /// Return the server's next frame that is not a heartbeat.
    pub(crate) async fn next_frame(&mut self) -> Frame {
        loop {
            match self.decoder.next_frame().unwrap() {
                Some(Frame::Status(status)) if status.status == Status::Unspecified => {}
                Some(frame) => return frame,
                None => {
                    let chunk = self.receive.read_chunk(usize::MAX, true).await.unwrap().expect("stream 0 is open");
                    self.decoder.push(chunk.bytes);
                }
            }
        }
    }

    /// Return the next STATUS, and the ERROR frames before it.
    pub(crate) async fn hear_status(&mut self) -> (StatusFrame, Vec<ErrorFrame>) {
        let mut errors = Vec::new();
        loop {
            let frame = self.next_frame().await;
            if let Frame::Status(status) = frame {
                return (status, errors);
            }
            let Frame::Error(error) = frame else { panic!("{frame:?}") };
            errors.push(error);
        }
    }

    /// Expect an entity to fail with a code, reported by ERROR and STATUS, and the connection to continue.
    pub(crate) async fn expect_failed(&mut self, entity: u32, code: u32) {
        let (status, errors) = self.hear_status().await;
        assert_eq!((status.entity_id, status.status), (entity, Status::Failed), "{errors:?}");
        assert!(errors.iter().any(|error| error.entity_id == entity && error.code == code), "{errors:?}");
    }

    pub(crate) async fn expect_complete(&mut self, entity: u32) {
        let (status, errors) = self.hear_status().await;
        assert_eq!((status.entity_id, status.status), (entity, Status::Complete), "{errors:?}");
    }

    /// Send an entity stream with this header and payload, and finish it.
    pub(crate) async fn stream(&self, header: &EntityHeader, payload: &[u8]) {
        let mut stream = self.open(header, payload).await;
        // The server may already have stopped it, which is what the test is about.
        let _ = stream.finish();
    }

    /// Send an entity stream with this header and payload, and leave it open.
    pub(crate) async fn open(&self, header: &EntityHeader, payload: &[u8]) -> SendStream {
        let mut stream = self.connection.open_uni().await.unwrap();
        stream.write_all(&header.encode()).await.unwrap();
        let _ = stream.write_all(payload).await;
        stream
    }

    /// Wait until the server closes the connection, and return its code and reason.
    pub(crate) async fn expect_closed(&self) -> (u64, String) {
        let closed = self.connection.closed().await;
        let ConnectionError::ApplicationClosed(close) = closed else { panic!("{closed}") };
        (close.error_code.into_inner(), String::from_utf8_lossy(&close.reason).into_owned())
    }

    /// Check that the server has not closed the connection.
    pub(crate) async fn expect_open(&self) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(self.connection.close_reason(), None);
    }

    /// Close the connection as a client that has nothing more to send.
    pub(crate) async fn close(self) {
        self.close_with(0).await;
    }

    pub(crate) async fn close_with(self, code: u32) {
        self.connection.close(code.into(), b"");
        self.endpoint.wait_idle().await;
    }
}

pub(crate) fn capabilities() -> Capabilities {
    Capabilities {
        layer0: true,
        layer1: true,
        layer2: false,
        max_scope_depth: None,
        max_entities_per_scope: None,
        max_window_size: None,
    }
}

pub(crate) fn status(entity_id: u32, status: Status) -> Frame {
    Frame::Status(StatusFrame { status, entity_id, scope_id: 0, depth: 0, cursor: None, extension: None })
}

pub(crate) fn pending(entity_id: u32) -> Frame {
    status(entity_id, Status::Pending)
}

/// Return a correct header for a payload in the root scope.
pub(crate) fn header(entity_id: u32, payload: &[u8]) -> EntityHeader {
    EntityHeader {
        entity_id,
        content_type: "application/octet-stream".into(),
        payload_length: payload.len() as u64,
        checksum: Bytes::copy_from_slice(&Sha256::digest(payload)),
        metadata: BTreeMap::from([("penstock.document".to_owned(), "a.bin".to_owned())]),
        ..EntityHeader::default()
    }
}
