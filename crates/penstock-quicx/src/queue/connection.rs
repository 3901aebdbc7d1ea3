//! Connections: who they are, what waits to be written to them.

use penstock_wire::FastMap;

use super::kinds::Turn;
use super::output::Output;
use super::task::Tick;
use crate::{Accepts, Decoder};

/// A connection of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// Its place, which another one has when it is closed.
    pub index: u32,
    generation: u32,
}

/// What a connection's first accepted frame makes of it (decision 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Unknown,
    Producer,
    Worker,
}

/// What is known of a worker.
#[derive(Debug)]
pub(super) struct Worker {
    /// It has said READY.
    pub(super) registered: bool,
    pub(super) prefetch: u16,
    /// Those that it takes; none: all.
    pub(super) kinds: Option<Box<[u32]>>,
    /// Places of its tasks.
    pub(super) holds: Vec<u32>,
    /// When it became idle, or got a task last, among all such moments.
    pub(super) since: u64,
    /// How it waits, if it does.
    pub(super) turn: Option<Turn>,
    /// When it said last that it is at work.
    pub(super) renewed: Tick,
}

impl Worker {
    pub(super) const fn new() -> Self {
        Self { registered: false, prefetch: 1, kinds: None, holds: Vec::new(), since: 0, turn: None, renewed: 0 }
    }
}

#[derive(Debug)]
pub(super) struct Connection {
    generation: u32,
    pub(super) decoder: Decoder,
    pub(super) role: Role,
    /// It may stop the daemon.
    pub(super) trusted: bool,
    pub(super) output: Output,
    /// What came and is not read, because too much waits to be written.
    pub(super) rest: Vec<u8>,
    /// Nothing more is read; it ends when all is written.
    pub(super) ending: bool,
    pub(super) dirty: bool,
    pub(super) stalled: bool,
    /// Whether the queue has it on its list of those that wait for the disk.
    pub(super) listed: bool,
    /// Whether it is on the list of those that are not read until the disk has caught up.
    pub(super) refrained: bool,
    /// Its last input was one request of a producer, and is answered.
    pub(super) in_turn: bool,
    /// IDs of the tasks that it observes.
    pub(super) observes: FastMap<u32, ()>,
    pub(super) worker: Option<Box<Worker>>,
    /// When it is asked next whether it is there, if it is, and heartbeats that it has not answered.
    pub(super) beat: Option<Tick>,
    pub(super) unanswered: u8,
    /// A producer: it has said something since it was asked last.
    pub(super) heard: bool,
}

impl Connection {
    /// Bytes of its buffers: what waits to be written, and for the disk; and what has come and is not read.
    pub(super) fn buffered(&self) -> (usize, usize) {
        (self.output.capacity(), self.decoder.kept() + self.rest.capacity())
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
                role: Role::Unknown,
                trusted,
                output: Output::new(limits.0, limits.1),
                rest: Vec::new(),
                ending: false,
                dirty: false,
                stalled: false,
                listed: false,
                refrained: false,
                in_turn: false,
                observes: FastMap::default(),
                worker: None,
                beat: None,
                unanswered: 0,
                heard: false,
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

    pub(super) fn worker_mut(&mut self, index: u32) -> Option<&mut Worker> {
        self.at_mut(index)?.worker.as_deref_mut()
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
