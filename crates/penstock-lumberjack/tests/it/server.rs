//! Tests of the reader, in dialogues under a clock that moves only when a test moves it.
#![allow(clippy::expect_used)]

use std::time::Duration;

use bytes::BytesMut;
use penstock_lumberjack::{
    Deadline, Error, Event, Json, Malformed, Misuse, Result, Server, ServerConfig, Version, Violation, Window, encoder,
};
use penstock_testkit::clock::FakeClock;
use penstock_wire::LimitExceeded;

/// A reader, its writer's frames, and the application.
struct Dialogue {
    clock: FakeClock,
    server: Server,
    out: BytesMut,
    version: Version,
    seen: Vec<u32>,
}

impl Dialogue {
    fn new(version: Version) -> Self {
        Self::with(version, ServerConfig::default())
    }

    fn with(version: Version, config: ServerConfig) -> Self {
        let clock = FakeClock::new();
        let server = Server::new(clock.instant(), config);
        Self { clock, server, out: BytesMut::new(), version, seen: Vec::new() }
    }

    fn window(&mut self, size: u32) -> &mut Self {
        Window { version: self.version, size }.encode(&mut self.out);
        self
    }

    fn events(&mut self, sequences: impl IntoIterator<Item = u32>) -> &mut Self {
        for sequence in sequences {
            Json { version: self.version, sequence, payload: b"{}" }.encode(&mut self.out).expect("fits");
        }
        self
    }

    fn arrive(&mut self) -> Result<u64> {
        let bytes = self.out.split();
        self.server.input().extend_from_slice(&bytes);
        self.handle()
    }

    fn handle(&mut self) -> Result<u64> {
        let seen = &mut self.seen;
        let mut take = |sequence: u32, _: Event<'_>| seen.push(sequence);
        self.server.handle_input(self.clock.instant(), usize::MAX, &mut take).map(|progress| progress.events)
    }

    fn take_all(&mut self) {
        self.server.acknowledge(self.clock.instant(), self.server.received()).expect("received");
    }

    fn acks(&mut self) -> Vec<(char, u32)> {
        let mut acks = Vec::new();
        while let Some([version, kind, a, b, c, d]) = self.server.poll_transmit() {
            assert_eq!(kind, b'A');
            acks.push((char::from(version), u32::from_be_bytes([a, b, c, d])));
        }
        acks
    }

    fn pass(&mut self, seconds: f64) -> Result<()> {
        let end = self.clock.instant() + Duration::from_secs_f64(seconds);
        while let Some(due) = self.server.poll_timeout().filter(|due| *due <= end) {
            self.clock.advance_to(due);
            self.server.handle_timeout(self.clock.instant())?;
        }
        self.clock.advance_to(end);
        Ok(())
    }
}

#[test]
fn a_full_window_is_acknowledged_with_its_last_number_once_it_is_taken() {
    for (version, byte) in [(Version::V1, '1'), (Version::V2, '2')] {
        let mut dialogue = Dialogue::new(version);
        assert_eq!(dialogue.window(3).events(1..=3).arrive(), Ok(3));
        assert_eq!(dialogue.acks(), []);
        dialogue.take_all();
        assert_eq!(dialogue.acks(), [(byte, 3)]);
    }
}

#[test]
fn numbers_may_start_anywhere_run_on_and_roll_over() {
    let mut dialogue = Dialogue::new(Version::V1);
    dialogue.window(3).events([u32::MAX - 1, u32::MAX, 0]).arrive().expect("legal");
    dialogue.take_all();
    dialogue.window(2).events([1, 2]).arrive().expect("legal");
    dialogue.take_all();
    assert_eq!(dialogue.acks(), [('1', 0), ('1', 2)]);
}

#[test]
fn a_window_that_was_announced_once_goes_on_after_each_acknowledgement() {
    let mut dialogue = Dialogue::new(Version::V1);
    dialogue.window(2).events([1, 2]).arrive().expect("legal");
    dialogue.take_all();
    dialogue.events([3, 4]).arrive().expect("legal");
    dialogue.take_all();
    assert_eq!(dialogue.acks(), [('1', 2), ('1', 4)]);
}

#[test]
fn without_a_window_it_is_one() {
    let mut dialogue = Dialogue::new(Version::V1);
    dialogue.events([1]).arrive().expect("legal");
    dialogue.take_all();
    assert_eq!(dialogue.acks(), [('1', 1)]);
    let error = dialogue.events([2, 3]).arrive().expect_err("beyond the window");
    let overrun = Violation::WindowOverrun { window: 1 };
    assert_eq!((error, dialogue.seen.len()), (Error::Violation(overrun, Some(24)), 2));
}

#[test]
fn an_event_beyond_the_window_is_refused_and_those_before_it_are_kept_and_acknowledged() {
    let mut dialogue = Dialogue::new(Version::V2);
    let error = dialogue.window(2).events([1, 2, 3]).arrive().expect_err("beyond the window");
    assert_eq!(error, Error::Violation(Violation::WindowOverrun { window: 2 }, Some(6 + 12 + 12)));
    assert!(!dialogue.server.wants_input());
    dialogue.take_all();
    assert_eq!(dialogue.acks(), [('2', 2)]);
    assert_eq!(dialogue.arrive(), Err(error));
}

#[test]
fn a_window_of_0_or_above_the_limit_is_refused() {
    let error = Dialogue::new(Version::V1).window(0).arrive().expect_err("refused");
    assert_eq!(error, Error::Violation(Violation::EmptyWindow, Some(0)));
    for size in [65_537, u32::MAX] {
        let error = Dialogue::new(Version::V1).window(size).arrive().expect_err("refused");
        let exceeded = LimitExceeded { name: "the window", limit: 65_536, actual: size.into() };
        assert_eq!(error, Error::Limit(exceeded, Some(0)));
    }
}

#[test]
fn pipelined_windows_are_acknowledged_in_order_and_a_third_waits() {
    let mut dialogue = Dialogue::new(Version::V2);
    dialogue.window(2).events(1..=2).window(2).events(1..=2).window(2).events(1..=2);
    assert_eq!(dialogue.arrive(), Ok(4));
    assert!(!dialogue.server.wants_input());
    assert_eq!(dialogue.handle(), Ok(0));
    dialogue.server.acknowledge(dialogue.clock.instant(), 2).expect("received");
    assert!(dialogue.server.wants_input());
    assert_eq!(dialogue.handle(), Ok(2));
    dialogue.take_all();
    assert_eq!(dialogue.acks(), [('2', 2), ('2', 2), ('2', 2)]);
}

#[test]
fn a_new_window_before_the_old_one_is_full_keeps_what_came() {
    let mut dialogue = Dialogue::new(Version::V1);
    dialogue.window(10).events(1..=3).window(2).events(4..=5).arrive().expect("legal");
    dialogue.take_all();
    assert_eq!((dialogue.acks(), dialogue.seen.len()), (vec![('1', 5)], 5));
}

#[test]
fn compressed_and_plain_frames_mix() {
    let mut dialogue = Dialogue::new(Version::V2);
    dialogue.window(3).events(1..=2);
    let frames = dialogue.out.split();
    encoder::compress(Version::V2, &frames, 3, &mut dialogue.out);
    dialogue.events([3]).arrive().expect("legal");
    dialogue.take_all();
    assert_eq!((dialogue.acks(), dialogue.seen.len()), (vec![('2', 3)], 3));
}

#[test]
fn after_a_pause_what_was_taken_of_a_window_is_acknowledged_and_the_window_goes_on() {
    for (version, byte) in [(Version::V1, '1'), (Version::V2, '2')] {
        let mut dialogue = Dialogue::new(version);
        dialogue.window(5).events(1..=2).arrive().expect("legal");
        dialogue.take_all();
        assert_eq!(dialogue.acks(), []);
        dialogue.pass(0.9).expect("in time");
        assert_eq!(dialogue.acks(), []);
        dialogue.pass(0.1).expect("in time");
        assert_eq!(dialogue.acks(), [(byte, 2)]);
        dialogue.events(3..=5).arrive().expect("the window is not full yet");
        dialogue.take_all();
        assert_eq!(dialogue.acks(), [(byte, 5)]);
    }
}

#[test]
fn what_is_taken_late_in_a_pause_is_acknowledged_at_once() {
    let mut dialogue = Dialogue::new(Version::V1);
    dialogue.window(5).events(1..=2).arrive().expect("legal");
    dialogue.pass(10.0).expect("no time-out");
    assert_eq!(dialogue.acks(), []);
    dialogue.take_all();
    assert_eq!(dialogue.acks(), [('1', 2)]);
}

#[test]
fn a_slow_application_is_excused_every_3_seconds_to_version_2() {
    let mut dialogue = Dialogue::new(Version::V2);
    dialogue.window(2).events(1..=2).arrive().expect("legal");
    dialogue.pass(7.0).expect("no time-out");
    assert_eq!(dialogue.acks(), [('2', 0), ('2', 0)]);
    dialogue.take_all();
    dialogue.pass(60.0).expect("no time-out");
    assert_eq!(dialogue.acks(), [('2', 2)]);
}

#[test]
fn version_1_hears_nothing_unless_its_last_acknowledgement_is_to_be_repeated() {
    for (repeat_ack, repeated) in [(false, vec![]), (true, vec![('1', 1), ('1', 1)])] {
        let mut dialogue = Dialogue::with(Version::V1, ServerConfig { repeat_ack, ..ServerConfig::default() });
        dialogue.window(1).events([1]).arrive().expect("legal");
        dialogue.take_all();
        assert_eq!(dialogue.acks(), [('1', 1)]);
        dialogue.events([2]).arrive().expect("legal");
        dialogue.pass(7.0).expect("no time-out");
        assert_eq!(dialogue.acks(), repeated);
    }
}

#[test]
fn an_acknowledgement_is_not_repeated_where_the_writer_may_take_it_for_a_later_window() {
    // The numbers restart in a second window of the same size, of a larger size, and of a smaller size.
    for second in [2, 3, 1] {
        let mut dialogue = Dialogue::with(Version::V1, ServerConfig { repeat_ack: true, ..ServerConfig::default() });
        dialogue.window(2).events([1, 2]).arrive().expect("legal");
        dialogue.take_all();
        assert_eq!(dialogue.acks(), [('1', 2)]);
        // The rest of the second window may be in flight, and the writer has already numbered it.
        dialogue.window(second).events([1]).arrive().expect("legal");
        dialogue.pass(7.0).expect("no time-out");
        assert_eq!(dialogue.acks(), []);
        dialogue.events(2..=second).arrive().expect("legal");
        dialogue.take_all();
        assert_eq!(dialogue.acks(), [('1', second)]);
    }
}

#[test]
fn no_keep_alive_has_the_number_of_an_event() {
    for received in [1, 2] {
        let mut dialogue = Dialogue::new(Version::V2);
        dialogue.window(3).events([u32::MAX, 0, 1].into_iter().take(received)).arrive().expect("legal");
        dialogue.pass(7.0).expect("no time-out");
        assert_eq!(dialogue.acks(), [], "0 is an event of this window");
        dialogue.events([u32::MAX, 0, 1].into_iter().skip(received)).arrive().expect("legal");
        dialogue.take_all();
        assert_eq!(dialogue.acks(), [('2', 1)]);
        dialogue.window(1).events([2]).arrive().expect("legal");
        dialogue.pass(4.0).expect("no time-out");
        assert_eq!(dialogue.acks(), [('2', 0)]);
    }
}

#[test]
fn what_is_inflated_of_a_frame_that_is_not_whole_is_waiting() {
    // Text that zlib compresses to about a tenth.
    let payload: Vec<u8> = (0_u32..600_000).flat_map(|number| number.to_string().into_bytes()).collect();
    let mut frames = BytesMut::new();
    Json { version: Version::V2, sequence: 1, payload: &payload }.encode(&mut frames).expect("fits");
    let mut dialogue = Dialogue::new(Version::V2);
    encoder::compress(Version::V2, &frames, 9, &mut dialogue.out);
    let last = dialogue.out.split_off(dialogue.out.len() - 100);
    assert!(dialogue.out.len() < payload.len() / 2);
    assert_eq!(dialogue.arrive(), Ok(0));
    let waiting = dialogue.server.waiting();
    assert!((payload.len() / 10 * 9..payload.len()).contains(&waiting), "{waiting} of {}", payload.len());
    dialogue.out = last;
    assert_eq!(dialogue.arrive(), Ok(1));
    assert_eq!(dialogue.server.waiting(), 0);
}

#[test]
fn the_memory_of_a_large_frame_is_given_back_though_the_next_one_has_begun() {
    let mut dialogue = Dialogue::new(Version::V2);
    let payload = vec![b'x'; 8 << 20];
    Json { version: Version::V2, sequence: 1, payload: &payload }.encode(&mut dialogue.out).expect("fits");
    dialogue.out.extend_from_slice(b"2");
    assert_eq!(dialogue.arrive(), Ok(1));
    assert_eq!(dialogue.server.waiting(), 1);
    // The size that a read reserves.
    dialogue.server.input().reserve(8 << 10);
    let capacity = dialogue.server.input().capacity();
    assert!(capacity < 1 << 20, "{capacity}");
}

#[test]
fn a_frame_that_does_not_arrive_in_30_seconds_is_too_late_and_silence_between_frames_is_not() {
    let mut dialogue = Dialogue::new(Version::V2);
    dialogue.window(5).events([1]).arrive().expect("legal");
    dialogue.take_all();
    dialogue.pass(86_400.0).expect("no time limit between frames");
    assert_eq!(dialogue.acks(), [('2', 1)]);
    dialogue.server.input().extend_from_slice(b"2");
    dialogue.handle().expect("not whole");
    dialogue.pass(29.0).expect("in time");
    dialogue.server.input().extend_from_slice(b"J");
    dialogue.handle().expect("not whole");
    let error = dialogue.pass(1.0).expect_err("too late");
    assert!(matches!(error, Error::Deadline(Deadline::Frame { .. }, Some(_))), "{error}");
    assert_eq!(dialogue.server.poll_timeout(), None);
}

#[test]
fn thousands_that_send_an_byte_a_second_are_given_up_and_keep_no_more_than_they_sent() {
    let mut slow: Vec<Dialogue> = (0..3_000).map(|_| Dialogue::new(Version::V2)).collect();
    let mut quick = Dialogue::new(Version::V2);
    let frame = [b"2J\0\0\0\x01\0\0\0\x64".as_slice(), &[b'x'; 100]].concat();
    let mut given_up = 0;
    for (second, byte) in (1_usize..).zip(frame) {
        slow.retain_mut(|dialogue| {
            dialogue.server.input().extend_from_slice(&[byte]);
            dialogue.handle().expect("it is legal so far");
            assert_eq!((dialogue.server.waiting(), dialogue.seen.len()), (second, 0));
            assert!(dialogue.server.input().capacity() <= 1 << 10, "what is announced costs no memory");
            let late = dialogue.pass(1.0).is_err();
            given_up += usize::from(late);
            !late
        });
        quick.window(2).events(1..=2).arrive().expect("legal");
        quick.take_all();
        assert_eq!(quick.acks(), [('2', 2)]);
        quick.pass(1.0).expect("no time-out");
        if slow.is_empty() {
            assert_eq!((second, given_up), (30, 3_000));
            return;
        }
    }
    panic!("{} are still waited for", slow.len());
}

#[test]
fn a_frame_that_waits_for_the_application_is_not_late() {
    let mut dialogue = Dialogue::new(Version::V2);
    dialogue.window(1).events([1]).window(1).events([1]).window(1).events([1]).arrive().expect("legal");
    dialogue.pass(100.0).expect("the application is slow, not the writer");
    dialogue.take_all();
    assert_eq!(dialogue.handle(), Ok(1));
}

#[test]
fn a_writer_that_is_silent_for_too_long_is_given_up_if_a_limit_is_set() {
    let config = ServerConfig { idle_timeout: Some(Duration::from_secs(60)), ..ServerConfig::default() };
    let mut dialogue = Dialogue::with(Version::V2, config);
    dialogue.window(1).events([1]).arrive().expect("legal");
    dialogue.pass(120.0).expect("it waits for us");
    dialogue.take_all();
    dialogue.pass(59.0).expect("in time");
    assert!(matches!(dialogue.pass(1.0), Err(Error::Deadline(Deadline::Silence, _))));
}

#[test]
fn limits_beyond_the_clock_are_never_reached() {
    let (frame_timeout, idle_timeout) = (Duration::MAX, Some(Duration::MAX));
    let (keepalive, pause) = (Duration::MAX, Duration::MAX);
    let config = ServerConfig { frame_timeout, idle_timeout, keepalive, pause, ..ServerConfig::default() };
    let mut dialogue = Dialogue::with(Version::V2, config);
    dialogue.pass(1e6).expect("silence");
    dialogue.window(2).events([1]).arrive().expect("legal");
    dialogue.pass(1e6).expect("it waits for us");
    dialogue.take_all();
    dialogue.pass(1e6).expect("a pause");
    dialogue.server.input().extend_from_slice(b"2J");
    dialogue.handle().expect("legal");
    dialogue.pass(1e6).expect("half a frame");
    assert!(dialogue.acks().is_empty());
}

#[test]
fn at_the_end_what_was_taken_is_acknowledged_and_half_a_frame_is_an_error() {
    let mut dialogue = Dialogue::new(Version::V2);
    dialogue.window(5).events(1..=2).arrive().expect("legal");
    dialogue.server.handle_end(dialogue.clock.instant()).expect("between frames");
    assert_eq!(dialogue.acks(), []);
    dialogue.take_all();
    assert_eq!(dialogue.acks(), [('2', 2)]);

    let mut dialogue = Dialogue::new(Version::V2);
    dialogue.window(5).events(1..=2).arrive().expect("legal");
    dialogue.server.input().extend_from_slice(b"2J");
    dialogue.handle().expect("not whole");
    let end = dialogue.server.handle_end(dialogue.clock.instant());
    assert!(matches!(end, Err(Error::Malformed(Malformed::StreamEnd, _))), "{end:?}");
    dialogue.take_all();
    assert_eq!(dialogue.acks(), [('2', 2)]);
}

#[test]
fn windows_that_are_announced_and_never_filled_cost_bounded_memory() {
    let limits = penstock_lumberjack::Limits { window: 10, ..Default::default() };
    let mut dialogue = Dialogue::with(Version::V1, ServerConfig { limits, ..ServerConfig::default() });
    for _ in 0..100 {
        dialogue.window(10).events(1..=5);
    }
    assert_eq!(dialogue.arrive(), Ok(20));
    assert!(!dialogue.server.wants_input());
    dialogue.take_all();
    dialogue.pass(1.0).expect("no time-out");
    assert_eq!(dialogue.acks(), [('1', 5)]);
    assert!(dialogue.server.wants_input());
}

#[test]
fn a_budget_stops_between_events() {
    let mut dialogue = Dialogue::new(Version::V2);
    dialogue.window(4).events(1..=4);
    let bytes = dialogue.out.split();
    dialogue.server.input().extend_from_slice(&bytes);
    let mut seen = 0;
    let mut take = |_: u32, _: Event<'_>| seen += 1;
    let progress = dialogue.server.handle_input(dialogue.clock.instant(), 8, &mut take).expect("legal");
    assert_eq!((progress.events, progress.more), (1, true));
    let progress = dialogue.server.handle_input(dialogue.clock.instant(), 1_000, &mut take).expect("legal");
    assert_eq!((progress.events, progress.more, seen), (3, false, 4));
}

#[test]
fn more_cannot_be_acknowledged_than_was_received() {
    let mut dialogue = Dialogue::new(Version::V2);
    let misuse = Misuse::Acknowledged { acknowledged: 1, received: 0 };
    assert_eq!(dialogue.server.acknowledge(dialogue.clock.instant(), 1), Err(misuse.into()));
}
