//! The output of a connection: bytes for the socket, and after them the answers that wait for the disk (decision 4).
//!
//! ```text
//! answer ──┬── nothing waits for the disk ──────────▶ out ──▶ socket
//!          └─▶ held ── the disk has it, out has room ─▲ ▲
//! TASK, DONE, FAILED of others' tasks ──────────────────┘
//! ```
//!
//! Both buffers count towards the limit. A deferred answer takes 17 bytes, and so does a run of OKs
//! whose records become durable together; DEAD_TASKS is made directly in `out` when it can be sent.
//! The limit is checked before each request, so the buffers stay within it.

use super::held::{self, DeadList, DeferredAnswer};
use crate::{ErrorCode, Failure, Frame, HEADER, Lsn, TaskId};

/// The bytes of an empty buffer that stay allocated.
const KEPT: usize = 8 << 10;
/// The extra bytes for OKs and ERRORs that waited for the disk, if there is no other output.
const BURST: usize = 512;
/// The written bytes after which the rest of the buffer moves to its front.
const WRITTEN: usize = 64 << 10;
/// Bytes of OK.
const OK: usize = HEADER + TaskId::LENGTH;
/// The answer to submits whose records could not be written.
const REFUSED: Failure<'static> = Failure { code: ErrorCode::QueueFull, message: b"the journal cannot be written" };

/// The position of a connection's DEAD_TASKS, of which there is one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeadListPosition {
    /// There is none.
    None,
    /// It is deferred behind an answer that waits for the disk.
    Wanted,
    /// It ends this many unwritten bytes ahead in `out`.
    Out(usize),
}

/// The output of one connection.
#[derive(Debug)]
pub(super) struct Output {
    /// Bytes for the socket, of which the first `sent` are written.
    out: Vec<u8>,
    sent: usize,
    /// Answers that wait for the disk, and later answers.
    held: Vec<u8>,
    /// The start of the last item in `held`, if it stands for consecutive OKs.
    run: Option<usize>,
    listing: DeadListPosition,
    /// The bytes of both buffers above which no more requests are accepted.
    limit: usize,
    /// The most waiting bytes; a connection with more is cut off.
    most: usize,
}

impl Output {
    pub(super) const fn new(limit: usize, most: usize) -> Self {
        Self { out: Vec::new(), sent: 0, held: Vec::new(), run: None, listing: DeadListPosition::None, limit, most }
    }

    /// Return the bytes to write now.
    pub(super) fn ready(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// Return how many bytes wait for the socket or for the disk.
    pub(super) const fn waiting(&self) -> usize {
        self.out.len() - self.sent + self.held.len()
    }

    /// Return whether too much output waits to accept another request.
    pub(super) fn is_full(&self) -> bool {
        self.waiting() > self.limit || self.listing != DeadListPosition::None
    }

    /// Return whether answers wait for the disk, or for room in the output.
    pub(super) const fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Return the allocated bytes.
    pub(super) const fn capacity(&self) -> usize {
        self.out.capacity() + self.held.capacity()
    }

    /// Drop all output.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limit, self.most);
    }

    /// Record that this many bytes were written.
    pub(super) fn written(&mut self, bytes: usize) {
        self.sent = (self.sent + bytes).min(self.out.len());
        if let DeadListPosition::Out(left) = &mut self.listing {
            *left = left.saturating_sub(bytes);
            if *left == 0 {
                self.listing = DeadListPosition::None;
            }
        }
        if self.sent == self.out.len() {
            self.sent = 0;
            if self.out.capacity() > KEPT { self.out = Vec::new() } else { self.out.clear() }
        } else if self.sent > WRITTEN {
            self.compact();
        }
    }

    /// Append an answer, after those that wait for the disk.
    pub(super) fn answer(&mut self, frame: &Frame<'_>) {
        if self.held.is_empty() {
            return self.write(frame);
        }
        self.hold_bytes(frame.length());
        self.run = None;
        // This cannot fail: the daemon's frames always fit their layouts.
        let _ = frame.encode(&mut self.held);
    }

    /// Append a frame without waiting; the caller limits the amount.
    pub(super) fn write(&mut self, frame: &Frame<'_>) {
        let _ = frame.encode(self.room(frame.length(), 0));
    }

    /// Append a small frame caused by another connection.
    pub(super) fn push(&mut self, frame: &Frame<'_>) {
        let _ = frame.encode(self.room(frame.length(), self.waiting() / 8));
    }

    /// Return the output buffer with room for a frame of this many bytes: up to the limit the
    /// buffer doubles, beyond it the buffer grows by the needed bytes and the spare.
    pub(super) fn room(&mut self, bytes: usize, spare: usize) -> &mut Vec<u8> {
        if self.out.capacity() - self.out.len() < bytes {
            self.compact();
            if self.held.is_empty() && self.out.len() + bytes + self.held.capacity() > self.limit {
                self.held = Vec::new();
            }
            let limit = self.limit.saturating_sub(self.held.capacity());
            let spare = spare.min(self.most.saturating_sub(self.out.len() + bytes + self.held.capacity()));
            grow(&mut self.out, bytes, limit, spare);
        }
        &mut self.out
    }

    /// Remove the written bytes, and capacity beyond the limit.
    fn compact(&mut self) {
        self.out.drain(..self.sent);
        self.sent = 0;
        self.out.shrink_to(self.limit.saturating_sub(self.held.capacity()));
    }

    /// Reserve room among the held answers.
    fn hold_bytes(&mut self, bytes: usize) {
        if self.held.capacity() - self.held.len() < bytes {
            if self.out.capacity() + self.held.len() + bytes > self.limit {
                self.compact();
                self.out.shrink_to_fit();
            }
            let limit = self.limit.saturating_sub(self.out.capacity());
            grow(&mut self.held, bytes, limit, 0);
        }
    }

    fn hold(&mut self, item: DeferredAnswer) {
        self.hold_bytes(held::LENGTH);
        self.run = matches!(item, DeferredAnswer::Submits { .. }).then_some(self.held.len());
        self.held.extend_from_slice(&item.encode());
    }

    /// Defer the OK of a submit until its record is durable. Consecutive OKs share one item if
    /// their records become durable together, that is, if all of them come after `batch`.
    pub(super) fn hold_submit(&mut self, id: TaskId, lsn: Lsn, batch: Lsn) {
        let last = self.run.and_then(|at| self.held.get_mut(at..)?.first_chunk_mut::<{ held::LENGTH }>());
        if let Some(last) = last
            && let Some(DeferredAnswer::Submits { first, count, lsn: before }) = DeferredAnswer::decode(last)
            && first.0.checked_add(count) == Some(id.0)
            && before > batch
            && lsn >= before
        {
            *last = DeferredAnswer::Submits { first, count: count + 1, lsn }.encode();
            return;
        }
        self.hold(DeferredAnswer::Submits { first: id, count: 1, lsn });
    }

    /// Defer the OK for a record that is retried until it is written.
    pub(super) fn hold_control(&mut self, id: TaskId, lsn: Lsn) {
        self.hold(DeferredAnswer::Control { id, lsn });
    }

    /// Defer DEAD_TASKS, in order. Until it is written, no more requests are accepted.
    pub(super) fn hold_list(&mut self, list: DeadList) {
        self.hold(DeferredAnswer::Dead(list));
        self.listing = DeadListPosition::Wanted;
    }

    /// Record that the last frame is DEAD_TASKS.
    pub(super) const fn listed(&mut self) {
        self.listing = DeadListPosition::Out(self.out.len() - self.sent);
    }

    /// Release answers whose records are durable, as far as there is room. Return which dead tasks to write after them.
    pub(super) fn release(&mut self, durable: Lsn) -> Option<DeadList> {
        let (mut held, mut at, mut list) = (std::mem::take(&mut self.held), 0, None);
        let before = self.ready().len();
        while list.is_none()
            && let Some(rest) = held.get_mut(at..).filter(|rest| !rest.is_empty())
        {
            let Some(item) = rest.first_chunk_mut::<{ held::LENGTH }>().and_then(|item| DeferredAnswer::decode(item))
            else {
                // A complete answer takes the same room as before.
                let frame = held::frame(rest);
                self.room(frame.len(), 0).extend_from_slice(frame);
                at += frame.len();
                continue;
            };
            let left = match item {
                DeferredAnswer::Submits { lsn, .. } | DeferredAnswer::Control { lsn, .. } if lsn > durable => break,
                DeferredAnswer::Submits { first, count, lsn } => {
                    let done = self.fitting(OK, count, rest.len());
                    (0..done).for_each(|nth| self.write(&Frame::Ok(TaskId(first.0.saturating_add(nth)))));
                    let first = TaskId(first.0.saturating_add(done));
                    (done < count).then_some(DeferredAnswer::Submits { first, count: count - done, lsn })
                }
                DeferredAnswer::Refused { count } => {
                    let refusal = Frame::Error(REFUSED);
                    let done = self.fitting(refusal.length(), count, rest.len());
                    (0..done).for_each(|_| self.write(&refusal));
                    (done < count).then_some(DeferredAnswer::Refused { count: count - done })
                }
                DeferredAnswer::Control { id, .. } => {
                    self.write(&Frame::Ok(id));
                    None
                }
                DeferredAnswer::Dead(which) => {
                    list = Some(which);
                    None
                }
            };
            if let Some(left) = left {
                rest.iter_mut().zip(left.encode()).for_each(|(to, from)| *to = from);
                break;
            }
            at += held::LENGTH;
        }
        self.keep(held, at);
        if self.ready().len() > before && self.capacity() > self.limit {
            self.compact();
            self.out.shrink_to_fit();
        }
        list
    }

    /// Return how many answers of this many bytes can replace the item at the front of the held ones.
    fn fitting(&self, bytes: usize, count: u32, held: usize) -> u32 {
        let ready = self.out.len() - self.sent;
        let burst = if ready == 0 { BURST } else { 0 };
        let room = self.limit.saturating_sub(ready + held).max(burst) + held::LENGTH;
        u32::try_from(room / bytes).unwrap_or(u32::MAX).min(count)
    }

    /// Keep the held answers without their first `gone` bytes.
    fn keep(&mut self, mut held: Vec<u8>, gone: usize) {
        self.run = self.run.and_then(|at| at.checked_sub(gone));
        if gone < held.len() {
            if gone > 0 {
                held.drain(..gone);
            }
            held.shrink_to(self.limit.saturating_sub(self.out.capacity()));
        } else if held.capacity() > KEPT || self.out.capacity() + held.capacity() > self.limit {
            held = Vec::new();
        } else {
            held.clear();
        }
        self.held = held;
    }

    /// Turn submits that are not durable into refusals, in order; later answers wait. Return how many were refused.
    pub(super) fn refuse(&mut self, durable: Lsn, end: Lsn) -> u64 {
        let (mut at, mut refused) = (0, 0);
        self.run = None;
        while let Some(rest) = self.held.get_mut(at..).filter(|rest| !rest.is_empty()) {
            let Some(place) = rest.first_chunk_mut::<{ held::LENGTH }>() else {
                at += held::frame(rest).len();
                continue;
            };
            let Some(item) = DeferredAnswer::decode(place) else {
                at += held::frame(rest).len();
                continue;
            };
            match item {
                DeferredAnswer::Submits { count, lsn, .. } if lsn > durable => {
                    refused += u64::from(count);
                    *place = DeferredAnswer::Refused { count }.encode();
                }
                DeferredAnswer::Control { id, lsn } if lsn > durable => {
                    *place = DeferredAnswer::Control { id, lsn: end }.encode()
                }
                DeferredAnswer::Submits { .. }
                | DeferredAnswer::Control { .. }
                | DeferredAnswer::Refused { .. }
                | DeferredAnswer::Dead(_) => {}
            }
            at += held::LENGTH;
        }
        refused
    }
}

/// Grow a buffer by this many bytes: it doubles up to the limit, and beyond it grows by the needed
/// bytes and the spare.
fn grow(buffer: &mut Vec<u8>, bytes: usize, limit: usize, spare: usize) {
    let needed = buffer.len() + bytes;
    let room = if needed > limit { needed + spare } else { needed.max((buffer.capacity() * 2).max(64).min(limit)) };
    buffer.reserve_exact(room.saturating_sub(buffer.len()));
}
