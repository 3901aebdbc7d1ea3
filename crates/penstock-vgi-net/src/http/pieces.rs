//! A response body whose pieces are written directly from the arrays' memory.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use arrow_buffer::Buffer;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// The bytes of a response.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    rest: VecDeque<Bytes>,
    length: u64,
}

/// A buffer as an owner for `Bytes`.
struct Piece(Buffer);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

impl From<Vec<Buffer>> for Pieces {
    fn from(buffers: Vec<Buffer>) -> Self {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let rest = buffers.into_iter().filter(|buffer| !buffer.is_empty());
        Self { rest: rest.map(|buffer| Bytes::from_owner(Piece(buffer))).collect(), length }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.rest.pop_front();
        if let Some(piece) = &next {
            self.length = self.length.saturating_sub(piece.len() as u64);
        }
        Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length)
    }
}
