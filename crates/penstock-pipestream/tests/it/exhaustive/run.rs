//! The world to explore, and the state of a run through it.

mod steps;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_pipestream::messages::CompletionPolicy;
use penstock_pipestream::yield_token::TokenKey;
use penstock_pipestream::{
    EntityHeader, EntityKey, ErrorCode, Event, Frame, Layer2Config, Layer2Event, Now, Reason, Role, Session,
    SessionConfig, SessionId, Status, Ticket, Transmit,
};

/// A possible next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The client announces the next entity, or ends the children.
    Work,
    /// The client announces a child for which there is nothing to send.
    Missing,
    ToServer,
    ToClient,
    /// A stream's header arrives.
    Open(usize),
    Complete(usize),
    Fail(usize),
    Defer(usize),
    Skip(usize),
    Yield(usize),
    Resume,
    Retry,
    /// The client gives up the entity that failed.
    GiveUp,
    /// The client skips, gives up or abandons its first open child, whatever is in flight.
    LeaveOut(Status),
    /// The server has a claim check for the entity to defer.
    Claim,
    /// Nothing happens until the next timeout.
    Wait,
    /// The connection is lost with everything in flight, and the client opens another. The server keeps the payloads
    /// that have arrived, or loses them too.
    Cut {
        keep: bool,
    },
    /// The connection is lost, and the server's process dies.
    KillServer,
    KillClient,
}

/// The policy and size of a session, and how many of the costly steps are allowed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World {
    pub(crate) policy: CompletionPolicy,
    pub(crate) children: usize,
    pub(crate) yields: usize,
    pub(crate) left_out: usize,
    pub(crate) waits: usize,
    /// How often the connection is lost alone, and how often together with a process.
    pub(crate) cuts: usize,
    pub(crate) kills: usize,
}

#[derive(Default)]
pub(crate) struct Seen {
    /// The edges of the diagram for entities without children: a status, the next one, and the end that sent it.
    pub(crate) edges: BTreeSet<(&'static str, &'static str, &'static str)>,
    pub(crate) states: usize,
    pub(crate) ends: usize,
    pub(crate) statuses: BTreeMap<Status, usize>,
    pub(crate) restored: usize,
}

impl Seen {
    /// Add what was seen in another world.
    pub(crate) fn add(&mut self, other: Self) {
        self.edges.extend(other.edges);
        self.states += other.states;
        self.ends += other.ends;
        self.restored += other.restored;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
    }
}

/// The records that a process leaves behind.
type Records = Vec<Bytes>;

#[derive(Clone)]
pub(crate) struct Run {
    world: World,
    now: Now,
    client: Session,
    server: Session,
    /// The server's end of a connection whose session it has not found yet.
    fresh: Option<Session>,
    client_records: Records,
    server_records: Records,
    pub(crate) path: Vec<Step>,
    to_server: VecDeque<Bytes>,
    to_client: VecDeque<Bytes>,
    streams: Vec<(u64, EntityHeader)>,
    accepted: Vec<EntityKey>,
    wanted: Vec<EntityKey>,
    failed: Vec<EntityKey>,
    tokens: Vec<(EntityKey, Bytes)>,
    parent: Option<EntityKey>,
    announced: usize,
    ended: bool,
    yields: usize,
    left_out: usize,
    waits: usize,
    cuts: usize,
    kills: usize,
    delivered: BTreeSet<EntityKey>,
    sent: BTreeMap<EntityKey, Status>,
    received: BTreeMap<EntityKey, Status>,
    at: BTreeMap<EntityKey, &'static str>,
    by_owner: BTreeSet<EntityKey>,
    seen: Rc<RefCell<Seen>>,
}

fn config() -> SessionConfig {
    let mut config = SessionConfig { keepalive: None, ..SessionConfig::default() };
    config.manifest.max_age = Duration::from_secs(1_000_000);
    config.capabilities.layer2 = true;
    let layer2 = Layer2Config::new(Some(SessionId::new([1; 16])), TokenKey::new([2; 32]));
    config.layer2 = Some(Layer2Config { survives: true, journal: true, ..layer2 });
    config
}

fn session(role: Role, now: Now) -> Session {
    Session::new(role, config(), now).unwrap()
}

/// Restore the session of a process that has died, as the next process does.
fn restore(role: Role, records: &Records, now: Now) -> Session {
    let restored = Session::restore(role, config(), records.iter().map(|record| record.as_ref()), now, |_| false);
    restored.unwrap().session
}

fn reason(code: ErrorCode) -> Reason {
    Reason { code, message: String::new() }
}

impl Run {
    pub(crate) fn new(world: World, start: Instant, seen: Rc<RefCell<Seen>>) -> Self {
        let now = Now { instant: start, unix_micros: 0 };
        let mut run = Self {
            world,
            now,
            client: session(Role::Client, now),
            server: session(Role::Server, now),
            fresh: None,
            client_records: Vec::new(),
            server_records: Vec::new(),
            path: Vec::new(),
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            streams: Vec::new(),
            accepted: Vec::new(),
            wanted: Vec::new(),
            failed: Vec::new(),
            tokens: Vec::new(),
            parent: None,
            announced: 0,
            ended: false,
            yields: 0,
            left_out: 0,
            waits: 0,
            cuts: 0,
            kills: 0,
            delivered: BTreeSet::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            at: BTreeMap::new(),
            by_owner: BTreeSet::new(),
            seen,
        };
        run.collect();
        while !run.to_server.is_empty() || !run.to_client.is_empty() {
            run.carry();
        }
        run
    }

    fn carry(&mut self) {
        if let Some(frame) = self.to_server.pop_front() {
            self.server.handle_control(self.now, frame).unwrap();
        } else if let Some(frame) = self.to_client.pop_front() {
            self.client.handle_control(self.now, frame).unwrap();
        }
        self.collect();
    }

    /// Collect the events and the output of both ends.
    fn collect(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                Event::Resolved { key, status, owned: true, .. } => {
                    assert_eq!(self.sent.insert(key, status), None, "{key:?} was resolved twice");
                    self.failed.retain(|failed| *failed != key);
                    self.tokens.retain(|(yielded, _)| *yielded != key);
                }
                Event::Layer2(Layer2Event::AttemptFailed { key, .. }) => self.failed.push(key),
                Event::Layer2(Layer2Event::SendAgain(ticket)) => self.send(&ticket),
                Event::Layer2(Layer2Event::Yielded { key, token, .. }) => self.tokens.push((key, token)),
                Event::Closed { reason, .. } => panic!("the client closed: {reason:?}"),
                _ => {}
            }
        }
        while let Some(event) = self.server.poll_event() {
            self.draw(&event);
            match event {
                Event::Admitted { accepted, .. } => self.accept(accepted.key),
                Event::Resolved { key, status, owned: false, .. } => {
                    assert_eq!(self.received.insert(key, status), None, "{key:?} was resolved twice");
                    self.accepted.retain(|accepted| *accepted != key);
                    self.wanted.retain(|wanted| *wanted != key);
                    *self.seen.borrow_mut().statuses.entry(status).or_default() += 1;
                }
                Event::Layer2(Layer2Event::AttemptFailed { key, .. }) => self.accepted.retain(|it| *it != key),
                Event::Layer2(Layer2Event::ClaimWanted { key, .. }) => {
                    self.accepted.retain(|it| *it != key);
                    self.wanted.push(key);
                }
                Event::Closed { reason, .. } => panic!("the server closed: {reason:?}"),
                _ => {}
            }
        }
        self.client_records.extend(std::iter::from_fn(|| self.client.poll_record()));
        self.server_records.extend(std::iter::from_fn(|| self.server.poll_record()));
        frames(&mut self.client, &mut self.to_server);
        frames(&mut self.server, &mut self.to_client);
    }

    fn accept(&mut self, key: EntityKey) {
        assert!(!self.delivered.contains(&key), "{key:?} is taken twice");
        self.accepted.push(key);
    }

    /// Record an edge of the diagram: a status that the server sends or receives for an entity without children.
    fn draw(&mut self, event: &Event) {
        match event {
            // A status after the end is late and has no effect.
            Event::Status { key, status, by_peer, .. } if key.scope > 1 && !self.received.contains_key(key) => {
                let given_up = matches!(status, Status::Failed | Status::Skipped | Status::Abandoned);
                if *by_peer && given_up {
                    self.by_owner.insert(*key);
                    return;
                }
                let who = if *by_peer || self.by_owner.contains(key) { "owner" } else { "receiver" };
                let before = self.at.insert(*key, status.name()).unwrap_or("[*]");
                self.seen.borrow_mut().edges.insert((before, status.name(), who));
            }
            Event::Resolved { key, status, owned: false, .. } if key.scope > 1 => {
                self.seen.borrow_mut().edges.insert((status.name(), "[*]", ""));
            }
            _ => {}
        }
    }

    fn send(&mut self, ticket: &Ticket) {
        if !self.client.may_send() {
            // The session will ask for the entity with SendAgain.
            return;
        }
        let mut header = EntityHeader {
            content_type: "text/plain".to_owned(),
            checksum: Bytes::from_static(&[0; 32]),
            ..EntityHeader::default()
        };
        self.client.bind_header(ticket, &mut header);
        self.streams.push((u64::from(header.scope_id) << 8 | u64::from(header.entity_id) << 2 | 2, header));
    }

    /// Check that a restarted owner finds the entities that it was sending.
    fn check_sources(&self) {
        let open = self.client.sent_open();
        for sent in &open {
            let key = sent.ticket.key;
            assert_eq!(sent.label.as_deref(), Some(label(key.scope, key.entity).as_bytes()));
            assert!(!sent.dehydrated || sent.ended == self.ended);
        }
        assert_eq!(open.len() + self.sent.len(), self.announced);
    }

    /// Check that a process that dies here is restored to the same state.
    pub(crate) fn check_restored(&self) {
        for (session, records, role) in
            [(&self.client, &self.client_records, Role::Client), (&self.server, &self.server_records, Role::Server)]
        {
            let mut suspended = session.clone();
            assert!(suspended.suspend(self.now, |_| false));
            let restored = restore(role, records, self.now);
            assert!(suspended.fingerprint(0) == restored.fingerprint(0), "{role:?} is another after {:?}", self.path);
            let mut again = session.clone();
            let snapshot = again.snapshot().unwrap();
            assert!(
                suspended.fingerprint(0) == restore(role, &vec![snapshot], self.now).fingerprint(0),
                "{role:?} {:?}",
                self.path
            );
        }
        self.seen.borrow_mut().restored += 1;
    }

    /// Return the state on which the future depends.
    pub(crate) fn fingerprint(&self) -> impl std::hash::Hash + use<> {
        let ends = (self.client.fingerprint(self.server.taken()), self.server.fingerprint(self.client.taken()));
        let link = format!(
            "{:?}{:?}{:?}{:?}{:?}",
            self.fresh.as_ref().map(|fresh| fresh.fingerprint(0)),
            self.to_server,
            self.to_client,
            self.streams,
            self.now,
        );
        let drivers = format!(
            "{:?}{:?}{:?}{:?}{:?}",
            self.accepted,
            self.wanted,
            self.failed,
            self.tokens,
            (self.parent, self.announced, self.ended, self.yields, self.left_out, self.waits, self.cuts, self.kills),
        );
        (ends, link, drivers)
    }

    /// Check a state in which nothing more can happen.
    pub(crate) fn check_end(mut self) {
        let path = &self.path;
        assert_eq!(self.sent, self.received, "the ends disagree after {path:?}");
        assert_eq!((self.client.open_owned(), self.server.open_received()), (0, 0), "open after {path:?}");
        assert_eq!(self.sent.len(), self.world.children + 1);
        self.client.close(self.now);
        while self.client.poll_event().is_some() || self.client.poll_record().is_some() {}
        let closed = Transmit::Close { code: ErrorCode::NoError, message: String::new() };
        assert_eq!(self.client.poll_transmit(99), Some(closed), "not closed after {path:?}");
    }
}

/// Return the label of a source.
fn label(scope: u16, entity: u32) -> String {
    format!("part {entity} of scope {scope}")
}

/// Split an end's bytes into frames, so that each arrives separately.
fn frames(session: &mut Session, link: &mut VecDeque<Bytes>) {
    while let Some(transmit) = session.poll_transmit(usize::MAX) {
        match transmit {
            Transmit::Control(mut bytes) => {
                while let Some((_, length)) = Frame::decode_layer2(&bytes).unwrap() {
                    link.push_back(bytes.split_to(length));
                }
                assert!(bytes.is_empty());
            }
            // A driver no longer reads such a stream.
            Transmit::StopStream { .. } => {}
            Transmit::Close { code, message } => panic!("{code}: {message}"),
        }
    }
}
