//! Peers that do whatever they like: memory stays bounded, nothing that was accepted is lost, and the pool is empty at last.

use std::collections::BTreeSet;

use penstock_quicx::{ConnectionId, Frame, Policy, PoolConfig, Prefetch, Queue, QueueConfig, TaskId};
use proptest::prelude::*;

use crate::queue::support::{Dialogue, done, failed, observe, submit, subscribe};

#[test]
fn a_connection_that_does_not_read_is_not_read_from_and_gets_no_more_tasks() {
    let mut d = Dialogue::new();
    let (monitor, producer) = (d.connect(), d.connect());
    let flood: Vec<u8> = [1, 0x0B, 0, 0, 0, 0].repeat(50_000);
    d.queue.handle_input(d.clock.instant(), monitor, &flood);
    assert!(!d.queue.wants_input(monitor));
    assert!(d.queue.poll_transmit(monitor).len() < 66_000);
    let mut heard = 0;
    while !d.queue.poll_transmit(monitor).is_empty() {
        heard += d.hears(monitor).len();
    }
    assert_eq!((heard, d.queue.wants_input(monitor)), (50_000, true));
    let worker = d.worker(u16::MAX);
    let payload = [b'x'; 4_000];
    for _ in 0..100 {
        d.send(producer, &[submit("a", &payload)]);
        d.hears(producer);
    }
    assert!(d.queue.poll_transmit(worker).len() < 72_000);
    let held = d.queue.held();
    assert!(held < 20, "{held}");
    d.hears(worker);
    assert!(d.queue.held() > held);
}

#[test]
fn large_frames_that_are_not_whole_have_a_part_of_the_pool_together() {
    let pool = PoolConfig { bytes: 16 << 20, classes: vec![64, 1 << 20] };
    let mut d = Dialogue::with(QueueConfig { pool, ..QueueConfig::default() });
    let payload = vec![b'x'; 1_000_000];
    let mut data = Vec::new();
    submit("a", &payload).encode(&mut data).expect("fits");
    let (half, rest) = data.split_at(600_000);
    let peers: Vec<_> = (0..20).map(|_| d.connect()).collect();
    for peer in &peers {
        for piece in half.chunks(50_000) {
            d.queue.handle_input(d.clock.instant(), *peer, piece);
        }
    }
    let refused: Vec<_> = peers.iter().copied().filter(|peer| !d.queue.poll_transmit(*peer).is_empty()).collect();
    // Those that are kept have 4 MiB at the most.
    assert!((14..20).contains(&refused.len()), "{}", refused.len());
    let message = "ERROR 0x01 there are too many large frames that are not whole";
    d.queue.handle_input(d.clock.instant(), refused[0], rest);
    assert_eq!(d.ask(refused[0], Frame::Heartbeat), [message, "PONG"]);
    // A small one always has room, and a large one when the others are gone.
    d.queue.handle_input(d.clock.instant(), refused[1], rest);
    d.hears(refused[1]);
    for peer in peers.iter().filter(|peer| **peer != refused[1]) {
        d.queue.handle_closed(d.clock.instant(), *peer);
    }
    d.queue.handle_input(d.clock.instant(), refused[1], half);
    d.queue.handle_input(d.clock.instant(), refused[1], rest);
    assert_eq!(d.hears(refused[1]), ["OK 1"]);
}

#[test]
fn an_observer_that_does_not_read_is_cut_off() {
    let mut d = Dialogue::new();
    let (observer, producer, worker) = (d.connect(), d.connect(), d.worker(u16::MAX));
    let reason = vec![b'r'; 60_000];
    for id in 1..=20 {
        d.send(producer, &[submit("a", b"")]);
        d.send(observer, &[observe(id)]);
    }
    for id in 1..=20 {
        d.send(worker, &[failed(id, &reason)]);
        d.hears(producer);
    }
    assert!(d.queue.is_ending(observer) && d.queue.poll_transmit(observer).is_empty());
    assert_eq!(d.queue.counters().slow, 1);
    d.queue.handle_closed(d.clock.instant(), observer);
    assert_eq!((d.queue.tasks(), d.queue.connections()), (0, 2));
}

#[test]
fn frames_that_only_a_daemon_sends_are_refused_at_any_length() {
    let mut d = Dialogue::new();
    let peer = d.connect();
    for (opcode, name) in
        [(2, "OK"), (3, "ERROR"), (5, "TASK"), (8, "WAIT"), (12, "STATS_RESPONSE"), (36, "DEAD_TASKS")]
    {
        for length in [0, 1, 4, 28] {
            let frame = [vec![1, opcode, 0, 0, 0, length], vec![0; usize::from(length)]].concat();
            d.queue.handle_input(d.clock.instant(), peer, &frame);
            assert_eq!(d.hears(peer), [format!("ERROR 0x02 {name} goes the other way")]);
        }
    }
}

#[test]
fn a_wrong_version_ends_a_connection_after_its_answer() {
    let mut d = Dialogue::new();
    let peer = d.connect();
    d.queue.handle_input(d.clock.instant(), peer, b"GET / HTTP/1.1\r\n\r\n");
    assert!(d.queue.is_ending(peer) && !d.queue.wants_input(peer));
    assert_eq!(d.hears(peer), ["ERROR 0x02 version 0x47; only 0x01 is spoken here"]);
}

#[derive(Debug, Clone)]
enum Step {
    Send(usize, usize, u32, Vec<u8>),
    Garbage(usize, Vec<u8>),
    Read(usize),
    Close(usize),
    Pass(u16),
    Write,
    Fail,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        20 => (0..6_usize, 0..14_usize, 1..40_u32, bytes()).prop_map(|(at, what, id, data)| Step::Send(at, what, id, data)),
        1 => (0..6_usize, bytes()).prop_map(|(at, data)| Step::Garbage(at, data)),
        4 => (0..6_usize).prop_map(Step::Read),
        2 => (0..6_usize).prop_map(Step::Close),
        2 => any::<u16>().prop_map(Step::Pass),
        8 => Just(Step::Write),
        1 => Just(Step::Fail),
        1 => Just(Step::Restart),
    ]
}

/// The queue and six peers, and which tasks were accepted and not settled.
struct World {
    dialogue: Dialogue,
    peers: Vec<ConnectionId>,
    accepted: BTreeSet<u32>,
    settled: BTreeSet<u32>,
}

impl World {
    fn new() -> Self {
        let config = QueueConfig {
            pool: PoolConfig::with_bytes(128 << 10),
            default: Policy { attempts: 3, ..Policy::default() },
            policies: [("r".to_owned(), Policy { retry_failed: true, rate: Some(3.0), ..Policy::default() })].into(),
            types: 3,
            ..QueueConfig::default()
        };
        let mut dialogue = Dialogue::with_journal(config);
        let peers = (0..6).map(|_| dialogue.queue.open(false)).collect();
        Self { dialogue, peers, accepted: BTreeSet::new(), settled: BTreeSet::new() }
    }

    fn send(&mut self, at: usize, what: usize, id: u32, data: &[u8]) {
        let kinds: [&[u8]; 2] = [b"a", b"r"];
        let mut bytes = Vec::new();
        let frame = match what {
            0..=3 => submit(if id.is_multiple_of(2) { "a" } else { "r" }, data),
            4 | 5 => Frame::Ready,
            6 => Frame::Prefetch(Prefetch(id as u16)),
            7 => subscribe(&kinds[..id as usize % 3], &mut bytes),
            8 | 9 => done(id),
            10 => failed(id, data),
            11 => observe(id),
            12 => Frame::DeadRequeue(TaskId(id)),
            _ => Frame::DeadList,
        };
        let settled = |queue: &Queue| queue.counters().done + queue.counters().failed;
        let before = settled(&self.dialogue.queue);
        self.dialogue.send(self.peers[at], &[frame]);
        if settled(&self.dialogue.queue) > before {
            self.settled.insert(id);
        }
    }

    fn read(&mut self, at: usize) {
        for word in self.dialogue.hears(self.peers[at]) {
            let mut parts = word.split(' ');
            if let (Some("OK"), Some(id)) = (parts.next(), parts.next().and_then(|id| id.parse().ok())) {
                self.accepted.insert(id);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Send(at, what, id, data) => self.send(*at, *what, *id, data),
            Step::Garbage(at, data) => {
                let now = self.dialogue.clock.instant();
                self.dialogue.queue.handle_input(now, self.peers[*at], data);
            }
            Step::Read(at) => self.read(*at),
            Step::Close(at) => {
                let now = self.dialogue.clock.instant();
                self.dialogue.queue.handle_closed(now, self.peers[*at]);
                self.peers[*at] = self.dialogue.queue.open(false);
            }
            Step::Pass(millis) => self.dialogue.pass(f64::from(*millis) / 1e3),
            Step::Write => self.dialogue.write(),
            Step::Fail => self.dialogue.fail(),
            Step::Restart => {
                self.dialogue = Dialogue::with_log(self.dialogue.config.clone(), self.dialogue.log.clone());
                self.peers = (0..6).map(|_| self.dialogue.queue.open(false)).collect();
            }
        }
        let stats = self.dialogue.queue.stats();
        assert!(stats.workers_idle <= stats.workers_total && stats.workers_total <= 6);
        for peer in &self.peers {
            assert!(self.dialogue.queue.poll_transmit(*peer).len() <= 1 << 20);
        }
    }

    /// Everybody leaves, and one worker does what is left.
    fn finish(&mut self) -> BTreeSet<u32> {
        self.dialogue.pass(1.1);
        self.dialogue.write();
        for peer in std::mem::take(&mut self.peers) {
            self.dialogue.queue.handle_closed(self.dialogue.clock.instant(), peer);
        }
        let mut found = BTreeSet::new();
        let (worker, monitor) = (self.dialogue.worker(u16::MAX), self.dialogue.connect());
        for _ in 0..2_000 {
            self.dialogue.pass(10.0);
            self.dialogue.write();
            for word in self.dialogue.hears(worker) {
                if let Some(id) = word.strip_prefix("TASK ").and_then(|rest| rest.split(' ').next()?.parse().ok()) {
                    found.insert(id);
                    self.dialogue.send(worker, &[done(id)]);
                }
            }
            let dead = self.dialogue.ask(monitor, Frame::DeadList).concat();
            for id in dead.trim_start_matches("DEAD_TASKS [").split(", ").filter_map(|task| task.split(' ').next()) {
                if let Ok(id) = id.parse() {
                    self.dialogue.send(monitor, &[Frame::DeadRequeue(TaskId(id))]);
                }
            }
            if self.dialogue.queue.tasks() == 0 {
                break;
            }
        }
        found
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_accepted_is_lost_and_the_pool_is_empty_at_last(steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        let found = world.finish();
        for id in world.accepted.difference(&world.settled) {
            prop_assert!(found.contains(id), "task {id} is lost");
        }
        prop_assert_eq!(world.dialogue.queue.tasks(), 0);
        prop_assert_eq!(world.dialogue.queue.pool().bytes_used(), 0);
        prop_assert_eq!(world.dialogue.queue.held(), 0);
    }
}
