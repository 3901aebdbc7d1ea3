//! Reception of the peer's entity streams: one task for each that has not arrived completely
//! (sections 5.2 and 6.7).
//!
//! ```text
//!  all of it here, up to 64 KiB ──► the driver admits it ──► handed over
//!  header ──► the driver admits it ──► payload up to 64 KiB ──► collected ──► handed over
//!                  │                   payload beyond       ──► handed over as a stream, read by its consumer
//!                  │                   chunk                ──► written to its place; the last one hands over
//!                  └► held: nothing is read until its PENDING or its scope is known (decisions 7 and 10)
//! ```
//!
//! The IO thread hashes nothing and touches no file: the consumer hashes, and a blocking thread
//! writes chunks.

mod assembly;
mod body;
mod chunks;
mod entity;
mod header_reader;
mod receiver;
mod shared_entity;

use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use penstock_pipestream::{self as core, EntityHeader, ErrorCode, Reason};
use quinn::RecvStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

pub(crate) use self::assembly::Assembly;
pub use self::body::{Body, Spool, StreamBody, StreamEnd, TempFile};
use self::chunks::receive_chunk;
pub use self::entity::IncomingEntity;
pub(crate) use self::entity::{AdmittedEntity, QueuedEntity};
use self::header_reader::{HeaderReader, PartialEntity, ReadOutcome, SMALL_PAYLOAD, Slab, poll_once};
pub use self::receiver::Parts;
pub use self::shared_entity::{EntityGuard, SharedEntity};
use crate::command::{BufferedEntity, Command, Verdict};
use crate::counters::Counters;
use crate::link::Link;
use crate::transport::quic_code;

/// Maximum number of complete streams that are reported to the driver together.
const MAX_BATCH: usize = 256;

/// Accept the peer's entity streams as they are opened, no more at a time than there are permits. A small entity that
/// has already arrived costs no separate task.
pub(crate) async fn accept_streams(link: Arc<Link>) {
    let (mut whole, mut slab) = (Vec::new(), Slab::default());
    while let Some((permit, stream)) = next_stream(&link, &mut whole).await {
        if link.shared.is_negotiating() && !link.commands.send(Command::StreamOpened).await {
            return;
        }
        let mut reader = HeaderReader::new(stream, link.max_header);
        match poll_once(reader.head()).await {
            None => {
                let link = Arc::clone(&link);
                tokio::spawn(async move { receive(reader, &link, permit).await });
            }
            Some(Err(error)) => header_error(error, &link).await,
            Some(Ok((header, received))) => {
                let id = link.stream(reader.id());
                match reader.rest(header, received, &mut slab).await {
                    ReadOutcome::Whole(header, bytes) => {
                        let permit = link.entity.park(bytes.len(), permit);
                        whole.push(BufferedEntity { stream: id, header: Arc::new(header), bytes, permit });
                    }
                    ReadOutcome::Partial(partial) => {
                        let link = Arc::clone(&link);
                        tokio::spawn(async move { receive_partial(partial, &link, permit).await });
                    }
                }
            }
        }
        if whole.len() >= MAX_BATCH && !send_buffered(&link, &mut whole).await {
            return;
        }
    }
}

/// Return a permit and the next stream. Before waiting for either, report the streams that have arrived.
async fn next_stream(link: &Link, whole: &mut Vec<BufferedEntity>) -> Option<(OwnedSemaphorePermit, RecvStream)> {
    let permit = match Arc::clone(&link.stream_permits).try_acquire_owned() {
        Ok(permit) => permit,
        Err(_) => {
            Counters::add(&link.shared.counters.streams_full, 1);
            if !send_buffered(link, whole).await {
                return None;
            }
            Arc::clone(&link.stream_permits).acquire_owned().await.ok()?
        }
    };
    let mut accepting = pin!(link.connection.accept_uni());
    let mut accepted = poll_once(accepting.as_mut()).await;
    if accepted.is_none() && !whole.is_empty() {
        // Handle packets that have arrived meanwhile first: each report wakes the driver and the
        // consumer.
        tokio::task::yield_now().await;
        accepted = poll_once(accepting.as_mut()).await;
    }
    let accepted = match accepted {
        Some(accepted) => accepted,
        None => {
            if !send_buffered(link, whole).await {
                return None;
            }
            accepting.await
        }
    };
    let stream = accepted.ok();
    if stream.is_none() {
        send_buffered(link, whole).await;
    }
    Some((permit, stream?))
}

async fn send_buffered(link: &Link, whole: &mut Vec<BufferedEntity>) -> bool {
    whole.is_empty() || link.commands.send(Command::Arrived(std::mem::take(whole))).await
}

/// Accept the bidirectional streams that the peer opens; the first one of a client is stream 0 (section 5.1).
pub(crate) async fn accept_bidirectional(link: Arc<Link>) {
    while let Ok((send, receive)) = link.connection.accept_bi().await {
        let command = if u64::from(send.id()) == 0 { Command::Control(send, receive) } else { Command::Bidirectional };
        if !link.commands.send(command).await {
            return;
        }
    }
}

/// Receive one entity stream whose header has not arrived yet.
async fn receive(mut reader: HeaderReader, link: &Arc<Link>, permit: OwnedSemaphorePermit) {
    match reader.head().await {
        Err(error) => header_error(error, link).await,
        Ok((header, received)) => {
            let id = link.stream(reader.id());
            match reader.rest(header, received, &mut Slab::default()).await {
                ReadOutcome::Whole(header, bytes) => {
                    let arrival = BufferedEntity { stream: id, header: Arc::new(header), bytes, permit };
                    link.commands.send(Command::Arrived(vec![arrival])).await;
                }
                ReadOutcome::Partial(partial) => receive_partial(partial, link, permit).await,
            }
        }
    }
}

async fn header_error(error: Option<core::Error>, link: &Link) {
    if let Some(error) = error {
        link.commands.send(Command::HeaderError(error)).await;
    }
}

/// Receive one entity stream whose header has arrived.
async fn receive_partial(partial: PartialEntity, link: &Arc<Link>, permit: OwnedSemaphorePermit) {
    let PartialEntity { mut stream, header, rest, end } = partial;
    let id = link.stream(stream.id());
    let Some(verdict) = admit(id, link, header).await else { return };
    match verdict {
        Verdict::Stopped(code) => {
            let _ = stream.stop(quic_code(code));
        }
        Verdict::Accepted { accepted, header, stop, whole, assembly } => {
            let body = StreamBody::new(stream, rest, end, stop, id, whole);
            let entity = AdmittedEntity { header, accepted };
            match assembly {
                Some(assembly) => receive_chunk(body, &entity, &assembly, link, permit).await,
                None => receive_whole(id, body, entity, link, permit).await,
            }
        }
    }
}

/// Ask the driver to admit a header. A held stream is not read until the answer, so its reset is
/// seen later.
async fn admit(stream: u64, link: &Link, header: EntityHeader) -> Option<Verdict> {
    let (reply, answer) = oneshot::channel();
    if !link.commands.send(Command::Header { stream, header: Box::new(header), reply }).await {
        return None;
    }
    answer.await.ok()
}

/// Receive a stream with a whole payload (decision 15: exactly `payload_length` bytes).
async fn receive_whole(
    id: u64,
    mut body: StreamBody,
    entity: AdmittedEntity,
    link: &Link,
    permit: OwnedSemaphorePermit,
) {
    let AdmittedEntity { header, .. } = &entity;
    let body = if header.payload_length > SMALL_PAYLOAD {
        Body::Stream(Box::new(body))
    } else {
        match collect(&mut body, header.payload_length).await {
            Ok(bytes) => Body::Whole(bytes),
            Err(CollectError::Ended(StreamEnd::Reset(code))) => {
                link.commands.send(Command::StreamReset { stream: id, attempt: entity.accepted.attempt(), code }).await;
                return;
            }
            Err(CollectError::Ended(StreamEnd::Stopped(_) | StreamEnd::Lost)) => return,
            Err(CollectError::TooLong) => {
                let message = format!("the payload is longer than the {} bytes of its header", header.payload_length);
                let reason = Reason { code: ErrorCode::EntityInvalid, message };
                body.stop(reason.code);
                link.commands.send(Command::FailAttempt { attempt: entity.accepted.attempt(), reason }).await;
                return;
            }
        }
    };
    link.deliver(vec![(QueuedEntity { entity, body, parked: false }, permit)]);
}

/// Why a small payload was not collected.
enum CollectError {
    Ended(StreamEnd),
    TooLong,
}

impl From<StreamEnd> for CollectError {
    fn from(end: StreamEnd) -> Self {
        Self::Ended(end)
    }
}

/// Read a small payload to the end of its stream. Copy it, because every piece would keep its
/// packet alive. The check of the payload detects one that is too short.
async fn collect(body: &mut StreamBody, length: u64) -> Result<Bytes, CollectError> {
    let mut all = BytesMut::new();
    while let Some(pieces) = body.next().await? {
        for piece in pieces {
            all.extend_from_slice(&piece);
        }
        if all.len() as u64 > length {
            return Err(CollectError::TooLong);
        }
    }
    Ok(all.freeze())
}
