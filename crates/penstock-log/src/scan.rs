//! The records of one segment, and its damaged places.

use std::cell::OnceCell;
use std::ops::ControlFlow;

use crate::frame::{Framing, Head, Label, Length};
use crate::{Error, Mismatch, Result};

/// A record that is whole.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The segment's number.
    pub segment: u64,
    /// The place in the segment at which its body begins.
    pub offset: u64,
    /// The label in its head.
    pub label: Label,
    /// Its body.
    pub body: &'a [u8],
    /// Whether it is in an earlier format.
    pub earlier: bool,
}

/// A place of a log that was durable, and whose bytes have changed since. Its text names the place
/// for readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("segment {segment} is damaged from byte {start} to byte {end}")]
pub struct Hole<'a> {
    /// The segment's number.
    pub segment: u64,
    /// The byte at which it begins.
    pub start: u64,
    /// The byte at which it ends.
    pub end: u64,
    /// The label of a record whose body is damaged and whose head is whole.
    pub label: Option<Label>,
    /// The offset and the body of a record whose head is damaged and whose body is whole.
    pub body: Option<(u64, &'a [u8])>,
    /// Whether a record may be lost. If not, only a header, a seal or one bit of a head is damaged.
    pub loses: bool,
    /// Whether it is in a segment of an earlier format.
    pub earlier: bool,
}

/// An item of a segment.
pub(crate) enum Item<'a> {
    Entry(Entry<'a>),
    Hole(Hole<'a>),
}

/// The end of a segment, as the scan found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// The number of bytes that count.
    pub(crate) length: u64,
    /// Whether a record follows the last seal.
    pub(crate) is_unsealed: bool,
}

/// A segment to scan.
pub(crate) struct Scan<'a> {
    pub(crate) framing: &'a dyn Framing,
    pub(crate) number: u64,
    pub(crate) bytes: &'a [u8],
    /// Whether all bytes were synced, because a later segment was begun.
    pub(crate) is_ended: bool,
    pub(crate) earlier: bool,
    /// The highest number of synced bytes in any head, computed when it is first needed.
    pub(crate) synced: OnceCell<u64>,
}

/// The content at a place.
enum Place<'a> {
    /// A head; `repaired` if one bit of it was wrong.
    Head {
        head: Head,
        repaired: bool,
        end: usize,
        body: Option<&'a [u8]>,
    },
    Nothing,
}

impl<'a> Scan<'a> {
    /// Call `each` with every item, in order.
    pub(crate) fn run(&self, each: &mut dyn FnMut(Item<'a>) -> Result<()>) -> Result<End> {
        let mut end = End { length: 0, is_unsealed: false };
        let mut at = self.framing.header().min(self.bytes.len());
        while at < self.bytes.len() {
            at = match self.step(at, &mut end, each)? {
                ControlFlow::Continue(next) => next,
                ControlFlow::Break(()) => break,
            };
        }
        end.length = at as u64;
        Ok(end)
    }

    /// Read the item at a place, and return the place of the next one; break at a torn tail.
    fn step(
        &self,
        at: usize,
        end: &mut End,
        each: &mut dyn FnMut(Item<'a>) -> Result<()>,
    ) -> Result<ControlFlow<(), usize>> {
        match self.place(at) {
            Place::Head { head: Head { length: Length::Seal, .. }, repaired: false, end: next, body: Some(_) } => {
                end.is_unsealed = false;
                Ok(ControlFlow::Continue(next))
            }
            Place::Head { head, repaired, end: next, body: Some(body) } if head.length != Length::Seal => {
                let (before, _) = self.framing.around(head.length);
                let offset = (at + before) as u64;
                let (segment, earlier) = (self.number, self.earlier);
                each(Item::Entry(Entry { segment, offset, label: head.label, body, earlier }))?;
                if repaired {
                    each(Item::Hole(Hole { loses: false, ..self.hole(at, at + before) }))?;
                }
                end.is_unsealed = true;
                Ok(ControlFlow::Continue(next))
            }
            Place::Head { .. } | Place::Nothing if !self.was_synced(at) => Ok(ControlFlow::Break(())),
            Place::Head { head, end: next, .. } => {
                let label = Some(head.label).filter(|_| head.length != Length::Seal);
                // The record is longer than a file that was cut short; other records may follow its
                // head.
                let next = if next > self.bytes.len() { self.next_head(at + 1) } else { next };
                each(Item::Hole(Hole { label, loses: label.is_some(), ..self.hole(at, next) }))?;
                Ok(ControlFlow::Continue(next))
            }
            Place::Nothing => {
                let next = self.next_head(at + 1);
                each(Item::Hole(Hole { body: self.body_of(at, next), ..self.hole(at, next) }))?;
                Ok(ControlFlow::Continue(next))
            }
        }
    }

    /// Return the whole body that fills a place between two heads and whose own head is lost.
    fn body_of(&self, at: usize, end: usize) -> Option<(u64, &'a [u8])> {
        let (before, behind) = self.framing.around(Length::Body(1));
        let rest = self.bytes.get(at..end)?.get(before..)?;
        let (body, tail) = rest.split_at_checked(rest.len().checked_sub(behind)?)?;
        (!body.is_empty() && self.framing.is_whole(body, tail)).then_some(((at + before) as u64, body))
    }

    fn hole(&self, start: usize, end: usize) -> Hole<'a> {
        let (start, end) = (start as u64, end as u64);
        Hole { segment: self.number, start, end, label: None, body: None, loses: true, earlier: self.earlier }
    }

    fn place(&self, at: usize) -> Place<'a> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let whole = self.framing.head(rest).map(|head| (head, false));
        let Some((head, repaired)) = whole.or_else(|| self.framing.repair(rest).map(|head| (head, true))) else {
            return Place::Nothing;
        };
        let (before, behind) = self.framing.around(head.length);
        let length = match head.length {
            Length::Body(length) => usize::try_from(length).unwrap_or(usize::MAX),
            Length::Seal => 0,
        };
        let body = rest.get(before..).and_then(|rest| {
            let (body, rest) = rest.split_at_checked(length)?;
            self.framing.is_whole(body, rest.get(..behind)?).then_some(body)
        });
        Place::Head {
            head,
            repaired,
            end: at.saturating_add(before).saturating_add(length).saturating_add(behind),
            body,
        }
    }

    /// Return the place of the next head, or the end of the segment.
    fn next_head(&self, from: usize) -> usize {
        let is_head = |at: &usize| self.bytes.get(*at..).and_then(|rest| self.framing.search(rest)).is_some();
        (from..self.bytes.len()).find(is_head).unwrap_or(self.bytes.len())
    }

    /// Return whether the bytes at a place were durable: a head says so, or a later segment was
    /// begun.
    fn was_synced(&self, at: usize) -> bool {
        self.is_ended || *self.synced.get_or_init(|| self.most_synced()) > at as u64
    }

    fn most_synced(&self) -> u64 {
        let (mut at, mut most) = (self.framing.header(), 0);
        while at < self.bytes.len() {
            most = self
                .bytes
                .get(at..)
                .and_then(|rest| self.framing.search(rest))
                .map_or(most, |head| most.max(head.synced));
            at = self.next_head(at + 1);
        }
        most
    }
}

/// Return the error for a record that the engine cannot read.
pub(crate) fn foreign(path: &std::path::Path, entry: &Entry<'_>) -> Error {
    Error::content(path, Mismatch::Record { offset: entry.offset })
}
