//! Bodies of requests and responses.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use hyper::body::{Body, Frame, SizeHint};

use super::refused::Refused;

/// Why a response was cut off, so that the reader does not take it for complete.
#[derive(Debug)]
pub struct Broken(Refused);

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the response was cut off: {:?}", self.0)
    }
}

impl std::error::Error for Broken {}

impl From<Refused> for Broken {
    fn from(refused: Refused) -> Self {
        Self(refused)
    }
}

impl From<crate::Error> for Broken {
    fn from(error: crate::Error) -> Self {
        Self(error.into())
    }
}

/// The body of a response.
pub enum ResponseBody {
    /// All of its bytes.
    Whole(Bytes),
    /// Bytes that are produced as the client reads them.
    Stream {
        /// The bytes.
        pieces: BoxStream<'static, Result<Bytes, Broken>>,
        /// How many are still to come, if known.
        left: Option<u64>,
    },
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "Whole",
            Self::Stream { .. } => "Stream",
        })
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream { pieces, left } => pieces.as_mut().poll_next(context).map(|piece| {
                let bytes = piece?;
                if let (Some(left), Ok(bytes)) = (left, &bytes) {
                    *left = left.saturating_sub(bytes.len() as u64);
                }
                Some(bytes.map(Frame::data))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream { left, .. } => *left == Some(0),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream { left, .. } => left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
