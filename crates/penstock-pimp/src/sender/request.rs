//! Requests of a sender.

use std::borrow::Cow;
use std::time::Instant;

use super::conflict_check::ConflictProbe;
use crate::Poll;

/// A request to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transmit {
    /// `POST {job}/chunks` with this body.
    Write(Vec<u8>),
    /// A poll with the writeKey: some chunks were already stored, and the sender must find out who wrote them.
    Probe(Poll),
}
/// The fields of an envelope.
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

/// An envelope in JSON.
#[derive(Debug)]
pub(super) struct EncodedEnvelope {
    pub(super) bytes: Vec<u8>,
    /// Whether it is the final chunk.
    pub(super) done: bool,
}

/// The purpose of a request.
///
/// ```text
///  Write ── 200, 201: none was there ───────────────────────▶ written
///    │ some were there, or 409          all are the same ──────▲
///    └────────────────────────────▶ Probe ─┤
///                                          └ another writer's: the request is dropped, and the job fails
/// ```
#[derive(Debug)]
pub(super) enum Step {
    Write,
    /// The write was answered: the probe asks which chunks the buffer has at the write's indices.
    Probe(ConflictProbe),
}

/// A request without an answer. It has at least one chunk.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) envelopes: Vec<EncodedEnvelope>,
    pub(super) first: u32,
    /// When it was first sent.
    pub(super) since: Instant,
    /// When it is retried; `None` while it is in flight.
    pub(super) again: Option<Instant>,
    pub(super) step: Step,
}

impl Request {
    /// Return the index of its last chunk.
    pub(super) fn last(&self) -> u32 {
        let behind = self.first.saturating_add(u32::try_from(self.envelopes.len()).unwrap_or(u32::MAX));
        behind.saturating_sub(1)
    }

    /// Return whether its last chunk is the final one.
    pub(super) fn is_final(&self) -> bool {
        self.envelopes.last().is_some_and(|last| last.done)
    }

    pub(super) const fn is_probe(&self) -> bool {
        match self.step {
            Step::Write => false,
            Step::Probe(_) => true,
        }
    }

    /// Send the probe's poll next, without a pause.
    pub(super) fn probe(&mut self, now: Instant, probe: ConflictProbe) {
        self.step = Step::Probe(probe);
        self.again = Some(now);
    }

    pub(super) fn transmit(&self) -> Transmit {
        match &self.step {
            Step::Write => Transmit::Write(self.body()),
            Step::Probe(probe) => Transmit::Probe(probe.poll()),
        }
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let envelopes: Vec<&[u8]> = self.envelopes.iter().map(|envelope| &*envelope.bytes).collect();
        [b"{\"chunks\":[".as_slice(), &envelopes.join(&b','), b"]}"].concat()
    }
}
