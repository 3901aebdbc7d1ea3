//! The relation of a session to its connections, and the frames that are kept across them.

use std::collections::VecDeque;
use std::convert::Infallible;

use bytes::{Buf, BytesMut};
use serde::{Deserialize, Serialize};

use crate::SessionFrame;
use crate::stored::{AsBytes, RecordWriter, written_as};

/// The relation of a session to its connection.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) enum Link {
    /// There is a connection.
    #[default]
    Up,
    /// The connection was lost.
    Down,
    /// A client has sent CAPABILITIES on a new connection; `agreed` is whether the server's have arrived.
    Greeting { agreed: bool },
    /// The new session of a server's connection, whose peer wants to resume another session.
    Returning(SessionFrame),
}

/// Sent frames, beginning with the first one that the peer may not have taken.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct UnacknowledgedFrames {
    #[serde(with = "crate::stored::buffer")]
    pub(super) bytes: BytesMut,
    pub(super) lengths: VecDeque<u32>,
    pub(super) first: u64,
}

impl UnacknowledgedFrames {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.lengths.push_back(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    }

    pub(super) fn sent(&self) -> u64 {
        self.first + self.lengths.len() as u64
    }

    /// Drop acknowledged frames; return `false` if the peer cannot have taken this many.
    pub(super) fn forget(&mut self, taken: u64) -> bool {
        if !(self.first..=self.sent()).contains(&taken) {
            return false;
        }
        while self.first < taken {
            let length = self.lengths.pop_front().unwrap_or_default() as usize;
            self.bytes.advance(length.min(self.bytes.len()));
            self.first += 1;
        }
        true
    }
}

/// The state of a session across its connections.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Survival {
    pub(super) link: Link,
    /// `None` if the session ends with its connection.
    pub(super) kept: Option<UnacknowledgedFrames>,
    /// Whether both ends have stated that they can resume.
    pub(super) agreed: bool,
    /// The number of the peer's frames that were taken.
    pub(super) received: u64,
    /// The number of them that we had acknowledged, and the number of bytes that have arrived since.
    pub(super) acknowledged: u64,
    pub(super) unacknowledged_bytes: usize,
    /// The number of frames that the peer had sent when the connection began.
    pub(super) awaited: u64,
    /// Whether some of these have not been taken yet.
    pub(super) catching_up: bool,
}

impl Survival {
    pub(super) fn new(survives: bool) -> Self {
        Self { kept: survives.then(UnacknowledgedFrames::default), ..Self::default() }
    }

    pub(super) fn is_up(&self) -> bool {
        self.link == Link::Up
    }

    /// Return how many frames were taken, for SESSION; `None` if the session ends with its
    /// connection.
    pub(super) fn received_count(&self) -> Option<u64> {
        self.kept.as_ref().map(|_| self.received)
    }

    /// Write the state on which the session's future depends, if the peer has taken this many
    /// frames.
    pub(super) fn write_fingerprint(&self, taken: u64, record: &mut RecordWriter) {
        record.put(&(&self.link, self.catching_up, self.awaited.saturating_sub(self.received)));
        if let Some(kept) = &self.kept {
            let before = usize::try_from(taken.saturating_sub(kept.first)).unwrap_or(usize::MAX);
            let bytes: usize = kept.lengths.iter().take(before).map(|length| *length as usize).sum();
            record.put(&AsBytes(kept.bytes.get(bytes..).unwrap_or_default()));
        }
    }

    /// Return how many bytes are not acknowledged.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.bytes.len())
    }
}

written_as! {
    Link as bool: |link: &Self| *link == Self::Up, |up| Ok::<_, Infallible>(if up { Self::Up } else { Self::Down });
}
