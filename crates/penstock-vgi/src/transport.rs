//! The choice between two transports of a batch: through the pipe, or through shared memory with a
//! pointer in the pipe.
//!
//! Which transport is faster depends on the machine, on its other load, and on the peer's use of
//! the batch, so it is measured. The first batches of similar size use both transports alternately;
//! later ones use the transport whose best time was shorter. After a number of batches the
//! measurement is repeated. The caller passes the time in; the state machine reads no clock.

use std::time::Duration;

/// The size below which a batch goes through the pipe, because a pointer is about as long.
pub const LEAST: u64 = 4 << 10;
/// The number of measurements of each transport.
const TRIALS: u32 = 4;
/// The number of batches of a class after which the measurement is repeated.
const PERIOD: u32 = 1_024;
/// The number of size classes; sizes between two powers of two are one class.
const CLASSES: usize = 64;

/// The transport of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The batch itself through the pipe.
    Pipe,
    /// The batch in shared memory, with a pointer through the pipe.
    Memory,
}

/// The end that chooses. Both ends measure at the same time, and each measurement includes the
/// other end's transport. The ends alternate in different orders, so that each transport of one end
/// is measured with both of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end that calls.
    Client,
    /// The end that answers.
    Server,
}

/// The choice of one end of a connection.
///
/// ```text
/// for each class of sizes:  trial, each transport 4 times ──▶ the faster one, up to batch 1,024 ──▶ trial …
/// ```
#[derive(Debug)]
pub struct TransportSelector {
    end: End,
    classes: [Class; CLASSES],
    /// The last batch sent, until it is answered.
    sent: Option<Sent>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Class {
    count: u32,
    /// The best times so far, in femtoseconds per byte, because sizes within a class differ.
    pipe: Option<u128>,
    memory: Option<u128>,
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    bytes: u64,
    transport: Transport,
    at: Duration,
}

impl TransportSelector {
    /// Make a selector without measurements.
    pub const fn new(end: End) -> Self {
        Self { end, classes: [Class { count: 0, pipe: None, memory: None }; CLASSES], sent: None }
    }

    /// Choose the transport for a batch that is sent now. Call [`answered`](Self::answered) once
    /// the peer has answered it.
    pub fn choose(&mut self, bytes: u64, now: Duration) -> Transport {
        self.sent = None;
        if bytes < LEAST {
            return Transport::Pipe;
        }
        let end = self.end;
        let transport = self.class(bytes).map_or(Transport::Memory, |class| class.next(end));
        self.sent = Some(Sent { bytes, transport, at: now });
        transport
    }

    /// Discard the measurement, because the batch could not be sent over this transport.
    pub const fn forget(&mut self) {
        self.sent = None;
    }

    /// Record that the peer's answer has arrived, and so that the peer has used the batch.
    pub fn answered(&mut self, now: Duration) {
        let Some(Sent { bytes, transport, at }) = self.sent.take() else { return };
        let cost = now.saturating_sub(at).as_nanos().saturating_mul(1_000_000) / u128::from(bytes.max(1));
        let Some(class) = self.class(bytes) else { return };
        let best = match transport {
            Transport::Pipe => &mut class.pipe,
            Transport::Memory => &mut class.memory,
        };
        *best = Some(best.map_or(cost, |best| best.min(cost)));
    }

    fn class(&mut self, bytes: u64) -> Option<&mut Class> {
        self.classes.get_mut(bytes.checked_ilog2()? as usize)
    }
}

impl Class {
    fn next(&mut self, end: End) -> Transport {
        if self.count >= PERIOD {
            *self = Self::default();
        }
        let count = self.count;
        self.count = count.saturating_add(1);
        let use_pipe = if count < 2 * TRIALS {
            match end {
                End::Client => count & 1 == 1,
                End::Server => count & 2 == 2,
            }
        } else {
            // Without measurements, memory is chosen, because it saves copies.
            self.pipe.is_some_and(|pipe| self.memory.is_none_or(|memory| pipe < memory))
        };
        if use_pipe { Transport::Pipe } else { Transport::Memory }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Send consecutive batches with the times that `cost` gives, and return their transports.
    fn choices(
        selector: &mut TransportSelector,
        bytes: u64,
        count: usize,
        cost: impl Fn(Transport) -> u64,
    ) -> Vec<Transport> {
        let mut now = Duration::ZERO;
        let step = |_| {
            let transport = selector.choose(bytes, now);
            now += Duration::from_nanos(cost(transport));
            selector.answered(now);
            transport
        };
        (0..count).map(step).collect()
    }

    fn cost(pipe: u64, memory: u64) -> impl Fn(Transport) -> u64 {
        move |transport| if transport == Transport::Pipe { pipe } else { memory }
    }

    #[test]
    fn both_are_tried_and_the_faster_one_is_taken() {
        for (end, pipe, memory, expected) in [
            (End::Client, 100, 90, Transport::Memory),
            (End::Client, 90, 100, Transport::Pipe),
            (End::Server, 100, 90, Transport::Memory),
            (End::Server, 90, 100, Transport::Pipe),
            (End::Server, 90, 90, Transport::Memory),
        ] {
            let mut selector = TransportSelector::new(end);
            let all = choices(&mut selector, 1 << 20, 100, cost(pipe * 1_000, memory * 1_000));
            let (trial, rest) = all.split_at(8);
            assert_eq!(trial.iter().filter(|transport| **transport == Transport::Pipe).count(), 4);
            assert!(rest.iter().all(|transport| *transport == expected), "{end:?}: {pipe} against {memory}");
        }
    }

    #[test]
    fn the_two_ends_try_every_pair_of_transports_as_often() {
        let (mut client, mut server) = (TransportSelector::new(End::Client), TransportSelector::new(End::Server));
        let of_client = choices(&mut client, LEAST, 8, |_| 1);
        let of_server = choices(&mut server, LEAST, 8, |_| 1);
        for pair in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let is = |transport: Transport, number| (transport == Transport::Pipe) == (number == 1);
            let met = of_client.iter().zip(&of_server).filter(|(a, b)| is(**a, pair.0) && is(**b, pair.1));
            assert_eq!(met.count(), 2, "{pair:?}");
        }
    }

    #[test]
    fn sizes_are_measured_apart_and_small_ones_not_at_all() {
        let mut selector = TransportSelector::new(End::Client);
        assert!(
            choices(&mut selector, LEAST - 1, 20, cost(9, 1)).iter().all(|transport| *transport == Transport::Pipe)
        );
        let small = choices(&mut selector, 8 << 10, 20, cost(8_000, 9_000));
        let large = choices(&mut selector, 8 << 20, 20, cost(9_000_000, 8_000_000));
        assert_eq!((small.last(), large.last()), (Some(&Transport::Pipe), Some(&Transport::Memory)));
        assert_eq!(choices(&mut selector, (8 << 10) + 1, 1, cost(1, 1)), [Transport::Pipe], "of the same class");
    }

    #[test]
    fn the_measurement_is_repeated_when_the_machine_has_changed() {
        let mut selector = TransportSelector::new(End::Server);
        choices(&mut selector, 1 << 20, PERIOD as usize, cost(50_000, 60_000));
        let later = choices(&mut selector, 1 << 20, 20, cost(70_000, 60_000));
        assert_eq!(later.last(), Some(&Transport::Memory));
    }

    #[test]
    fn one_slow_answer_decides_nothing_and_no_answer_neither() {
        let mut selector = TransportSelector::new(End::Client);
        let mut now = Duration::ZERO;
        for step in 0..8 {
            let transport = selector.choose(1 << 20, now);
            now += Duration::from_micros(if step == 2 { 9_000 } else { cost(60, 50)(transport) });
            selector.answered(now);
        }
        assert_eq!(selector.choose(1 << 20, now), Transport::Memory);
        let mut unanswered = TransportSelector::new(End::Client);
        for _ in 0..20 {
            unanswered.choose(1 << 20, now);
            unanswered.forget();
            unanswered.answered(now);
        }
        assert_eq!(unanswered.choose(1 << 20, now), Transport::Memory);
    }

    proptest! {
        #[test]
        fn any_sequence_of_steps_is_accepted(steps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..200)) {
            let mut selector = TransportSelector::new(End::Server);
            for (bytes, now, answered) in steps {
                let transport = selector.choose(bytes, Duration::from_nanos(now));
                prop_assert!(bytes >= LEAST || transport == Transport::Pipe);
                if answered {
                    selector.answered(Duration::from_nanos(now / 2));
                }
            }
        }
    }
}
