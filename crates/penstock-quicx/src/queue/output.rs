//! What a connection is to be sent: bytes for the socket, and behind them the answers that wait for the disk (decision 4).
//!
//! ```text
//! answer ──┬── nothing waits for the disk ──────────▶ out ──▶ socket
//!          └─▶ held ── the disk has it, out has room ─▲ ▲
//! TASK, DONE, FAILED of others' tasks ──────────────────┘
//! ```
//!
//! Both count. An answer that waits for the disk takes 17 bytes, and so do all OKs in a row whose records the disk gets at
//! once; DEAD_TASKS is made when its turn comes, straight into `out`. So all that a connection has waiting is limited before
//! each request, and its buffers have no more room than that.

use super::held::{self, DeadList, DeferredAnswer};
use crate::{ErrorCode, Failure, Frame, HEADER, Lsn, TaskId};

/// Bytes of a buffer that stay allocated when nothing is in it.
const KEPT: usize = 8 << 10;
/// OKs and ERRORs that waited for the disk may take so many bytes more than they did, where nothing else is to be written.
const BURST: usize = 512;
/// Written bytes before what is behind them moves to the front.
const WRITTEN: usize = 64 << 10;
/// Bytes of OK.
const OK: usize = HEADER + TaskId::LENGTH;
/// What is said to those whose submits the disk has not taken.
const REFUSED: Failure<'static> = Failure { code: ErrorCode::QueueFull, message: b"the journal cannot be written" };

/// Where a connection's DEAD_TASKS is; there is one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeadListPosition {
    /// Nowhere.
    None,
    /// It waits for an answer that waits for the disk.
    Wanted,
    /// It ends so many bytes ahead in `out`.
    Out(usize),
}

/// What waits for one connection.
#[derive(Debug)]
pub(super) struct Output {
    /// To be written; `sent` bytes of it were.
    out: Vec<u8>,
    sent: usize,
    /// Answers that wait for the disk, and those behind them.
    held: Vec<u8>,
    /// Where the last of them begins, if it is OKs in a row.
    run: Option<usize>,
    listing: DeadListPosition,
    /// Bytes that both buffers may have before nothing more is asked for.
    limit: usize,
    /// Bytes that may wait in all: whoever lets more wait is cut.
    most: usize,
}

impl Output {
    pub(super) const fn new(limit: usize, most: usize) -> Self {
        Self { out: Vec::new(), sent: 0, held: Vec::new(), run: None, listing: DeadListPosition::None, limit, most }
    }

    /// What the socket may be given now.
    pub(super) fn ready(&self) -> &[u8] {
        self.out.get(self.sent..).unwrap_or_default()
    }

    /// Bytes that wait: for the socket, or for the disk.
    pub(super) const fn waiting(&self) -> usize {
        self.out.len() - self.sent + self.held.len()
    }

    /// Whether so much waits that no further request is taken.
    pub(super) fn is_full(&self) -> bool {
        self.waiting() > self.limit || self.listing != DeadListPosition::None
    }

    /// Whether answers wait for the disk, or for room behind those that did.
    pub(super) const fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Bytes that are allocated.
    pub(super) const fn capacity(&self) -> usize {
        self.out.capacity() + self.held.capacity()
    }

    /// Gives up whatever waits.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limit, self.most);
    }

    /// So many bytes were written.
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

    /// Answers a request, behind those that wait for the disk.
    pub(super) fn answer(&mut self, frame: &Frame<'_>) {
        if self.held.is_empty() {
            return self.write(frame);
        }
        self.hold_bytes(frame.length());
        self.run = None;
        // What a daemon says always fits its layout.
        let _ = frame.encode(&mut self.held);
    }

    /// Sends a frame at once; the caller limits how much it sends.
    pub(super) fn write(&mut self, frame: &Frame<'_>) {
        let _ = frame.encode(self.room(frame.length(), 0));
    }

    /// Sends what others cause, one small frame after the other.
    pub(super) fn push(&mut self, frame: &Frame<'_>) {
        let _ = frame.encode(self.room(frame.length(), self.waiting() / 8));
    }

    /// Room at the end of what is to be written, for a frame of so many bytes: up to the limit the buffer doubles, beyond that
    /// it gets what is needed and the spare.
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

    /// Takes away what was written, and the room that is beyond the limit.
    fn compact(&mut self) {
        self.out.drain(..self.sent);
        self.sent = 0;
        self.out.shrink_to(self.limit.saturating_sub(self.held.capacity()));
    }

    /// Room among what is held.
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

    /// OK for a submit, when the disk has it. With others it takes one item: those of the records that the disk gets at once,
    /// which begin at `batch`.
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

    /// OK for what is written sooner or later.
    pub(super) fn hold_control(&mut self, id: TaskId, lsn: Lsn) {
        self.hold(DeferredAnswer::Control { id, lsn });
    }

    /// DEAD_TASKS, in its turn. Until it is written nothing more is asked for.
    pub(super) fn hold_list(&mut self, list: DeadList) {
        self.hold(DeferredAnswer::Dead(list));
        self.listing = DeadListPosition::Wanted;
    }

    /// What was written last is DEAD_TASKS.
    pub(super) const fn listed(&mut self) {
        self.listing = DeadListPosition::Out(self.out.len() - self.sent);
    }

    /// Lets go of what the disk has, as far as there is room. Says which dead tasks are to be written behind it.
    pub(super) fn release(&mut self, durable: Lsn) -> Option<DeadList> {
        let (mut held, mut at, mut list) = (std::mem::take(&mut self.held), 0, None);
        let before = self.ready().len();
        while list.is_none()
            && let Some(rest) = held.get_mut(at..).filter(|rest| !rest.is_empty())
        {
            let Some(item) = rest.first_chunk_mut::<{ held::LENGTH }>().and_then(|item| DeferredAnswer::decode(item))
            else {
                // An answer as it is sent: it takes as much room as it did.
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

    /// How many answers of so many bytes are written now, in place of an item at the front of so many bytes that are held.
    fn fitting(&self, bytes: usize, count: u32, held: usize) -> u32 {
        let ready = self.out.len() - self.sent;
        let burst = if ready == 0 { BURST } else { 0 };
        let room = self.limit.saturating_sub(ready + held).max(burst) + held::LENGTH;
        u32::try_from(room / bytes).unwrap_or(u32::MAX).min(count)
    }

    /// What is still held when so many bytes of it were let go.
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

    /// Submits beyond what is durable become refusals, in their turn; what is written later waits for that. Gives how many were refused.
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

/// Room for so many bytes more: the buffer doubles up to the limit, and gets what is needed, and the spare, beyond that.
fn grow(buffer: &mut Vec<u8>, bytes: usize, limit: usize, spare: usize) {
    let needed = buffer.len() + bytes;
    let room = if needed > limit { needed + spare } else { needed.max((buffer.capacity() * 2).max(64).min(limit)) };
    buffer.reserve_exact(room.saturating_sub(buffer.len()));
}
