//! Entity streams of the peer: one task for each that has not arrived completely (sections 5.2 and 6.7).
//!
//! ```text
//!  all of it here, up to 64 KiB ──► the driver admits it ──► handed over
//!  header ──► the driver admits it ──► payload up to 64 KiB ──► collected ──► handed over
//!                  │                   payload beyond       ──► handed over as a stream, read by its consumer
//!                  │                   chunk                ──► written to its place; the last one hands over
//!                  └► held: nothing is read until its PENDING or its scope is known (decisions 7 and 10)
//! ```
//!
//! Nothing is hashed and no file is touched here: the consumer does that, off the IO thread.

mod assembly;
mod body;
mod chunks;
mod entity;
mod header_reader;
mod receiving;

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
pub(crate) use self::entity::{Admitted, QueuedEntity};
use self::header_reader::{HeaderReader, PartialEntity, ReadOutcome, SMALL_PAYLOAD, Slab, now};
pub use self::receiving::Parts;
use crate::command::{BufferedEntity, Command, Verdict};
use crate::counters::Counters;
use crate::link::Link;
use crate::transport::quic_code;

/// Maximum number of complete streams that are reported to the driver together.
const TOGETHER: usize = 256;

/// Accept the peer's entity streams as they are opened, no more at a time than there are places. A small entity that
/// has already arrived costs no separate task.
pub(crate) async fn accept_streams(link: Arc<Link>) {
    let (mut whole, mut slab) = (Vec::new(), Slab::default());
    while let Some((place, stream)) = next_stream(&link, &mut whole).await {
        if link.shared.is_negotiating() && !link.commands.tell(Command::StreamOpened).await {
            return;
        }
        let mut arriving = HeaderReader::new(stream, link.max_header);
        match now(arriving.head()).await {
            None => {
                let link = Arc::clone(&link);
                tokio::spawn(async move { receive(arriving, &link, place).await });
            }
            Some(Err(error)) => header_error(error, &link).await,
            Some(Ok((header, came))) => {
                let id = link.stream(arriving.id());
                match arriving.rest(header, came, &mut slab).await {
                    ReadOutcome::Whole(header, bytes) => {
                        let place = link.entity.park(bytes.len(), place);
                        whole.push(BufferedEntity { stream: id, header: Arc::new(header), bytes, place });
                    }
                    ReadOutcome::Begun(begun) => {
                        let link = Arc::clone(&link);
                        tokio::spawn(async move { receive_begun(begun, &link, place).await });
                    }
                }
            }
        }
        if whole.len() >= TOGETHER && !tell_whole(&link, &mut whole).await {
            return;
        }
    }
}

/// Return a place and the next stream. Before waiting for either, report the streams that have arrived.
async fn next_stream(link: &Link, whole: &mut Vec<BufferedEntity>) -> Option<(OwnedSemaphorePermit, RecvStream)> {
    let place = match Arc::clone(&link.places).try_acquire_owned() {
        Ok(place) => place,
        Err(_) => {
            Counters::add(&link.shared.counters.streams_full, 1);
            if !tell_whole(link, whole).await {
                return None;
            }
            Arc::clone(&link.places).acquire_owned().await.ok()?
        }
    };
    let mut accepting = pin!(link.connection.accept_uni());
    let mut accepted = now(accepting.as_mut()).await;
    if accepted.is_none() && !whole.is_empty() {
        // Packets that have arrived in the meantime first: each report wakes the driver, and then the consumer.
        tokio::task::yield_now().await;
        accepted = now(accepting.as_mut()).await;
    }
    let accepted = match accepted {
        Some(accepted) => accepted,
        None => {
            if !tell_whole(link, whole).await {
                return None;
            }
            accepting.await
        }
    };
    let stream = accepted.ok();
    if stream.is_none() {
        tell_whole(link, whole).await;
    }
    Some((place, stream?))
}

async fn tell_whole(link: &Link, whole: &mut Vec<BufferedEntity>) -> bool {
    whole.is_empty() || link.commands.tell(Command::Arrived(std::mem::take(whole))).await
}

/// Accept the bidirectional streams that the peer opens; the first one of a client is stream 0 (section 5.1).
pub(crate) async fn accept_bidirectional(link: Arc<Link>) {
    while let Ok((send, receive)) = link.connection.accept_bi().await {
        let command = if u64::from(send.id()) == 0 { Command::Control(send, receive) } else { Command::Bidirectional };
        if !link.commands.tell(command).await {
            return;
        }
    }
}

/// Receive one entity stream whose header has not arrived yet.
async fn receive(mut arriving: HeaderReader, link: &Arc<Link>, place: OwnedSemaphorePermit) {
    match arriving.head().await {
        Err(error) => header_error(error, link).await,
        Ok((header, came)) => {
            let id = link.stream(arriving.id());
            match arriving.rest(header, came, &mut Slab::default()).await {
                ReadOutcome::Whole(header, bytes) => {
                    let arrival = BufferedEntity { stream: id, header: Arc::new(header), bytes, place };
                    link.commands.tell(Command::Arrived(vec![arrival])).await;
                }
                ReadOutcome::Begun(begun) => receive_begun(begun, link, place).await,
            }
        }
    }
}

async fn header_error(error: Option<core::Error>, link: &Link) {
    if let Some(error) = error {
        link.commands.tell(Command::HeaderError(error)).await;
    }
}

/// Receive one entity stream whose header has arrived.
async fn receive_begun(begun: PartialEntity, link: &Arc<Link>, place: OwnedSemaphorePermit) {
    let PartialEntity { mut stream, header, rest, end } = begun;
    let id = link.stream(stream.id());
    let Some(verdict) = admit(id, link, header).await else { return };
    match verdict {
        Verdict::Stopped(code) => {
            let _ = stream.stop(quic_code(code));
        }
        Verdict::Accepted { accepted, number, header, stop, whole, assembly } => {
            let body = StreamBody::new(stream, rest, end, stop, id, whole);
            let entity = Admitted { header, accepted, number };
            match assembly {
                Some(assembly) => receive_chunk(body, &entity, &assembly, link, place).await,
                None => receive_whole(id, body, entity, link, place).await,
            }
        }
    }
}

/// Ask the driver to admit a header. Where the stream is held, nothing of it is read meanwhile, so a reset is seen
/// later.
async fn admit(stream: u64, link: &Link, header: EntityHeader) -> Option<Verdict> {
    let (reply, answer) = oneshot::channel();
    if !link.commands.tell(Command::Header { stream, header: Box::new(header), reply }).await {
        return None;
    }
    answer.await.ok()
}

/// A stream with a whole payload (decision 15: exactly `payload_length` bytes).
async fn receive_whole(id: u64, mut body: StreamBody, entity: Admitted, link: &Link, place: OwnedSemaphorePermit) {
    let Admitted { header, .. } = &entity;
    let body = if header.payload_length > SMALL_PAYLOAD {
        Body::Stream(Box::new(body))
    } else {
        match collect(&mut body, header.payload_length).await {
            Ok(bytes) => Body::Whole(bytes),
            Err(Collecting::Ended(StreamEnd::Reset(code))) => {
                link.commands.tell(Command::StreamReset { stream: id, attempt: entity.attempt(), code }).await;
                return;
            }
            Err(Collecting::Ended(StreamEnd::Stopped(_) | StreamEnd::Lost)) => return,
            Err(Collecting::TooLong) => {
                let message = format!("the payload is longer than the {} bytes of its header", header.payload_length);
                let reason = Reason { code: ErrorCode::EntityInvalid, message };
                body.stop(reason.code);
                link.commands.tell(Command::FailAttempt { attempt: entity.attempt(), reason }).await;
                return;
            }
        }
    };
    link.deliver(vec![(QueuedEntity { entity, body, parked: false }, place)]);
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

/// Read a small payload to the end of its stream. Copy it, because every piece would keep its packet alive. A payload
/// that is too short is detected by the code that checks it.
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
