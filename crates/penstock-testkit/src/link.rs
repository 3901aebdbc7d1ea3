//! One direction of a connection in memory: streams as in QUIC, over a network that delays, loses and reorders packets.
//!
//! Bytes are cut into packets of random sizes. A lost packet is sent again, so it arrives later. Within a stream the
//! bytes stay in order, so one loss delays only its own stream. RESET_STREAM and STOP_SENDING are not ordered against
//! anything: a reset may overtake bytes, which are then lost. The same seed and the same calls produce the same
//! deliveries.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fastrand::Rng;

/// The behaviour of a network.
#[derive(Debug, Clone)]
pub struct Conditions {
    /// How long every packet takes.
    pub latency: Duration,
    /// The largest random delay in addition to the latency.
    pub jitter: Duration,
    /// The probability that a packet is lost, at most 0.9; its retransmission may be lost too.
    pub loss: f64,
    /// How much later a lost packet is sent again.
    pub retransmission: Duration,
    /// The most bytes that a packet carries. At 1 every byte arrives alone.
    pub max_packet: usize,
}

impl Conditions {
    /// A perfect network: everything arrives immediately, in order, as it was sent.
    pub const PERFECT: Self = Self {
        latency: Duration::ZERO,
        jitter: Duration::ZERO,
        loss: 0.0,
        retransmission: Duration::ZERO,
        max_packet: usize::MAX,
    };

    /// A bad network: small packets, a tenth of them lost, and streams that overtake each other by far.
    pub const ROUGH: Self = Self {
        latency: Duration::from_millis(20),
        jitter: Duration::from_millis(15),
        loss: 0.1,
        retransmission: Duration::from_millis(60),
        max_packet: 37,
    };
}

/// The output of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The next bytes of a stream.
    Bytes(u64, Bytes),
    /// A stream's end.
    Finish(u64),
    /// RESET_STREAM with its code: the stream delivers nothing more.
    Reset(u64, u64),
    /// STOP_SENDING with its code, for a stream of the other direction.
    Stop(u64, u64),
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Link {
    conditions: Conditions,
    rng: Rng,
    /// The packets in flight, by time of arrival, then by order of sending.
    in_flight: BTreeMap<(Instant, u64), Delivery>,
    sent: u64,
    /// When the last packet of each stream arrives: the next one cannot arrive before it.
    last_of: BTreeMap<u64, Instant>,
}

impl Link {
    /// Make a link without packets. Links with the same seed behave in the same way.
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self { conditions, rng: Rng::with_seed(seed), in_flight: BTreeMap::new(), sent: 0, last_of: BTreeMap::new() }
    }

    /// Send bytes on a stream.
    pub fn send(&mut self, now: Instant, stream: u64, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let most = bytes.len().min(self.conditions.max_packet.max(1));
            let size = if most == bytes.len() { most } else { self.rng.usize(1..=most) };
            let packet = bytes.split_to(size);
            self.in_order(now, stream, Delivery::Bytes(stream, packet));
        }
    }

    /// End a stream.
    pub fn finish(&mut self, now: Instant, stream: u64) {
        self.in_order(now, stream, Delivery::Finish(stream));
    }

    /// Reset a stream. Bytes that would arrive after the reset are lost.
    pub fn reset(&mut self, now: Instant, stream: u64, code: u64) {
        let arrival = self.arrival(now);
        self.in_flight.retain(|(at, _), delivery| *at < arrival || !delivery.is_of(stream));
        self.put(arrival, Delivery::Reset(stream, code));
    }

    /// Ask the other side to stop sending on one of its streams.
    pub fn stop(&mut self, now: Instant, stream: u64, code: u64) {
        let arrival = self.arrival(now);
        self.put(arrival, Delivery::Stop(stream, code));
    }

    /// Lose everything in flight, as a broken connection does.
    pub fn cut(&mut self) {
        self.in_flight.clear();
    }

    /// Return when the next packet arrives.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.first_key_value().map(|((at, _), _)| *at)
    }

    /// Return the next packet that has arrived by now.
    pub fn receive(&mut self, now: Instant) -> Option<Delivery> {
        let next = self.in_flight.first_entry()?;
        if next.key().0 > now {
            return None;
        }
        Some(next.remove())
    }

    /// Return whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    fn in_order(&mut self, now: Instant, stream: u64, delivery: Delivery) {
        let arrival = self.arrival(now);
        let last = self.last_of.entry(stream).or_insert(arrival);
        *last = arrival.max(*last);
        let arrival = *last;
        self.put(arrival, delivery);
    }

    fn put(&mut self, arrival: Instant, delivery: Delivery) {
        self.in_flight.insert((arrival, self.sent), delivery);
        self.sent += 1;
    }

    fn arrival(&mut self, now: Instant) -> Instant {
        let mut delay = self.conditions.latency + self.conditions.jitter.mul_f64(self.rng.f64());
        while self.rng.f64() < self.conditions.loss.min(0.9) {
            delay += self.conditions.retransmission;
        }
        now + delay
    }
}

impl Delivery {
    /// Return the stream that the delivery belongs to.
    pub const fn stream(&self) -> u64 {
        match self {
            Self::Bytes(stream, _) | Self::Finish(stream) | Self::Reset(stream, _) | Self::Stop(stream, _) => *stream,
        }
    }

    /// Return whether this is an ordered part of the stream, which a reset discards.
    fn is_of(&self, stream: u64) -> bool {
        match self {
            Self::Bytes(of, _) | Self::Finish(of) => *of == stream,
            Self::Reset(..) | Self::Stop(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::FakeClock;

    /// Deliver everything, in the order of arrival.
    fn drain(link: &mut Link, clock: &mut FakeClock) -> Vec<Delivery> {
        let mut out = Vec::new();
        while let Some(at) = link.poll_timeout() {
            assert_eq!(link.receive(at - Duration::from_nanos(1)), None);
            clock.advance_to(at);
            out.extend(link.receive(at));
        }
        out
    }

    fn run(seed: u64) -> Vec<Delivery> {
        let mut clock = FakeClock::new();
        let mut link = Link::new(Conditions::ROUGH, seed);
        for stream in 0..20 {
            link.send(clock.instant(), stream, Bytes::from(vec![u8::try_from(stream).expect("few"); 200]));
            link.finish(clock.instant(), stream);
        }
        drain(&mut link, &mut clock)
    }

    #[test]
    fn each_stream_comes_whole_and_in_order_while_streams_overtake_each_other() {
        let deliveries = run(1);
        for stream in 0..20 {
            let mut length = 0;
            let mut finished = false;
            for delivery in deliveries.iter().filter(|delivery| delivery.stream() == stream) {
                assert!(!finished, "bytes after the end");
                match delivery {
                    Delivery::Bytes(_, bytes) => length += bytes.len(),
                    Delivery::Finish(_) => finished = true,
                    Delivery::Reset(..) | Delivery::Stop(..) => panic!("nobody sent one"),
                }
            }
            assert_eq!((length, finished), (200, true));
        }
        let ends: Vec<_> = deliveries
            .iter()
            .filter(|delivery| matches!(delivery, Delivery::Finish(_)))
            .map(Delivery::stream)
            .collect();
        assert!(!ends.is_sorted(), "no stream overtook another");
        assert!(deliveries.len() > 20 * (200 / 37));
    }

    #[test]
    fn the_same_seed_does_the_same() {
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
    }

    #[test]
    fn a_perfect_link_changes_nothing() {
        let mut clock = FakeClock::new();
        let mut link = Link::new(Conditions::PERFECT, 0);
        link.send(clock.instant(), 4, Bytes::from_static(b"abc"));
        link.stop(clock.instant(), 3, 5);
        link.finish(clock.instant(), 4);
        let expected = [Delivery::Bytes(4, Bytes::from_static(b"abc")), Delivery::Stop(3, 5), Delivery::Finish(4)];
        assert_eq!(drain(&mut link, &mut clock), expected);
        assert_eq!(clock.elapsed(), Duration::ZERO);
    }

    #[test]
    fn a_reset_takes_with_it_what_it_overtakes_and_nothing_else() {
        for seed in 0..50 {
            let mut clock = FakeClock::new();
            let mut link = Link::new(Conditions::ROUGH, seed);
            link.send(clock.instant(), 0, Bytes::from(vec![0; 400]));
            link.send(clock.instant(), 4, Bytes::from(vec![0; 400]));
            link.reset(clock.instant(), 0, 5);
            let deliveries = drain(&mut link, &mut clock);
            let last = deliveries.iter().rfind(|delivery| delivery.stream() == 0);
            assert_eq!(last, Some(&Delivery::Reset(0, 5)));
            let others = deliveries.iter().filter_map(|delivery| match delivery {
                Delivery::Bytes(4, bytes) => Some(bytes.len()),
                Delivery::Bytes(..) | Delivery::Finish(_) | Delivery::Reset(..) | Delivery::Stop(..) => None,
            });
            assert_eq!(others.sum::<usize>(), 400);
        }
    }

    #[test]
    fn a_cut_loses_everything() {
        let mut link = Link::new(Conditions::ROUGH, 0);
        link.send(Instant::now(), 0, Bytes::from_static(b"abc"));
        link.cut();
        assert!(link.is_idle() && link.poll_timeout().is_none());
    }
}
