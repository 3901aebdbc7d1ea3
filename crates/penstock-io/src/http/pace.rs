//! A limit on clients that do not read: without it, a connection could hold the memory of its response indefinitely.

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The number of bytes that the client must take within the timeout, unless fewer are left to send.
const STEP: usize = 64 << 10;

/// A stream whose writes fail with [`TimedOut`](io::ErrorKind::TimedOut) when the other end takes less than 64 KiB
/// within the timeout. Time in which there is nothing to write does not count.
pub(super) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// The timer, which exists while writes wait for the other end.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Bytes sent since the timer was started.
    sent: usize,
}

impl<S> WriteTimeout<S> {
    pub(super) const fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, deadline: None, sent: 0 }
    }

    fn record_sent(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes);
        if self.sent >= STEP {
            self.deadline = None;
        }
    }

    /// Start the timer if it does not run, and fail once it has run out.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.deadline.is_none() {
            self.sent = 0;
        }
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        deadline
            .as_mut()
            .poll(context)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read the response")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(context, bytes) else {
            return self.wait(context);
        };
        self.record_sent(*written.as_ref().unwrap_or(&0));
        Poll::Ready(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write_vectored(context, bytes) else {
            return self.wait(context);
        };
        self.record_sent(*written.as_ref().unwrap_or(&0));
        Poll::Ready(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(context) else { return self.wait(context) };
        self.deadline = None;
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Poll::Ready(ended) = Pin::new(&mut self.stream).poll_shutdown(context) else { return self.wait(context) };
        self.deadline = None;
        Poll::Ready(ended)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::runtime::{block_on, spawn};

    #[test]
    fn what_is_not_taken_is_given_up_and_silence_is_not() {
        let writing = async {
            let (near, mut far) = duplex(1 << 10);
            let mut near = WriteTimeout::new(near, Duration::from_millis(50));
            near.write_all(b"taken").await.expect("there is room");
            near.flush().await.expect("there is room");
            far.read_exact(&mut [0; 5]).await.expect("it was written");
            sleep(Duration::from_millis(100)).await;
            near.write_all(&[0; 1 << 10]).await.expect("silence before it does not count");
            near.write_all(&[0]).await.expect_err("nobody takes it").kind()
        };
        assert_eq!(block_on(spawn(writing).expect("runs")).expect("waited").expect("ended"), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_client_that_reads_too_little_is_cut_off_although_it_reads_something() {
        let writing = async {
            let (near, mut far) = duplex(1 << 10);
            let mut near = WriteTimeout::new(near, Duration::from_millis(100));
            let taking = tokio::spawn(async move {
                while far.read_exact(&mut [0; 16]).await.is_ok() {
                    sleep(Duration::from_millis(5)).await;
                }
            });
            let error = near.write_all(&vec![0; 1 << 20]).await.expect_err("3 KiB a second").kind();
            drop(near);
            (error, taking.await.is_ok())
        };
        let ended = block_on(spawn(writing).expect("runs")).expect("waited").expect("ended");
        assert_eq!(ended, (io::ErrorKind::TimedOut, true));
    }
}
