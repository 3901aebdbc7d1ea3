//! Connections: their states, roles and queues.

use penstock_wire::FastMap;

use super::connection_id::ConnectionId;
use super::kinds::Turn;
use super::output::Output;
use super::task::Tick;
use crate::{Accepts, Decoder};

/// The state of a connection.
///
/// ```text
///         the peer's end, a frame that ends it, silence,
///         too much that the peer does not read               everything is written
///  Open ──────────────────────────────────────────▶ Ending ───────────────────────▶ closed
/// ```
#[derive(Debug)]
pub(super) enum State {
    /// Its frames are read and answered.
    Open(Open),
    /// Nothing more is read. The connection holds and observes no tasks.
    Ending {
        /// Whether it had a role. The driver may close an idle connection that had none, even if
        /// answers wait for the disk.
        had_role: bool,
    },
}

impl State {
    /// End the connection; return its open state the first time.
    pub(super) fn end(&mut self) -> Option<Open> {
        let ending = match self {
            Self::Open(open) => Self::Ending { had_role: !matches!(open.role, Role::Unknown) },
            Self::Ending { .. } => return None,
        };
        match std::mem::replace(self, ending) {
            Self::Open(open) => Some(open),
            Self::Ending { .. } => None,
        }
    }

    pub(super) const fn is_ending(&self) -> bool {
        match self {
            Self::Open(_) => false,
            Self::Ending { .. } => true,
        }
    }

    /// Return whether the connection has no role, and had none.
    pub(super) const fn has_no_role(&self) -> bool {
        match self {
            Self::Open(open) => matches!(open.role, Role::Unknown),
            Self::Ending { had_role } => !*had_role,
        }
    }
}

/// A connection whose frames are read.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) role: Role,
    pub(super) input: Input,
    /// The daemon's heartbeats to a producer, or to a worker that has sent READY, if the
    /// configuration enables them.
    pub(super) heartbeats: Option<Heartbeats>,
}

impl Open {
    /// Record that the peer is alive: earlier heartbeats need no answer any more.
    pub(super) const fn answer_heartbeats(&mut self) {
        if let Some(heartbeats) = &mut self.heartbeats {
            heartbeats.unanswered = 0;
        }
    }
}

/// The role of a connection, which its first accepted frame decides (decision 2).
///
/// ```text
///           SUBMIT, SUBMIT_ONCE, OBSERVE
///  Unknown ──────────────────────────────▶ Producer
///     │    READY, PREFETCH, SUBSCRIBE
///     └──────────────────────────────────▶ Worker
/// ```
#[derive(Debug)]
pub(super) enum Role {
    Unknown,
    Producer(Producer),
    Worker(Box<Worker>),
}

/// The role that a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoleKind {
    Producer,
    Worker,
}

/// The effect of a role's frame on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RoleChange {
    /// The connection has that role from now on.
    Begins,
    /// It had that role before.
    Stays,
    /// It has the other role: the frame is refused.
    Refused,
}

impl Role {
    /// Take a role, which a connection does once.
    pub(super) fn take(&mut self, kind: RoleKind) -> RoleChange {
        match (&mut *self, kind) {
            (Self::Unknown, RoleKind::Producer) => {
                *self = Self::Producer(Producer { active: true, ..Producer::default() });
                RoleChange::Begins
            }
            (Self::Unknown, RoleKind::Worker) => {
                *self = Self::Worker(Box::new(Worker::new()));
                RoleChange::Begins
            }
            (Self::Producer(producer), kind) => {
                producer.active = true;
                match kind {
                    RoleKind::Producer => RoleChange::Stays,
                    RoleKind::Worker => RoleChange::Refused,
                }
            }
            (Self::Worker(_), RoleKind::Worker) => RoleChange::Stays,
            (Self::Worker(_), RoleKind::Producer) => RoleChange::Refused,
        }
    }
}

/// Whether an open connection is read.
///
/// ```text
///            too much waits for the peer, or for the disk
///  Reading ────────────────────────────────────────────────▶ Stalled
///     ▲                   there is room again                   │
///     └─────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) enum Input {
    Reading,
    /// Received bytes that were not decoded yet.
    Stalled(Vec<u8>),
}

impl Input {
    /// Append bytes that are not decoded now.
    pub(super) fn stall(&mut self, bytes: &[u8]) {
        match self {
            Self::Reading => *self = Self::Stalled(bytes.to_vec()),
            Self::Stalled(unread) => unread.extend_from_slice(bytes),
        }
    }

    /// Resume reading; return the pending bytes of a connection that was stalled.
    pub(super) fn resume(&mut self) -> Option<Vec<u8>> {
        match std::mem::replace(self, Self::Reading) {
            Self::Reading => None,
            Self::Stalled(unread) => Some(unread),
        }
    }

    pub(super) const fn is_stalled(&self) -> bool {
        match self {
            Self::Reading => false,
            Self::Stalled(_) => true,
        }
    }
}

/// The heartbeats that the daemon sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heartbeats {
    /// When the next one is sent, if the connection is idle.
    pub(super) due: Tick,
    pub(super) unanswered: u8,
}

/// The state of a producer.
#[derive(Debug, Default)]
pub(super) struct Producer {
    /// Whether it has sent a frame for a role, such as SUBMIT, since the last heartbeat was due.
    pub(super) active: bool,
    /// Whether its last input was one request, which is answered.
    pub(super) in_turn: bool,
    /// IDs of the tasks that it observes.
    pub(super) observes: FastMap<u32, ()>,
}

/// The state of a worker.
#[derive(Debug)]
pub(super) struct Worker {
    /// Whether it has sent READY. PREFETCH and SUBSCRIBE may come earlier; until READY it gets no task.
    pub(super) registered: bool,
    pub(super) prefetch: u16,
    /// The types that it accepts; `None` for all.
    pub(super) kinds: Option<Box<[u32]>>,
    /// The places of the tasks that it holds.
    pub(super) holds: Vec<u32>,
    /// The number of the moment at which it became idle or last got a task.
    pub(super) since: u64,
    /// Its position among the waiting workers, if it waits.
    pub(super) turn: Option<Turn>,
    /// When it sent its last heartbeat.
    pub(super) renewed: Tick,
}

impl Worker {
    const fn new() -> Self {
        Self { registered: false, prefetch: 1, kinds: None, holds: Vec::new(), since: 0, turn: None, renewed: 0 }
    }
}

/// The lists of the queue that a connection is on, so that it is on each only once. Membership does not
/// depend on the state: a list forgets a connection when its turn comes, or when the connection closes.
#[derive(Debug, Default)]
pub(super) struct Lists {
    /// It has output, can be read again, or ends.
    pub(super) dirty: bool,
    /// It has answers that wait for the disk, or is stalled.
    pub(super) holding: bool,
    /// It is not read until the disk has caught up.
    pub(super) read_paused: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    generation: u32,
    pub(super) decoder: Decoder,
    pub(super) output: Output,
    pub(super) state: State,
    /// Whether it may stop the daemon; the driver decides when it opens the connection.
    pub(super) trusted: bool,
    pub(super) lists: Lists,
}

impl Connection {
    /// Return the bytes of its buffers: output, including answers that wait for the disk, and pending input.
    pub(super) fn buffered(&self) -> (usize, usize) {
        let unread = match &self.state {
            State::Open(Open { input: Input::Stalled(unread), .. }) => unread.capacity(),
            State::Open(Open { input: Input::Reading, .. }) | State::Ending { .. } => 0,
        };
        (self.output.capacity(), self.decoder.kept() + unread)
    }

    pub(super) const fn open(&self) -> Option<&Open> {
        match &self.state {
            State::Open(open) => Some(open),
            State::Ending { .. } => None,
        }
    }

    pub(super) const fn open_mut(&mut self) -> Option<&mut Open> {
        match &mut self.state {
            State::Open(open) => Some(open),
            State::Ending { .. } => None,
        }
    }

    pub(super) fn producer(&self) -> Option<&Producer> {
        match &self.open()?.role {
            Role::Producer(producer) => Some(producer),
            Role::Unknown | Role::Worker(_) => None,
        }
    }

    pub(super) fn worker(&self) -> Option<&Worker> {
        match &self.open()?.role {
            Role::Worker(worker) => Some(worker),
            Role::Unknown | Role::Producer(_) => None,
        }
    }
}

/// All connections, by place.
#[derive(Debug, Default)]
pub(super) struct Connections {
    places: Vec<(u32, Option<Connection>)>,
    free: Vec<u32>,
    pub(super) open: usize,
}

impl Connections {
    pub(super) fn insert(&mut self, accepts: Accepts, trusted: bool, limits: (usize, usize)) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            (self.places.len() - 1) as u32
        });
        self.open += 1;
        let mut id = ConnectionId { index, generation: 0 };
        if let Some((generation, place)) = self.places.get_mut(index as usize) {
            id.generation = *generation;
            *place = Some(Connection {
                generation: *generation,
                decoder: Decoder::new(accepts),
                output: Output::new(limits.0, limits.1),
                state: State::Open(Open { role: Role::Unknown, input: Input::Reading, heartbeats: None }),
                trusted,
                lists: Lists::default(),
            });
        }
        id
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.at(id.index).filter(|connection| connection.generation == id.generation)
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.at_mut(id.index).filter(|connection| connection.generation == id.generation)
    }

    pub(super) fn at(&self, index: u32) -> Option<&Connection> {
        self.places.get(index as usize)?.1.as_ref()
    }

    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut Connection> {
        self.places.get_mut(index as usize)?.1.as_mut()
    }

    pub(super) fn id(&self, index: u32) -> Option<ConnectionId> {
        self.at(index).map(|connection| ConnectionId { index, generation: connection.generation })
    }

    pub(super) fn open_mut(&mut self, id: ConnectionId) -> Option<&mut Open> {
        self.get_mut(id)?.open_mut()
    }

    pub(super) fn producer_mut(&mut self, id: ConnectionId) -> Option<&mut Producer> {
        match &mut self.open_mut(id)?.role {
            Role::Producer(producer) => Some(producer),
            Role::Unknown | Role::Worker(_) => None,
        }
    }

    pub(super) fn worker_mut(&mut self, index: u32) -> Option<&mut Worker> {
        match &mut self.at_mut(index)?.open_mut()?.role {
            Role::Worker(worker) => Some(worker),
            Role::Unknown | Role::Producer(_) => None,
        }
    }

    pub(super) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        self.get(id)?;
        let (generation, place) = self.places.get_mut(id.index as usize)?;
        *generation = generation.wrapping_add(1);
        self.free.push(id.index);
        self.open -= 1;
        place.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> State {
        State::Open(Open { role: Role::Unknown, input: Input::Reading, heartbeats: None })
    }

    #[test]
    fn a_connection_takes_one_role_and_ends_once() {
        for (kind, other) in [(RoleKind::Producer, RoleKind::Worker), (RoleKind::Worker, RoleKind::Producer)] {
            let mut state = opened();
            assert!(state.has_no_role() && !state.is_ending());
            let State::Open(open) = &mut state else { panic!("it is open") };
            assert_eq!(open.role.take(kind), RoleChange::Begins);
            assert_eq!(open.role.take(kind), RoleChange::Stays);
            assert_eq!(open.role.take(other), RoleChange::Refused);
            assert_eq!(open.role.take(kind), RoleChange::Stays, "a refused frame changes no role");
            assert!(!state.has_no_role());
            assert!(state.end().is_some());
            assert!(state.is_ending() && !state.has_no_role());
            assert!(state.end().is_none(), "a second end finds nothing to take back");
            assert!(!state.has_no_role(), "a second end forgets no role");
        }
        let mut silent = opened();
        assert!(matches!(silent.end(), Some(Open { role: Role::Unknown, .. })));
        assert!(silent.is_ending() && silent.has_no_role());
    }

    #[test]
    fn a_producer_is_heard_by_a_frame_that_is_refused_too() {
        let mut role = Role::Unknown;
        role.take(RoleKind::Producer);
        let Role::Producer(producer) = &mut role else { panic!("it is a producer") };
        assert!(std::mem::take(&mut producer.active));
        assert_eq!(role.take(RoleKind::Worker), RoleChange::Refused);
        assert!(matches!(role, Role::Producer(Producer { active: true, .. })));
    }

    #[test]
    fn stalled_input_is_kept_in_order_and_read_once() {
        let mut input = Input::Reading;
        assert_eq!(input.resume(), None, "nothing was kept");
        input.stall(b"ab");
        input.stall(b"c");
        assert!(input.is_stalled());
        assert_eq!(input.resume().as_deref(), Some(&b"abc"[..]));
        assert!(!input.is_stalled());
        assert_eq!(input.resume(), None);
        input.stall(b"");
        assert_eq!(input.resume().as_deref(), Some(&b""[..]), "it was stalled, though every byte was read");
    }
}
