//! A stream from its first byte: its header, and a small payload if all of it is here already.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use penstock_pipestream::{self as core, EntityHeader, HeaderDecoder};
use quinn::RecvStream;

use crate::conceal::conceal;
use crate::incoming::body::StreamEnd;
use crate::transport::quic_code;

/// Payloads up to here are collected before they are handed over.
pub(super) const SMALL_PAYLOAD: u64 = 64 << 10;
/// How many pieces are taken at a time; a piece is what one packet brought.
const PIECES: usize = 4;

/// An entity stream whose header has come, and what it has brought besides.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) stream: RecvStream,
    pub(super) header: EntityHeader,
    pub(super) rest: Bytes,
    /// How the stream has ended, where it has.
    pub(super) end: Option<StreamEnd>,
}

/// What becomes of a header that was read.
#[derive(Debug)]
pub(super) enum Arrived {
    /// Its payload is small and whole.
    Whole(EntityHeader, Bytes),
    /// Its payload is long, comes in chunks, or is not all here.
    Begun(Begun),
}

/// A stream whose header is awaited.
pub(super) struct Arriving {
    stream: RecvStream,
    decoder: HeaderDecoder,
}

impl Arriving {
    pub(super) fn new(stream: RecvStream, max_header: u32) -> Self {
        Self { stream, decoder: HeaderDecoder::with_limit(max_header) }
    }

    pub(super) fn id(&self) -> quinn::StreamId {
        self.stream.id()
    }

    /// Read the header, and the payload bytes that come in one go with it. It may be given up and called again.
    /// `Err(None)`: reset or lost, and nobody knows which entity it was.
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
                        let mut came = Pieces { first: self.decoder.take_rest(), more: Vec::new() };
                        pieces.for_each(|piece| came.push(piece));
                        return Ok((header, came));
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

    /// Take what else is here of a small payload, without waiting for more.
    pub(super) async fn rest(mut self, header: EntityHeader, mut came: Pieces, slab: &mut Slab) -> Arrived {
        let mut end = None;
        let collected = header.chunk_info.is_none() && header.payload_length <= SMALL_PAYLOAD;
        while collected && came.len() <= header.payload_length {
            let mut pieces = [const { Bytes::new() }; PIECES];
            match now(self.stream.read_chunks(&mut pieces)).await {
                None => break,
                Some(Ok(Some(count))) => {
                    pieces.into_iter().take(count).for_each(|piece| came.push(piece));
                }
                Some(Ok(None)) => return Arrived::Whole(header, slab.copy(&came)),
                Some(Err(error)) => {
                    end = Some(error.into());
                    break;
                }
            }
        }
        Arrived::Begun(Begun { stream: self.stream, header, rest: came.joined(), end })
    }
}

/// What has come of a payload. Mostly one piece, which is not worth an allocation.
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

    /// Return all of them as one.
    fn joined(self) -> Bytes {
        if self.more.is_empty() { self.first } else { Slab::default().copy(&self) }
    }
}

/// Where small payloads are copied to, because a piece keeps its packet alive, and all that came with it. Several share
/// an allocation, which lives as long as one of them.
#[derive(Debug, Default)]
pub(super) struct Slab(BytesMut);

/// Payloads up to a quarter of this share; beyond it the allocation costs little beside the copy.
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

/// What a future has to say now, without waiting for it.
pub(super) async fn now<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
