//! The choice between two ways to send a batch: through the pipe, or through shared memory with a pointer in the pipe.
//!
//! Which way is faster depends on the machine, on its other load, and on what the peer does with the batch, so it is
//! measured. Batches of similar size use both ways alternately a few times; those that follow use the way whose best
//! time was shorter. After a number of batches the measurement is repeated. Time is passed in; the state machine reads
//! no clock.

use std::time::Duration;

/// Smaller batches go through the pipe, because a pointer is about as long as they are.
pub const LEAST: u64 = 4 << 10;
/// How often each way is measured.
const TRIALS: u32 = 4;
/// The number of batches of a class after which the measurement is repeated.
const PERIOD: u32 = 1_024;
/// The number of classes; sizes between two powers of two are one class.
const CLASSES: usize = 64;

/// A way to send a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// The batch itself through the pipe.
    Pipe,
    /// A pointer to it, with the batch in shared memory.
    Memory,
}

/// The end that chooses. Both ends measure at the same time, and each measurement includes the other end's way. They
/// alternate in different orders, so that each way of one end is measured with both ways of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The end that calls.
    Client,
    /// The end that answers.
    Server,
}

/// The choice for one end of a connection.
///
/// ```text
/// trial: the roads in turn, 4 times each ──▶ the better one, up to batch 1,024 ──▶ trial …      for each class of sizes
/// ```
#[derive(Debug)]
pub struct TransportSelector {
    end: End,
    classes: [Class; CLASSES],
    /// The batch that was sent last and is not answered yet.
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
    road: Transport,
    at: Duration,
}

impl TransportSelector {
    /// Make a choice without measurements.
    pub const fn new(end: End) -> Self {
        Self { end, classes: [Class { count: 0, pipe: None, memory: None }; CLASSES], sent: None }
    }

    /// Choose the way for a batch that is sent now. Call [`answered`](Self::answered) once the peer has answered it.
    pub fn choose(&mut self, bytes: u64, now: Duration) -> Transport {
        self.sent = None;
        if bytes < LEAST {
            return Transport::Pipe;
        }
        let end = self.end;
        let road = self.class(bytes).map_or(Transport::Memory, |class| class.next(end));
        self.sent = Some(Sent { bytes, road, at: now });
        road
    }

    /// Discard the measurement, because the batch could not be sent the chosen way.
    pub const fn forget(&mut self) {
        self.sent = None;
    }

    /// Record that the peer has answered: it has used the batch, and its answer has arrived.
    pub fn answered(&mut self, now: Duration) {
        let Some(Sent { bytes, road, at }) = self.sent.take() else { return };
        let cost = now.saturating_sub(at).as_nanos().saturating_mul(1_000_000) / u128::from(bytes.max(1));
        let Some(class) = self.class(bytes) else { return };
        let best = match road {
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
        let by_pipe = if count < 2 * TRIALS {
            match end {
                End::Client => count & 1 == 1,
                End::Server => count & 2 == 2,
            }
        } else {
            // Without measurements memory is chosen, because it saves the copies.
            self.pipe.is_some_and(|pipe| self.memory.is_none_or(|memory| pipe < memory))
        };
        if by_pipe { Transport::Pipe } else { Transport::Memory }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Send consecutive batches that take the times of `cost`, and return their ways.
    fn roads(
        chooser: &mut TransportSelector,
        bytes: u64,
        count: usize,
        cost: impl Fn(Transport) -> u64,
    ) -> Vec<Transport> {
        let mut now = Duration::ZERO;
        let step = |_| {
            let road = chooser.choose(bytes, now);
            now += Duration::from_nanos(cost(road));
            chooser.answered(now);
            road
        };
        (0..count).map(step).collect()
    }

    fn cost(pipe: u64, memory: u64) -> impl Fn(Transport) -> u64 {
        move |road| if road == Transport::Pipe { pipe } else { memory }
    }

    #[test]
    fn both_are_tried_and_the_faster_one_is_taken() {
        for (end, pipe, memory, taken) in [
            (End::Client, 100, 90, Transport::Memory),
            (End::Client, 90, 100, Transport::Pipe),
            (End::Server, 100, 90, Transport::Memory),
            (End::Server, 90, 100, Transport::Pipe),
            (End::Server, 90, 90, Transport::Memory),
        ] {
            let mut chooser = TransportSelector::new(end);
            let all = roads(&mut chooser, 1 << 20, 100, cost(pipe * 1_000, memory * 1_000));
            let (trial, rest) = all.split_at(8);
            assert_eq!(trial.iter().filter(|road| **road == Transport::Pipe).count(), 4);
            assert!(rest.iter().all(|road| *road == taken), "{end:?}: {pipe} against {memory}");
        }
    }

    #[test]
    fn the_two_ends_try_every_pair_of_roads_as_often() {
        let (mut client, mut server) = (TransportSelector::new(End::Client), TransportSelector::new(End::Server));
        let mine = roads(&mut client, LEAST, 8, |_| 1);
        let theirs = roads(&mut server, LEAST, 8, |_| 1);
        for pair in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let is = |road: Transport, number| (road == Transport::Pipe) == (number == 1);
            let met = mine.iter().zip(&theirs).filter(|(a, b)| is(**a, pair.0) && is(**b, pair.1));
            assert_eq!(met.count(), 2, "{pair:?}");
        }
    }

    #[test]
    fn sizes_are_measured_apart_and_small_ones_not_at_all() {
        let mut chooser = TransportSelector::new(End::Client);
        assert!(roads(&mut chooser, LEAST - 1, 20, cost(9, 1)).iter().all(|road| *road == Transport::Pipe));
        let small = roads(&mut chooser, 8 << 10, 20, cost(8_000, 9_000));
        let large = roads(&mut chooser, 8 << 20, 20, cost(9_000_000, 8_000_000));
        assert_eq!((small.last(), large.last()), (Some(&Transport::Pipe), Some(&Transport::Memory)));
        assert_eq!(roads(&mut chooser, (8 << 10) + 1, 1, cost(1, 1)), [Transport::Pipe], "of the same class");
    }

    #[test]
    fn it_is_measured_anew_when_the_machine_has_changed() {
        let mut chooser = TransportSelector::new(End::Server);
        roads(&mut chooser, 1 << 20, PERIOD as usize, cost(50_000, 60_000));
        let later = roads(&mut chooser, 1 << 20, 20, cost(70_000, 60_000));
        assert_eq!(later.last(), Some(&Transport::Memory));
    }

    #[test]
    fn one_slow_answer_decides_nothing_and_no_answer_neither() {
        let mut chooser = TransportSelector::new(End::Client);
        let mut now = Duration::ZERO;
        for step in 0..8 {
            let road = chooser.choose(1 << 20, now);
            now += Duration::from_micros(if step == 2 { 9_000 } else { cost(60, 50)(road) });
            chooser.answered(now);
        }
        assert_eq!(chooser.choose(1 << 20, now), Transport::Memory);
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
        fn whatever_comes_it_chooses(steps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<bool>()), 0..200)) {
            let mut chooser = TransportSelector::new(End::Server);
            for (bytes, now, answered) in steps {
                let road = chooser.choose(bytes, Duration::from_nanos(now));
                prop_assert!(bytes >= LEAST || road == Transport::Pipe);
                if answered {
                    chooser.answered(Duration::from_nanos(now / 2));
                }
            }
        }
    }
}
