//! Bodies, in both directions.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, SizeHint};
use penstock_pimp::{Code, Error};
use penstock_wire::Limit;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a body may take (decision 3).
const PATIENCE: Duration = Duration::from_secs(10);

/// The octets of an answer: all of them, or as they come.
#[derive(Debug)]
pub enum Octets {
    /// All of them.
    Whole(Bytes),
    /// As they come.
    Stream(mpsc::Receiver<Bytes>),
}

impl Body for Octets {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Whole(octets) if octets.is_empty() => Poll::Ready(None),
            Self::Whole(octets) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(octets))))),
            Self::Stream(pieces) => pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(octets) => octets.is_empty(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(octets) => SizeHint::with_exact(octets.len() as u64),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Reads a request's body, up to its limit and in its time.
pub(super) async fn read<B>(mut body: B, most: Limit) -> Result<Vec<u8>, Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let reading = async {
        let mut octets = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return Err(Error::new(Code::Malformed, "the body broke off")) };
            let Ok(data) = frame.into_data() else { continue };
            most.check(octets.len() as u64 + data.len() as u64)?;
            octets.extend_from_slice(&data);
        }
        Ok(octets)
    };
    let late = || Error::new(Code::Malformed, format!("the body took longer than {} s", PATIENCE.as_secs()));
    timeout(PATIENCE, reading).await.unwrap_or_else(|_| Err(late()))
}
