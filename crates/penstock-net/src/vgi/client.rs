use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use penstock_vgi::road::End;
use penstock_vgi::{Answer, Batch, Client, Error, ErrorKind, Limits, Metadata, Result};

use super::beside::Beside;
use super::channel::{Channel, Check};
use super::segment::Segment;

/// A client's end: the machine and its channel.
pub struct ClientConnection {
    machine: Client,
    channel: Channel,
    beside: Option<Beside>,
    /// Why nothing can be called any more.
    broken: Option<Error>,
}

impl fmt::Debug for ClientConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConnection").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl ClientConnection {
    /// A connection on which nothing was sent yet. Fails where there is a segment and the peer is not on this machine.
    pub fn new(limits: Limits, channel: Channel, segment: Option<Arc<Segment>>) -> Result<Self> {
        if let Some(segment) = &segment {
            segment.share_with(channel.peer())?;
        }
        let beside = segment.map(|segment| Beside::new(segment, End::Client, limits.body));
        Ok(Self { machine: Client::new(limits), channel, beside, broken: None })
    }

    /// How long the server may take for one answer; `None` is for ever.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.channel.set_timeout(timeout);
    }

    /// Whether a stream is open.
    pub const fn is_streaming(&self) -> bool {
        self.machine.is_streaming()
    }

    /// Calls a unary method; its answer is to be waited for.
    pub fn call(&mut self, method: &str, params: Batch, metadata: Metadata, check: Check<'_>) -> Result<()> {
        self.unbroken()?;
        self.abandon(check)?;
        let metadata = self.advertise(metadata)?;
        self.machine.call(method, params, metadata)?;
        self.send_all(check)
    }

    /// Opens a stream; a header is to be waited for, if there is one.
    pub fn open(
        &mut self,
        method: &str,
        params: Batch,
        metadata: Metadata,
        header: bool,
        check: Check<'_>,
    ) -> Result<()> {
        self.unbroken()?;
        self.abandon(check)?;
        let metadata = self.advertise(metadata)?;
        self.machine.open(method, params, metadata, header)?;
        self.send_all(check)
    }

    /// Sends the stream's next input, a tick without one; its answer is to be waited for.
    pub fn send(&mut self, batch: Option<&Batch>, check: Check<'_>) -> Result<()> {
        self.unbroken()?;
        match batch {
            Some(batch) => match &mut self.beside {
                Some(beside) => self.machine.send(&beside.share(batch.clone())?)?,
                None => self.machine.send(batch)?,
            },
            None => self.machine.tick()?,
        }
        self.send_all(check)
    }

    /// Ends the stream; what the server still writes is dropped, messages apart.
    pub fn close(&mut self, cancel: bool, check: Check<'_>, on_answer: &mut dyn FnMut(Answer)) -> Result<()> {
        self.unbroken()?;
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

    /// Waits for the next answer. After an error nothing can be called any more.
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
                // A stream that has ended is ended from this side as well.
                self.channel.flush(self.machine.output(), check)?;
                return match (answer, &mut self.beside) {
                    (Answer::Batch(batch), Some(beside)) => {
                        beside.answered();
                        beside.resolve(batch).map(Answer::Batch)
                    }
                    (answer, _) => Ok(answer),
                };
            }
            if !self.channel.fill(self.machine.input(), check)? {
                self.machine.handle_end()?;
                return Err(Error::new(ErrorKind::Io, "the server has closed the connection"));
            }
        }
    }

    /// Tells the server of the segment. It is this side's turn, so what was freed is given back.
    fn advertise(&self, mut metadata: Metadata) -> Result<Metadata> {
        if let Some(beside) = &self.beside {
            beside.segment().settle()?;
            beside.segment().advertise(&mut metadata);
        }
        Ok(metadata)
    }

    /// A stream that nobody has closed.
    fn abandon(&mut self, check: Check<'_>) -> Result<()> {
        self.close(false, check, &mut drop)
    }

    fn send_all(&mut self, check: Check<'_>) -> Result<()> {
        let sent = self.channel.flush(self.machine.output(), check);
        if let Err(error) = &sent {
            self.broken = Some(error.clone());
        }
        sent
    }

    fn unbroken(&self) -> Result<()> {
        self.broken.as_ref().map_or(Ok(()), |error| {
            Err(Error::new(error.kind(), format!("the connection is over: {}", error.message())))
        })
    }
}
