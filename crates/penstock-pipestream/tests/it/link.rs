//! Two sessions on a network that loses, delays, splits and reorders, under fake time: entity streams, including
//! payloads, overtake stream 0 and each other.
// A panic in these helpers is a failed test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_pipestream::{
    Accepted, Admission, EntityHeader, EntityKey, ErrorCode, Event, HeaderDecoder, Now, PayloadCheck, Reason, Role,
    ScopeDigest, Session, SessionConfig, Status, Transmit,
};
use penstock_testkit::clock::FakeClock;
use penstock_testkit::link::{Conditions, Delivery, Link};
use penstock_testkit::pair::{Machine, Pair};
use sha2::{Digest, Sha256};

/// The next step of a client; documents are identified by number.
#[derive(Debug, Clone, Copy)]
enum Step {
    Announce { document: usize, parent: bool, dehydrate: bool, wrong: bool },
    End { document: usize },
}

/// An entity stream of the peer, as far as it has arrived.
#[derive(Default)]
struct Incoming {
    decoder: HeaderDecoder,
    bytes: Vec<u8>,
    header: Option<EntityHeader>,
    accepted: Option<Accepted>,
    finished: bool,
}

struct End {
    session: Session,
    /// Whether this end closes the session when its work is done: the client does, the server waits.
    closes: bool,
    steps: VecDeque<Step>,
    roots: BTreeMap<usize, EntityKey>,
    streams: BTreeMap<u64, Incoming>,
    /// Streams that are no longer read; data in flight on them is ignored.
    over: BTreeSet<u64>,
    outgoing: Vec<(u64, Bytes)>,
    next_stream: u64,
    sent: BTreeMap<EntityKey, Status>,
    received: BTreeMap<EntityKey, Status>,
    digests: Vec<ScopeDigest>,
    closed: Option<Reason>,
}

fn now(clock: &FakeClock) -> Now {
    Now { instant: clock.instant(), unix_micros: clock.unix_micros() }
}

impl End {
    fn new(role: Role, clock: &FakeClock, layer1: bool, steps: Vec<Step>) -> Self {
        let mut config = SessionConfig::default();
        config.capabilities.layer1 = layer1;
        config.capabilities.max_window_size = Some(32);
        Self {
            session: Session::new(role, config, now(clock)).unwrap(),
            closes: role == Role::Client,
            steps: steps.into(),
            roots: BTreeMap::new(),
            streams: BTreeMap::new(),
            over: BTreeSet::new(),
            outgoing: Vec::new(),
            next_stream: 2,
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            digests: Vec::new(),
            closed: None,
        }
    }

    /// Announce as many entities as the window allows, and put each entity's stream on the network immediately.
    fn work(&mut self, now: Now) {
        while let Some(step) = self.steps.front().copied() {
            match step {
                Step::Announce { document, parent, dehydrate, wrong } => {
                    let parent = parent.then(|| self.roots[&document]);
                    let Some(ticket) = self.session.announce(now, parent, dehydrate).unwrap() else { return };
                    if dehydrate {
                        self.roots.insert(document, ticket.key);
                    }
                    let payload = vec![document as u8; document * 97 % 5_000];
                    let mut checksum = Sha256::digest(&payload).to_vec();
                    checksum[0] ^= u8::from(wrong);
                    let mut header = EntityHeader {
                        content_type: "text/plain".to_owned(),
                        payload_length: payload.len() as u64,
                        checksum: checksum.into(),
                        ..EntityHeader::default()
                    };
                    self.session.bind_header(&ticket, &mut header);
                    let mut bytes = header.encode().to_vec();
                    bytes.extend(payload);
                    self.outgoing.push((self.next_stream, bytes.into()));
                    self.next_stream += 4;
                }
                Step::End { document } => self.session.end_children(now, self.roots[&document]).unwrap(),
            }
            self.steps.pop_front();
        }
        if self.closes {
            self.session.close(now);
        }
    }

    fn header(&mut self, now: Now, stream: u64, header: &EntityHeader) {
        match self.session.handle_header(now, stream, header).unwrap() {
            Admission::Accepted(accepted) => self.streams.get_mut(&stream).unwrap().accepted = Some(accepted),
            Admission::Held => {}
            Admission::Stopped(_) => self.forget(stream),
        }
    }

    fn forget(&mut self, stream: u64) {
        self.streams.remove(&stream);
        self.over.insert(stream);
    }

    /// Verify a stream's payload, once it is complete and admitted.
    fn deliver(&mut self, now: Now, stream: u64) {
        let Some(incoming) = self.streams.get(&stream) else { return };
        let (Some(header), Some(accepted), true) = (&incoming.header, incoming.accepted, incoming.finished) else {
            return;
        };
        let mut check = PayloadCheck::new(header.payload_length, header.checksum.clone());
        let verified = check.update(&incoming.bytes).and_then(|()| check.finish());
        match verified {
            Ok(_) => self.session.complete(now, accepted.key),
            Err(error) => {
                let reason = Reason { code: error.code(), message: error.message().to_owned() };
                self.session.fail(now, accepted.key, reason);
            }
        }
        self.forget(stream);
    }

    fn learn(&mut self, now: Now) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Agreed(_) | Event::Capacity => self.work(now),
                Event::Admitted { stream, accepted } => {
                    self.streams.get_mut(&stream).unwrap().accepted = Some(accepted);
                    self.deliver(now, stream);
                }
                Event::Resolved { key, status, owned, .. } => {
                    let outcomes = if owned { &mut self.sent } else { &mut self.received };
                    assert_eq!(outcomes.insert(key, status), None, "{key:?} was resolved twice");
                }
                Event::Released { digest, .. } => self.digests.push(digest),
                Event::Closed { reason, .. } => self.closed = Some(reason),
                Event::Status { .. }
                | Event::Gathered { .. }
                | Event::Digest { .. }
                | Event::Barrier { .. }
                | Event::Checkpoint { .. }
                | Event::Error { .. }
                | Event::Layer2(_) => {}
            }
        }
    }
}

impl Machine for End {
    fn handle(&mut self, clock: &FakeClock, delivery: Delivery) {
        let now = now(clock);
        match delivery {
            Delivery::Bytes(stream, _) if self.over.contains(&stream) => {}
            Delivery::Bytes(0, bytes) => self.session.handle_control(now, bytes).unwrap(),
            Delivery::Bytes(stream, bytes) => {
                let incoming = self.streams.entry(stream).or_default();
                if incoming.header.is_some() {
                    incoming.bytes.extend(bytes);
                } else if let Some(header) = incoming.decoder.push(bytes).unwrap() {
                    incoming.bytes.extend(incoming.decoder.take_rest());
                    incoming.header = Some(header.clone());
                    self.header(now, stream, &header);
                }
            }
            Delivery::Finish(stream) => {
                if let Some(incoming) = self.streams.get_mut(&stream) {
                    incoming.finished = true;
                    self.deliver(now, stream);
                }
            }
            Delivery::Reset(..) => panic!("nobody resets here"),
            // The peer no longer reads the payload of an entity that has failed; all of it is already in flight.
            Delivery::Stop(..) => {}
        }
    }

    fn transmit(&mut self, clock: &FakeClock, out: &mut Link) {
        self.learn(now(clock));
        while let Some(transmit) = self.session.poll_transmit(1_200) {
            match transmit {
                Transmit::Control(bytes) => out.send(clock.instant(), 0, bytes),
                Transmit::StopStream { stream, code } => {
                    self.forget(stream);
                    out.stop(clock.instant(), stream, code.code());
                }
                Transmit::Close { code, message } => {
                    assert_eq!((code, self.closes), (ErrorCode::NoError, true), "{message}")
                }
            }
        }
        for (stream, bytes) in std::mem::take(&mut self.outgoing) {
            out.send(clock.instant(), stream, bytes);
            out.finish(clock.instant(), stream);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.session.poll_timeout()
    }

    fn handle_timeout(&mut self, clock: &FakeClock) {
        self.session.handle_timeout(now(clock));
    }
}

/// Plan documents with this many parts each; every seventh part of every third document has a wrong checksum.
fn plan(documents: usize, parts: usize) -> Vec<Step> {
    (0..documents)
        .flat_map(|document| {
            let root = Step::Announce { document, parent: false, dehydrate: true, wrong: false };
            let children = (0..parts).map(move |part| {
                let wrong = document % 3 == 2 && part % 7 == 6;
                Step::Announce { document, parent: true, dehydrate: false, wrong }
            });
            std::iter::once(root).chain(children).chain([Step::End { document }])
        })
        .collect()
}

fn run(conditions: &Conditions, layer1: bool, seed: u64) -> Pair<End, End> {
    let clock = FakeClock::new();
    let client = End::new(Role::Client, &clock, layer1, plan(12, 20));
    let server = End::new(Role::Server, &clock, layer1, Vec::new());
    let mut pair = Pair::new(client, server, clock, conditions, seed);
    pair.drive();
    pair
}

fn check(pair: &Pair<End, End>, layer1: bool) {
    let (client, server) = (&pair.client, &pair.server);
    assert_eq!(client.closed, Some(Reason { code: ErrorCode::NoError, message: String::new() }));
    assert_eq!(client.sent, server.received, "the ends disagree");
    assert_eq!(client.sent.len(), 12 * 21);
    let failed = client.sent.values().filter(|status| **status == Status::Failed).count();
    // Two parts in each of four documents, and these four documents themselves.
    assert_eq!(failed, 4 * 2 + 4);
    assert_eq!(client.digests.len(), if layer1 { 12 } else { 0 });
    assert!(server.streams.is_empty(), "streams were left over");
}

#[test]
fn a_perfect_network() {
    for layer1 in [true, false] {
        check(&run(&Conditions::PERFECT, layer1, 1), layer1);
    }
}

#[test]
fn a_network_that_loses_delays_splits_and_reorders() {
    let mut held = 0;
    for seed in 0..20 {
        for layer1 in [true, false] {
            let pair = run(&Conditions::ROUGH, layer1, seed);
            check(&pair, layer1);
            held += pair.server.session.counters().held_streams;
            assert!(pair.clock.elapsed() < Duration::from_secs(60), "{:?}", pair.clock.elapsed());
        }
    }
    assert!(held > 100, "streams hardly ever overtook their announcements: {held}");
}
