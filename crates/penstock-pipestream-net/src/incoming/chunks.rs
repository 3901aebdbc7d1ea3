use std::io;
use std::sync::Arc;

use bytes::Bytes;
use penstock_pipestream::{AcceptedChunk, Attempt, ChunkProgress, ErrorCode, Reason};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::spawn_blocking;

use crate::command::Command;
use crate::incoming::assembly::Assembly;
use crate::incoming::body::{Body, Spool, StreamBody, StreamEnd};
use crate::incoming::entity::{AdmittedEntity, QueuedEntity};
use crate::link::Link;

/// Why a chunk was not received.
enum Failure {
    Ended(StreamEnd),
    Invalid(Reason),
}

impl From<StreamEnd> for Failure {
    fn from(end: StreamEnd) -> Self {
        Self::Ended(end)
    }
}

/// Receive one chunk's stream. The task that receives the last chunk hands the entity over.
pub(crate) async fn receive_chunk(
    mut body: StreamBody,
    entity: &AdmittedEntity,
    assembly: &Arc<Assembly>,
    link: &Arc<Link>,
    permit: OwnedSemaphorePermit,
) {
    let Some(chunk) = entity.accepted.chunk else { return };
    let attempt = entity.accepted.attempt();
    match write_chunk(&mut body, entity.header.payload_length, attempt, chunk, assembly, link).await {
        Ok(bytes) => finish_chunk(entity, chunk, bytes, assembly, link, permit).await,
        Err(Failure::Ended(StreamEnd::Reset(code))) => {
            link.commands.send(Command::StreamReset { stream: body.name(), attempt, code }).await;
        }
        Err(Failure::Ended(StreamEnd::Stopped(_) | StreamEnd::Lost)) => {}
        Err(Failure::Invalid(reason)) => {
            body.stop(reason.code);
            link.commands.send(Command::FailAttempt { attempt, reason }).await;
        }
    }
}

/// Write the bytes of a chunk at their offset; the next pieces are read while the last ones are being written.
async fn write_chunk(
    body: &mut StreamBody,
    payload_length: u64,
    attempt: Attempt,
    chunk: AcceptedChunk,
    assembly: &Arc<Assembly>,
    link: &Arc<Link>,
) -> Result<u64, Failure> {
    let room = payload_length.saturating_sub(chunk.offset);
    let mut bytes = 0_u64;
    let mut writing = None;
    while let Some(pieces) = body.next().await? {
        let offset = chunk.offset.saturating_add(bytes);
        bytes = pieces.iter().fold(bytes, |sum, piece| sum.saturating_add(piece.len() as u64));
        if bytes > room {
            return Err(Failure::Invalid(Reason {
                code: ErrorCode::EntityInvalid,
                message: format!("chunk {} goes beyond the payload's {payload_length} bytes", chunk.index),
            }));
        }
        finish_write(writing.take()).await?;
        let (assembly, link) = (Arc::clone(assembly), Arc::clone(link));
        writing = Some(spawn_blocking(move || write_pieces(&*assembly.spool(|| link.spool(attempt))?, pieces, offset)));
    }
    finish_write(writing).await?;
    Ok(bytes)
}

fn write_pieces(spool: &Spool, pieces: impl IntoIterator<Item = Bytes>, mut offset: u64) -> io::Result<()> {
    for piece in pieces {
        spool.write_all(&piece, offset)?;
        offset = offset.saturating_add(piece.len() as u64);
    }
    Ok(())
}

async fn finish_write(writing: Option<tokio::task::JoinHandle<io::Result<()>>>) -> Result<(), Failure> {
    let Some(writing) = writing else { return Ok(()) };
    let written = writing.await.unwrap_or_else(|_| Err(io::Error::other("the write was given up")));
    written.map_err(|error| {
        let message = format!("cannot write a chunk: {error}");
        Failure::Invalid(Reason { code: ErrorCode::InternalError, message })
    })
}

async fn finish_chunk(
    entity: &AdmittedEntity,
    chunk: AcceptedChunk,
    bytes: u64,
    assembly: &Arc<Assembly>,
    link: &Arc<Link>,
    permit: OwnedSemaphorePermit,
) {
    let (reply, progress) = oneshot::channel();
    let (attempt, index) = (entity.accepted.attempt(), chunk.index);
    if !link.commands.send(Command::ChunkFinished { attempt, index, bytes, reply }).await {
        return;
    }
    match progress.await {
        Ok(ChunkProgress::Whole) => {}
        Ok(ChunkProgress::Waiting | ChunkProgress::Dropped) | Err(_) => return,
    }
    // An empty payload has opened no file.
    let spool = assembly.opened_spool();
    let body = spool.map_or_else(|| Body::Whole(Bytes::new()), Body::Spooled);
    link.deliver(vec![(QueuedEntity { entity: entity.clone(), body, parked: false }, permit)]);
}
