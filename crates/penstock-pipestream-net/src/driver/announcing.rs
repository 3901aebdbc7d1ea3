//! Our announcements: those that wait for the peer, and those that are being sent.

use std::collections::{BTreeMap, HashMap, VecDeque};

use penstock_pipestream::{EntityKey, ErrorCode};
use tokio::sync::oneshot;

use crate::command::SendRequest;
use crate::outgoing::Outgoing;
use crate::pump::{Pump, Small};

/// Entities of ours, from the call that sends them to the end of their streams.
#[derive(Default)]
pub(super) struct SendQueue {
    /// Requests that cannot be announced yet.
    pub(super) waiting: PendingAnnouncements,
    /// Entities that have just been announced.
    pub(super) announcing: Vec<AnnouncedEntity>,
    /// Announced entities that wait until the control bytes up to this position are written.
    pub(super) announced: VecDeque<(u64, Vec<AnnouncedEntity>)>,
    /// Small entities that are being sent.
    pub(super) pump: Pump,
    /// Large entities without a terminal status, and the senders that stop their streams.
    pub(super) outgoing: HashMap<EntityKey, oneshot::Sender<ErrorCode>>,
}

/// Requests that must wait for the window, a scope or kept payloads, in order for each parent. A
/// parent's children never wait behind other entities, which may be waiting for them.
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
    /// The driver sends it.
    Small(Small),
    /// A separate task sends it.
    Large(Box<Outgoing>),
}
