//! The rest of a request's body after the response: the next request on the connection begins after it.
//!
//! A request that is refused before its body was read leaves that body in the connection. A short body is read to its
//! end and dropped, and the connection stays open. For a longer one the response says `Connection: close` (RFC 9112,
//! section 9.3).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{EXPECT, HeaderMap};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Number of bytes of a body that are read and dropped once the response is ready.
const DRAINED: u64 = 64 << 10;
/// How long reading them may take: the response waits for it.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// The body of a request. Dropping it returns the unread rest to the connection.
#[derive(Debug)]
pub struct RequestBody {
    body: Option<Incoming>,
    back: Option<oneshot::Sender<Incoming>>,
}

/// The receiver of the rest of a body.
#[derive(Debug)]
pub(super) struct Rest {
    back: oneshot::Receiver<Incoming>,
    /// Whether the client waits for `100 Continue` before it sends the body (RFC 9110, section
    /// 10.1.1).
    expects: bool,
}

impl RequestBody {
    pub(super) fn new(body: Incoming, headers: &HeaderMap) -> (Self, Rest) {
        let (back, rest) = oneshot::channel();
        let expects = headers.contains_key(EXPECT);
        (Self { body: Some(body), back: Some(back) }, Rest { back: rest, expects })
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(body), Some(back)) = (self.body.take(), self.back.take()) {
            // An error means that the connection has ended.
            let _ = back.send(body);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = Pin::new(body).poll_frame(context);
        if matches!(frame, Poll::Ready(None)) {
            // The body has no rest to return.
            self.body = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Rest {
    /// Read the rest of the body if it is short. Return false if more may arrive, so that the
    /// connection must close.
    pub(super) async fn drain(mut self) -> bool {
        let mut body = match self.back.try_recv() {
            Ok(body) => body,
            // Another task still reads the body, so its end is unknown.
            Err(oneshot::error::TryRecvError::Empty) => return false,
            Err(oneshot::error::TryRecvError::Closed) => return true,
        };
        if body.is_end_stream() {
            return true;
        }
        // Reading would make hyper send `100 Continue`, and the client would send the body for nothing.
        if self.expects || body.size_hint().lower() > DRAINED {
            return false;
        }
        let draining = async {
            let mut dropped = 0_u64;
            while let Some(frame) = body.frame().await {
                let Ok(frame) = frame else { return false };
                dropped = dropped.saturating_add(frame.data_ref().map_or(0, Bytes::len) as u64);
                if dropped > DRAINED {
                    return false;
                }
            }
            true
        };
        timeout(DRAIN_TIME, draining).await.unwrap_or(false)
    }
}
