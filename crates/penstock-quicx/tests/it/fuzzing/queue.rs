//! The queue as its peers, its disk and its clock see it, with an eye on what it remembers.

use std::time::{Duration, Instant};

use penstock_pool::PoolConfig;
use penstock_quicx::{
    ConnectionId, Failed, Frame, Journal, Policy, Prefetch, Queue, QueueConfig, Submit, SubmitOnce, TaskId, Types,
    Write,
};
use penstock_wire::FastMap;

const PEERS: usize = 4;
/// What a connection may have waiting, pushed or asked for.
const OUTPUT: usize = 4 << 10;
/// What it may have waiting in the other configuration, where others' tasks fail faster than it reads.
const PUSHED: usize = 16 << 10;
/// OKs and ERRORs may take this many bytes more than they did while they waited for the disk.
const BURST: usize = 512 + 17;
/// No other request of ours is longer.
const REQUEST: usize = 256;
/// Bytes of a reason here, and around it in DEAD_TASKS.
const REASON: usize = 64;
const LISTED: usize = 4 + 2 + 1 + 1 + 2 + REASON;
/// No other answer is longer: the longest are ERRORs.
const ANSWER: usize = 512;

/// Requests, bytes of any kind, reads, ends, a disk that is slow, full or gone, and time, as the input says. Whatever comes, the
/// buffers of a connection have room for its output and one answer, and nothing is held for those who are gone.
///
/// An operation has four bytes, what, which peer, how often, and one more:
///
/// ```text
/// what % 24   0-15 a request   16 bytes of the input as they are   17 reads   18 ends   19 closes
///             20 durable   21 the write fails   22 time   23 half a request
/// ```
pub fn quicx_queue(now: Instant, input: &[u8]) {
    let Some((how, script)) = input.split_first() else { return };
    let pushed = if how & 2 == 0 { OUTPUT } else { PUSHED };
    let Some(mut world) = World::new(now, how & 1 == 1, pushed) else { return };
    let mut rest = script;
    while let Some(([what, who, times, more], behind)) = rest.split_first_chunk() {
        rest = behind;
        let who = usize::from(*who) % PEERS;
        match what % 24 {
            16 => {
                let (raw, behind) = rest.split_at(usize::from(*times).min(rest.len()));
                rest = behind;
                world.send(who, raw, true);
            }
            17 => world.read(who, usize::from(*times) * (1 + usize::from(*more))),
            18 => world.end(who),
            19 => world.close(who),
            20 => world.write(true),
            21 => world.write(false),
            22 => world.pass(Duration::from_millis(u64::from(*times) * (1 + u64::from(*more)))),
            23 => {
                // What follows completes it, a header of any length among others.
                let whole = request(*times, *more);
                world.send(who, whole.get(..whole.len() / 2).unwrap_or_default(), true);
            }
            kind => world.send(who, &request(kind, *more).repeat(1 + usize::from(*times)), false),
        }
        world.check();
    }
    world.finish();
}

/// A request, by its number.
fn request(kind: u8, more: u8) -> Vec<u8> {
    let (id, reason) = (TaskId(u32::from(more)), vec![b'r'; usize::from(more) % (REASON + 1)]);
    let kinds: [&[u8]; 3] = [b"a", b"retried", b"unique"];
    let name = kinds.get(usize::from(more) % 3).copied().unwrap_or(b"a");
    let submit = Submit { kind: name, payload: &reason };
    let mut types = Vec::new();
    let frame = match kind % 16 {
        0..=2 => Frame::Submit(submit),
        3 => Frame::SubmitOnce(SubmitOnce { key: [more; SubmitOnce::KEY], submit }),
        4 => Frame::Ready,
        5 => Frame::Prefetch(Prefetch(u16::from(more))),
        6 => Types::collect(&[name], &mut types).map_or(Frame::Ready, Frame::Subscribe),
        7 => Frame::Done(id),
        8 => Frame::Failed(Failed { id, reason: &reason }),
        9 => Frame::Observe(id),
        10 => Frame::Heartbeat,
        11 => Frame::Stats,
        12 => Frame::DeadList,
        13 => Frame::DeadAfter(id),
        14 => Frame::DeadRequeue(id),
        _ => Frame::DeadDrop(id),
    };
    let mut bytes = Vec::new();
    // All of them fit their layouts.
    let _ = frame.encode(&mut bytes);
    bytes
}

/// The queue, and what its peers have done.
struct World {
    queue: Queue,
    now: Instant,
    peers: [ConnectionId; PEERS],
    /// Bytes of the last input of each peer, and whether it has sent what was no request of ours.
    input: FastMap<u32, (usize, bool)>,
    /// As many as were ever dead at once.
    dead: usize,
    writing: bool,
    journaled: bool,
    pushed: usize,
}

impl World {
    fn new(now: Instant, journaled: bool, pushed: usize) -> Option<Self> {
        let policy = Policy { attempts: 2, ..Policy::default() };
        let config = QueueConfig {
            pool: PoolConfig::with_bytes(128 << 10),
            policies: [
                ("retried".to_owned(), Policy { retry_failed: true, ..policy.clone() }),
                ("unique".to_owned(), Policy { unique: true, ..policy.clone() }),
            ]
            .into(),
            default: policy,
            output: OUTPUT,
            output_limit: pushed,
            heartbeat_interval: Some(Duration::from_secs(5)),
            ..QueueConfig::default()
        };
        let queue = if journaled {
            Queue::with_journal(now, config, Journal::new(4 << 10, []))
        } else {
            Queue::new(now, config)
        };
        let mut queue = queue.ok()?;
        let peers = std::array::from_fn(|_| queue.open(false));
        Some(Self { queue, now, peers, input: FastMap::default(), dead: 0, writing: false, journaled, pushed })
    }

    /// What a driver does: nothing is read from those who have enough waiting.
    fn send(&mut self, who: usize, bytes: &[u8], raw: bool) {
        let Some(id) = self.peers.get(who).copied() else { return };
        if !self.queue.wants_input(id) {
            return;
        }
        let (last, any) = self.input.entry(id.index).or_default();
        (*last, *any) = (bytes.len(), *any || raw);
        self.queue.handle_input(self.now, id, bytes);
    }

    fn read(&mut self, who: usize, bytes: usize) {
        let Some(id) = self.peers.get(who).copied() else { return };
        let bytes = bytes.min(self.queue.poll_transmit(id).len());
        self.queue.handle_written(self.now, id, bytes);
    }

    fn end(&mut self, who: usize) {
        let Some(id) = self.peers.get(who).copied() else { return };
        self.queue.handle_end(self.now, id);
    }

    fn close(&mut self, who: usize) {
        let Some(id) = self.peers.get(who).copied() else { return };
        self.queue.handle_closed(self.now, id);
        self.input.remove(&id.index);
        assert_eq!(self.queue.buffered(id), 0, "something is held for a connection that is gone");
        let fresh = self.queue.open(false);
        if let Some(peer) = self.peers.get_mut(who) {
            *peer = fresh;
        }
    }

    fn write(&mut self, works: bool) {
        while !self.writing
            && let Some(write) = self.queue.poll_write()
        {
            self.writing = matches!(write, Write::Append(_));
        }
        if !std::mem::take(&mut self.writing) {
            return;
        }
        if works {
            self.queue.handle_durable(self.now, 1);
        } else {
            self.queue.handle_write_failed(self.now, "the disk is full");
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.queue.handle_timeout(self.now);
    }

    fn check(&mut self) {
        self.dead = self.dead.max(self.queue.dead());
        while self.queue.poll_event().is_some() {}
        while self.queue.poll_connection().is_some() {}
        let answer = ANSWER.max(penstock_quicx::HEADER + self.dead * LISTED);
        for id in &self.peers {
            let (last, any) = self.input.get(&id.index).copied().unwrap_or_default();
            let (out, came) = self.queue.buffers(*id);
            let limit = OUTPUT.max(self.pushed) + answer + if self.journaled { BURST } else { 0 };
            assert!(out <= limit, "{out} bytes are there for answers, where {limit} may be");
            // The largest request that may be cut, and that only these bytes can begin, is FAILED.
            let limit = last + if any { TaskId::LENGTH + penstock_quicx::REASON } else { REQUEST };
            assert!(came <= limit, "{came} bytes of requests are there, where {limit} may be");
            assert!(self.queue.poll_transmit(*id).len() <= out, "more is to be written than there is");
        }
    }

    /// Everybody leaves, and nothing is left of them.
    fn finish(&mut self) {
        for who in 0..PEERS {
            self.close(who);
        }
        self.write(true);
        let stats = self.queue.stats();
        assert_eq!((self.queue.held(), stats.workers_total, stats.workers_idle), (0, 0, 0), "a worker is still there");
    }
}
