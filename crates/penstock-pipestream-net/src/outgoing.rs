//! Entity streams of ours: one task for each (section 5.2), or one for all chunks of a payload (decision 15).

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use penstock_pipestream::{ChunkInfo, EntityHeader, ErrorCode, Reason, Ticket};
use quinn::{SendStream, WriteError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::spawn_blocking;

use crate::command::Command;
use crate::error::Error;
use crate::limits::CREDIT;
use crate::link::{Gate, Link};
use crate::payload::{Payload, Pieces};
use crate::pump::STOPPED;
use crate::sealer::{Sealer, unsealed};
use crate::ticket_reply::TicketReply;
use crate::transport::quic_code;

/// The least credit that an entity takes, so that the number of tasks is bounded as well.
const LEAST_CREDIT: usize = 16 << 10;

/// An announced entity that is being sent.
pub(crate) struct Outgoing {
    pub(crate) ticket: Ticket,
    pub(crate) header: EntityHeader,
    /// Keys that seal the header, for each stream with a new nonce.
    pub(crate) sealer: Option<Sealer>,
    pub(crate) payload: Payload,
    pub(crate) chunk_size: Option<u64>,
    pub(crate) dehydrated: bool,
    /// Fires if the entity is resolved before it is sent.
    pub(crate) reset: oneshot::Receiver<ErrorCode>,
    pub(crate) reply: Option<TicketReply>,
}

/// Why an entity was not sent completely.
enum Failure {
    /// The entity is already resolved.
    Resolved(ErrorCode),
    /// The peer stopped the stream.
    Stopped(u64),
    /// The source cannot be read, or has changed.
    Source(io::Error),
    /// The header cannot be sealed, because it would be too long.
    Unsealed(Error),
    /// The connection is lost, which the driver detects elsewhere.
    Lost,
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::Stopped(code.into_inner()),
            WriteError::ConnectionLost(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected => Self::Lost,
        }
    }
}

/// Send an entity. Notify the caller as soon as there is credit for the entity or, if it will have
/// children, once its header is on its stream, so that the headers of its children follow.
pub(crate) async fn send(mut outgoing: Outgoing, link: Arc<Link>) {
    let sent = outgoing.run(&link).await;
    outgoing.notify_caller(&link);
    let (reason, stopped) = match sent {
        // The driver that resolved the entity has informed the peer, and detects a lost connection
        // itself.
        Ok(()) | Err(Failure::Resolved(_) | Failure::Lost) => return,
        Err(Failure::Stopped(code)) => (Reason { code: ErrorCode::from_code(code), message: STOPPED.to_owned() }, true),
        Err(Failure::Source(error)) => {
            let message = format!("cannot read the payload: {error}");
            (Reason { code: ErrorCode::InternalError, message }, false)
        }
        Err(Failure::Unsealed(error)) => (unsealed(&error), false),
    };
    link.commands.send(Command::NotSent { key: outgoing.ticket.key, reason, stopped }).await;
}

impl Outgoing {
    async fn run(&mut self, link: &Link) -> Result<(), Failure> {
        let _credit = self.credit(&link.credit).await?;
        if !self.dehydrated {
            self.notify_caller(link);
        }
        let length = self.payload.len();
        let size = self.chunk_size.unwrap_or(0);
        if size == 0 || length == 0 {
            return self.send_stream(0, length, link).await;
        }
        let total = length.div_ceil(size);
        for index in 0..total {
            let offset = index.saturating_mul(size);
            self.header.chunk_info = Some(ChunkInfo {
                total_chunks: u32::try_from(total).unwrap_or(u32::MAX),
                chunk_index: u32::try_from(index).unwrap_or(u32::MAX),
                chunk_offset: offset,
            });
            self.send_stream(offset, offset.saturating_add(size), link).await?;
        }
        Ok(())
    }

    /// Notify the caller, once.
    fn notify_caller(&mut self, link: &Link) {
        if let Some(reply) = self.reply.take() {
            link.entity.deliver_ticket(reply, self.ticket);
        }
    }

    /// Wait for credit for the memory that the payload takes.
    async fn credit(&mut self, credit: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failure> {
        let bytes = self.payload.footprint().clamp(LEAST_CREDIT, CREDIT);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        tokio::select! {
            permit = Arc::clone(credit).acquire_many_owned(bytes) => permit.map_err(|_| Failure::Lost),
            code = &mut self.reset => Err(code.map_or(Failure::Lost, Failure::Resolved)),
        }
    }

    /// Send one stream: the current header and the payload from `offset` to `end`.
    async fn send_stream(&mut self, offset: u64, end: u64, link: &Link) -> Result<(), Failure> {
        // Sealed before the stream is opened: a stream without a header would cost the session.
        let mut head = match &self.sealer {
            Some(sealer) => sealer.seal(&self.header).map_err(Failure::Unsealed)?.into_bytes(),
            None => self.header.encode(),
        };
        let mut stream = self.open(link).await?;
        let pieces = self.payload.pieces(offset, end);
        if self.dehydrated {
            // The header is short and the stream is new, so this does not wait for long.
            write_all(&mut stream, &mut [std::mem::take(&mut head)], &link.gate).await?;
            self.notify_caller(link);
        }
        let written = tokio::select! {
            biased;
            written = write(&mut stream, head, pieces, &link.gate) => written,
            code = &mut self.reset => Err(code.map_or(Failure::Lost, Failure::Resolved)),
        };
        let code = match &written {
            Ok(()) => return stream.finish().map_err(|_| Failure::Lost),
            Err(Failure::Resolved(code)) => *code,
            Err(Failure::Stopped(code)) => ErrorCode::from_code(*code),
            Err(Failure::Source(_) | Failure::Unsealed(_) | Failure::Lost) => ErrorCode::InternalError,
        };
        // Dropping the stream would finish it, as if the payload were complete.
        let _ = stream.reset(quic_code(code));
        written
    }

    /// Open a stream, when it is this entity's turn and the peer allows one more.
    async fn open(&mut self, link: &Link) -> Result<SendStream, Failure> {
        let opened = async {
            let _turn = link.opening.lock().await;
            link.connection.open_uni().await
        };
        tokio::select! {
            stream = opened => stream.map_err(|_| Failure::Lost),
            code = &mut self.reset => Err(code.map_or(Failure::Lost, Failure::Resolved)),
        }
    }
}

/// Write the header and the payload. A file is read on another thread, one piece ahead of the
/// writing.
async fn write(stream: &mut SendStream, head: Bytes, pieces: Pieces, gate: &Gate) -> Result<(), Failure> {
    if let Some(bytes) = pieces.in_memory() {
        return write_all(stream, &mut [head, bytes], gate).await;
    }
    let mut reading = spawn_blocking(move || read(pieces));
    write_all(stream, &mut [head], gate).await?;
    loop {
        let (piece, pieces) = reading.await.unwrap_or_else(|_| Err(io::Error::other("the read was given up")))?;
        let Some(piece) = piece else { return Ok(()) };
        reading = spawn_blocking(move || read(pieces));
        write_all(stream, &mut [piece], gate).await?;
    }
}

/// Write bytes, but never while stream 0 waits: a task that is woken because there is room checks
/// the gate first.
async fn write_all(stream: &mut SendStream, bytes: &mut [Bytes], gate: &Gate) -> Result<(), Failure> {
    while bytes.iter().any(|piece| !piece.is_empty()) {
        gate.open().await;
        tokio::select! {
            biased;
            () = gate.is_shut() => {}
            written = stream.write_chunks(bytes) => drop(written?),
        }
    }
    Ok(())
}

fn read(mut pieces: Pieces) -> io::Result<(Option<Bytes>, Pieces)> {
    Ok((pieces.read()?, pieces))
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Source(error)
    }
}
