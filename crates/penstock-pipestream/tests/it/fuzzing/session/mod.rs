//! Sessions driven by input bytes: two honest ends over a link that delays and reorders, and one end against an
//! arbitrary peer.

// A fuzz body reports by panicking.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

mod layer2;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use penstock_pipestream::yield_token::TokenKey;
use penstock_pipestream::{
    Admission, Barrier, Capabilities, Checkpoint, Counters, EntityHeader, EntityKey, ErrorCode, ErrorFrame, Event,
    Frame, Layer2Config, Layer2Event, Layer2Frame, Now, Reason, Role, ScopeDigest, Session, SessionConfig,
    SessionFrame, SessionId, Status, StatusFrame, Ticket, Transmit,
};

/// Choices, taken from the input until it is used up.
struct Choices<'a> {
    bytes: &'a [u8],
}

impl Choices<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    fn below(&mut self, limit: usize) -> Option<usize> {
        let choice = usize::from(self.next()?);
        (limit > 0).then(|| choice % limit)
    }

    fn small(&mut self) -> u32 {
        u32::from(self.next().unwrap_or(0))
    }
}

fn config(layer: u8) -> SessionConfig {
    let capabilities = Capabilities {
        layer0: true,
        layer1: layer > 0,
        layer2: layer > 1,
        max_scope_depth: Some(3),
        max_entities_per_scope: None,
        max_window_size: Some(16),
    };
    let layer2 = Layer2Config::new(Some(SessionId::new([3; 16])), TokenKey::new([5; 32]));
    let layer2 = Layer2Config { survives: true, journal: true, ..layer2 };
    SessionConfig {
        capabilities,
        max_open_entities: 64,
        max_open_checkpoints: 512,
        layer2: Some(layer2),
        ..SessionConfig::default()
    }
}

/// Return the layer that the first byte of an input chooses.
fn layer(first: u8) -> u8 {
    [0, 1, 1, 2][usize::from(first % 4)]
}

fn header(length: u64) -> EntityHeader {
    EntityHeader {
        entity_id: 0,
        parent_id: 0,
        scope_id: 0,
        layer: 0,
        content_type: "text/plain".to_owned(),
        payload_length: length,
        checksum: Bytes::from_static(&[0; 32]),
        metadata: BTreeMap::new(),
        chunk_info: None,
        completion_policy: None,
    }
}

fn reason(code: ErrorCode) -> Reason {
    Reason { code, message: "chosen".to_owned() }
}

/// One end, its knowledge from events, and the bytes and headers in flight to it.
struct End {
    session: Session,
    control: VecDeque<Bytes>,
    headers: Vec<(u64, EntityHeader)>,
    accepted: Vec<(u64, EntityKey)>,
    announced: Vec<(Ticket, bool)>,
    ended: BTreeSet<EntityKey>,
    sent: BTreeMap<EntityKey, Status>,
    received: BTreeMap<EntityKey, Status>,
    closed: Option<ErrorCode>,
    /// At layer 2: our entities that have failed and may be retried, and those that must be sent again now.
    failed: Vec<EntityKey>,
    again: Vec<Ticket>,
    /// Received entities for which a claim check is wanted.
    wanted: Vec<EntityKey>,
    /// The yield tokens that the peer has sent.
    tokens: Vec<(EntityKey, Bytes)>,
    /// The records from which the next process restores the session.
    records: Vec<Bytes>,
}

impl End {
    fn new(role: Role, layer: u8, now: Now) -> Self {
        Self {
            session: Session::new(role, config(layer), now).expect("a valid configuration"),
            control: VecDeque::new(),
            headers: Vec::new(),
            accepted: Vec::new(),
            announced: Vec::new(),
            ended: BTreeSet::new(),
            sent: BTreeMap::new(),
            received: BTreeMap::new(),
            closed: None,
            failed: Vec::new(),
            again: Vec::new(),
            wanted: Vec::new(),
            tokens: Vec::new(),
            records: Vec::new(),
        }
    }

    fn learn(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Admitted { stream, accepted } => self.accepted.push((stream, accepted.key)),
                Event::Resolved { key, status, owned, .. } => {
                    let outcomes = if owned { &mut self.sent } else { &mut self.received };
                    assert!(outcomes.insert(key, status).is_none(), "{key:?} was resolved twice");
                }
                Event::Layer2(event) => self.learn_of_layer2(event),
                Event::Agreed(_)
                | Event::Status { .. }
                | Event::Gathered { .. }
                | Event::Released { .. }
                | Event::Digest { .. }
                | Event::Barrier { .. }
                | Event::Checkpoint { .. }
                | Event::Capacity
                | Event::Error { .. }
                | Event::Closed { .. } => {}
            }
        }
    }
}

struct Dialogue {
    layer: u8,
    /// The number of entities that [`finish`](Self::finish) has decided.
    verdicts: u32,
    now: Now,
    ends: [End; 2],
    /// The server's end of a connection whose session it has not found yet.
    fresh: Option<Session>,
    next_stream: u64,
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

impl Dialogue {
    fn new(layer: u8, now: Now) -> Self {
        let ends = [End::new(Role::Client, layer, now), End::new(Role::Server, layer, now)];
        let mut dialogue = Self { layer, verdicts: 0, now, ends, fresh: None, next_stream: 2 };
        dialogue.carry_all();
        dialogue
    }

    /// Move the output of both ends onto the link.
    fn collect(&mut self) {
        for from in [CLIENT, SERVER] {
            self.ends[from].learn();
            for ticket in std::mem::take(&mut self.ends[from].again) {
                self.send(from, &ticket);
            }
            let session = &mut self.ends[from].session;
            let records: Vec<Bytes> = std::iter::from_fn(|| session.poll_record()).collect();
            self.ends[from].records.extend(records);
            while let Some(transmit) = self.ends[from].session.poll_transmit(19) {
                match transmit {
                    Transmit::Control(bytes) => self.ends[1 - from].control.push_back(bytes),
                    Transmit::StopStream { .. } => {}
                    Transmit::Close { code, message } => {
                        assert_eq!(code, ErrorCode::NoError, "an honest dialogue was closed: {message}");
                        self.ends[from].closed = Some(code);
                    }
                }
            }
        }
    }

    /// Deliver a piece of the control stream to an end. Return whether there was one.
    fn carry(&mut self, to: usize) -> bool {
        let Some(bytes) = self.ends[to].control.pop_front() else { return false };
        match self.fresh.as_mut().filter(|_| to == SERVER) {
            Some(fresh) => fresh.handle_control(self.now, bytes).expect("an honest peer"),
            None => self.ends[to].session.handle_control(self.now, bytes).expect("an honest peer"),
        }
        self.greet();
        self.collect();
        true
    }

    fn carry_all(&mut self) {
        self.collect();
        while self.carry(CLIENT) || self.carry(SERVER) {}
    }

    fn announce(&mut self, from: usize, choices: &mut Choices<'_>) {
        let parents: Vec<EntityKey> = self.parents(from);
        let parent = choices.below(parents.len() + 1).and_then(|index| parents.get(index).copied());
        let choice = choices.small();
        let dehydrate = choice.is_multiple_of(3);
        let session = &mut self.ends[from].session;
        let announced = if dehydrate && self.layer == 2 && !choice.is_multiple_of(2) {
            session.announce_labelled(self.now, parent, true, Some(&layer2::policy(choices)), Bytes::new())
        } else {
            session.announce(self.now, parent, dehydrate)
        };
        let Ok(Some(ticket)) = announced else { return };
        self.ends[from].announced.push((ticket, dehydrate));
        self.send(from, &ticket);
    }

    /// Put an entity's stream on the link, for the first time or again.
    fn send(&mut self, from: usize, ticket: &Ticket) {
        if !self.ends[from].session.may_send() {
            // The session will ask for the entity with SendAgain.
            return;
        }
        let mut header = header(3);
        self.ends[from].session.bind_header(ticket, &mut header);
        self.ends[1 - from].headers.push((self.next_stream, header));
        self.next_stream += 4;
    }

    /// Return the dehydrated entities whose children may still be announced.
    fn parents(&self, of: usize) -> Vec<EntityKey> {
        let end = &self.ends[of];
        let open = |key: &EntityKey| !end.ended.contains(key) && !end.sent.contains_key(key);
        end.announced.iter().filter(|(_, dehydrated)| *dehydrated).map(|(ticket, _)| ticket.key).filter(open).collect()
    }

    fn open_stream(&mut self, to: usize, index: usize) {
        let (stream, header) = self.ends[to].headers.swap_remove(index);
        match self.ends[to].session.handle_header(self.now, stream, &header).expect("an honest peer") {
            Admission::Accepted(accepted) => self.ends[to].accepted.push((stream, accepted.key)),
            Admission::Held | Admission::Stopped(_) => {}
        }
    }

    fn give_up(&mut self, from: usize, choices: &mut Choices<'_>) {
        let Some(index) = choices.below(self.ends[from].announced.len()) else { return };
        let (ticket, _) = self.ends[from].announced[index];
        self.ends[from].session.fail(self.now, ticket.key, reason(ErrorCode::InternalError));
        if choices.small().is_multiple_of(2) {
            // The stream was reset before its header arrived.
            let (scope, entity) = (u32::from(ticket.key.scope), ticket.key.entity);
            self.ends[1 - from].headers.retain(|(_, header)| (header.scope_id, header.entity_id) != (scope, entity));
        }
    }

    fn settle(&mut self, at: usize, choices: &mut Choices<'_>) {
        let Some(index) = choices.below(self.ends[at].accepted.len()) else { return };
        let (stream, key) = self.ends[at].accepted.swap_remove(index);
        let session = &mut self.ends[at].session;
        let failing = if self.layer == 2 { 0..=2 } else { 0..=0 };
        match choices.small() % 8 {
            choice if failing.contains(&choice) => session.fail(self.now, key, reason(ErrorCode::IntegrityError)),
            1 => session.handle_stream_reset(self.now, stream, Some(key), 5),
            _ => session.complete(self.now, key),
        }
    }

    fn end_children(&mut self, from: usize, key: EntityKey) {
        self.ends[from].ended.insert(key);
        self.ends[from].session.end_children(self.now, key).expect("an open parent");
    }

    fn step(&mut self, choices: &mut Choices<'_>) -> Option<()> {
        let choice = choices.next()?;
        let end = usize::from(choice >> 7);
        if self.layer == 2 && choice & 0x40 != 0 {
            self.step_of_layer2(choice & 0x3F, end, choices);
            self.collect();
            return Some(());
        }
        match choice & 0x0F {
            0..=2 => self.announce(end, choices),
            3..=6 => drop(self.carry(end)),
            7..=9 => {
                if let Some(index) = choices.below(self.ends[end].headers.len()) {
                    self.open_stream(end, index);
                }
            }
            10 | 11 => self.settle(end, choices),
            12 => self.give_up(end, choices),
            13 => {
                let parents = self.parents(end);
                if let Some(key) = choices.below(parents.len()).and_then(|index| parents.get(index)) {
                    self.end_children(end, *key);
                }
            }
            14 => {
                let scope = u32::from(self.ends[end].session_root());
                self.ends[end].session.checkpoint(self.now, scope, 0, None).expect("an open session");
            }
            _ => self.wait(Duration::from_secs(u64::from(choices.small() % 45))),
        }
        self.collect();
        Some(())
    }

    fn wait(&mut self, by: Duration) {
        self.now = Now { instant: self.now.instant + by, unix_micros: self.now.unix_micros + by.as_micros() as u64 };
        for end in &mut self.ends {
            end.session.handle_timeout(self.now);
        }
    }

    /// Let everything arrive and end.
    fn finish(&mut self) {
        for _ in 0..64 {
            self.carry_all();
            for end in [CLIENT, SERVER] {
                while !self.ends[end].headers.is_empty() {
                    self.open_stream(end, 0);
                    self.carry_all();
                }
                for (_, key) in std::mem::take(&mut self.ends[end].accepted) {
                    self.verdicts += 1;
                    if self.layer == 2 && self.verdicts.is_multiple_of(3) {
                        self.ends[end].session.fail(self.now, key, reason(ErrorCode::IntegrityError));
                    } else {
                        self.ends[end].session.complete(self.now, key);
                    }
                }
                for (key, token) in std::mem::take(&mut self.ends[end].tokens) {
                    let _ended = self.ends[end].session.resume(key, &token);
                }
                for key in std::mem::take(&mut self.ends[end].failed) {
                    let _late = self.ends[end].session.retry(self.now, key);
                }
                for key in std::mem::take(&mut self.ends[end].wanted) {
                    let open = self.ends[end].session.defer(self.now, key, 7, self.now.unix_micros + 1);
                    assert!(open.is_ok(), "{open:?}");
                }
                for key in self.parents(end) {
                    self.end_children(end, key);
                }
            }
            self.carry_all();
            if self.layer == 2 {
                // Let the delays of retries pass.
                self.wait(Duration::from_secs(1));
            }
        }
        for from in [CLIENT, SERVER] {
            assert_eq!(self.ends[from].session.open_owned(), 0, "entities of end {from} are open");
            assert_eq!(self.ends[from].sent, self.ends[1 - from].received, "the ends disagree");
            assert_eq!(self.ends[from].announced.len(), self.ends[from].sent.len());
        }
        self.ends[CLIENT].session.close(self.now);
        self.carry_all();
        assert_eq!(self.ends[CLIENT].closed, Some(ErrorCode::NoError), "the close is not graceful");
    }
}

impl End {
    fn session_root(&self) -> u16 {
        self.announced.first().map_or(0, |(ticket, _)| ticket.key.scope & 1)
    }
}

/// Run two honest ends over a link that delays and reorders. Check that neither closes with an error, that they agree,
/// and that every entity ends. Return the counters of both ends.
pub fn dialogue(input: &[u8], start: Now) -> [Counters; 2] {
    let mut choices = Choices { bytes: input };
    let Some(first) = choices.next() else { return Default::default() };
    let mut dialogue = Dialogue::new(layer(first), start);
    while choices.step_of(&mut dialogue).is_some() {}
    dialogue.finish();
    dialogue.ends.map(|end| *end.session.counters())
}

impl Choices<'_> {
    fn step_of(&mut self, dialogue: &mut Dialogue) -> Option<()> {
        dialogue.step(self)
    }

    fn frame(&mut self) -> Option<Frame> {
        let scope_id = (self.next()? % 8).into();
        let entity_id = match self.small() {
            choice @ 0..=200 => choice % 8,
            choice => u32::MAX - (choice - 200),
        };
        let frame = match self.next()? % 8 {
            0..=3 => Frame::Status(layer2::with_extension(StatusFrame {
                status: Status::try_from(self.next()? % 13).ok()?,
                entity_id,
                scope_id,
                depth: self.next()? % 3,
                cursor: self.next().filter(|choice| choice % 5 == 0).map(u32::from),
                extension: None,
            })),
            4 => Frame::Barrier(Barrier {
                released: self.small().is_multiple_of(4),
                barrier_id: scope_id,
                parent_id: entity_id,
            }),
            5 => Frame::ScopeDigest(ScopeDigest {
                scope_id,
                processed: self.small().into(),
                succeeded: 0,
                failed: 0,
                deferred: 0,
                merkle_root: [0; 32],
            }),
            7 if scope_id % 2 == 1 => Frame::Layer2(match self.small() % 4 {
                0 => Layer2Frame::ClaimQuery { claim_id: entity_id.into() },
                1 => Layer2Frame::ClaimRedeem { claim_id: entity_id.into(), session: SessionId::new([3; 16]) },
                2 => Layer2Frame::Resume { scope_id, entity_id, token: Bytes::from_static(b"forged") },
                _ => {
                    let received = self.next().map(|count| u64::from(count % 4));
                    let sent = received.filter(|_| self.small().is_multiple_of(4));
                    Layer2Frame::Session(SessionFrame {
                        received,
                        sent,
                        ..SessionFrame::named(SessionId::new([3; 16]))
                    })
                }
            }),
            6 => Frame::Checkpoint(Checkpoint {
                checkpoint_id: "f".to_owned(),
                sequence_number: self.small().into(),
                checkpoint_entity_id: entity_id,
                scope_id: scope_id.into(),
                flags: self.small() % 4,
                timeout_ms: self.small(),
            }),
            _ => Frame::Error(ErrorFrame {
                code: self.small(),
                scope_id: scope_id.into(),
                entity_id,
                message: String::new(),
            }),
        };
        Some(frame)
    }

    fn header(&mut self) -> Option<EntityHeader> {
        let mut header = header(self.next()?.into());
        header.scope_id = u32::from(self.next()? % 8);
        header.entity_id = u32::from(self.next()? % 8);
        header.parent_id = u32::from(self.next()? % 4);
        if self.small().is_multiple_of(3) {
            header.metadata.insert("pipestream.dehydrated".to_owned(), "1".to_owned());
            header.metadata.insert("pipestream.child-scope".to_owned(), (self.small() % 8).to_string());
        }
        if self.small().is_multiple_of(4) {
            header.metadata.insert("pipestream.parent-scope".to_owned(), (self.small() % 8).to_string());
        }
        if self.small().is_multiple_of(4) {
            header.metadata.insert("pipestream.attempt".to_owned(), (self.small() % 4).to_string());
            header.completion_policy = Some(layer2::policy(self));
        }
        Some(header)
    }
}

/// Run one end against an arbitrary peer. Check that it closes at most once and keeps no more entities than its limits
/// allow.
pub fn hostile(input: &[u8], start: Now) {
    let mut choices = Choices { bytes: input };
    let Some(first) = choices.next() else { return };
    let role = if first & 1 == 0 { Role::Server } else { Role::Client };
    let layer = layer(first >> 1);
    let mut now = start;
    let mut session = Session::new(role, config(layer), now).expect("a valid configuration");
    let mut bytes = BytesMut::new();
    Frame::Capabilities(config(layer).capabilities).encode(&mut bytes);
    if layer == 2 && first & 8 == 0 {
        let named = SessionFrame::named(SessionId::new([3; 16]));
        let received = Some(0).filter(|_| first & 0x10 == 0);
        Frame::Layer2(Layer2Frame::Session(SessionFrame { received, ..named })).encode(&mut bytes);
    }
    session.handle_control(now, bytes.freeze()).expect("capabilities");
    let mut accepted: Vec<EntityKey> = Vec::new();
    let mut closes = 0;
    let mut stream = 2;
    while let Some(choice) = choices.next() {
        // Errors close the session; the number of closes is checked below.
        let _outcome = match choice % 8 {
            0..=3 => choices.frame().map(|frame| {
                let mut bytes = BytesMut::new();
                frame.encode(&mut bytes);
                session.handle_control(now, bytes.freeze())
            }),
            4 | 5 => choices.header().map(|header| {
                stream += 4;
                session.handle_header(now, stream, &header).map(|admission| {
                    if let Admission::Accepted(entity) = admission {
                        accepted.push(entity.key);
                    }
                })
            }),
            6 => {
                if let Some(index) = choices.below(accepted.len()) {
                    session.complete(now, accepted.swap_remove(index));
                }
                drop(session.announce(now, None, choice & 0x40 != 0).map(drop));
                None
            }
            _ => {
                let by = Duration::from_secs(u64::from(choices.small()) * 20);
                now = Now { instant: now.instant + by, unix_micros: now.unix_micros + by.as_micros() as u64 };
                session.handle_timeout(now);
                None
            }
        };
        while let Some(event) = session.poll_event() {
            if let Event::Layer2(Layer2Event::AttemptFailed { key, owned: false, .. }) = &event {
                accepted.retain(|accepted| accepted != key);
            }
        }
        while session.poll_record().is_some() {}
        while let Some(transmit) = session.poll_transmit(usize::MAX) {
            closes += usize::from(matches!(transmit, Transmit::Close { .. }));
        }
        assert!(session.open_received() <= 64 && session.open_owned() <= 64);
        assert_eq!(closes, usize::from(session.is_closed()));
    }
}
