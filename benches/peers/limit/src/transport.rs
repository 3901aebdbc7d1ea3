//! quinn as penstock sets it up, but for what `--mtu` says: the same windows, streams, buffers and certificates.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use peers_common::Arguments;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, MtuDiscoveryConfig, ServerConfig, TokioRuntime, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use socket2::{Domain, Protocol, Socket, Type};

const ALPN: &[u8] = b"limit/1";
const SOCKET_BUFFER: usize = 4 << 20;

fn transport(arguments: &Arguments) -> Arc<TransportConfig> {
    let mut mtu = MtuDiscoveryConfig::default();
    mtu.upper_bound(arguments.get("mtu", 6_500));
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(4_u32.into())
        .max_concurrent_uni_streams(arguments.get("streams", 112_u32).into())
        .stream_receive_window(arguments.get("stream-window", 272_u32 << 10).into())
        .receive_window((32_u32 << 20).into())
        .send_window(arguments.get("send-window", 4 << 20))
        .send_fairness(false)
        .max_idle_timeout(Some(Duration::from_secs(30).try_into().expect("short")))
        .keep_alive_interval(Some(Duration::from_secs(10)))
        .mtu_discovery_config(Some(mtu))
        .datagram_receive_buffer_size(None);
    Arc::new(config)
}

fn endpoint(arguments: &Arguments, server: Option<ServerConfig>) -> Endpoint {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).expect("a socket");
    socket.set_recv_buffer_size(SOCKET_BUFFER).expect("buffers");
    socket.set_send_buffer_size(SOCKET_BUFFER).expect("buffers");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port");
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(arguments.get("mtu", 6_500)).expect("a possible size");
    Endpoint::new(config, server, socket.into(), Arc::new(TokioRuntime)).expect("an endpoint")
}

/// A server with a certificate of its own; also the certificate.
pub fn server(arguments: &Arguments) -> (Endpoint, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = made.cert.der().to_vec();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate.clone())], key)
        .expect("a good certificate");
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).expect("a cipher")));
    config.transport_config(transport(arguments));
    (endpoint(arguments, Some(config)), certificate)
}

/// A client that trusts this certificate, and its endpoint.
pub fn client(arguments: &Arguments, certificate: Vec<u8>) -> (Endpoint, ClientConfig) {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(certificate)).expect("a good certificate");
    let mut tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("a cipher")));
    config.transport_config(transport(arguments));
    (endpoint(arguments, None), config)
}
