use std::net::SocketAddr;
use std::path::PathBuf;

use penstock_pipestream::{MAX_HEADER_LENGTH, MAX_LABEL};

use crate::limits::{LONGEST_INTERVAL, LONGEST_WAIT, MAX_MTU, MIN_MTU, SHORTEST_INTERVAL};

/// The mistakes of callers: of this driver, of a sink or of a sink's reader. Nothing was sent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A layer that does not exist.
    #[error("layers={layers}: this end has layers 0 to 2")]
    Layers {
        /// The setting.
        layers: u8,
    },
    /// A window without room for an entity.
    #[error("window=0: nothing could be sent")]
    Window,
    /// A size of packets that no path carries.
    #[error("mtu={mtu}: it must be from {MIN_MTU} to {MAX_MTU} bytes")]
    Mtu {
        /// The setting.
        mtu: i64,
    },
    /// A session below layer 2 that is configured to survive.
    #[error("layers={layers}: sessions survive at layer 2")]
    SurviveLayers {
        /// The setting of the layers.
        layers: u8,
    },
    /// A negative or too long time for a session to survive.
    #[error("survive={seconds}: 0 to {LONGEST_WAIT} seconds")]
    Survive {
        /// The setting.
        seconds: f64,
    },
    /// An idle timeout that QUIC cannot express.
    #[error("the idle timeout is too long")]
    IdleTimeoutLength,
    /// A status interval that is too short or too long.
    #[error("status_interval={seconds}: it is from {SHORTEST_INTERVAL} to {LONGEST_INTERVAL} seconds")]
    StatusInterval {
        /// The setting.
        seconds: f64,
    },
    /// A type to defer that is not a content type.
    #[error("{pattern:?}: a type to defer is like image/png or image/*")]
    DeferType {
        /// The pattern.
        pattern: String,
    },
    /// A state folder for sessions that do not survive.
    #[error("a state folder needs layer 2 and a reconnect timeout")]
    StateLayer,
    /// A state folder of a server that cannot recover what its sessions have received.
    #[error("a state folder needs a sink in a folder")]
    StateSink,
    /// A server address or a server name that QUIC refuses.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// The server's address.
        address: SocketAddr,
        /// Why the connection cannot be started.
        reason: String,
    },
    /// Options of layer 2 for a session with a peer that does not support it.
    #[error("policies and resumable sessions need layer 2, which {address} does not support")]
    PeerLayer {
        /// The peer's address.
        address: SocketAddr,
    },
    /// A policy for documents in a session below layer 2.
    #[error("a policy needs layer 2, and layer {layer} was agreed on")]
    PolicyLayer {
        /// The session's layer.
        layer: u8,
    },
    /// A call that needs layer 2, in a session below it.
    #[error("both ends must have agreed on layer 2 for this")]
    NoLayer2,
    /// An announcement after the caller began to close the session.
    #[error("the session is being closed: nothing more can be announced")]
    Closing,
    /// Metadata under a key that the protocol reserves.
    #[error("metadata {key} belongs to the protocol")]
    ReservedMetadata {
        /// The key.
        key: String,
    },
    /// Metadata with a key that decrypts data.
    #[error("{}", .0.message())]
    MetadataDataKey(#[source] penstock_pipestream::Error),
    /// Metadata with a malformed claim check.
    #[error("metadata {key}={value:?}: a claim check has 16 digits of lower-case hex")]
    ClaimMetadata {
        /// The metadata's key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// A policy of an entity that has no children.
    #[error("a policy is for an entity that has children: dehydrate")]
    WholePolicy,
    /// A label that is too long.
    #[error("a label of {length} bytes is more than the limit of {MAX_LABEL}")]
    LabelLength {
        /// The number of bytes.
        length: usize,
    },
    /// A data layer that does not exist.
    #[error("there is no data layer {layer}")]
    DataLayer {
        /// The layer.
        layer: u32,
    },
    /// A header that is too long.
    #[error("a header of {length} bytes is more than the limit of {MAX_HEADER_LENGTH}")]
    HeaderLength {
        /// The number of bytes.
        length: usize,
    },
    /// Chunks of no bytes.
    #[error("chunks must have a size")]
    ChunkSize,
    /// Chunks so small that their numbers do not fit into a header.
    #[error("chunks of {size} bytes are too many")]
    ChunkCount {
        /// The number of bytes of a chunk.
        size: u64,
    },
    /// The path of a folder or a device for a payload.
    #[error("{} is not a file", .path.display())]
    PayloadFile {
        /// The path.
        path: PathBuf,
    },
    /// A payload that has more bytes than the caller allows.
    #[error("the payload has more than {limit} bytes")]
    PayloadLimit {
        /// The caller's limit.
        limit: usize,
    },
    /// An entity that has ended, or that another caller holds.
    #[error("the entity is completed, has failed, or is being read by another caller")]
    EntityTaken,
    /// The skipping or deferring of an entity with children, which only its policy may do.
    #[error("an entity with children cannot be skipped or deferred: complete it, or let it fail")]
    Dehydrated,
    /// The resumption of an entity that does not wait.
    #[error("the entity does not wait")]
    NotWaiting,
    /// The outcome of an unknown entity or scope, or an outcome that was taken already.
    #[error("no such {what} of ours, or its outcome was taken already")]
    NoOutcome {
        /// What is unknown: an entity or a scope.
        what: &'static str,
    },
    /// A claim check of an end that stores none.
    #[error(
        "this end stores no claim checks, so it cannot defer entities: a server needs a sink, or a folder for claim \
         checks, claims="
    )]
    NoClaimChecks,
    /// Types to defer without a sink.
    #[error("defer_types are for servers with a sink: an application defers by itself")]
    DeferTypesSink,
    /// Types to defer below layer 2.
    #[error("layers={layers}: defer_types need layer 2")]
    DeferTypesLayer {
        /// The setting of the layers.
        layers: u8,
    },
    /// A read key without a sink.
    #[error("a read key is for servers with a sink: there is nothing to read")]
    ReadKeySink,
    /// References without a sink.
    #[error("references are for servers with a sink: the application takes its own")]
    ReferencesSink,
    /// A prefix of references that is not the URL of an object.
    #[error("{}", .0.message())]
    ReferencePrefix(#[source] penstock_pipestream::Error),
    /// A text that cannot be a session's name.
    #[error("{session:?} is no session's name")]
    SessionName {
        /// The name.
        session: String,
    },
    /// The name of a session that is open or does not exist.
    #[error("there is no closed session {session:?}")]
    NoClosedSession {
        /// The session's name.
        session: String,
    },
    /// A reader without the read key of the sink.
    #[error("reading the sink at {address}: {reason}")]
    ReadKey {
        /// The address of the sink's server.
        address: SocketAddr,
        /// The server's reason.
        reason: String,
    },
    /// The removal of a session by a reader over the network.
    #[error("a reader over the network cannot remove sessions")]
    RemoteRemoval,
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use penstock_pipestream::reference::Location;
    use penstock_wire::ErrorKind;

    use super::*;
    use crate::{Error, ErrorCode};

    fn address() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 7).into()
    }

    /// Check each mistake's message, which must also be that of the driver's error.
    fn check<const N: usize>(table: [(Misuse, &str); N]) {
        for (misuse, message) in table {
            assert_eq!(misuse.to_string(), message, "{misuse:?}");
            let error = Error::from(misuse);
            assert_eq!((error.kind(), error.message().as_str()), (ErrorKind::Misuse, message), "{error:?}");
            assert_eq!((error.code(), error.nearest_code()), (None, ErrorCode::InternalError), "{error:?}");
        }
    }

    #[test]
    fn a_wrong_setting_is_named_with_its_limits() {
        check([
            (Misuse::Layers { layers: 3 }, "layers=3: this end has layers 0 to 2"),
            (Misuse::Window, "window=0: nothing could be sent"),
            (Misuse::Mtu { mtu: -1 }, "mtu=-1: it must be from 1200 to 9000 bytes"),
            (Misuse::SurviveLayers { layers: 1 }, "layers=1: sessions survive at layer 2"),
            (Misuse::Survive { seconds: f64::NAN }, "survive=NaN: 0 to 86400 seconds"),
            (Misuse::Survive { seconds: -1.0 }, "survive=-1: 0 to 86400 seconds"),
            (Misuse::Survive { seconds: 86_400.5 }, "survive=86400.5: 0 to 86400 seconds"),
            (Misuse::IdleTimeoutLength, "the idle timeout is too long"),
            (Misuse::StatusInterval { seconds: f64::NAN }, "status_interval=NaN: it is from 0.001 to 10 seconds"),
            (Misuse::StatusInterval { seconds: 0.0009 }, "status_interval=0.0009: it is from 0.001 to 10 seconds"),
            (Misuse::StatusInterval { seconds: 10.1 }, "status_interval=10.1: it is from 0.001 to 10 seconds"),
            (Misuse::DeferType { pattern: "png".to_owned() }, "\"png\": a type to defer is like image/png or image/*"),
            (Misuse::StateLayer, "a state folder needs layer 2 and a reconnect timeout"),
            (Misuse::StateSink, "a state folder needs a sink in a folder"),
            (Misuse::DeferTypesSink, "defer_types are for servers with a sink: an application defers by itself"),
            (Misuse::DeferTypesLayer { layers: 1 }, "layers=1: defer_types need layer 2"),
            (Misuse::ReadKeySink, "a read key is for servers with a sink: there is nothing to read"),
            (Misuse::ReferencesSink, "references are for servers with a sink: the application takes its own"),
        ]);
    }

    #[test]
    fn a_wrong_entity_is_refused_with_the_reason() {
        check([
            (
                Misuse::ReservedMetadata { key: "pipestream.x".to_owned() },
                "metadata pipestream.x belongs to the protocol",
            ),
            (
                Misuse::ClaimMetadata { key: "pipestream.claim", value: "X".to_owned() },
                "metadata pipestream.claim=\"X\": a claim check has 16 digits of lower-case hex",
            ),
            (Misuse::WholePolicy, "a policy is for an entity that has children: dehydrate"),
            (Misuse::LabelLength { length: 2_000 }, "a label of 2000 bytes is more than the limit of 1024"),
            (Misuse::DataLayer { layer: 4 }, "there is no data layer 4"),
            (Misuse::HeaderLength { length: 1 << 21 }, "a header of 2097152 bytes is more than the limit of 1048576"),
            (Misuse::ChunkSize, "chunks must have a size"),
            (Misuse::ChunkCount { size: 1 }, "chunks of 1 bytes are too many"),
            (Misuse::PayloadFile { path: "/tmp".into() }, "/tmp is not a file"),
            (Misuse::PayloadLimit { limit: 3 }, "the payload has more than 3 bytes"),
            (Misuse::EntityTaken, "the entity is completed, has failed, or is being read by another caller"),
            (Misuse::Dehydrated, "an entity with children cannot be skipped or deferred: complete it, or let it fail"),
            (Misuse::NotWaiting, "the entity does not wait"),
            (Misuse::NoOutcome { what: "entity" }, "no such entity of ours, or its outcome was taken already"),
            (
                Misuse::NoClaimChecks,
                "this end stores no claim checks, so it cannot defer entities: a server needs a sink, or a folder for \
                 claim checks, claims=",
            ),
        ]);
    }

    #[test]
    fn a_wrong_call_of_a_session_or_a_reader_is_refused_with_the_reason() {
        let name = || "a/b".to_owned();
        check([
            (Misuse::Connect { address: address(), reason: "why".to_owned() }, "cannot connect to 127.0.0.1:7: why"),
            (
                Misuse::PeerLayer { address: address() },
                "policies and resumable sessions need layer 2, which 127.0.0.1:7 does not support",
            ),
            (Misuse::PolicyLayer { layer: 1 }, "a policy needs layer 2, and layer 1 was agreed on"),
            (Misuse::NoLayer2, "both ends must have agreed on layer 2 for this"),
            (Misuse::Closing, "the session is being closed: nothing more can be announced"),
            (Misuse::SessionName { session: name() }, "\"a/b\" is no session's name"),
            (Misuse::NoClosedSession { session: name() }, "there is no closed session \"a/b\""),
            (
                Misuse::ReadKey { address: address(), reason: "the read key is wrong".to_owned() },
                "reading the sink at 127.0.0.1:7: the read key is wrong",
            ),
            (Misuse::RemoteRemoval, "a reader over the network cannot remove sessions"),
        ]);
    }

    #[test]
    fn what_the_core_refuses_is_the_callers_mistake_and_keeps_the_cores_message() {
        let Err(refused) = Location::parse("nowhere") else { panic!("it is no URL") };
        let said = refused.message();
        check([
            (Misuse::MetadataDataKey(refused.clone()), said.as_str()),
            (Misuse::ReferencePrefix(refused), said.as_str()),
        ]);
    }
}
