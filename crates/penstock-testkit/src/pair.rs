//! Two machines and the network between them, driven until nothing moves.
//!
//! A core's tests wrap its state machine in a [`Machine`]. The calling order (after any input, send all output) and the
//! passing of time are implemented here, once for all protocols.

use std::time::{Duration, Instant};

use crate::clock::FakeClock;
use crate::link::{Conditions, Delivery, Link};

/// One end: a core's state machine and the state that its test keeps.
pub trait Machine {
    /// Take a delivery that has arrived.
    fn handle(&mut self, clock: &FakeClock, delivery: Delivery);

    /// Send all pending output, and record all events.
    fn transmit(&mut self, clock: &FakeClock, out: &mut Link);

    /// Return when to call [`handle_timeout`](Self::handle_timeout) next.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Handle the time that has passed.
    fn handle_timeout(&mut self, clock: &FakeClock);
}

/// Both ends of a connection.
#[derive(Debug)]
pub struct Pair<A, B> {
    /// The time of both ends.
    pub clock: FakeClock,
    /// The end that connects.
    pub client: A,
    /// The end that listens.
    pub server: B,
    /// From the client to the server.
    pub upstream: Link,
    /// From the server to the client.
    pub downstream: Link,
}

impl<A: Machine, B: Machine> Pair<A, B> {
    /// Connect two ends by a network that behaves the same for the same seed.
    pub fn new(client: A, server: B, clock: FakeClock, conditions: &Conditions, seed: u64) -> Self {
        Self {
            clock,
            client,
            server,
            upstream: Link::new(conditions.clone(), seed),
            downstream: Link::new(conditions.clone(), !seed),
        }
    }

    /// Deliver everything in flight and everything sent in response. Time advances as far as packets need, and timeouts
    /// within that time fire, but the clock never advances for a timeout alone.
    pub fn drive(&mut self) {
        self.transmit();
        while let Some(at) = earlier(self.upstream.poll_timeout(), self.downstream.poll_timeout()) {
            self.step(at);
        }
    }

    /// Let this much time pass, delivering the packets that arrive in it and firing the timeouts that are due.
    pub fn drive_for(&mut self, by: Duration) {
        let end = self.clock.instant() + by;
        self.transmit();
        while let Some(at) = self.next().filter(|at| *at <= end) {
            self.step(at);
        }
        self.clock.advance_to(end);
    }

    /// Return when the next packet arrives or the next timeout fires.
    fn next(&self) -> Option<Instant> {
        let packets = earlier(self.upstream.poll_timeout(), self.downstream.poll_timeout());
        let timeouts = earlier(self.client.poll_timeout(), self.server.poll_timeout());
        earlier(packets, timeouts)
    }

    fn step(&mut self, at: Instant) {
        // A machine that reports the same timeout again after handling it must not stop the clock.
        let stuck = at <= self.clock.instant() && self.upstream.is_idle() && self.downstream.is_idle();
        self.clock.advance_to(if stuck { at + Duration::from_millis(1) } else { at });
        let now = self.clock.instant();
        if self.client.poll_timeout().is_some_and(|due| due <= now) {
            self.client.handle_timeout(&self.clock);
        }
        if self.server.poll_timeout().is_some_and(|due| due <= now) {
            self.server.handle_timeout(&self.clock);
        }
        self.transmit();
        if let Some(delivery) = self.upstream.receive(now) {
            self.server.handle(&self.clock, delivery);
        }
        if let Some(delivery) = self.downstream.receive(now) {
            self.client.handle(&self.clock, delivery);
        }
        self.transmit();
    }

    fn transmit(&mut self) {
        self.client.transmit(&self.clock, &mut self.upstream);
        self.server.transmit(&self.clock, &mut self.downstream);
    }
}

fn earlier(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// A machine that answers each number with the one below it, and counts a beat every ten seconds.
    #[derive(Debug)]
    struct Countdown {
        seen: Vec<u8>,
        send: Vec<u8>,
        due: Instant,
        beats: u32,
    }

    impl Countdown {
        fn new(clock: &FakeClock, send: &[u8]) -> Self {
            let due = clock.instant() + Duration::from_secs(10);
            Self { seen: Vec::new(), send: send.to_vec(), due, beats: 0 }
        }
    }

    impl Machine for Countdown {
        fn handle(&mut self, _clock: &FakeClock, delivery: Delivery) {
            let Delivery::Bytes(0, bytes) = delivery else { panic!("{delivery:?}") };
            self.send.extend(bytes.iter().filter_map(|byte| byte.checked_sub(1)));
            self.seen.extend(bytes);
        }

        fn transmit(&mut self, clock: &FakeClock, out: &mut Link) {
            out.send(clock.instant(), 0, Bytes::from(std::mem::take(&mut self.send)));
        }

        fn poll_timeout(&self) -> Option<Instant> {
            Some(self.due)
        }

        fn handle_timeout(&mut self, clock: &FakeClock) {
            self.beats += 1;
            self.due = clock.instant() + Duration::from_secs(10);
        }
    }

    fn pair(conditions: &Conditions) -> Pair<Countdown, Countdown> {
        let clock = FakeClock::new();
        Pair::new(Countdown::new(&clock, &[7]), Countdown::new(&clock, &[]), clock, conditions, 5)
    }

    #[test]
    fn both_ends_talk_until_nothing_moves() {
        for conditions in [Conditions::PERFECT, Conditions::ROUGH] {
            let mut pair = pair(&conditions);
            pair.drive();
            assert_eq!((pair.server.seen, pair.client.seen), (vec![7, 5, 3, 1], vec![6, 4, 2, 0]));
            assert!(pair.clock.elapsed() >= conditions.latency * 8);
        }
    }

    #[test]
    fn time_outs_come_due_while_time_passes_and_not_otherwise() {
        let mut pair = pair(&Conditions::ROUGH);
        pair.drive();
        assert_eq!(pair.client.beats, 0);
        let before = pair.clock.elapsed();
        pair.drive_for(Duration::from_secs(35));
        assert_eq!((pair.client.beats, pair.server.beats), (3, 3));
        assert_eq!(pair.clock.elapsed() - before, Duration::from_secs(35));
    }
}
