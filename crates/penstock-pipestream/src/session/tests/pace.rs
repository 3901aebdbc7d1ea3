//! Stream 0 at fixed intervals: what an observer between the ends would see.

use super::resilience::{config2, name, point};
use super::*;
use crate::error::Misuse;

const INTERVAL: Duration = Duration::from_millis(50);

/// Both ends, and the writes of each to stream 0: the time since the beginning, and the number of
/// bytes.
struct Tap {
    start: Now,
    pair: Pair,
    client: Vec<(Duration, usize)>,
    server: Vec<(Duration, usize)>,
}

fn paced(mut config: SessionConfig) -> SessionConfig {
    config.status_interval = Some(INTERVAL);
    config.capabilities.max_window_size = Some(65_536);
    config
}

impl Tap {
    fn new() -> Self {
        Self::of(paced(config2(Some(name()))), paced(config2(None)))
    }

    fn of(client: SessionConfig, server: SessionConfig) -> Self {
        let start = start();
        let client = Session::new(Role::Client, client, start).expect("client");
        let server = Session::new(Role::Server, server, start).expect("server");
        let pair = Pair::between(client, server, start);
        let mut tap = Self { start, pair, client: Vec::new(), server: Vec::new() };
        tap.carry();
        tap
    }

    fn carry(&mut self) {
        let pair = &mut self.pair;
        let at = pair.now.instant - self.start.instant;
        loop {
            pair.client_events.extend(drain(&mut pair.client));
            pair.server_events.extend(drain(&mut pair.server));
            let mut moved = false;
            while let Some(transmit) = pair.client.poll_transmit(usize::MAX) {
                moved = true;
                match transmit {
                    Transmit::Control(bytes) => {
                        self.client.push((at, bytes.len()));
                        pair.server.handle_control(pair.now, bytes).expect("frames");
                    }
                    Transmit::StopStream { .. } => {}
                    Transmit::Close { code, .. } => pair.client_closed = Some(code),
                }
            }
            while let Some(transmit) = pair.server.poll_transmit(usize::MAX) {
                moved = true;
                match transmit {
                    Transmit::Control(bytes) => {
                        self.server.push((at, bytes.len()));
                        pair.client.handle_control(pair.now, bytes).expect("frames");
                    }
                    Transmit::StopStream { .. } => {}
                    Transmit::Close { code, .. } => pair.server_closed = Some(code),
                }
            }
            if !moved {
                return;
            }
        }
    }

    /// Let time pass, and call both ends whenever one of them asks for it, as a driver would.
    fn run(&mut self, by: Duration) {
        let end = later(self.pair.now, by);
        loop {
            self.carry();
            let asked = [self.pair.client.poll_timeout(), self.pair.server.poll_timeout()];
            let next = asked.into_iter().flatten().min().filter(|at| *at <= end.instant);
            let Some(next) = next else { break };
            self.pair.now = later(self.pair.now, next.saturating_duration_since(self.pair.now.instant));
            self.pair.client.handle_timeout(self.pair.now);
            self.pair.server.handle_timeout(self.pair.now);
        }
        self.pair.now = end;
    }
}

#[test]
fn a_busy_session_and_an_idle_one_write_the_same_sizes_at_the_same_times() {
    let mut idle = Tap::new();
    idle.run(Duration::from_secs(2));
    let mut busy = Tap::new();
    let mut sent = Vec::new();
    for step in 0..40_u64 {
        for _ in 0..step % 7 * 20 {
            sent.push(busy.pair.announce(None, false));
        }
        busy.run(Duration::from_millis(37));
        // Everything announced before the last tick has arrived by now.
        for ticket in sent.drain(..sent.len() / 2).collect::<Vec<_>>() {
            if let Admission::Accepted(accepted) = busy.pair.open(&ticket, 0) {
                busy.pair.server.complete(busy.pair.now, accepted.key);
            }
        }
        busy.run(Duration::from_millis(13));
    }
    assert_eq!(busy.client, idle.client);
    assert_eq!(busy.server, idle.server);
    let (greeting, blocks) = idle.client.split_first().expect("CAPABILITIES");
    assert!(greeting.0.is_zero() && greeting.1 < 64, "{greeting:?}");
    let expected: Vec<_> = (1..=40).map(|tick| (INTERVAL * tick, STATUS_BLOCK)).collect();
    assert_eq!(blocks, expected);
    assert!(busy.pair.server.counters().received > 1_000, "the busy one was");
}

#[test]
fn everything_arrives_in_its_order_and_a_graceful_close_comes_after_it() {
    let mut tap = Tap::of(paced(config(true, 100)), paced(config(true, 100)));
    tap.run(INTERVAL);
    let tickets: Vec<Ticket> = (0..500).map(|_| tap.pair.announce(None, false)).collect();
    assert_eq!(tap.pair.client.queued_control(), 500 * 12, "they wait for the next interval");
    tap.run(INTERVAL);
    assert_eq!(tap.pair.server.open_received(), STATUS_BLOCK / 12, "what does not fit waits for another one");
    tap.run(INTERVAL * 6);
    assert_eq!(tap.pair.server.open_received(), 500);
    for ticket in &tickets {
        let Admission::Accepted(accepted) = tap.pair.open(ticket, 0) else { panic!("{ticket:?}") };
        tap.pair.server.complete(tap.pair.now, accepted.key);
    }
    tap.pair.client.close(tap.pair.now);
    tap.run(INTERVAL * 12);
    assert!(tickets.iter().all(|ticket| tap.pair.outcome(ticket.key) == Some(Status::Complete)));
    assert_eq!(tap.pair.client_closed, Some(ErrorCode::NoError));
    assert!(tap.client.iter().skip(1).all(|(_, size)| *size == STATUS_BLOCK));
}

#[test]
fn what_a_server_that_fails_has_to_say_goes_before_its_close_in_whole_blocks() {
    let mut tap = Tap::new();
    tap.run(INTERVAL);
    let ticket = tap.pair.announce(None, false);
    tap.run(INTERVAL);
    let key = tap.pair.open_plain(&ticket);
    tap.pair.server.yield_entity(tap.pair.now, key, &point()).expect("being received");
    tap.pair.server.abort(tap.pair.now, reason(ErrorCode::InternalError));
    tap.carry();
    assert_eq!(tap.pair.server_closed, Some(ErrorCode::InternalError));
    assert_eq!(tap.pair.client_saw(|event| matches!(event, Layer2Event::Yielded { .. })), 1);
    assert!(tap.server.iter().skip(1).all(|(_, size)| *size == STATUS_BLOCK));
    assert_eq!(tap.pair.server.queued_control(), 0);
}

#[test]
fn the_short_rest_of_a_frame_that_a_block_has_cut_goes_before_a_close_too() {
    let mut tap = Tap::of(paced(config(true, 100)), paced(config(true, 100)));
    tap.run(INTERVAL);
    let tickets: Vec<Ticket> = (0..73).map(|_| tap.pair.announce(None, false)).collect();
    tap.run(INTERVAL);
    let keys: Vec<EntityKey> = tickets.iter().map(|ticket| tap.pair.open_plain(ticket)).collect();
    // Two statuses of 12 bytes, which do not move the cursor, and 71 of 16, which do.
    for index in [1, 2, 0].into_iter().chain(3..73) {
        tap.pair.server.complete(tap.pair.now, keys[index]);
    }
    assert_eq!(tap.pair.server.queued_control(), STATUS_BLOCK + 8);
    tap.pair.server.abort(tap.pair.now, reason(ErrorCode::InternalError));
    tap.carry();
    assert_eq!(tap.pair.server_closed, Some(ErrorCode::InternalError));
    assert!(tickets.iter().all(|ticket| tap.pair.outcome(ticket.key) == Some(Status::Complete)));
    assert!(tap.server.iter().skip(1).all(|(_, size)| *size == STATUS_BLOCK));
    assert_eq!(tap.pair.server.queued_control(), 0);
}

#[test]
fn one_end_alone_may_send_at_fixed_intervals() {
    let mut tap = Tap::of(paced(config(true, 100)), config(true, 100));
    tap.run(Duration::from_secs(1));
    assert_eq!(tap.client.len(), 1 + 20);
    assert_eq!(tap.server.len(), 1, "CAPABILITIES, and nothing to say since");
    assert_eq!(tap.pair.server.counters().heartbeats, 20 * 96);
}

#[test]
fn a_tick_that_was_missed_is_left_out() {
    let mut tap = Tap::new();
    tap.run(INTERVAL);
    let before = tap.client.len();
    tap.pair.now = later(tap.pair.now, INTERVAL * 10 + INTERVAL / 2);
    tap.pair.client.handle_timeout(tap.pair.now);
    tap.carry();
    assert_eq!(tap.client.len(), before + 1);
    let next = tap.pair.client.poll_timeout().expect("a tick");
    assert_eq!(next - tap.start.instant, INTERVAL * 12, "and the ticks stay where they were");
}

#[test]
fn an_idle_limit_counts_from_the_last_block_of_a_peer_that_lives() {
    let idle = |config| SessionConfig { idle_timeout: Some(INTERVAL * 3), ..paced(config) };
    let mut tap = Tap::of(idle(config(true, 100)), idle(config(true, 100)));
    tap.run(Duration::from_secs(2));
    assert!(!tap.pair.client.is_closed() && !tap.pair.server.is_closed());
    tap.pair.now = later(tap.pair.now, INTERVAL * 4);
    tap.pair.client.handle_timeout(tap.pair.now);
    assert!(tap.pair.client.is_closed(), "the other end was not called");
}

#[test]
fn an_interval_of_less_than_a_millisecond_is_misuse() {
    let config = SessionConfig { status_interval: Some(Duration::from_micros(999)), ..config(true, 100) };
    let refused = Session::new(Role::Client, config, start()).expect_err("too short");
    assert_eq!(refused, Misuse::StatusInterval.into());
}
