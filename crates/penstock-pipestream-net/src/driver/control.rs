use std::collections::VecDeque;
use std::future::pending;

use bytes::Bytes;
use quinn::{ReadError, RecvStream, SendStream, WriteError};

/// Maximum number of bytes that are queued for stream 0. Beyond it, the driver handles neither
/// input on stream 0 nor commands.
const MAX_QUEUED: usize = 4 << 20;
/// Maximum number of pieces read at a time.
const PIECES: usize = 32;

/// Stream 0 (section 5.1) and the bytes that wait to be written to it.
#[derive(Debug)]
pub(super) struct Control {
    send: Option<SendStream>,
    receive: Option<RecvStream>,
    queue: VecDeque<Bytes>,
    queued: usize,
    /// Total number of bytes pushed.
    pushed: u64,
}

/// Result of one step on stream 0.
#[derive(Debug)]
pub(super) enum ControlRead {
    /// Bytes arrived.
    Bytes(Vec<Bytes>),
    /// The peer has finished, reset or stopped the stream.
    Ended { reset: bool },
    /// Bytes were written.
    Written,
}

impl Control {
    pub(super) fn new(streams: Option<(SendStream, RecvStream)>) -> Self {
        let mut control = Self { send: None, receive: None, queue: VecDeque::new(), queued: 0, pushed: 0 };
        if let Some((send, receive)) = streams {
            control.open(send, receive);
        }
        control
    }

    /// Set the streams, once stream 0 is open.
    pub(super) fn open(&mut self, send: SendStream, receive: RecvStream) {
        // Control frames take precedence over any payload.
        let _ = send.set_priority(i32::MAX);
        self.send = Some(send);
        self.receive = Some(receive);
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        self.queued = self.queued.saturating_add(bytes.len());
        self.pushed = self.pushed.saturating_add(bytes.len() as u64);
        self.queue.push_back(bytes);
    }

    /// Return whether more work may be done that produces control bytes. `held_back` is the number
    /// of bytes that the session holds for its next interval.
    pub(super) fn has_room(&self, held_back: usize) -> bool {
        self.queued.saturating_add(held_back) < MAX_QUEUED
    }

    /// Return the number of bytes that wait to be written.
    pub(super) const fn queued(&self) -> usize {
        self.queued
    }

    /// Return the total number of bytes pushed.
    pub(super) const fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Return the number of bytes that QUIC has accepted: it delivers them whatever else is sent.
    pub(super) const fn written(&self) -> u64 {
        self.pushed.saturating_sub(self.queued as u64)
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.queue.is_empty()
    }

    /// Wait until bytes were written or, if `read`, arrived. Safe to cancel.
    pub(super) async fn next(&mut self, read: bool) -> ControlRead {
        let reading = async {
            match &mut self.receive {
                Some(receive) if read => receive_pieces(receive).await,
                Some(_) | None => pending().await,
            }
        };
        let writing = async {
            match &mut self.send {
                Some(send) if !self.queue.is_empty() => write(send, &mut self.queue, &mut self.queued).await,
                Some(_) | None => pending().await,
            }
        };
        let event = tokio::select! {
            event = writing => event,
            event = reading => event,
        };
        if matches!(event, Some(ControlRead::Ended { .. }) | None) {
            self.receive = None;
            self.send = None;
        }
        match event {
            Some(event) => event,
            // The connection is lost, which is reported elsewhere.
            None => pending().await,
        }
    }

    /// Write everything, as long as the peer accepts it.
    pub(super) async fn write_all(&mut self) {
        let Some(send) = &mut self.send else { return };
        while !self.queue.is_empty() {
            if !matches!(write(send, &mut self.queue, &mut self.queued).await, Some(ControlRead::Written)) {
                return;
            }
        }
    }

    /// Write what the peer accepts now, without waiting for it.
    pub(super) async fn write_now(&mut self) {
        tokio::select! {
            biased;
            () = self.write_all() => {}
            () = std::future::ready(()) => {}
        }
    }
}

async fn receive_pieces(receive: &mut RecvStream) -> Option<ControlRead> {
    let mut pieces = [const { Bytes::new() }; PIECES];
    match receive.read_chunks(&mut pieces).await {
        Ok(Some(count)) => Some(ControlRead::Bytes(pieces.into_iter().take(count).collect())),
        Ok(None) => Some(ControlRead::Ended { reset: false }),
        Err(ReadError::Reset(_)) => Some(ControlRead::Ended { reset: true }),
        Err(
            ReadError::ConnectionLost(_)
            | ReadError::ClosedStream
            | ReadError::IllegalOrderedRead
            | ReadError::ZeroRttRejected,
        ) => None,
    }
}

async fn write(send: &mut SendStream, queue: &mut VecDeque<Bytes>, queued: &mut usize) -> Option<ControlRead> {
    match send.write_chunks(queue.make_contiguous()).await {
        Ok(written) => {
            queue.drain(..written.chunks);
            *queued = queued.saturating_sub(written.bytes);
            Some(ControlRead::Written)
        }
        Err(WriteError::Stopped(_)) => Some(ControlRead::Ended { reset: true }),
        Err(WriteError::ConnectionLost(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected) => None,
    }
}
