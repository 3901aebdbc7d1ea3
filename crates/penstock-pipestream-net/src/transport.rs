//! QUIC as PipeStream requires it (sections 4 and 5): sockets, windows, codes.
//!
//! Windows: an endpoint that drains every stream immediately uses 1 MiB for a stream and 32 MiB for a connection. Where
//! a caller takes entities one after another, all streams together fit into the connection's window with room to spare,
//! so unread streams never block stream 0.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::{Range, RangeInclusive};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use penstock_io::runtime::{ProcessLocal, Runtime};
use penstock_io::{DriverError as _, hex};
use penstock_pipestream::{ErrorCode, Reason};
use quinn::crypto::rustls::HandshakeData;
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{
    ConnectError, Connection, ConnectionError, Endpoint, EndpointConfig, MtuDiscoveryConfig, Runtime as _,
    ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use quinn_proto::HashedConnectionIdGenerator;
use sha2::{Digest as _, Sha256};
use socket2::{Domain, Protocol, Socket, Type};

use crate::congestion::CongestionConfig;
use crate::limits::{MAX_MTU, MIN_MTU};
use crate::segments::{MAX_SEGMENTS, SegmentedSocket, segments};
use crate::{Error, Misuse, Result};

/// The protocol's name in the handshake (section 12.1).
pub(crate) const ALPN: &[u8] = b"pipestream/1";

/// Default of the maximum duration of a handshake, and of the control stream and the capabilities together.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Defaults of the largest UDP payload that is tried, on loopback and elsewhere. On loopback it may
/// be large, but ten of these must fit into one segmented send.
const LOOPBACK_MTU: u16 = 6_500;
const DEFAULT_MTU: u16 = 1_452;
/// The sizes that may be requested.
const MTU: RangeInclusive<u16> = MIN_MTU..=MAX_MTU;
/// Number of bytes that may be in flight at first (RFC 9002, section 7.2), and the least number of
/// packets of the largest size that is tried: a packet that probes a size is in flight too, and
/// must not hold frames back.
const INITIAL_WINDOW: u64 = 14_720;
const INITIAL_PACKETS: u64 = 4;
const SOCKET_BUFFER: usize = 4 << 20;
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Maximum number of unacknowledged bytes: the path's delay times its rate, even if the threads of
/// both ends share few cores. More bytes would only make the control stream wait behind them.
const SEND_WINDOW: u64 = 4 << 20;
/// Stream 0, and some more, so that a peer that opens others is detected (decision 4).
const BIDIRECTIONAL_STREAMS: u32 = 4;
/// Transport errors that carry a TLS alert (RFC 9001, section 4.8).
const CRYPTO_ERRORS: Range<u64> = 0x100..0x200;
/// The receive window, in bytes, of a client of a service on the server's port.
const SERVICE_WINDOW: u32 = 8 << 20;
const EXPORTER_LABEL: &[u8] = b"EXPORTER-pipestream-session";

/// How the entity streams of the peer are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake {
    /// Every stream is read as soon as it is admitted.
    Concurrent,
    /// A caller reads one stream after another, at its own pace.
    Sequential,
}

impl Intake {
    /// Return how many entity streams the peer may have open.
    pub(crate) const fn streams(self) -> u32 {
        match self {
            Self::Concurrent => 256,
            Self::Sequential => 112,
        }
    }

    const fn stream_window(self) -> u32 {
        match self {
            Self::Concurrent => 1 << 20,
            // Room for an entity of 256 KiB and its header: its last bytes do not wait until the
            // first ones are read.
            Self::Sequential => 272 << 10,
        }
    }

    const fn connection_window(self) -> u32 {
        32 << 20
    }

    /// Return the window of a connection on which this many streams are held unread.
    pub(crate) fn window_with_held(self, held: u32) -> u32 {
        match self {
            Self::Concurrent => held.saturating_mul(self.stream_window()).saturating_add(self.connection_window()),
            // The window has room for all streams anyway.
            Self::Sequential => self.connection_window(),
        }
    }
}

/// Check a size for [`SessionOptions::mtu`](crate::SessionOptions::mtu), and refuse one that no
/// path carries.
pub fn check_mtu(mtu: i64) -> Result<u16> {
    u16::try_from(mtu).ok().filter(|mtu| MTU.contains(mtu)).ok_or(Misuse::Mtu { mtu }.into())
}

/// Return the transport configuration of one connection.
pub(crate) fn config(
    intake: Intake,
    idle_timeout: Duration,
    mtu: Option<u16>,
    peer: SocketAddr,
) -> Result<Arc<TransportConfig>> {
    let idle = idle_timeout.try_into().map_err(|_| Misuse::IdleTimeoutLength)?;
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(BIDIRECTIONAL_STREAMS.into())
        .max_concurrent_uni_streams(intake.streams().into())
        .stream_receive_window(intake.stream_window().into())
        .receive_window(intake.connection_window().into())
        .send_window(SEND_WINDOW)
        // Send one entity after another: a receiver processes the first while the next arrives.
        .send_fairness(false)
        .max_idle_timeout(Some(idle))
        .keep_alive_interval(Some(KEEP_ALIVE.min(idle_timeout / 3)))
        .datagram_receive_buffer_size(None);
    discover_mtu(&mut config, mtu, peer);
    Ok(Arc::new(config))
}

/// Return the transport configuration of a connection to a service on a server's port: few streams, large answers.
pub(crate) fn service_config(peer: SocketAddr) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config
        .max_concurrent_bidi_streams(0_u32.into())
        .max_concurrent_uni_streams(0_u32.into())
        .stream_receive_window(SERVICE_WINDOW.into())
        .receive_window(SERVICE_WINDOW.into())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .datagram_receive_buffer_size(None);
    discover_mtu(&mut config, None, peer);
    Arc::new(config)
}

/// Discover the largest UDP payload on the path to a peer, up to the requested size.
fn discover_mtu(config: &mut TransportConfig, mtu: Option<u16>, peer: SocketAddr) {
    let default = if peer.ip().to_canonical().is_loopback() { LOOPBACK_MTU } else { DEFAULT_MTU };
    let largest = mtu.unwrap_or(default);
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(largest);
    let congestion = CongestionConfig::new(INITIAL_WINDOW.max(INITIAL_PACKETS * u64::from(largest)));
    config.mtu_discovery_config(Some(discovery)).congestion_controller_factory(Arc::new(congestion));
}

/// Return a UDP socket with large buffers, which prevent packet loss under load, if the system
/// grants them. An IPv6 socket accepts IPv4 as well.
pub(crate) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        // Some systems have no dual-stack sockets; there the socket serves IPv6 alone.
        let _ = socket.set_only_v6(false);
    }
    if let Err(error) = socket.set_recv_buffer_size(SOCKET_BUFFER).and(socket.set_send_buffer_size(SOCKET_BUFFER)) {
        tracing::debug!(%error, "cannot enlarge the socket's buffers");
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// The key of the tokens of stateless resets (RFC 9000, section 10.3). A server that has the key of
/// a crashed server informs that server's clients, at their next packet, that their connections are
/// gone; otherwise they would wait for their idle timeout.
#[derive(Clone)]
pub(crate) struct ResetKey([u8; BLOCK]);

const RESET: &[u8] = b"stateless reset";
/// The block size of SHA-256 in bytes, which a key fills.
const BLOCK: usize = 64;

impl ResetKey {
    /// Derive the key from a server's secret, from which other keys are derived as well.
    pub(crate) fn of(secret: [u8; 32]) -> Self {
        let mut block = [0; BLOCK];
        for (byte, secret) in block.iter_mut().zip(secret) {
            *byte = secret;
        }
        Self(block)
    }

    fn mac(&self, of: &[u8], data: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::new(&self.0.into());
        mac.update(of);
        mac.update(data);
        mac
    }

    /// Return a generator of connection IDs that the next server recognizes: a packet with any
    /// other ID is not from a client.
    fn connection_ids(&self) -> HashedConnectionIdGenerator {
        let bytes = self.mac(b"connection ID", b"").finalize().into_bytes();
        let key = bytes.iter().take(8).fold(0, |key, byte| key << 8 | u64::from(*byte));
        HashedConnectionIdGenerator::from_key(key)
    }

    fn config(self) -> EndpointConfig {
        let mut config = EndpointConfig::new(Arc::new(self.clone()));
        config.cid_generator(move || Box::new(self.connection_ids()));
        config
    }
}

impl fmt::Debug for ResetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResetKey(..)")
    }
}

impl HmacKey for ResetKey {
    fn sign(&self, data: &[u8], signature_out: &mut [u8]) {
        signature_out.copy_from_slice(&self.mac(RESET, data).finalize().into_bytes());
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> std::result::Result<(), CryptoError> {
        self.mac(RESET, data).verify_slice(signature).map_err(|_| CryptoError)
    }
}

/// Return an endpoint on the IO thread of this process. It sends at most `segments` packets at a
/// time, and accepts packets of any size that a peer may try.
pub(crate) fn endpoint(
    runtime: &Runtime,
    socket: UdpSocket,
    segments: usize,
    server: Option<ServerConfig>,
    reset: Option<ResetKey>,
) -> Result<Endpoint> {
    let mut config = reset.map_or_else(EndpointConfig::default, ResetKey::config);
    config.max_udp_payload_size(*MTU.end()).map_err(|error| Error::internal("the largest packet", error))?;
    let context = |error| Error::io("cannot use the UDP socket", error);
    let _entered = runtime.handle().enter();
    let socket = TokioRuntime.wrap_udp_socket(socket).map_err(context)?;
    let socket = Arc::new(SegmentedSocket::new(socket, segments));
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime)).map_err(context)
}

/// Return the maximum number of packets that an endpoint with this MTU sends at a time, whichever
/// its peers are.
pub(crate) fn segments_for(mtu: Option<u16>) -> usize {
    segments(mtu.unwrap_or(LOOPBACK_MTU))
}

/// The endpoints for clients, by the number of packets that they send at a time; all sessions of a
/// process share them.
type ClientEndpoints = ProcessLocal<[OnceLock<Endpoint>; MAX_SEGMENTS + 1]>;
static CLIENTS_V4: ClientEndpoints = ProcessLocal::new();
static CLIENTS_V6: ClientEndpoints = ProcessLocal::new();

/// Return the endpoint that clients of this process share, for the peer's address family and the
/// number of packets of one send.
pub(crate) fn client_endpoint(
    runtime: &'static Runtime,
    peer: SocketAddr,
    mtu: Option<u16>,
) -> Result<&'static Endpoint> {
    let (clients, any) = match peer {
        SocketAddr::V4(_) => (&CLIENTS_V4, SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))),
        SocketAddr::V6(_) => (&CLIENTS_V6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))),
    };
    let slots = clients.get_or_try_init(|| Ok::<_, Error>([const { OnceLock::new() }; MAX_SEGMENTS + 1]))?;
    let segments = segments_for(mtu);
    let slot = slots
        .get(segments)
        .ok_or_else(|| Error::internal(format!("a socket for {segments} packets"), "there is none"))?;
    if let Some(endpoint) = slot.get() {
        return Ok(endpoint);
    }
    let socket = bind(any).map_err(|error| Error::io("cannot open a UDP socket", error))?;
    let created = endpoint(runtime, socket, segments, None, None)?;
    Ok(slot.get_or_init(|| created))
}

/// Return the error of a connection that cannot be started: the caller's address or name is wrong,
/// or the endpoint takes no more connections.
pub(crate) fn connect_error(address: SocketAddr, error: ConnectError) -> Error {
    match error {
        ConnectError::InvalidServerName(_) | ConnectError::InvalidRemoteAddress(_) => {
            Misuse::Connect { address, reason: error.to_string() }.into()
        }
        ConnectError::EndpointStopping
        | ConnectError::CidsExhausted
        | ConnectError::NoDefaultClientConfig
        | ConnectError::UnsupportedVersion => Error::io(format!("cannot connect to {address}"), error),
    }
}

/// Return the session's ID below layer 2 (decision 18), which is the same at both ends, and secret
/// from others.
pub(crate) fn session_id(connection: &Connection) -> Result<String> {
    let mut bytes = [0_u8; 16];
    connection
        .export_keying_material(&mut bytes, EXPORTER_LABEL, b"")
        .map_err(|_| Error::tls("the handshake has no keying material".into()))?;
    Ok(hex::encode(bytes))
}

/// Return the protocol that the handshake of a connection has chosen.
pub(crate) fn alpn_of(connection: &Connection) -> Option<Vec<u8>> {
    connection.handshake_data()?.downcast::<HandshakeData>().ok()?.protocol
}

/// Return the SHA-256 of the certificate that the peer has shown.
pub(crate) fn certificate(connection: &Connection) -> Option<[u8; 32]> {
    let chain = connection.peer_identity()?.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>().ok()?;
    chain.first().map(|certificate| Sha256::digest(certificate).into())
}

/// Convert a code of the registry for RESET_STREAM, STOP_SENDING and CONNECTION_CLOSE (decision
/// 21).
pub(crate) fn quic_code(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.code()).unwrap_or(VarInt::MAX)
}

/// Code of CONNECTION_CLOSE from an end whose next process continues the session: the connection is
/// lost, but the session is not over. One of the codes for private use.
pub(crate) const SESSION_CONTINUES: ErrorCode = ErrorCode::Other(0x42);

/// Return what the end of a connection means for its session, and whether the peer ended it.
pub(crate) fn loss(error: &ConnectionError) -> (Reason, bool) {
    let (code, message, by_peer) = match error {
        ConnectionError::ApplicationClosed(close) => {
            let message = String::from_utf8_lossy(&close.reason).into_owned();
            (ErrorCode::from_code(close.error_code.into_inner()), message, true)
        }
        ConnectionError::ConnectionClosed(close) => (ErrorCode::InternalError, close.to_string(), true),
        ConnectionError::TimedOut => {
            (ErrorCode::IdleTimeout, "the peer sent nothing within the idle timeout".to_owned(), false)
        }
        ConnectionError::Reset => {
            (ErrorCode::ControlReset, "the peer does not know the connection: stateless reset".to_owned(), true)
        }
        // The session did not close the connection, so this end's endpoint did.
        ConnectionError::LocallyClosed => (ErrorCode::InternalError, "closed by this end".to_owned(), false),
        ConnectionError::VersionMismatch | ConnectionError::TransportError(_) | ConnectionError::CidsExhausted => {
            (ErrorCode::InternalError, error.to_string(), false)
        }
    };
    (Reason { code, message }, by_peer)
}

/// Return the TLS alert that ended a connection, if one did: the server does not accept the
/// client's certificate, or requires one.
pub(crate) fn tls_alert(connection: &Connection, peer: SocketAddr) -> Option<Error> {
    let ConnectionError::ConnectionClosed(close) = connection.close_reason()? else { return None };
    let alert = CRYPTO_ERRORS.contains(&u64::from(close.error_code));
    alert.then(|| {
        Error::tls_from(format!("the handshake with {peer} failed: {close}"), ConnectionError::ConnectionClosed(close))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_without_a_reader_leave_room_for_the_control_stream() {
        let all = Intake::Sequential.streams() * Intake::Sequential.stream_window();
        assert!(all + (2 << 20) <= Intake::Sequential.connection_window());
    }

    #[test]
    fn an_mtu_that_no_path_carries_is_refused() {
        assert!(matches!((check_mtu(1_200), check_mtu(9_000)), (Ok(1_200), Ok(9_000))));
        for wrong in [-1, 0, 1_199, 9_001, 65_536 + 1_200] {
            let refused = check_mtu(wrong);
            assert!(matches!(&refused, Err(Error::Misuse(Misuse::Mtu { mtu })) if *mtu == wrong), "{refused:?}");
        }
    }
}
