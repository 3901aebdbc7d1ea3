//! Entity streams of the peer: one task for each, from its header to its hand-over (sections 5.2 and 6.7).
//!
//! ```text
//!  header ──► the driver admits it ──► payload up to 64 KiB ──► collected ──► handed over
//!                  │                   payload beyond       ──► handed over as a stream, read by its consumer
//!                  │                   chunk                ──► written to its place; the last one hands over
//!                  └► held: nothing is read until its PENDING or its scope is known (decisions 7 and 10)
//! ```
//!
//! Nothing is hashed and no file is touched here: that is the consumer's part, off the IO thread.

mod body;
mod chunks;
mod entity;
mod receiving;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use penstock_pipestream::{self as core, Accepted, EntityHeader, ErrorCode, HeaderDecoder, Reason};
use quinn::RecvStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

pub(crate) use self::body::{Body, Spool, StreamBody, StreamEnd, TempFile};
pub(crate) use self::chunks::{Assembly, receive_chunk};
pub use self::entity::IncomingEntity;
pub(crate) use self::receiving::{EntityLink, Parts};
use super::command::{Command, Verdict};
use super::counters::Counters;
use super::shared::Link;
use super::transport::quic_code;

/// Payloads up to here are collected before they are handed over.
const SMALL_PAYLOAD: u64 = 64 << 10;
/// How much of a stream is read at a time while its header is awaited.
const HEADER_READ: usize = 16 << 10;

/// Takes the peer's entity streams as they are opened, no more at a time than there are places.
pub(crate) async fn accept_streams(link: Arc<Link>) {
    loop {
        let place = match Arc::clone(&link.places).try_acquire_owned() {
            Ok(place) => Ok(place),
            Err(_) => {
                Counters::add(&link.shared.counters.streams_full, 1);
                Arc::clone(&link.places).acquire_owned().await
            }
        };
        let Ok(place) = place else { return };
        let Ok(stream) = link.connection.accept_uni().await else { return };
        if link.shared.is_negotiating() && !link.commands.tell(Command::StreamOpened).await {
            return;
        }
        let link = Arc::clone(&link);
        tokio::spawn(async move { receive(stream, &link, place).await });
    }
}

/// Takes whatever bidirectional streams the peer opens; the first one of a client is stream 0 (section 5.1).
pub(crate) async fn accept_bidirectional(link: Arc<Link>) {
    while let Ok((send, receive)) = link.connection.accept_bi().await {
        let command = if u64::from(send.id()) == 0 { Command::Control(send, receive) } else { Command::Bidirectional };
        if !link.commands.tell(command).await {
            return;
        }
    }
}

/// One entity stream.
async fn receive(mut stream: RecvStream, link: &Arc<Link>, place: OwnedSemaphorePermit) {
    let Some((header, rest)) = read_header(&mut stream, link).await else { return };
    let id = u64::from(stream.id());
    let Some(verdict) = admit(id, link, header).await else { return };
    match verdict {
        Verdict::Stopped(code) => {
            let _ = stream.stop(quic_code(code));
        }
        Verdict::Accepted { accepted, header, stop, assembly } => {
            let body = StreamBody::new(stream, rest, stop);
            match assembly {
                Some(assembly) => receive_chunk(body, &header, accepted, &assembly, link, place).await,
                None => receive_whole(id, body, header, accepted, link, place).await,
            }
        }
    }
}

/// The header and the payload octets that came with its end. `None`: there is none, and the session knows.
async fn read_header(stream: &mut RecvStream, link: &Link) -> Option<(EntityHeader, Bytes)> {
    let mut decoder = HeaderDecoder::new();
    let error = loop {
        match stream.read_chunk(HEADER_READ, true).await {
            Ok(Some(chunk)) => match decoder.push(chunk.bytes) {
                Ok(Some(header)) => return Some((header, decoder.take_rest())),
                Ok(None) => {}
                Err(error) => break error,
            },
            Ok(None) => break core::Error::malformed(ErrorCode::EntityInvalid, "a stream ended inside its header"),
            // Reset or lost: of which entity, nobody knows.
            Err(_) => return None,
        }
    };
    let _ = stream.stop(quic_code(error.code()));
    link.commands.tell(Command::HeaderError(error)).await;
    None
}

/// Asks the driver. Where the stream is held, nothing of it is read meanwhile, so a reset is seen later.
async fn admit(stream: u64, link: &Link, header: EntityHeader) -> Option<Verdict> {
    let (reply, answer) = oneshot::channel();
    if !link.commands.tell(Command::Header { stream, header: Box::new(header), reply }).await {
        return None;
    }
    answer.await.ok()
}

/// A stream with a whole payload (decision 15: exactly `payload_length` octets).
async fn receive_whole(
    id: u64,
    mut body: StreamBody,
    header: Arc<EntityHeader>,
    accepted: Accepted,
    link: &Link,
    place: OwnedSemaphorePermit,
) {
    let body = if header.payload_length > SMALL_PAYLOAD {
        Body::Stream(Box::new(body))
    } else {
        match collect(&mut body, header.payload_length).await {
            Ok(octets) => Body::Whole(octets),
            Err(Collecting::Ended(StreamEnd::Reset(code))) => {
                link.commands.tell(Command::StreamReset { stream: id, key: accepted.key, code }).await;
                return;
            }
            Err(Collecting::Ended(StreamEnd::Stopped(_) | StreamEnd::Lost)) => return,
            Err(Collecting::TooLong) => {
                let message = format!("the payload is longer than the {} octets of its header", header.payload_length);
                let reason = Reason { code: ErrorCode::EntityInvalid, message };
                body.stop(reason.code);
                link.commands.tell(Command::Fail { key: accepted.key, reason }).await;
                return;
            }
        }
    };
    link.inlet.deliver(IncomingEntity::new(header, accepted, body, link.entity_link(), place)).await;
}

/// Why a small payload was not collected.
enum Collecting {
    Ended(StreamEnd),
    TooLong,
}

impl From<StreamEnd> for Collecting {
    fn from(end: StreamEnd) -> Self {
        Self::Ended(end)
    }
}

/// Reads a small payload to the end of its stream. Copies it, because every piece would keep its packet alive. One
/// that is too short is found by whoever checks it.
async fn collect(body: &mut StreamBody, length: u64) -> Result<Bytes, Collecting> {
    let mut all = BytesMut::new();
    while let Some(pieces) = body.next().await? {
        for piece in pieces {
            all.extend_from_slice(&piece);
        }
        if all.len() as u64 > length {
            return Err(Collecting::TooLong);
        }
    }
    Ok(all.freeze())
}
