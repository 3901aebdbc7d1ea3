//! Every order in which the headers of honest parents may arrive between the frames of stream 0, with any of the
//! parents given up without opening its stream. The receiver closes if a scope can no longer be bound (decisions 10 and
//! 14); here it must never close, and every entity must end.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::wildcard_enum_match_arm)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use bytes::Bytes;
use penstock_pipestream::{
    Admission, EntityHeader, EntityKey, ErrorCode, Event, Frame, Now, Reason, Role, Session, SessionConfig, Status,
    Ticket, Transmit,
};

fn start() -> Now {
    Now { instant: Instant::now(), unix_micros: 0 }
}

#[derive(Clone)]
struct Run {
    now: Now,
    client: Session,
    server: Session,
    to_server: VecDeque<Bytes>,
    headers: Vec<(u64, EntityHeader)>,
    received: BTreeMap<EntityKey, Status>,
}

/// Split an end's bytes into frames, so that each arrives separately.
fn frames(session: &mut Session) -> VecDeque<Bytes> {
    let mut found = VecDeque::new();
    while let Some(transmit) = session.poll_transmit(usize::MAX) {
        match transmit {
            Transmit::Control(mut bytes) => {
                while let Some((_, length)) = Frame::decode(&bytes).unwrap() {
                    found.push_back(bytes.split_to(length));
                }
            }
            Transmit::StopStream { .. } => {}
            Transmit::Close { code, message } => panic!("{code}: {message}"),
        }
    }
    found
}

impl Run {
    fn new() -> Self {
        let now = start();
        let config = SessionConfig { keepalive: None, ..SessionConfig::default() };
        let mut client = Session::new(Role::Client, config.clone(), now).unwrap();
        let mut server = Session::new(Role::Server, config, now).unwrap();
        for frame in frames(&mut client) {
            server.handle_control(now, frame).unwrap();
        }
        for frame in frames(&mut server) {
            client.handle_control(now, frame).unwrap();
        }
        let (to_server, headers, received) = (VecDeque::new(), Vec::new(), BTreeMap::new());
        Self { now, client, server, to_server, headers, received }
    }

    fn announce(&mut self, parent: Option<EntityKey>, dehydrate: bool, opens: bool) -> Ticket {
        let ticket = self.client.announce(self.now, parent, dehydrate).unwrap().unwrap();
        if opens {
            let mut header = EntityHeader {
                content_type: "text/plain".to_owned(),
                checksum: Bytes::from_static(&[0; 32]),
                ..EntityHeader::default()
            };
            self.client.bind_header(&ticket, &mut header);
            self.headers.push((2 + 4 * self.headers.len() as u64, header));
        }
        ticket
    }

    fn take_frame(&mut self) {
        let frame = self.to_server.pop_front().unwrap();
        self.server.handle_control(self.now, frame).unwrap();
        self.collect();
    }

    fn open(&mut self, index: usize) {
        let (stream, header) = self.headers.remove(index);
        if let Admission::Accepted(accepted) = self.server.handle_header(self.now, stream, &header).unwrap() {
            self.server.complete(self.now, accepted.key);
        }
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                Event::Admitted { accepted, .. } => self.server.complete(self.now, accepted.key),
                Event::Resolved { key, status, owned: false, .. } => {
                    assert_eq!(self.received.insert(key, status), None);
                }
                Event::Closed { reason, .. } => panic!("closed: {reason:?}"),
                _ => {}
            }
        }
    }

    fn check_end(mut self, entities: usize) {
        for frame in frames(&mut self.server) {
            self.client.handle_control(self.now, frame).unwrap();
        }
        assert_eq!((self.received.len(), self.server.open_received()), (entities, 0));
        assert_eq!(self.client.open_owned(), 0);
    }
}

/// Try every order: the frames stay in order, and each header may arrive anywhere.
fn walk(run: &Run, entities: usize, ends: &mut usize) {
    if run.to_server.is_empty() && run.headers.is_empty() {
        run.clone().check_end(entities);
        *ends += 1;
        return;
    }
    if !run.to_server.is_empty() {
        let mut next = run.clone();
        next.take_frame();
        walk(&next, entities, ends);
    }
    for index in 0..run.headers.len() {
        let mut next = run.clone();
        next.open(index);
        walk(&next, entities, ends);
    }
}

/// Explore two parents, the first with an inner parent below it. `lost` states for each parent whether it is given up
/// without opening its stream; `early` whether the inner parent's scope ends without a child.
fn world(lost: [bool; 3], early: bool, ends: &mut usize) {
    let mut run = Run::new();
    let first = run.announce(None, true, !lost[0]);
    let second = run.announce(None, true, !lost[1]);
    let inner = run.announce(Some(first.key), true, !lost[2]);
    let mut entities = 3;
    if !early {
        run.announce(Some(inner.key), false, false);
        entities += 1;
    }
    let parents = [first, second, inner];
    let reason = || Reason { code: ErrorCode::InternalError, message: String::new() };
    for (parent, lost) in parents.iter().zip(lost) {
        if lost {
            run.client.fail(run.now, parent.key, reason());
        }
    }
    if !early {
        let leaf = EntityKey { scope: inner.child_scope.unwrap().scope, ..first.key };
        run.client.fail(run.now, leaf, reason());
    }
    for parent in [second, inner, first] {
        run.client.end_children(run.now, parent.key).unwrap();
    }
    run.to_server = frames(&mut run.client);
    walk(&run, entities, ends);
}

#[test]
fn no_order_of_honest_headers_makes_a_scope_impossible_to_bind() {
    let mut ends = 0;
    for choice in 0..8_u8 {
        let lost = [choice & 1 > 0, choice & 2 > 0, choice & 4 > 0];
        world(lost, false, &mut ends);
        world(lost, true, &mut ends);
    }
    assert!(ends > 1_000, "{ends}");
}
