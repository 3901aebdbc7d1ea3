//! The inputs of a session, in the form in which records contain them.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::types::{ClaimAsk, EntityKey, Reason};
use crate::messages::CompletionPolicy;
use crate::stored::RecordWriter;
use crate::time::Now;
use crate::yield_token::StoppingPoint;
use crate::{ClaimResponse, EntityHeader, Frame};

/// An input of a session. Records contain the number of the variant, so a new one is added at the end: then the records
/// of earlier releases are still read, and the version of records stays the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Input {
    /// Number 0, which never occurs in records: inputs are counted from 1.
    Reserved,
    Frame {
        frame: Frame,
    },
    Header {
        stream: u64,
        header: EntityHeader,
    },
    ChunkFinished {
        key: EntityKey,
        index: u32,
        bytes: u64,
    },
    Complete {
        key: EntityKey,
    },
    Fail {
        key: EntityKey,
        reason: Reason,
    },
    Defer {
        key: EntityKey,
        claim_id: u64,
        expiry_micros: u64,
    },
    Skip {
        key: EntityKey,
        reason: Reason,
    },
    Yield {
        key: EntityKey,
        point: StoppingPoint,
    },
    NoteState {
        key: EntityKey,
        #[serde(with = "crate::stored::byte_string")]
        state_checksum: Bytes,
    },
    Announce {
        parent: Option<EntityKey>,
        dehydrate: bool,
        policy: Option<CompletionPolicy>,
        #[serde(with = "crate::stored::byte_string")]
        label: Bytes,
    },
    EndChildren {
        parent: EntityKey,
    },
    EndRoot,
    Checkpoint {
        scope: u32,
        entity: u32,
        #[serde(with = "crate::stored::optional_nanos")]
        timeout: Option<Duration>,
    },
    Retry {
        key: EntityKey,
    },
    Abandon {
        key: EntityKey,
        reason: Reason,
    },
    Resume {
        key: EntityKey,
        #[serde(with = "crate::stored::byte_string")]
        token: Bytes,
    },
    AskClaim {
        ask: ClaimAsk,
    },
    AnswerClaim {
        request: u64,
        #[serde(with = "crate::stored::answer")]
        answer: std::result::Result<ClaimResponse, Reason>,
    },
    Close,
    CloseWhenIdle,
    Timeout,
    Suspend {
        keep: Vec<EntityKey>,
    },
    ResumeConnection {
        received: u64,
        sent: u64,
    },
    Acknowledged {
        received: u64,
    },
    FailUnsent {
        key: EntityKey,
        reason: Reason,
    },
    RefuseClaim {
        key: EntityKey,
        reason: Reason,
    },
}

/// The inputs that are not recorded yet.
#[derive(Debug, Clone)]
pub(super) struct Journal {
    pub(super) inputs: RecordWriter,
    /// The time of the last input, from the session's beginning.
    pub(super) last: Duration,
    pub(super) phase: Phase,
}

/// The progress of a session's records.
///
/// ```text
///          both ends know the name          the first record is made
///  Unnamed ───────────────────────► Named ──────────────────────────► Recorded
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The session has no name that both ends know, so no process could resume it: nothing is
    /// recorded.
    Unnamed,
    /// The next record is a snapshot, which includes the inputs before it.
    Named,
    /// A snapshot was made: inputs are recorded one by one.
    Recorded,
}

impl Journal {
    pub(super) fn new(now: Now) -> Self {
        let inputs = RecordWriter { bytes: Vec::new(), epoch: now.instant };
        Self { inputs, last: Duration::ZERO, phase: Phase::Unnamed }
    }

    /// Start recording, because both ends can resume the session.
    pub(super) fn begin(&mut self) {
        match self.phase {
            Phase::Unnamed => self.phase = Phase::Named,
            Phase::Named | Phase::Recorded => {}
        }
    }
}
