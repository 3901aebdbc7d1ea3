//! Tests of the writer, alone and with our reader, over connections that break.
#![allow(clippy::expect_used)]

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use penstock_lumberjack::{
    Accepts, Acknowledged, Client, ClientConfig, Deadline, Error, Event, Malformed, Misuse, Sequence, Server,
    ServerConfig, Version, Violation,
};
use penstock_testkit::clock::FakeClock;
use penstock_wire::LimitExceeded;
use proptest::prelude::*;

fn above(name: &'static str, limit: u64, actual: u64) -> Error {
    LimitExceeded { name, limit, actual }.into()
}

fn config() -> ClientConfig {
    ClientConfig { window: 2, compression: 0, ..ClientConfig::default() }
}

fn client(clock: &FakeClock, config: ClientConfig) -> Client {
    Client::new(clock.instant(), config).expect("legal")
}

fn transmit(client: &mut Client, clock: &FakeClock) -> Vec<u8> {
    let mut out = BytesMut::new();
    while client.poll_transmit(clock.instant(), &mut out).expect("fits") {}
    out.to_vec()
}

fn ack(sequence: u32) -> Vec<u8> {
    [b"1A".as_slice(), &sequence.to_be_bytes()].concat()
}

#[test]
fn a_window_goes_when_it_is_full_or_flushed() {
    let clock = FakeClock::new();
    let mut client = client(&clock, config());
    client.send_json(b"{}").expect("fits");
    assert_eq!(transmit(&mut client, &clock), b"");
    client.send_data([(b"k".as_slice(), b"v".as_slice())]).expect("fits");
    let first = b"1W\0\0\0\x021J\0\0\0\x01\0\0\0\x02{}1D\0\0\0\x02\0\0\0\x01\0\0\0\x01k\0\0\0\x01v";
    assert_eq!(transmit(&mut client, &clock), first);
    client.send_json(b"[]").expect("fits");
    client.flush();
    client.flush();
    assert_eq!(transmit(&mut client, &clock), b"1W\0\0\0\x011J\0\0\0\x01\0\0\0\x02[]");
    assert!(!client.wants_events());
}

#[test]
fn acknowledgements_of_pipelined_windows_are_matched_in_order() {
    let clock = FakeClock::new();
    let mut client = client(&clock, config());
    (0..4).for_each(|_| client.send_json(b"{}").expect("fits"));
    transmit(&mut client, &clock);
    assert_eq!(client.handle_input(clock.instant(), &ack(0)), Ok(Acknowledged(0)));
    assert_eq!(client.handle_input(clock.instant(), &ack(1)), Ok(Acknowledged(1)));
    assert_eq!(client.handle_input(clock.instant(), &ack(2)), Ok(Acknowledged(2)));
    assert_eq!(client.handle_input(clock.instant(), &ack(2)), Ok(Acknowledged(4)));
    assert_eq!((client.unacknowledged(), client.poll_timeout()), (0, None));
}

#[test]
fn numbers_that_go_on_may_be_acknowledged_over_several_windows() {
    let clock = FakeClock::new();
    let mut client = client(&clock, ClientConfig { sequence: Sequence::Continue, in_flight: 3, ..config() });
    (0..6).for_each(|_| client.send_json(b"{}").expect("fits"));
    transmit(&mut client, &clock);
    assert_eq!(client.handle_input(clock.instant(), &ack(5)), Ok(Acknowledged(5)));
    assert_eq!(client.handle_input(clock.instant(), &ack(2)), Ok(Acknowledged(5)));
    assert_eq!(client.handle_input(clock.instant(), &ack(6)), Ok(Acknowledged(6)));
}

#[test]
fn what_was_never_sent_cannot_be_acknowledged() {
    let clock = FakeClock::new();
    let mut client = client(&clock, config());
    (0..2).for_each(|_| client.send_json(b"{}").expect("fits"));
    transmit(&mut client, &clock);
    let error = client.handle_input(clock.instant(), &ack(3)).expect_err("refused");
    assert_eq!(error, Error::Violation(Violation::UnsentEvent { sequence: 3 }, Some(0)));
    assert_eq!(client.handle_input(clock.instant(), &ack(2)), Err(error));
}

#[test]
fn a_reader_sends_nothing_but_acknowledgements() {
    let clock = FakeClock::new();
    let window = Violation::FrameType { sender: Accepts::Reader, frame_type: b'W' };
    for (bytes, error) in [
        (b"1W\0\0\0\x01", Error::Violation(window, Some(0))),
        (b"HTTP/1", Error::Malformed(Malformed::Version(b'H'), Some(0))),
    ] {
        assert_eq!(client(&clock, config()).handle_input(clock.instant(), bytes), Err(error));
    }
}

#[test]
fn a_reader_that_says_nothing_is_given_up_and_one_that_is_still_there_is_not() {
    let mut clock = FakeClock::new();
    let mut client = client(&clock, config());
    assert_eq!(client.poll_timeout(), None);
    (0..2).for_each(|_| client.send_json(b"{}").expect("fits"));
    transmit(&mut client, &clock);
    clock.advance(Duration::from_secs(29));
    client.handle_input(clock.instant(), &ack(0)).expect("still there");
    clock.advance(Duration::from_secs(29));
    client.handle_timeout(clock.instant()).expect("in time");
    clock.advance(Duration::from_secs(1));
    assert_eq!(client.handle_timeout(clock.instant()), Err(Deadline::Ack { seconds: 30 }.into()));
}

#[test]
fn a_time_out_beyond_the_clock_never_ends() {
    let mut clock = FakeClock::new();
    let mut client = client(&clock, ClientConfig { timeout: Duration::MAX, ..config() });
    (0..2).for_each(|_| client.send_json(b"{}").expect("fits"));
    transmit(&mut client, &clock);
    clock.advance(Duration::from_secs(1_000_000));
    client.handle_timeout(clock.instant()).expect("in time");
}

#[test]
fn after_a_disconnect_what_is_not_acknowledged_goes_again_under_numbers_that_fit() {
    for (sequence, again) in [(Sequence::Window, 1_u8), (Sequence::Continue, 2)] {
        let clock = FakeClock::new();
        let mut client = client(&clock, ClientConfig { sequence, ..config() });
        client.send_json(b"\"a\"").expect("fits");
        client.send_json(b"\"b\"").expect("fits");
        transmit(&mut client, &clock);
        client.handle_input(clock.instant(), &ack(1)).expect("legal");
        client.handle_disconnect(clock.instant());
        let expected = [b"1W\0\0\0\x011J\0\0\0".as_slice(), &[again], b"\0\0\0\x03\"b\""].concat();
        assert_eq!(transmit(&mut client, &clock), expected);
        assert_eq!(client.handle_input(clock.instant(), &ack(again.into())), Ok(Acknowledged(2)));
    }
}

#[test]
fn options_that_cannot_work_are_refused() {
    let clock = FakeClock::new();
    let wrong = [
        (ClientConfig { window: 0, ..config() }, Misuse::NoWindow),
        (ClientConfig { in_flight: 0, ..config() }, Misuse::NoWindow),
        (ClientConfig { compression: 10, ..config() }, Misuse::CompressionLevel(10)),
    ];
    for (config, misuse) in wrong {
        assert_eq!(Client::new(clock.instant(), config).expect_err("refused"), misuse.into());
    }
    let error = Client::new(clock.instant(), ClientConfig { window: 65_537, ..config() }).expect_err("refused");
    assert_eq!(error, above("the window", 65_536, 65_537));
}

#[test]
fn an_event_that_no_reader_takes_is_refused_and_the_others_go() {
    let clock = FakeClock::new();
    let mut client = client(&clock, config());
    client.send_json(b"{}").expect("fits");
    let (long, key) = (vec![b'x'; (16 << 20) + 1], vec![b'k'; (64 << 10) + 1]);
    let many = vec![(b"".as_slice(), b"".as_slice()); 65_537];
    let large = vec![(b"k".as_slice(), &long[1..]); 4];
    for (refused, error) in [
        (client.send_json(&long), above("the length of a JSON document", 16_777_216, 16_777_217)),
        (
            client.send_data([(b"k".as_slice(), long.as_slice())]),
            above("the length of a value", 16_777_216, 16_777_217),
        ),
        (client.send_data([(key.as_slice(), b"".as_slice())]), above("the length of a key", 65_536, 65_537)),
        (client.send_data(many), above("the pair count", 65_536, 65_537)),
        (client.send_data(large), above("the length of a data frame", 67_108_864, 67_108_910)),
    ] {
        assert_eq!(refused, Err(error));
    }
    client.send_json(&long[1..]).expect("fits");
    assert_eq!(
        (client.unacknowledged(), transmit(&mut client, &clock).get(..6)),
        (2, Some(b"1W\0\0\0\x02".as_slice()))
    );
}

/// A connection: the bytes in flight in both directions.
#[derive(Default)]
struct Wire {
    up: VecDeque<u8>,
    down: VecDeque<u8>,
}

proptest! {
    /// Connections break at any time, but every event arrives, and every acknowledged event was taken.
    #[test]
    fn every_event_arrives_over_connections_that_break(
        sequence in prop_oneof![Just(Sequence::Window), Just(Sequence::Continue)],
        version in prop_oneof![Just(Version::V1), Just(Version::V2)],
        compression in prop_oneof![Just(0_u32), Just(3)],
        window in 1_u32..6,
        steps in prop::collection::vec((0_u8..6, 1_usize..60), 1..200),
    ) {
        let mut clock = FakeClock::new();
        let config = ClientConfig { version, sequence, compression, window, ..ClientConfig::default() };
        let mut client = client(&clock, config);
        let mut server = Server::new(clock.instant(), ServerConfig::default());
        let (mut wire, mut sent, mut taken) = (Wire::default(), 0_u32, Vec::new());
        let drain = [(0, 1), (1, 1000), (2, 1), (3, 1000), (5, 1)].repeat(400);
        for (step, amount) in steps.into_iter().chain(drain) {
            match step {
                0 if client.wants_events() && sent < 100 => {
                    client.send_json(sent.to_string().as_bytes()).expect("fits");
                    sent += 1;
                }
                0 => client.flush(),
                1 => {
                    let mut out = BytesMut::new();
                    while client.poll_transmit(clock.instant(), &mut out).expect("fits") {}
                    wire.up.extend(out);
                    let up: Vec<u8> = wire.up.drain(..amount.min(wire.up.len())).collect();
                    server.input().extend_from_slice(&up);
                    let mut take = |_: u32, event: Event<'_>| {
                        let Event::Json(payload) = event else { panic!("{event:?}") };
                        taken.push(String::from_utf8_lossy(payload).parse::<u32>().expect("a number"));
                    };
                    server.handle_input(clock.instant(), amount, &mut take).expect("legal");
                }
                2 => server.acknowledge(clock.instant(), server.received()).expect("received"),
                3 => {
                    while let Some(ack) = server.poll_transmit() {
                        wire.down.extend(ack);
                    }
                    let down: Vec<u8> = wire.down.drain(..amount.min(wire.down.len())).collect();
                    let Acknowledged(events) = client.handle_input(clock.instant(), &down).expect("legal");
                    let distinct = taken.iter().collect::<std::collections::BTreeSet<_>>();
                    prop_assert!((0..events).all(|event| distinct.contains(&u32::try_from(event).expect("small"))));
                }
                4 => {
                    client.handle_disconnect(clock.instant());
                    server = Server::new(clock.instant(), ServerConfig::default());
                    wire = Wire::default();
                }
                _ => {
                    clock.advance(Duration::from_millis(1_100));
                    server.handle_timeout(clock.instant()).expect("in time");
                }
            }
        }
        let mut distinct = taken.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(distinct, (0..sent).collect::<Vec<_>>());
        prop_assert_eq!(client.acknowledged(), Acknowledged(sent.into()));
    }
}
