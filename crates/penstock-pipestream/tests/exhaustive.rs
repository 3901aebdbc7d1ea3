//! Every way that a small layer 2 session can go: both ends are the real core, and between them every order of frames and
//! streams, of verdicts, retries, yields, of giving up and of time running out is tried, from every state that can be
//! reached, and wherever it is allowed the connection is lost, or an end's process is killed and restored from its
//! records. In every state an end that is restored is the one that was suspended; and wherever nothing more can happen,
//! both ends must know the same, nothing may be open, nothing was delivered twice, and the session closes.
//!
//! States that look the same are walked on from once. The statuses seen on the way make the diagram in
//! `docs/protocols/pipestream.md`. `cargo test -p penstock-pipestream --test exhaustive -- --ignored --nocapture` walks
//! larger worlds.
//!
//! Longer than 600 lines, because the world that is walked and the way through it are one machine.
// An end that does what an honest one never does fails the test that drives it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::wildcard_enum_match_arm)]
// What a run that takes minutes prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction, StoppingPointValidation};
use penstock_pipestream::yield_token::{StoppingPoint, TokenKey};
use penstock_pipestream::{
    Admission, EntityHeader, EntityKey, ErrorCode, Event, Frame, Layer2Config, Layer2Event, Now, Reason, Role, Session,
    SessionConfig, SessionId, Status, Ticket, Transmit, YieldReason,
};

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The client announces the next entity, or ends the children.
    Work,
    /// It announces a child of which there is nothing.
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
    /// The client leaves out, gives up or abandons its first open child, whatever is on its way.
    LeaveOut(Status),
    /// The server has a claim check for what is to be deferred.
    Claim,
    /// Nothing happens until the next time-out.
    Wait,
    /// The connection is lost with all that is on it, and the client begins another. The server keeps the payloads that
    /// have come, or loses them too.
    Cut {
        keep: bool,
    },
    /// So it is because the server's process dies, or the client's.
    KillServer,
    KillClient,
}

/// How much of the costly steps there may be.
#[derive(Debug, Clone, Copy)]
struct World {
    policy: CompletionPolicy,
    children: usize,
    yields: usize,
    left_out: usize,
    waits: usize,
    /// How often the connection is lost, and how often with a process.
    cuts: usize,
    kills: usize,
}

#[derive(Default)]
struct Seen {
    /// Who said what, from which status on, of entities without children.
    edges: BTreeSet<(&'static str, &'static str, &'static str)>,
    states: usize,
    ends: usize,
    statuses: BTreeMap<Status, usize>,
    restored: usize,
}

/// What a process leaves behind.
type Records = Vec<Bytes>;

#[derive(Clone)]
struct Run {
    world: World,
    now: Now,
    client: Session,
    server: Session,
    /// The server's end of a connection whose session it does not know yet.
    fresh: Option<Session>,
    client_records: Records,
    server_records: Records,
    path: Vec<Step>,
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

/// The session of a process that has died, in its next one.
fn restore(role: Role, records: &Records, now: Now) -> Session {
    let restored = Session::restore(role, config(), records.iter().map(|record| record.as_ref()), now, |_| false);
    restored.unwrap().session
}

fn reason(code: ErrorCode) -> Reason {
    Reason { code, message: String::new() }
}

impl Run {
    fn new(world: World, start: Instant, seen: Rc<RefCell<Seen>>) -> Self {
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

    /// What both ends have learnt and have to say.
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

    /// An edge of the diagram: what the server says and hears of an entity without children.
    fn draw(&mut self, event: &Event) {
        match event {
            // What comes after the end is late, and means nothing.
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
            // It is told to send it again.
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

    /// Everything that may happen now.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut may = |possible: bool, step: Step| {
            if possible {
                steps.push(step);
            }
        };
        may(!self.ended, Step::Work);
        let child = self.parent.is_some() && self.announced <= self.world.children;
        may(child && self.left_out < self.world.left_out, Step::Missing);
        may(!self.to_server.is_empty(), Step::ToServer);
        may(!self.to_client.is_empty(), Step::ToClient);
        for index in 0..self.streams.len() {
            may(true, Step::Open(index));
        }
        for (index, key) in self.accepted.iter().enumerate() {
            may(true, Step::Complete(index));
            let child = key.scope > 1;
            may(child, Step::Fail(index));
            may(child, Step::Defer(index));
            may(child, Step::Skip(index));
            may(child && self.yields < self.world.yields, Step::Yield(index));
        }
        may(!self.tokens.is_empty(), Step::Resume);
        may(!self.failed.is_empty(), Step::Retry);
        may(!self.failed.is_empty(), Step::GiveUp);
        for status in [Status::Skipped, Status::Failed, Status::Abandoned] {
            let left = self.left_out < self.world.left_out && self.first_open_child().is_some();
            may(left, Step::LeaveOut(status));
        }
        may(!self.wanted.is_empty(), Step::Claim);
        let (cuts, kills) = (self.cuts < self.world.cuts, self.kills < self.world.kills);
        may(cuts, Step::Cut { keep: false });
        may(cuts && !self.accepted.is_empty(), Step::Cut { keep: true });
        may(kills, Step::KillServer);
        may(kills, Step::KillClient);
        let due = self.due();
        if due.is_some() && (self.waits < self.world.waits || steps.is_empty()) {
            steps.push(Step::Wait);
        }
        steps
    }

    fn due(&self) -> Option<Instant> {
        [self.client.poll_timeout(), self.server.poll_timeout()].into_iter().flatten().min().filter(|at| {
            // Not the manifest's own limit, which is far away.
            *at < self.now.instant + Duration::from_secs(100_000)
        })
    }

    fn first_open_child(&self) -> Option<EntityKey> {
        let parent = self.parent?;
        let scope = parent.scope + 2;
        (1..self.announced)
            .map(|entity| EntityKey { scope, scope_use: 0, entity: entity as u32, entity_use: 0 })
            .find(|key| !self.sent.contains_key(key))
    }

    fn take(&mut self, step: Step) {
        let now = self.now;
        self.path.push(step);
        match step {
            Step::Work => self.work(false),
            Step::Missing => {
                self.left_out += 1;
                self.work(true);
            }
            Step::ToServer => {
                let frame = self.to_server.pop_front().unwrap();
                match &mut self.fresh {
                    Some(fresh) => fresh.handle_control(now, frame).unwrap(),
                    None => self.server.handle_control(now, frame).unwrap(),
                }
                self.greet();
            }
            Step::ToClient => {
                let frame = self.to_client.pop_front().unwrap();
                self.client.handle_control(now, frame).unwrap();
            }
            Step::Open(index) => {
                let (stream, header) = self.streams.remove(index);
                if let Admission::Accepted(accepted) = self.server.handle_header(now, stream, &header).unwrap() {
                    self.accept(accepted.key);
                }
            }
            Step::Complete(_) | Step::Fail(_) | Step::Defer(_) | Step::Skip(_) | Step::Yield(_) => self.judge(step),
            Step::Resume => {
                let (key, token) = self.tokens.remove(0);
                self.client.resume(key, &token).unwrap();
            }
            Step::Retry => {
                let key = self.failed.remove(0);
                self.client.retry(now, key).unwrap();
            }
            Step::GiveUp => {
                let key = self.failed.remove(0);
                self.client.fail(now, key, reason(ErrorCode::InternalError));
            }
            Step::LeaveOut(status) => self.leave_out(status),
            Step::Claim => {
                let key = self.wanted.remove(0);
                assert_eq!(self.server.defer(now, key, 7, 9), Ok(true));
            }
            Step::Wait => {
                self.waits += 1;
                let at = self.due().unwrap();
                let micros = at.duration_since(now.instant).as_micros() as u64;
                self.now = Now { instant: at, unix_micros: now.unix_micros + micros };
                self.client.handle_timeout(self.now);
                self.server.handle_timeout(self.now);
            }
            Step::Cut { .. } | Step::KillServer | Step::KillClient => self.break_down(step),
        }
        self.collect();
    }

    fn leave_out(&mut self, status: Status) {
        self.left_out += 1;
        let key = self.first_open_child().unwrap();
        self.failed.retain(|failed| *failed != key);
        let (now, why) = (self.now, reason(ErrorCode::InternalError));
        // It may have been given up before.
        let said = match status {
            Status::Skipped => self.client.skip(now, key, why).is_ok(),
            Status::Abandoned => self.client.abandon(now, key, why).is_ok(),
            _ => {
                self.client.fail(now, key, why);
                true
            }
        };
        assert!(said);
    }

    /// The connection is lost, with a process or without.
    fn break_down(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Cut { keep } => {
                self.cuts += 1;
                self.lose(keep);
                assert!(self.client.suspend(now, |_| false));
                self.reconnect();
            }
            Step::KillServer => {
                self.kills += 1;
                self.lose(false);
                self.wanted.clear();
                self.server = restore(Role::Server, &self.server_records, now);
                assert!(self.client.suspend(now, |_| false));
                self.reconnect();
            }
            Step::KillClient => {
                self.kills += 1;
                self.lose(false);
                self.failed.clear();
                self.tokens.clear();
                self.client = restore(Role::Client, &self.client_records, now);
                self.check_sources();
                self.reconnect();
            }
            other => panic!("{other:?} loses nothing"),
        }
    }

    /// The connection is gone, and the server's driver knows it.
    fn lose(&mut self, keep: bool) {
        self.to_server.clear();
        self.to_client.clear();
        self.streams.clear();
        self.fresh = None;
        if !keep {
            self.accepted.clear();
        }
        assert!(self.server.suspend(self.now, |key| self.accepted.contains(&key)));
    }

    fn reconnect(&mut self) {
        self.client.reconnect(self.now).unwrap();
        self.fresh = Some(session(Role::Server, self.now));
    }

    /// The server's driver finds the session that a new connection goes on with.
    fn greet(&mut self) {
        let Some(fresh) = &mut self.fresh else { return };
        let returns = std::iter::from_fn(|| fresh.poll_event())
            .any(|event| matches!(event, Event::Layer2(Layer2Event::Returns(_))));
        frames(fresh, &mut self.to_client);
        if let Some(fresh) = self.fresh.take_if(|_| returns) {
            self.server.adopt(self.now, fresh).unwrap();
        }
    }

    /// A restarted owner finds what it was sending.
    fn check_sources(&self) {
        let open = self.client.sent_open();
        for sent in &open {
            let key = sent.ticket.key;
            assert_eq!(sent.label.as_deref(), Some(label(key.scope, key.entity).as_bytes()));
            assert!(!sent.dehydrated || sent.ended == self.ended);
        }
        assert_eq!(open.len() + self.sent.len(), self.announced);
    }

    /// A process that dies here begins again as what it was.
    fn check_restored(&self) {
        for (session, records, role) in
            [(&self.client, &self.client_records, Role::Client), (&self.server, &self.server_records, Role::Server)]
        {
            let mut suspended = session.clone();
            assert!(suspended.suspend(self.now, |_| false));
            let restored = restore(role, records, self.now);
            assert!(suspended.look(0) == restored.look(0), "{role:?} is another after {:?}", self.path);
            let mut again = session.clone();
            let snapshot = again.snapshot().unwrap();
            assert!(suspended.look(0) == restore(role, &vec![snapshot], self.now).look(0), "{role:?} {:?}", self.path);
        }
        self.seen.borrow_mut().restored += 1;
    }

    /// What the server makes of an entity that it receives.
    fn judge(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Complete(index) => {
                let key = self.accepted.remove(index);
                assert!(self.delivered.insert(key), "{key:?} is delivered twice");
                self.server.complete(now, key);
            }
            Step::Fail(index) => {
                let key = self.accepted.remove(index);
                self.server.fail(now, key, reason(ErrorCode::IntegrityError));
            }
            Step::Defer(index) => assert_eq!(self.server.defer(now, self.accepted[index], 7, 9), Ok(true)),
            Step::Skip(index) => {
                assert_eq!(self.server.skip(now, self.accepted[index], reason(ErrorCode::NoError)), Ok(true));
            }
            Step::Yield(index) => {
                self.yields += 1;
                let point = StoppingPoint {
                    reason: YieldReason::RateLimited,
                    continuation: Bytes::new(),
                    validation: StoppingPointValidation {
                        state_checksum: Some(Bytes::from_static(&[1; 32])),
                        is_resumable: Some(true),
                        ..Default::default()
                    },
                };
                self.server.yield_entity(now, self.accepted[index], &point).unwrap();
            }
            other => panic!("{other:?} is no verdict"),
        }
    }

    fn work(&mut self, missing: bool) {
        match self.parent {
            None => {
                let label = Bytes::from(label(0, 1));
                let policy = Some(&self.world.policy);
                let ticket = self.client.announce_labelled(self.now, None, true, policy, label).unwrap().unwrap();
                self.parent = Some(ticket.key);
                self.announced = 1;
                self.send(&ticket);
            }
            Some(parent) if self.announced <= self.world.children => {
                let label = Bytes::from(label(parent.scope + 2, self.announced as u32));
                let announced = self.client.announce_labelled(self.now, Some(parent), false, None, label);
                let ticket = announced.unwrap().unwrap();
                self.announced += 1;
                match missing {
                    true => self.client.fail_unsent(self.now, ticket.key, reason(ErrorCode::EntityInvalid)),
                    false => self.send(&ticket),
                }
            }
            Some(parent) => {
                self.client.end_children(self.now, parent).unwrap();
                self.ended = true;
            }
        }
    }

    /// What the future depends on.
    fn look(&self) -> impl std::hash::Hash + use<> {
        let ends = (self.client.look(self.server.taken()), self.server.look(self.client.taken()));
        let link = format!(
            "{:?}{:?}{:?}{:?}{:?}",
            self.fresh.as_ref().map(|fresh| fresh.look(0)),
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

    /// Nothing more can happen.
    fn check_end(mut self) {
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

/// What a source is called.
fn label(scope: u16, entity: u32) -> String {
    format!("part {entity} of scope {scope}")
}

/// Says where a run was when it failed.
struct Where(Vec<Step>);

impl Drop for Where {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}

/// Takes an end's bytes apart into frames, so that each arrives on its own.
fn frames(session: &mut Session, link: &mut VecDeque<Bytes>) {
    while let Some(transmit) = session.poll_transmit(usize::MAX) {
        match transmit {
            Transmit::Control(mut bytes) => {
                while let Some((_, length)) = Frame::decode_layer2(&bytes).unwrap() {
                    link.push_back(bytes.split_to(length));
                }
                assert!(bytes.is_empty());
            }
            // A driver reads such a stream no more.
            Transmit::StopStream { .. } => {}
            Transmit::Close { code, message } => panic!("{code}: {message}"),
        }
    }
}

/// Walks every path of a world.
fn explore(world: World, seen: &Rc<RefCell<Seen>>) {
    let hasher = RandomState::new();
    let mut known = HashSet::new();
    let mut runs = vec![Run::new(world, Instant::now(), seen.clone())];
    while let Some(run) = runs.pop() {
        if !known.insert(hasher.hash_one(run.look())) {
            continue;
        }
        let at = Where(run.path.clone());
        if known.len().is_multiple_of(world.cuts.max(world.kills) * 8 + 1) {
            run.check_restored();
        }
        let steps = run.steps();
        if steps.is_empty() {
            run.check_end();
            seen.borrow_mut().ends += 1;
            continue;
        }
        drop(at);
        for step in steps {
            let mut next = run.clone();
            let at = Where(next.path.iter().copied().chain([step]).collect());
            next.take(step);
            drop(at);
            runs.push(next);
        }
    }
    seen.borrow_mut().states += known.len();
}

fn policy(on_failure: FailureAction, on_timeout: FailureAction, timeout_ms: u32) -> CompletionPolicy {
    CompletionPolicy {
        mode: Some(CompletionMode::Lenient.into()),
        max_retries: Some(1),
        retry_delay_ms: Some(10),
        timeout_ms: Some(timeout_ms),
        min_success_ratio: None,
        on_timeout: Some(on_timeout.into()),
        on_failure: Some(on_failure.into()),
    }
}

/// Without losses.
const fn one(policy: CompletionPolicy, yields: usize, left_out: usize, waits: usize) -> World {
    World { policy, children: 1, yields, left_out, waits, cuts: 0, kills: 0 }
}

fn walk(worlds: impl IntoIterator<Item = World>) -> Seen {
    let seen = Rc::new(RefCell::new(Seen::default()));
    for world in worlds {
        let (before, began) = (seen.borrow().states, Instant::now());
        explore(world, &seen);
        println!("{world:?}: {} states, {:?}", seen.borrow().states - before, began.elapsed());
    }
    let seen = seen.take();
    println!("{} states, {} ends, {} restored", seen.states, seen.ends, seen.restored);
    seen
}

#[test]
fn every_way_that_a_small_session_can_go_ends_and_both_ends_know_the_same() {
    use FailureAction::{Defer, Fail, Retry, Skip};
    let worlds = [
        one(policy(Retry, Retry, 100), 0, 0, 2),
        one(policy(Fail, Defer, 100), 0, 0, 1),
        one(policy(Skip, Fail, 100), 0, 0, 1),
        one(policy(Defer, Fail, 0), 0, 1, 0),
        one(policy(Retry, Fail, 0), 1, 1, 0),
        one(policy(Retry, Skip, 100), 1, 0, 1),
        one(policy(Retry, Defer, 100), 1, 0, 1),
        one(policy(Fail, Fail, 100), 2, 0, 1),
        one(policy(Fail, Fail, 0), 2, 1, 0),
        one(policy(Retry, Skip, 100), 0, 1, 2),
    ];
    let seen = walk(worlds);
    for status in [Status::Complete, Status::Failed, Status::Skipped, Status::Abandoned, Status::Deferred] {
        assert!(seen.statuses.contains_key(&status), "never {status}: {:?}", seen.statuses);
    }
    assert!(seen.states > 1_000 && seen.ends > 8 && seen.restored > 1_000, "{} states", seen.states);
    compare(&diagram(&seen));
}

#[test]
fn a_connection_may_be_lost_and_a_process_die_at_any_point() {
    use FailureAction::{Defer, Fail, Retry};
    let worlds = [
        World { cuts: 1, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { kills: 1, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { kills: 1, ..one(policy(Defer, Fail, 0), 1, 0, 0) },
        World { cuts: 2, ..one(policy(Fail, Fail, 0), 0, 0, 0) },
    ];
    let seen = walk(worlds);
    assert!(seen.states > 10_000 && seen.ends > 8 && seen.restored > 1_000, "{} states", seen.states);
}

#[test]
#[ignore = "takes minutes"]
fn larger_worlds() {
    use FailureAction::{Defer, Fail, Retry};
    walk([
        World { cuts: 2, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { cuts: 1, kills: 1, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { kills: 1, ..one(policy(Retry, Defer, 100), 0, 1, 1) },
        World { children: 2, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { children: 2, cuts: 1, ..one(policy(Fail, Fail, 0), 0, 0, 0) },
        World { cuts: 1, ..one(policy(Retry, Defer, 100), 1, 1, 1) },
        World { kills: 1, ..one(policy(Retry, Fail, 100), 2, 0, 1) },
        World { children: 2, ..one(policy(Retry, Fail, 0), 1, 1, 0) },
    ]);
}

fn diagram(seen: &Seen) -> String {
    let mut lines = vec!["stateDiagram-v2".to_owned()];
    let mut who: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (from, to, by) in &seen.edges {
        who.entry((from, to)).or_default().push(by);
    }
    for ((from, to), by) in who {
        let by = by.join(", ");
        lines.push(if by.is_empty() { format!("    {from} --> {to}") } else { format!("    {from} --> {to}: {by}") });
    }
    lines.join("\n")
}

/// The page shows what was seen.
fn compare(diagram: &str) {
    let page = include_str!("../../../docs/protocols/pipestream.md");
    let shown = page.split("```mermaid\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap_or_default();
    assert_eq!(shown, diagram, "docs/protocols/pipestream.md should show:\n{diagram}");
}
