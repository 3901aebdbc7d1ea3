//! A limit on the wait for a connection's first byte: without it, a silent connection would hold
//! its permit indefinitely.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use super::permits::{Admission, Permit};

/// A stream whose first byte must arrive by the deadline of its permit; otherwise the read fails
/// with [`TimedOut`](io::ErrorKind::TimedOut) and is counted. Later bytes have no deadline here.
#[derive(Debug)]
pub struct FirstByte<S> {
    stream: S,
    /// Present until the first byte has arrived.
    waiting: Option<(Pin<Box<Sleep>>, Arc<Admission>)>,
}

impl<S> FirstByte<S> {
    /// Wrap a stream that was just accepted.
    pub fn new(stream: S, permit: &Permit) -> Self {
        let late = Box::pin(sleep_until(permit.deadline().into()));
        Self { stream, waiting: Some((late, Arc::clone(permit.admission()))) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FirstByte<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let read = Pin::new(&mut this.stream).poll_read(context, into);
        let Some((late, admission)) = &mut this.waiting else { return read };
        if read.is_ready() {
            this.waiting = None;
            return read;
        }
        if late.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        admission.counters().late();
        let seconds = admission.config().first_byte_timeout.as_secs_f64();
        this.waiting = None;
        let message = format!("no byte arrived within {seconds} s of accept");
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FirstByte<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
