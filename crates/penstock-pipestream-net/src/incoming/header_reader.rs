//! A stream from its first byte: its header, and a small payload if all of it has already arrived.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use penstock_pipestream::{self as core, EntityHeader, HeaderDecoder};
use quinn::RecvStream;

use crate::conceal::conceal;
use crate::incoming::body::StreamEnd;
use crate::transport::quic_code;

/// Payloads up to this length are collected before they are handed over.
pub(super) const SMALL_PAYLOAD: u64 = 64 << 10;
/// Maximum number of pieces taken at a time; a piece is the content of one packet.
const PIECES: usize = 4;

/// An entity stream whose header has arrived, with the bytes that arrived with it.
#[derive(Debug)]
pub(super) struct PartialEntity {
    pub(super) stream: RecvStream,
    pub(super) header: EntityHeader,
    pub(super) rest: Bytes,
    /// The end of the stream, if it has ended.
    pub(super) end: Option<StreamEnd>,
}

/// Result of reading a header.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    /// Its payload is small and complete.
    Whole(EntityHeader, Bytes),
    /// Its payload is long, arrives in chunks, or has not arrived completely.
    Partial(PartialEntity),
}

/// A stream whose header is awaited.
pub(super) struct HeaderReader {
    stream: RecvStream,
    decoder: HeaderDecoder,
}

impl HeaderReader {
    pub(super) fn new(stream: RecvStream, max_header: u32) -> Self {
        Self { stream, decoder: HeaderDecoder::with_limit(max_header) }
    }

    pub(super) fn id(&self) -> quinn::StreamId {
        self.stream.id()
    }

    /// Read the header, and the payload bytes that arrive together with it. Safe to cancel and call
    /// again. Return `Err(None)` if the stream is reset or lost before its entity is known.
    pub(super) async fn head(&mut self) -> Result<(EntityHeader, Pieces), Option<core::Error>> {
        loop {
            let mut pieces = [const { Bytes::new() }; PIECES];
            let Some(count) = self.stream.read_chunks(&mut pieces).await.map_err(|_| None)? else {
                return Err(Some(self.refused(core::Malformed::HeaderEnd.into())));
            };
            let mut pieces = pieces.into_iter().take(count);
            while let Some(piece) = pieces.next() {
                match self.decoder.push(piece) {
                    Ok(None) => {}
                    Ok(Some(mut header)) => {
                        conceal(&mut header);
                        let mut received = Pieces { first: self.decoder.take_rest(), more: Vec::new() };
                        pieces.for_each(|piece| received.push(piece));
                        return Ok((header, received));
                    }
                    Err(error) => return Err(Some(self.refused(error))),
                }
            }
        }
    }

    fn refused(&mut self, error: core::Error) -> core::Error {
        let _ = self.stream.stop(quic_code(error.code()));
        error
    }

    /// Take the bytes of a small payload that have already arrived, without waiting for more.
    pub(super) async fn rest(mut self, header: EntityHeader, mut received: Pieces, slab: &mut Slab) -> ReadOutcome {
        let mut end = None;
        let collected = header.chunk_info.is_none() && header.payload_length <= SMALL_PAYLOAD;
        while collected && received.len() <= header.payload_length {
            let mut pieces = [const { Bytes::new() }; PIECES];
            match poll_once(self.stream.read_chunks(&mut pieces)).await {
                None => break,
                Some(Ok(Some(count))) => {
                    pieces.into_iter().take(count).for_each(|piece| received.push(piece));
                }
                Some(Ok(None)) => return ReadOutcome::Whole(header, slab.copy(&received)),
                Some(Err(error)) => {
                    end = Some(error.into());
                    break;
                }
            }
        }
        ReadOutcome::Partial(PartialEntity { stream: self.stream, header, rest: received.joined(), end })
    }
}

/// The received part of a payload. Usually one piece, which is not worth an allocation.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    first: Bytes,
    more: Vec<Bytes>,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() && self.more.is_empty() {
            self.first = piece;
        } else {
            self.more.push(piece);
        }
    }

    fn each(&self, mut take: impl FnMut(&Bytes)) {
        take(&self.first);
        self.more.iter().for_each(take);
    }

    fn len(&self) -> u64 {
        self.more.iter().fold(self.first.len(), |sum, piece| sum.saturating_add(piece.len())) as u64
    }

    /// Join the pieces.
    fn joined(self) -> Bytes {
        if self.more.is_empty() { self.first } else { Slab::default().copy(&self) }
    }
}

/// Buffer to which small payloads are copied, because a piece keeps its whole packet alive. Several payloads share an
/// allocation, which lives as long as one of them.
#[derive(Debug, Default)]
pub(super) struct Slab(BytesMut);

/// Payloads up to a quarter of this share an allocation; beyond it the allocation costs little compared with the copy.
const SLAB: usize = 16 << 10;

impl Slab {
    fn copy(&mut self, pieces: &Pieces) -> Bytes {
        let length = usize::try_from(pieces.len()).unwrap_or_default();
        if length > SLAB / 4 {
            let mut own = BytesMut::with_capacity(length);
            pieces.each(|piece| own.extend_from_slice(piece));
            return own.freeze();
        }
        if self.0.capacity() < length {
            self.0 = BytesMut::with_capacity(SLAB);
        }
        pieces.each(|piece| self.0.extend_from_slice(piece));
        self.0.split().freeze()
    }
}

/// Poll a future once, without waiting for it.
pub(super) async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
