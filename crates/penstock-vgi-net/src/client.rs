use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use penstock_vgi::shm_layout::is_pointer;
use penstock_vgi::transport::End;
use penstock_vgi::{Answer, Batch, Client, Limits, Metadata};

use super::channel::{Channel, Check};
use super::segment::Segment;
use super::shm_link::SharedMemoryLink;
use crate::error::{Error, Result};

/// Whether the server uses a sealed segment instead of the named one.
///
/// ```text
///  Open ── the first request, with the descriptor ─▶ Made ── the first answer ─▶ Over
/// ```
enum Offer {
    /// No sealed segment was offered yet.
    Open,
    /// The sealed segment's descriptor was sent with a request that has no answer yet. Nothing is
    /// shared until then, because this end cannot tell which segment the server will use.
    Made(Arc<Segment>),
    /// The server uses the sealed segment or has declined it, or it cannot be passed.
    Over,
}

/// The client's end: the state machine and its channel.
pub struct ClientConnection {
    machine: Client,
    channel: Channel,
    link: Option<SharedMemoryLink>,
    offer: Offer,
    /// The most bytes of a batch that this end copies out of a segment.
    limit: u64,
    /// The error that makes further calls impossible.
    broken: Option<Error>,
}

impl fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConnection").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl ClientConnection {
    /// Make a client for a connection on which nothing was sent yet. Fail if there is a segment and
    /// the peer is not on this machine.
    pub fn new(limits: Limits, channel: Channel, segment: Option<Arc<Segment>>) -> Result<Self> {
        if let Some(segment) = &segment {
            segment.share_with(channel.peer())?;
        }
        let limit = limits.body;
        let link = segment.map(|segment| SharedMemoryLink::new(segment, End::Client, limit));
        let offer = if link.is_some() && channel.passes_descriptors() { Offer::Open } else { Offer::Over };
        Ok(Self { machine: Client::new(limits), channel, link, offer, limit, broken: None })
    }

    /// Set how long one answer may take, from the request to its last byte; `None` means no limit.
    /// Log messages before the answer do not extend this time.
    pub fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.channel.set_timeout(timeout);
    }

    /// Return whether a stream is open.
    pub const fn is_streaming(&self) -> bool {
        self.machine.is_streaming()
    }

    /// Call a unary method; wait for its answer with [`next_answer`](Self::next_answer).
    pub fn call(&mut self, method: &str, params: Batch, metadata: Metadata, check: Check<'_>) -> Result<()> {
        self.begin(check)?;
        let metadata = self.advertise(metadata)?;
        self.machine.call(method, params, metadata)?;
        self.send_all(check)
    }

    /// Open a stream; if it has a header, wait for it with [`next_answer`](Self::next_answer).
    pub fn open(
        &mut self,
        method: &str,
        params: Batch,
        metadata: Metadata,
        header: bool,
        check: Check<'_>,
    ) -> Result<()> {
        self.begin(check)?;
        let metadata = self.advertise(metadata)?;
        self.machine.open(method, params, metadata, header)?;
        self.send_all(check)
    }

    /// Send the stream's next input, or a tick; wait for its answer with [`next_answer`](Self::next_answer).
    pub fn send(&mut self, batch: Option<&Batch>, check: Check<'_>) -> Result<()> {
        self.unbroken()?;
        self.channel.begin();
        match batch {
            Some(batch) => match (&mut self.link, &self.offer) {
                (Some(link), Offer::Open | Offer::Over) => self.machine.send(&link.share(batch.clone())?)?,
                (Some(_), Offer::Made(_)) | (None, _) => self.machine.send(batch)?,
            },
            None => self.machine.tick()?,
        }
        self.send_all(check)
    }

    /// End the stream. Drop further output of the server, except log messages.
    pub fn close(&mut self, cancel: bool, check: Check<'_>, on_answer: &mut dyn FnMut(Answer)) -> Result<()> {
        self.unbroken()?;
        self.channel.begin();
        self.end(cancel, check, on_answer)
    }

    fn end(&mut self, cancel: bool, check: Check<'_>, on_answer: &mut dyn FnMut(Answer)) -> Result<()> {
        if !self.machine.is_streaming() {
            return Ok(());
        }
        self.machine.close(cancel)?;
        self.send_all(check)?;
        while self.machine.is_streaming() {
            let answer = self.next_answer(check)?;
            on_answer(answer);
        }
        Ok(())
    }

    /// Wait for the next answer. After an error no more calls are possible.
    pub fn next_answer(&mut self, check: Check<'_>) -> Result<Answer> {
        let answer = self.wait_for_answer(check);
        if let Err(error) = &answer {
            self.broken = Some(error.clone());
        }
        answer
    }

    fn wait_for_answer(&mut self, check: Check<'_>) -> Result<Answer> {
        loop {
            self.machine.handle_input()?;
            if let Some(answer) = self.machine.poll_answer() {
                self.settle_offer();
                // The server has ended the stream, so end it from this side as well.
                self.channel.flush(self.machine.output(), check)?;
                return match (answer, &mut self.link) {
                    (Answer::Batch(batch), Some(link)) => {
                        link.answered();
                        link.resolve(batch).map(Answer::Batch)
                    }
                    // The caller would take the pointer for the empty batch that it looks like.
                    (Answer::Batch(batch), None) if is_pointer(batch.rows, &batch.metadata) => Err(Error::Pointer),
                    (answer, _) => Ok(answer),
                };
            }
            if !self.channel.fill(self.machine.input(), check)? {
                self.machine.handle_end()?;
                return Err(Error::Closed);
            }
        }
    }

    /// Announce the segment to the server, and pass the sealed one with the first request. This is
    /// the client's turn, so it frees dropped regions first.
    fn advertise(&mut self, mut metadata: Metadata) -> Result<Metadata> {
        let Some(link) = &self.link else { return Ok(metadata) };
        let named = link.segment();
        named.settle()?;
        named.advertise(&mut metadata);
        // A caller that has already written to the named segment means that one.
        if matches!(self.offer, Offer::Open) && named.load()?.regions().is_empty() {
            let sealed = Segment::sealed(named.name(), named.size(), self.channel.peer());
            self.offer = match sealed.and_then(|sealed| Ok((sealed.duplicate()?, sealed))) {
                Ok((descriptor, sealed)) => {
                    self.channel.pass(descriptor);
                    Offer::Made(sealed)
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot make a sealed segment; the named one is used");
                    Offer::Over
                }
            };
        }
        Ok(metadata)
    }

    /// Conclude the offer after an answer. The server uses the sealed segment if its answer came
    /// with the same descriptor.
    fn settle_offer(&mut self) {
        match std::mem::replace(&mut self.offer, Offer::Over) {
            Offer::Open => self.offer = Offer::Open,
            Offer::Made(sealed) => {
                if self.channel.received().is_some_and(|descriptor| sealed.is(&descriptor)) {
                    if let Some(link) = &self.link {
                        link.segment().replaced_by(&sealed);
                    }
                    self.link = Some(SharedMemoryLink::new(sealed, End::Client, self.limit));
                }
            }
            Offer::Over => {}
        }
    }

    /// Begin a call. Within the call's time, first end a stream that was not closed.
    fn begin(&mut self, check: Check<'_>) -> Result<()> {
        self.unbroken()?;
        self.channel.begin();
        self.end(false, check, &mut drop)
    }

    fn send_all(&mut self, check: Check<'_>) -> Result<()> {
        let sent = self.channel.flush(self.machine.output(), check);
        if let Err(error) = &sent {
            self.broken = Some(error.clone());
        }
        sent
    }

    fn unbroken(&self) -> Result<()> {
        self.broken.as_ref().map_or(Ok(()), |error| Err(Error::Over(Box::new(error.clone()))))
    }
}

#[cfg(test)]
mod tests;
