use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use penstock_vgi::shm_layout::is_pointer;
use penstock_vgi::transport::End;
use penstock_vgi::{Batch, Event, Failure, Metadata, Protocol, Server, ServerConfig, key};

use super::channel::{Channel, Check};
use super::counters::Counters;
use super::segment::Segment;
use super::shm_link::SharedMemoryLink;
use crate::error::{Error, Result};
use crate::faults::SegmentViolation;

/// The server's end: the state machine and its channel.
pub struct ServerConnection {
    machine: Server,
    channel: Channel,
    /// The most bytes of a batch that this end copies out of a segment.
    limit: u64,
    link: Option<SharedMemoryLink>,
    /// The reason why the segment that the client has named is not used.
    refused: Option<Error>,
    counters: Arc<Counters>,
}

impl fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConnection").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl ServerConnection {
    /// Make a server for a connection on which nothing was read yet. Fail if there is a segment and
    /// the peer is not on this machine.
    pub fn new(
        protocol: Arc<Protocol>,
        config: ServerConfig,
        channel: Channel,
        segment: Option<Arc<Segment>>,
        counters: Arc<Counters>,
    ) -> Result<Self> {
        if let Some(segment) = &segment {
            segment.share_with(channel.peer())?;
        }
        let limit = config.limits.body;
        let link = segment.map(|segment| SharedMemoryLink::new(segment, End::Server, limit));
        Ok(Self { machine: Server::new(protocol, config), channel, limit, link, refused: None, counters })
    }

    /// Return the state machine, for answers; [`flush`](Self::flush) sends them.
    pub const fn machine(&mut self) -> &mut Server {
        &mut self.machine
    }

    /// Return the counters of its server.
    pub(super) const fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Return the next event, or `None` once the client has closed its end. Call
    /// [`settle`](Self::settle) first if the last call may lack an answer.
    ///
    /// Count requests that reach no method, and a connection that fails before its first request,
    /// for example because of its handshake.
    pub fn next_event(&mut self, check: Check<'_>) -> Result<Option<Event>> {
        let mut interrupted = false;
        let mut watched = || check().inspect_err(|_| interrupted = true);
        let next = self.resolved_event(&mut watched);
        if next.is_err() && !interrupted && !self.machine.was_requested() {
            self.counters.refused();
        }
        next
    }

    fn resolved_event(&mut self, check: Check<'_>) -> Result<Option<Event>> {
        let event = self.wait_for_event(check)?;
        if let Some(link) = &mut self.link {
            link.answered();
        }
        if let Some(Event::Call(call)) = &event {
            self.attach(&call.request.metadata);
        }
        let Some(Event::Input(batch)) = &event else { return Ok(event) };
        let resolved = match (&self.link, &self.refused) {
            (Some(link), _) => link.resolve(batch.clone()),
            // The method must not take the pointer for an empty batch.
            (None, Some(refused)) if is_pointer(batch.rows, &batch.metadata) => Err(refused.clone()),
            (None, _) => return Ok(event),
        };
        match resolved {
            Ok(batch) => Ok(Some(Event::Input(batch))),
            // The connection is still in step: only the stream ends, and the next bytes belong to
            // another call.
            Err(error) => {
                self.machine.fail(&Failure::new("ProtocolError", &error.to_string()))?;
                self.flush(check)?;
                Ok(Some(Event::Abandoned))
            }
        }
    }

    /// Attach the segment that a request names. If that fails, send results through the pipe, and
    /// fail a stream that receives a pointer.
    fn attach(&mut self, metadata: &Metadata) {
        let passed = self.channel.received();
        let Some(name) = metadata.text(key::SHM_SEGMENT_NAME) else { return };
        let size = metadata.text(key::SHM_SEGMENT_SIZE).and_then(|size| size.parse().ok());
        if let (Some(descriptor), Some(size)) = (passed, size)
            && self.channel.passes_descriptors()
        {
            match self.adopt(descriptor, name, size) {
                Ok(()) => return,
                Err(error) => tracing::warn!(segment = name, %error, "the client's sealed segment is not used"),
            }
        }
        if self.link.as_ref().is_some_and(|link| link.segment().name() == name) {
            return;
        }
        let sizeless = || Error::Segment(SegmentViolation::NoSize { name: name.to_owned() });
        let attached = size.ok_or_else(sizeless).and_then(|size| Segment::attach(name, size, self.channel.peer()));
        (self.link, self.refused) = match attached {
            Ok(segment) => (Some(SharedMemoryLink::new(segment, End::Server, self.limit)), None),
            Err(error) => {
                tracing::warn!(segment = name, %error, "the client's shared memory is not used");
                (None, Some(error))
            }
        };
    }

    /// Adopt the segment that came with a request, and confirm this to the client by passing its
    /// descriptor back with the answer.
    fn adopt(&mut self, descriptor: OwnedFd, name: &str, size: u64) -> Result<()> {
        let segment = Segment::adopt(descriptor, name, size, self.channel.peer())?;
        self.channel.pass(segment.duplicate()?);
        (self.link, self.refused) = (Some(SharedMemoryLink::new(segment, End::Server, self.limit)), None);
        Ok(())
    }

    /// Return whether there is a segment for large batches.
    pub const fn shares(&self) -> bool {
        self.link.is_some()
    }

    /// Return the batch, or a pointer to it in shared memory. Call this only in this side's turn.
    pub fn share(&mut self, batch: Batch) -> Result<Batch> {
        match &mut self.link {
            Some(link) => link.share(batch),
            None => Ok(batch),
        }
    }

    fn wait_for_event(&mut self, check: Check<'_>) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return Ok(Some(event));
            }
            let handled = self.machine.handle_input();
            self.counters.refused_by(self.machine.take_refused());
            // The output is sent after an error too, because it contains the failure for the
            // client.
            let flushed = self.channel.flush(self.machine.output(), check);
            handled?;
            flushed?;
            if let Some(event) = self.machine.poll_event() {
                return Ok(Some(event));
            }
            if !self.channel.fill(self.machine.input(), check)? {
                self.machine.handle_end()?;
                return Ok(None);
            }
        }
    }

    /// End the call or stream that the application has left open, so that the next request can
    /// follow.
    pub fn settle(&mut self, check: Check<'_>) -> Result<()> {
        self.machine.settle()?;
        self.flush(check)
    }

    /// Write the state machine's output.
    pub fn flush(&mut self, check: Check<'_>) -> Result<()> {
        if let Some(link) = &self.link {
            link.segment().settle()?;
        }
        self.channel.flush(self.machine.output(), check)
    }
}

#[cfg(test)]
mod tests;
