//! Announcements of ours: those that wait for the peer, and those that are being sent.

use std::collections::{BTreeMap, HashMap, VecDeque};

use penstock_pipestream::{EntityKey, ErrorCode};
use tokio::sync::oneshot;

use crate::command::SendRequest;
use crate::outgoing::Outgoing;
use crate::pump::{Pump, Small};

/// Entities of ours, from the call that sends them to the end of their streams.
#[derive(Default)]
pub(super) struct SendQueue {
    /// Those that cannot be announced yet.
    pub(super) waiting: PendingAnnouncements,
    /// Those that have just been announced.
    pub(super) announcing: Vec<AnnouncedEntity>,
    /// Those whose streams wait for their announcement to be written, and up to where that is.
    pub(super) announced: VecDeque<(u64, Vec<AnnouncedEntity>)>,
    /// The small ones that are being sent.
    pub(super) pump: Pump,
    /// The large ones without a terminal status, and what stops their streams.
    pub(super) outgoing: HashMap<EntityKey, oneshot::Sender<ErrorCode>>,
}

/// Announcements that the window or the number of scopes does not allow yet, in order for each parent. A parent's
/// children never wait after other entities: those may be waiting for them.
#[derive(Debug, Default)]
pub(super) struct PendingAnnouncements(pub(super) BTreeMap<Option<EntityKey>, VecDeque<SendRequest>>);

impl PendingAnnouncements {
    pub(super) fn has(&self, parent: Option<EntityKey>) -> bool {
        self.0.contains_key(&parent)
    }

    pub(super) fn push(&mut self, request: SendRequest) {
        self.0.entry(request.draft.parent).or_default().push_back(request);
    }

    /// Return all of them, when the session has ended.
    pub(super) fn take(&mut self) -> impl Iterator<Item = SendRequest> {
        std::mem::take(&mut self.0).into_values().flatten()
    }
}

/// An announced entity whose PENDING is being sent.
pub(super) enum AnnouncedEntity {
    /// The driver writes it itself.
    Small(Small),
    /// A task does.
    Large(Box<Outgoing>),
}
