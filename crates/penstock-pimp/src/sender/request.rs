//! Requests of a sender.

use std::borrow::Cow;
use std::time::Instant;

use super::Transmit;
use super::look::Look;

/// What an envelope is made of.
pub(super) struct Chunk {
    pub(super) value: Cow<'static, str>,
    pub(super) done: bool,
    pub(super) error: Option<String>,
}

impl Chunk {
    pub(super) const fn of(value: Cow<'static, str>) -> Self {
        Self { value, done: false, error: None }
    }
}

/// A request whose answer has not come.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) envelopes: Vec<Vec<u8>>,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) done: bool,
    /// When it went first.
    pub(super) since: Instant,
    /// When it goes again; `None` while it is on its way.
    pub(super) again: Option<Instant>,
    /// It was answered, and what the buffer has in its place is looked at.
    pub(super) look: Option<Look>,
}

impl Request {
    pub(super) fn transmit(&self) -> Transmit {
        self.look.as_ref().map_or_else(|| Transmit::Write(self.body()), |look| Transmit::Look(look.poll()))
    }

    pub(super) fn body(&self) -> Vec<u8> {
        [b"{\"chunks\":[".as_slice(), &self.envelopes.join(&b','), b"]}"].concat()
    }
}
