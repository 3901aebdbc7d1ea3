use std::fmt;
use std::sync::Arc;

use penstock_vgi::{Event, Protocol, Result, Server, ServerConfig};

use super::channel::{Channel, Check};

/// A server's end: the machine and its channel.
pub struct ServerConnection {
    machine: Server,
    channel: Channel,
}

impl fmt::Debug for ServerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConnection").field("channel", &self.channel).finish_non_exhaustive()
    }
}

impl ServerConnection {
    /// A connection on which nothing was read yet.
    pub fn new(protocol: Arc<Protocol>, config: ServerConfig, channel: Channel) -> Self {
        Self { machine: Server::new(protocol, config), channel }
    }

    /// The machine, for answers; [`flush`](Self::flush) sends them.
    pub const fn machine(&mut self) -> &mut Server {
        &mut self.machine
    }

    /// What the client wants next; `None` when it has closed its end. A call that was left without an answer gets one.
    pub fn next_event(&mut self, check: Check<'_>) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.machine.poll_event() {
                return Ok(Some(event));
            }
            let handled = self.machine.handle_input();
            // Also after an error, which the client is told.
            let flushed = self.channel.flush(self.machine.output(), check);
            handled?;
            flushed?;
            if let Some(event) = self.machine.poll_event() {
                return Ok(Some(event));
            }
            if !self.channel.fill(self.machine.input(), check)? {
                return self.machine.handle_end().map(|()| None);
            }
        }
    }

    /// Ends what the application has left open, so that the next request can come.
    pub fn settle(&mut self, check: Check<'_>) -> Result<()> {
        self.machine.settle()?;
        self.flush(check)
    }

    /// Writes what the machine has for the client.
    pub fn flush(&mut self, check: Check<'_>) -> Result<()> {
        self.channel.flush(self.machine.output(), check)
    }
}
