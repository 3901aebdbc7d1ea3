use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_pipestream::{Accepted, EntityHeader, EntityKey, ErrorCode};
use tokio::sync::oneshot;

use crate::command::{BufferedEntity, Verdict};
use crate::incoming::Assembly;
use crate::transport::Intake;

/// Number of slots at which the slots of finished streams are removed.
const PRUNE_THRESHOLD: usize = 1_024;

/// The peer's entity streams that are being received or that are held, and the payloads that arrive in chunks.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: HashMap<u64, Slot>,
    held: u32,
    /// The highest number of streams that were held at the same time.
    most_held: u32,
    assemblies: HashMap<EntityKey, Arc<Assembly>>,
    admitted: Vec<(oneshot::Sender<Verdict>, Verdict)>,
    /// Entities that arrived completely and are admitted.
    whole: Vec<(Accepted, BufferedEntity)>,
}

#[derive(Debug)]
enum Slot {
    /// A stream that waits for its PENDING or its scope.
    Held { header: Arc<EntityHeader>, reply: oneshot::Sender<Verdict> },
    /// A waiting stream that arrived completely: no task waits for it.
    HeldWhole(BufferedEntity),
    /// A stream that is being received; `stop` fires to stop it.
    Receiving { key: EntityKey, stop: oneshot::Sender<ErrorCode>, whole: Arc<AtomicBool> },
}

impl Streams {
    /// Accept a stream, which may be received as soon as [`admit`](Self::admit) notifies its task.
    pub(super) fn accept(
        &mut self,
        stream: u64,
        accepted: Accepted,
        header: Arc<EntityHeader>,
        reply: oneshot::Sender<Verdict>,
    ) {
        if self.slots.len() >= PRUNE_THRESHOLD {
            self.slots.retain(|_, slot| match slot {
                Slot::Held { .. } | Slot::HeldWhole(_) => true,
                Slot::Receiving { stop, .. } => !stop.is_closed(),
            });
        }
        let assembly = accepted.chunk.map(|_| Arc::clone(self.assemblies.entry(accepted.key).or_default()));
        let (stop, stopped) = oneshot::channel();
        let whole = Arc::default();
        let slot = Slot::Receiving { key: accepted.key, stop, whole: Arc::clone(&whole) };
        self.slots.insert(stream, slot);
        self.admitted.push((reply, Verdict::Accepted { accepted, header, stop: stopped, whole, assembly }));
    }

    /// Notify the tasks of accepted streams. The sink has already been informed of their entities, so it can handle
    /// what they store.
    pub(super) fn admit(&mut self) {
        for (reply, verdict) in self.admitted.drain(..) {
            // A task that has seen a reset in the meantime reports it by its own command.
            let _ = reply.send(verdict);
        }
    }

    /// Admit a stream that arrived completely; it needs no slot, as there is nothing to stop.
    pub(super) fn accept_whole(&mut self, accepted: Accepted, arrival: BufferedEntity) {
        self.whole.push((accepted, arrival));
    }

    /// Return the entities that arrived completely and may be handed over now.
    pub(super) fn take_whole(&mut self) -> Vec<(Accepted, BufferedEntity)> {
        std::mem::take(&mut self.whole)
    }

    /// Hold a stream that arrived completely. It keeps its bytes and its permit.
    pub(super) fn hold_whole(&mut self, arrival: BufferedEntity) {
        self.slots.insert(arrival.stream, Slot::HeldWhole(arrival));
    }

    /// Hold a stream that has to wait.
    pub(super) fn hold(&mut self, stream: u64, header: Arc<EntityHeader>, reply: oneshot::Sender<Verdict>) {
        self.held += 1;
        self.slots.insert(stream, Slot::Held { header, reply });
    }

    /// Return the connection's window, if more streams are held than ever before.
    pub(super) fn wider_window(&mut self, intake: Intake) -> Option<u32> {
        if self.held <= self.most_held {
            return None;
        }
        self.most_held = self.held;
        Some(intake.window_with_held(self.held))
    }

    /// End the wait of a held stream. Return its header if it may be received.
    pub(super) fn release(&mut self, stream: u64, accepted: Accepted) -> Option<Arc<EntityHeader>> {
        match self.slots.remove(&stream)? {
            Slot::Held { header, reply } => {
                self.held = self.held.saturating_sub(1);
                self.accept(stream, accepted, Arc::clone(&header), reply);
                Some(header)
            }
            Slot::HeldWhole(arrival) => {
                let header = Arc::clone(&arrival.header);
                self.accept_whole(accepted, arrival);
                Some(header)
            }
            Slot::Receiving { .. } => None,
        }
    }

    /// Stop a stream, as the session has requested.
    pub(super) fn stop(&mut self, stream: u64, code: ErrorCode) {
        match self.slots.remove(&stream) {
            // The task that received it may have ended.
            Some(Slot::Receiving { stop, .. }) => drop(stop.send(code)),
            Some(Slot::Held { reply, .. }) => {
                self.held = self.held.saturating_sub(1);
                drop(reply.send(Verdict::Stopped(code)));
            }
            Some(Slot::HeldWhole(_)) | None => {}
        }
    }

    /// Forget a stream that the peer has reset.
    pub(super) fn forget(&mut self, stream: u64) {
        self.slots.remove(&stream);
    }

    /// Return the header of a held stream, for an entity that fails before it is admitted.
    pub(super) fn held_header(&self, key: EntityKey) -> Option<Arc<EntityHeader>> {
        self.slots.values().find_map(|slot| match slot {
            Slot::Held { header, .. } | Slot::HeldWhole(BufferedEntity { header, .. }) if names(header, key) => {
                Some(Arc::clone(header))
            }
            Slot::Held { .. } | Slot::HeldWhole(_) | Slot::Receiving { .. } => None,
        })
    }

    /// Return the entities that are being received and whose payload was not read to its end.
    pub(super) fn unfinished(&self) -> HashSet<EntityKey> {
        let begun = self.slots.values().filter_map(|slot| match slot {
            Slot::Receiving { key, whole, .. } if !whole.load(Ordering::Acquire) => Some(*key),
            Slot::Held { .. } | Slot::HeldWhole(_) | Slot::Receiving { .. } => None,
        });
        begun.chain(self.assemblies.keys().copied()).collect()
    }

    /// Remove the assembly of an entity that is resolved, or whose payload is complete.
    pub(super) fn remove_assembly(&mut self, key: EntityKey) {
        if !self.assemblies.is_empty() {
            self.assemblies.remove(&key);
        }
    }
}

/// Return whether a header names this entity.
pub(super) fn names(header: &EntityHeader, key: EntityKey) -> bool {
    header.entity_id == key.entity && header.scope_id == u32::from(key.scope)
}
