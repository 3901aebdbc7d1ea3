//! Task types: their waiting tasks, and the workers that wait for them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use penstock_wire::FastMap;

use super::config::{Policy, QueueConfig};
use super::task::Tick;

/// The order of waiting workers: those without tasks first, then by the time of waiting (decision 5).
pub(super) type Turn = (bool, u64, u32);
/// The order of types with tasks: by priority, then by the oldest task.
type Rank = (Reverse<i32>, u64, u32);
/// The capacity above which an empty vector is shrunk.
const KEPT: usize = 1_024;

/// A type in use.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: Box<[u8]>,
    pub(super) policy: Policy,
    /// The number of its tasks and subscriptions. Without any, the type is forgotten.
    users: usize,
    /// Waiting tasks in the order of submission, with their order.
    fifo: VecDeque<(u64, u32)>,
    /// Returned tasks by order. They go before later tasks.
    returned: BTreeMap<u64, u32>,
    rank: Option<Rank>,
    /// Workers that subscribe to the type and wait for tasks.
    waiting: BTreeSet<Turn>,
    /// The deliveries that the rate allows, and when this number was computed.
    tokens: f64,
    reckoned: Tick,
    blocked: bool,
    /// Tasks by the hash of their payload, if the policy has `unique`.
    pub(super) unique: FastMap<u64, u32>,
}

#[derive(Debug, Default)]
pub(super) struct Kinds {
    kinds: Vec<Option<Kind>>,
    free: Vec<u32>,
    by_name: HashMap<Box<[u8]>, u32>,
    /// The type that was used last, which the next task often has too.
    last: u32,
    ready: BTreeSet<Rank>,
    /// Workers that take every type.
    waiting: BTreeSet<Turn>,
}

impl Kind {
    fn new(name: &[u8], policy: Policy) -> Self {
        let tokens = burst(&policy);
        Self {
            name: name.into(),
            policy,
            users: 0,
            fifo: VecDeque::new(),
            returned: BTreeMap::new(),
            rank: None,
            waiting: BTreeSet::new(),
            tokens,
            reckoned: 0,
            blocked: false,
            unique: FastMap::default(),
        }
    }

    fn first(&self) -> Option<u64> {
        let returned = self.returned.first_key_value().map(|(order, _)| *order);
        let fifo = self.fifo.front().map(|(order, _)| *order);
        returned.into_iter().chain(fifo).min()
    }
}

/// Return the burst: the deliveries of a tenth of a second, because timers are not finer in practice.
fn burst(policy: &Policy) -> f64 {
    policy.rate.map_or(0.0, |rate| (rate / 10.0).max(1.0))
}

impl Kinds {
    pub(super) fn get(&self, kind: u32) -> Option<&Kind> {
        self.kinds.get(kind as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, kind: u32) -> Option<&mut Kind> {
        self.kinds.get_mut(kind as usize)?.as_mut()
    }

    /// Return the type's number, and count a user of it; `None` if there are too many types.
    pub(super) fn enter(&mut self, name: &[u8], config: &QueueConfig) -> Option<u32> {
        if let Some(Some(kind)) = self.kinds.get_mut(self.last as usize)
            && *kind.name == *name
        {
            kind.users += 1;
            return Some(self.last);
        }
        self.last = match self.by_name.get(name) {
            Some(kind) => *kind,
            None if self.by_name.len() >= config.types => return None,
            None => self.create(Kind::new(name, config.policy(name).clone())),
        };
        self.get_mut(self.last)?.users += 1;
        Some(self.last)
    }

    fn create(&mut self, kind: Kind) -> u32 {
        let name = kind.name.clone();
        let number = match self.free.pop() {
            Some(number) => {
                if let Some(place) = self.kinds.get_mut(number as usize) {
                    *place = Some(kind);
                }
                number
            }
            None => {
                self.kinds.push(Some(kind));
                (self.kinds.len() - 1) as u32
            }
        };
        self.by_name.insert(name, number);
        number
    }

    /// Count one user less. A type whose rate is used up stays: forgetting it would reset the rate.
    pub(super) fn leave(&mut self, number: u32) {
        if let Some(kind) = self.get_mut(number) {
            kind.users = kind.users.saturating_sub(1);
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u32) {
        let Some(place) = self.kinds.get_mut(number as usize) else { return };
        if let Some(kind) = place.take_if(|kind| kind.users == 0 && !kind.blocked) {
            self.by_name.remove(&kind.name);
            self.free.push(number);
        }
    }

    /// Insert a waiting task in order.
    pub(super) fn push(&mut self, number: u32, order: u64, place: u32) {
        if let Some(kind) = self.get_mut(number) {
            if kind.fifo.back().is_none_or(|(last, _)| *last < order) {
                kind.fifo.push_back((order, place));
            } else {
                kind.returned.insert(order, place);
            }
            self.rank(number);
        }
    }

    /// Take the oldest task. Also return when the type may continue, if its rate is used up.
    pub(super) fn pop(&mut self, now: Tick, number: u32) -> Option<(u32, Option<Tick>)> {
        let kind = self.get_mut(number)?;
        let first = kind.first()?;
        let place = match kind.returned.first_entry().filter(|entry| *entry.key() == first) {
            Some(entry) => entry.remove(),
            None => kind.fifo.pop_front()?.1,
        };
        if kind.fifo.is_empty() && kind.fifo.capacity() > KEPT {
            kind.fifo = VecDeque::new();
        }
        let mut again = None;
        if let Some(rate) = kind.policy.rate {
            let since = now.saturating_sub(kind.reckoned) as f64 / 1e6;
            kind.tokens = (kind.tokens + since * rate).min(burst(&kind.policy)) - 1.0;
            kind.reckoned = now;
            if kind.tokens < 1.0 {
                kind.blocked = true;
                again = Some(now.saturating_add(((1.0 - kind.tokens) / rate * 1e6).ceil() as u64));
            }
        }
        self.rank(number);
        Some((place, again))
    }

    /// Handle the time at which the rate allows another delivery.
    pub(super) fn unblock(&mut self, kind: u32) {
        if let Some(found) = self.get_mut(kind) {
            found.blocked = false;
            self.rank(kind);
            self.forget(kind);
        }
    }

    /// Update the type's place in the order of types with tasks.
    fn rank(&mut self, number: u32) {
        let Some(kind) = self.kinds.get_mut(number as usize).and_then(Option::as_mut) else { return };
        let first = if kind.blocked { None } else { kind.first() };
        let rank = first.map(|first| (Reverse(kind.policy.priority), first, number));
        if rank != kind.rank {
            if let Some(old) = std::mem::replace(&mut kind.rank, rank) {
                self.ready.remove(&old);
            }
            self.ready.extend(rank);
        }
    }

    /// Return the type of the next task for a worker of these types, or of all.
    pub(super) fn best(&self, kinds: Option<&[u32]>) -> Option<u32> {
        let rank = match kinds {
            None => self.ready.first().copied(),
            Some(kinds) => kinds.iter().filter_map(|kind| self.get(*kind)?.rank).min(),
        };
        rank.map(|(.., kind)| kind)
    }

    /// Return the next worker for a type with a task.
    pub(super) fn next_worker(&self, kind: u32) -> Option<u32> {
        let kind = self.get(kind).filter(|kind| kind.rank.is_some())?;
        let own = kind.waiting.first();
        own.into_iter().chain(self.waiting.first()).min().map(|(.., worker)| *worker)
    }

    /// Add a worker to those that wait for these types, or remove it.
    pub(super) fn wait(&mut self, kinds: Option<&[u32]>, turn: Turn, waits: bool) {
        let set = |set: &mut BTreeSet<Turn>| if waits { set.insert(turn) } else { set.remove(&turn) };
        match kinds {
            None => {
                set(&mut self.waiting);
            }
            Some(kinds) => {
                for kind in kinds {
                    if let Some(kind) = self.kinds.get_mut(*kind as usize).and_then(Option::as_mut) {
                        set(&mut kind.waiting);
                    }
                }
            }
        }
    }
}
