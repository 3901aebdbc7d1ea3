//! Sessions that outlive their connections: which frames and streams are repeated, and which are
//! not.

use bytes::Bytes;
use penstock_wire::hex;

use super::resilience::{SECOND, config2, name, point, policy, refused};
use super::*;
use crate::error::{Error, LimitError, Violation};
use crate::messages::{CompletionPolicy, FailureAction};
use crate::{ClaimResponse, Layer2Frame, SessionFrame};

fn surviving(session: Option<crate::SessionId>) -> SessionConfig {
    let mut config = config2(session);
    config.layer2 = config.layer2.map(|layer2| Layer2Config { survives: true, ..layer2 });
    config
}

pub(super) fn stored(session: Option<crate::SessionId>) -> SessionConfig {
    let mut config = surviving(session);
    config.layer2 = config.layer2.map(|layer2| Layer2Config { journal: true, ..layer2 });
    config
}

fn restored(role: Role, records: &[Bytes], now: Now) -> Result<Restored> {
    Session::restore(role, stored(None), records.iter().map(|record| record.as_ref()), now, |_| false)
}

/// Return a server that stores its session, with a hand-written client.
fn recorded() -> (Peer, Vec<Bytes>) {
    let now = start();
    let mut peer = Peer { now, session: Session::new(Role::Server, stored(None), now).expect("server") };
    peer.say(&Frame::Capabilities(stored(None).capabilities)).expect("capabilities");
    let named = SessionFrame { received: Some(0), ..SessionFrame::named(name()) };
    peer.say(&Frame::Layer2(Layer2Frame::Session(named))).expect("a name");
    let records = vec![peer.record().expect("a snapshot")];
    (peer, records)
}

impl Peer {
    fn record(&mut self) -> Option<Bytes> {
        assert_eq!(self.session.poll_record(), None, "events come first");
        assert_eq!(self.session.poll_transmit(99), None, "a record comes first");
        drain(&mut self.session);
        self.session.poll_record()
    }
}

impl Pair {
    pub(super) fn lasting() -> Self {
        let now = start();
        let client = Session::new(Role::Client, surviving(Some(name())), now).expect("client");
        let server = Session::new(Role::Server, surviving(None), now).expect("server");
        let pair = Self::of(client, server, now);
        assert!(pair.client.survives() && pair.server.survives());
        pair
    }

    /// Lose the connection with everything on it.
    fn cut(&mut self) {
        self.cut_but_for(&[]);
    }

    pub(super) fn cut_but_for(&mut self, whole: &[EntityKey]) {
        self.client_events.extend(drain(&mut self.client));
        self.server_events.extend(drain(&mut self.server));
        assert!(self.client.suspend(self.now, |_| false));
        assert!(self.server.suspend(self.now, |key| whole.contains(&key)));
        assert!(self.client.is_suspended() && !self.client.may_send());
        assert_eq!(self.client.poll_transmit(99), None);
    }

    /// Do what a server's driver does with a new connection.
    pub(super) fn reconnect(&mut self) {
        self.client.reconnect(self.now).expect("suspended");
        let mut fresh = Session::new(Role::Server, surviving(None), self.now).expect("server");
        for round in 0.. {
            assert!(round < 9, "they do not come to know each other");
            self.client_events.extend(drain(&mut self.client));
            self.client_records.extend(std::iter::from_fn(|| self.client.poll_record()));
            while let Some(Transmit::Control(bytes)) = self.client.poll_transmit(7) {
                fresh.handle_control(self.now, bytes).expect("an honest client");
            }
            if drain(&mut fresh).contains(&Event::Layer2(Layer2Event::Returns(name()))) {
                break;
            }
            while let Some(Transmit::Control(bytes)) = fresh.poll_transmit(7) {
                self.client.handle_control(self.now, bytes).expect("an honest server");
            }
        }
        self.server.adopt(self.now, fresh).expect("the same session");
        self.drive();
        assert!(self.client.may_send() && self.server.may_send());
    }

    fn sent_again(&self) -> Vec<Ticket> {
        let again = |event: &Event| match event {
            Event::Layer2(Layer2Event::SendAgain(ticket)) => Some(*ticket),
            _ => None,
        };
        self.client_events.iter().filter_map(again).collect()
    }
}

#[test]
fn what_a_lost_connection_has_eaten_is_said_again_and_only_what_is_open_is_sent_again() {
    let mut pair = Pair::lasting();
    let done = pair.announce(None, false);
    pair.deliver(&done);
    let lost = pair.announce(None, false);
    let unheard = pair.announce(None, false);
    pair.drive();
    let key = pair.open_plain(&unheard);
    // The decision is in flight when the connection is lost, and so is an announcement.
    pair.server.complete(pair.now, key);
    let late = pair.announce(None, false);
    pair.cut();
    let offline = pair.announce(None, false);
    assert_eq!(pair.outcome(unheard.key), None);
    pair.reconnect();
    assert_eq!(pair.outcome(unheard.key), Some(Status::Complete));
    assert_eq!(pair.sent_again(), [lost, late, offline]);
    for ticket in [lost, late, offline] {
        pair.deliver(&ticket);
    }
    assert_eq!(pair.client.counters().announced, 5);
    assert_eq!(pair.server.counters().received, 5);
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!((pair.client_closed, pair.server.open_received()), (Some(ErrorCode::NoError), 0));
}

#[test]
fn a_payload_that_is_there_is_not_taken_again() {
    let mut pair = Pair::lasting();
    let tickets = [pair.announce(None, false), pair.announce(None, false)];
    pair.drive();
    let [kept, lost] = tickets.map(|ticket| pair.open_plain(&ticket));
    pair.cut_but_for(&[kept]);
    pair.reconnect();
    assert_eq!(pair.sent_again(), tickets);
    assert_eq!(pair.open(&tickets[0], 0), Admission::Stopped(ErrorCode::NoError));
    assert_eq!(pair.open_plain(&tickets[1]), lost);
    pair.server.complete(pair.now, kept);
    pair.server.complete(pair.now, lost);
    pair.drive();
    assert_eq!(tickets.map(|ticket| pair.outcome(ticket.key)), [Some(Status::Complete); 2]);
}

#[test]
fn a_parent_goes_on_wherever_the_connection_was_lost() {
    let mut pair = Pair::lasting();
    let (parent, children) = pair.parent(&policy(FailureAction::Retry), 2);
    pair.cut();
    pair.reconnect();
    assert_eq!(pair.sent_again(), [parent, children[0], children[1]]);
    // The parent's own bytes have arrived.
    assert_eq!(pair.open(&parent, 0), Admission::Stopped(ErrorCode::NoError));
    let first = pair.open_plain(&children[0]);
    pair.server.fail(pair.now, first, reason(ErrorCode::IntegrityError));
    pair.cut();
    pair.reconnect();
    // The first child's failure was repeated, so the child waits for a retry.
    assert_eq!(pair.sent_again()[3..], [parent, children[1]]);
    assert_eq!(pair.client_saw(|event| matches!(event, Layer2Event::AttemptFailed { owned: true, .. })), 1);
    pair.client.retry(pair.now, children[0].key).expect("failed");
    pair.cut();
    pair.wait(SECOND);
    pair.reconnect();
    assert_eq!(pair.sent_again()[5..], [parent, children[0], children[1]]);
    pair.deliver(&children[0]);
    pair.deliver(&children[1]);
    pair.client.end_children(pair.now, parent.key).expect("open");
    pair.cut();
    pair.reconnect();
    assert_eq!(pair.outcome(parent.key), Some(Status::Complete));
    assert_eq!(pair.released().len(), 1);
}

#[test]
fn tokens_stay_valid_and_claim_requests_are_answered_once_on_the_next_connection() {
    let mut pair = Pair::lasting();
    let ticket = pair.announce(None, false);
    let key = pair.open_plain(&ticket);
    pair.server.yield_entity(pair.now, key, &point()).expect("receiving");
    pair.client.ask_claim(ClaimAsk::Query { claim_id: 7 }).expect("named");
    pair.cut_but_for(&[key]);
    pair.reconnect();
    let token = pair.token();
    pair.client.resume(ticket.key, &token).expect("open");
    pair.cut_but_for(&[key]);
    pair.reconnect();
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::Resumed { point: Some(_), .. })), 1);
    assert_eq!(pair.client_saw(|event| matches!(event, Layer2Event::ResumeAnswered { refused: None, .. })), 1);
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::ClaimAsked { .. })), 1);
    pair.server.answer_claim(1, Ok(ClaimResponse { claim_id: 7, found: None })).expect("open");
    pair.cut();
    pair.reconnect();
    pair.cut();
    pair.reconnect();
    assert_eq!(pair.client_saw(|event| matches!(event, Layer2Event::ClaimAnswered { answer: Ok(_), .. })), 1);
}

#[test]
fn frames_that_were_taken_are_forgotten() {
    let mut pair = Pair::lasting();
    for _ in 0..1_000 {
        let ticket = pair.announce(None, false);
        pair.deliver(&ticket);
    }
    for session in [&pair.client, &pair.server] {
        let kept = session.survival.kept_bytes();
        assert!((12..520 * 16).contains(&kept), "{kept}");
    }
    pair.wait(30 * SECOND);
    assert_eq!(pair.client.survival.kept_bytes() + pair.server.survival.kept_bytes(), 0);
}

#[test]
fn a_peer_that_acknowledges_nothing_stops_us_and_then_the_connection() {
    let now = start();
    let mut config = surviving(None);
    config.layer2 = config.layer2.map(|layer2| Layer2Config { max_unacknowledged: 256 << 10, ..layer2 });
    config.capabilities.max_window_size = Some(100_000);
    let mut peer = Peer { now, session: Session::new(Role::Server, config.clone(), now).expect("server") };
    peer.say(&Frame::Capabilities(config.capabilities)).expect("capabilities");
    let named = SessionFrame { received: Some(0), ..SessionFrame::named(name()) };
    peer.say(&Frame::Layer2(Layer2Frame::Session(named))).expect("a name");
    let announced = (1..).take_while(|_| peer.session.announce(now, None, false) != Ok(None)).count();
    assert!((10_000..11_000).contains(&announced), "{announced}");
    let mut outcome = Ok(());
    for id in 1..20_000 {
        peer.status(Status::Pending, 0, id).expect("announced");
        outcome = peer.status(Status::Failed, 0, id);
        if outcome.is_err() {
            break;
        }
    }
    assert!(matches!(outcome, Err(Error::Limit(LimitError::Unacknowledged { .. }, _))), "{outcome:?}");
}

#[test]
fn a_session_that_cannot_go_on_says_why() {
    // One end cannot resume.
    let now = start();
    let client = Session::new(Role::Client, surviving(Some(name())), now).expect("client");
    let server = Session::new(Role::Server, config2(None), now).expect("server");
    let mut pair = Pair::of(client, server, now);
    assert!(!pair.client.suspend(now, |_| true) && !pair.server.suspend(now, |_| true));
    assert_eq!(pair.client.survival.kept_bytes(), 0);
    assert!(pair.client.reconnect(now).is_err());

    // The server offers other capabilities than before.
    let mut pair = Pair::lasting();
    pair.cut();
    pair.client.reconnect(now).expect("suspended");
    let mut other = surviving(None);
    other.capabilities.max_scope_depth = Some(2);
    let mut bytes = BytesMut::new();
    Frame::Capabilities(other.capabilities).encode(&mut bytes);
    let outcome = pair.client.handle_control(now, bytes.freeze());
    refused(outcome, Violation::Capabilities);

    // The server does not know the session, or the counts of both ends contradict each other.
    let returning = |received, sent| {
        let mut fresh = Peer { now, session: Session::new(Role::Server, surviving(None), now).expect("server") };
        fresh.say(&Frame::Capabilities(surviving(None).capabilities)).expect("capabilities");
        let named = SessionFrame { received: Some(received), sent: Some(sent), ..SessionFrame::named(name()) };
        fresh.say(&Frame::Layer2(Layer2Frame::Session(named))).expect("a name");
        fresh.status(Status::Pending, 0, 1).expect("kept for the session");
        fresh.session
    };
    let mut fresh = returning(0, 0);
    fresh.refuse_return(now);
    assert_eq!(fresh.end().map(|reason| reason.code), Some(ErrorCode::ClaimNotFound));
    for (received, sent) in [(9, 0), (0, 0)] {
        let mut pair = Pair::lasting();
        pair.announce(None, false);
        pair.drive();
        pair.cut();
        let outcome = pair.server.adopt(now, returning(received, sent + u64::from(received > 0)));
        let is_named = match received {
            9 => matches!(outcome, Err(Error::Violation(Violation::SessionReceived { received: 9, .. }, _))),
            _ => matches!(outcome, Err(Error::Violation(Violation::SessionSent { sent: 0, .. }, _))),
        };
        assert!(is_named, "{outcome:?}");
        assert!(pair.server.is_closed());
    }

    // The client stops waiting for a connection.
    let mut pair = Pair::lasting();
    let ticket = pair.announce(None, false);
    pair.drive();
    pair.cut();
    pair.client.handle_connection_lost(now, reason(ErrorCode::IdleTimeout), false);
    pair.client_events.extend(drain(&mut pair.client));
    assert_eq!(pair.outcome(ticket.key), Some(Status::Failed));
}

#[test]
fn a_record_comes_before_what_it_is_about() {
    let (mut peer, mut records) = recorded();
    assert!(peer.received_frames().len() == 2, "CAPABILITIES and SESSION");
    peer.status(Status::Pending, 0, 1).expect("announced");
    peer.open(2, &plain_header(0, 1, 0)).expect("admitted");
    let key = EntityKey { scope: 0, scope_use: 0, entity: 1, entity_use: 0 };
    peer.session.complete(peer.now, key);
    records.push(peer.record().expect("inputs"));
    assert_eq!(peer.session.poll_record(), None);
    assert_eq!(peer.received_frames().len(), 1);
    // No input whose effects were acknowledged is lost, whether or not the acknowledgement arrived.
    let after = restored(Role::Server, &records, later(peer.now, SECOND)).expect("restored").session;
    assert_eq!((after.open_received(), after.counters().completed, after.id()), (0, 1, Some(name())));
    assert!(after.is_suspended() && after.survival.kept_bytes() == 16);
}

/// A session that has just received its name: version 2, snapshot 1, server 1, its beginning, its
/// age 0, its state.
const SNAPSHOT: &str = concat!(
    "0201018080f9c0c1c482030001010207feffffff0f640101010001000000000000000000000000000000000300000000",
    "000000000000000000000000010000000100000000000000000000000000000000000000000000000000000000000000",
    "000000000000000000000000000001030303030303030303030303030303030100000000000000000000000000000000",
    "0000000000000000000000000000000000000101000000010000290000",
);

#[test]
fn the_bytes_of_records_are_these() {
    let (mut peer, records) = recorded();
    // Another layout of the state requires another version.
    assert_eq!(hex::encode(&records[0]), SNAPSHOT);
    peer.now = later(peer.now, Duration::from_nanos(300));
    peer.status(Status::Pending, 0, 1).expect("announced");
    let key = EntityKey { scope: 0, scope_use: 0, entity: 1, entity_use: 0 };
    peer.session.fail(peer.now, key, Reason { code: ErrorCode::IntegrityError, message: "no".to_owned() });
    let record = hex::encode(peer.record().expect("inputs"));
    let frame = "501000000000000100000000";
    // After 300 ns input 1, a frame of 12 bytes; after 0 ns input 5, a failure: (scope 0, use 0,
    // entity 1, use 0), code 4, 2 bytes.
    assert_eq!(record, format!("0202ac02010c{frame}00050000010004026e6f"));
}

#[test]
fn records_that_cannot_be_are_refused() {
    let (mut peer, records) = recorded();
    peer.status(Status::Pending, 0, 1).expect("announced");
    let inputs = peer.record().expect("inputs");
    let refused = |records: &[&[u8]], text: &str| {
        let outcome = Session::restore(Role::Server, stored(None), records.iter().copied(), start(), |_| true);
        let error: Error = outcome.expect_err(text);
        assert!(error.message().contains(text), "{error}");
    };
    refused(&[], "no record");
    refused(&[&inputs], "without a snapshot");
    refused(&[&[1, 1]], "of version 1");
    refused(&[&[2, 3]], "3 is no kind");
    for length in 0..records[0].len() {
        assert!(restored(Role::Server, &[records[0].slice(..length)], start()).is_err(), "{length}");
    }
    // Truncated inputs are refused.
    for length in 3..inputs.len() {
        assert!(restored(Role::Server, &[records[0].clone(), inputs.slice(..length)], start()).is_err(), "{length}");
    }
    // The same announcement twice.
    assert!(restored(Role::Server, &[records[0].clone(), inputs.clone(), inputs], start()).is_err());
    assert!(restored(Role::Client, &records, start()).is_err());
    let other = stored(Some(crate::SessionId::new([9; 16])));
    assert!(Session::restore(Role::Server, other, [records[0].as_ref()], start(), |_| true).is_err());
    assert!(Session::restore(Role::Server, surviving(None), [records[0].as_ref()], start(), |_| true).is_err());
}

/// The store's checksums detect damage; records that pass them are rejected, or restore a session.
#[test]
fn bytes_that_were_changed_make_nothing_panic() {
    let now = start();
    let client = Session::new(Role::Client, stored(Some(name())), now).expect("client");
    let server = Session::new(Role::Server, stored(None), now).expect("server");
    let mut pair = Pair::of(client, server, now);
    let (_, children) = pair.parent(&policy(FailureAction::Retry), 3);
    let key = pair.open_plain(&children[0]);
    pair.fail_at_server(key);
    let key = pair.open_plain(&children[1]);
    pair.server.yield_entity(now, key, &point()).expect("receiving");
    pair.drive();
    for (role, session) in [(Role::Client, &mut pair.client), (Role::Server, &mut pair.server)] {
        let config = stored(Some(name()));
        let snapshot = session.snapshot().expect("no events");
        for (index, flip) in (0..snapshot.len()).flat_map(|index| [1_u8, 0x80, 0xFF].map(|flip| (index, flip))) {
            let mut bytes = snapshot.to_vec();
            bytes[index] ^= flip;
            let restored = Session::restore(role, config.clone(), [bytes.as_slice()], now, |_| false);
            let Ok(Restored { mut session, .. }) = restored else { continue };
            drain(&mut session);
            while session.poll_record().is_some() {}
            session.handle_timeout(later(now, 600 * SECOND));
            assert!(session.sent_open().len() <= 4 && session.received_open().len() <= 4);
        }
    }
}

#[test]
fn events_without_an_answer_are_repeated_after_a_restart() {
    let now = start();
    let client = Session::new(Role::Client, stored(Some(name())), now).expect("client");
    let server = Session::new(Role::Server, stored(None), now).expect("server");
    let mut pair = Pair::of(client, server, now);
    let claims = CompletionPolicy { on_failure: Some(FailureAction::Defer.into()), ..policy(FailureAction::Retry) };
    let (parent, children) = pair.parent(&policy(FailureAction::Retry), 3);
    let (other, deferred) = pair.parent(&claims, 1);
    let sent = [&children[0], &children[1], &children[2], &deferred[0]].map(|ticket| pair.open_plain(ticket));
    pair.fail_at_server(sent[0]);
    pair.server.yield_entity(pair.now, sent[1], &point()).expect("receiving");
    pair.server.complete(pair.now, sent[2]);
    pair.fail_at_server(sent[3]);
    pair.client.ask_claim(ClaimAsk::Query { claim_id: 7 }).expect("named");
    let label = Bytes::from_static(b"page 9");
    let labelled =
        pair.client.announce_labelled(pair.now, None, false, None, label.clone()).expect("short").expect("room");
    pair.deliver(&labelled);
    let open = pair.client.announce_labelled(pair.now, None, false, None, label.clone()).expect("short").expect("room");
    pair.drive();

    let mut server = restored(Role::Server, &pair.server_records, pair.now).expect("restored").session;
    let events = drain(&mut server);
    let wants = |event: &Event| matches!(event, Event::Layer2(Layer2Event::ClaimWanted { key, .. }) if *key == sent[3]);
    assert!(
        matches!(&events[..], [wanted, Event::Layer2(Layer2Event::ClaimAsked { request: 1, .. })] if wants(wanted)),
        "{events:?}"
    );
    assert_eq!(server.received_open().len(), 6);

    let records = pair.client_records.iter().map(|record| record.as_ref());
    let restored =
        Session::restore(Role::Client, stored(Some(name())), records, pair.now, |_| false).expect("restored");
    assert_eq!(restored.resolved, [(label.clone(), labelled.key, Status::Complete)]);
    let mut client = restored.session;
    let events = drain(&mut client);
    assert!(
        matches!(&events[..], [
            Event::Layer2(Layer2Event::AttemptFailed { key: failed, failures: 1, owned: true, .. }),
            Event::Layer2(Layer2Event::Yielded { key: yielded, token, .. }),
        ] if (*failed, *yielded) == (sent[0], sent[1]) && *token == pair.token()),
        "{events:?}"
    );
    let left: Vec<EntityKey> = client.sent_open().iter().map(|sent| sent.ticket.key).collect();
    assert_eq!(left, [parent.key, other.key, open.key, sent[0], sent[1], sent[3]]);
    assert_eq!((client.label(open.key), client.label(parent.key)), (Some(label), None));

    (pair.client, pair.server) = (client, server);
    go_on_after_a_restart(pair, sent, [children[0], children[1], open], [parent, other]);
}

#[test]
fn a_claim_check_that_was_refused_is_not_wanted_again_after_a_restart() {
    let now = start();
    let client = Session::new(Role::Client, stored(Some(name())), now).expect("client");
    let server = Session::new(Role::Server, stored(None), now).expect("server");
    let mut pair = Pair::of(client, server, now);
    let (parent, children) = pair.parent(&policy(FailureAction::Defer), 1);
    let key = pair.open_plain(&children[0]);
    pair.fail_at_server(key);
    pair.server.refuse_claim(pair.now, key, reason(ErrorCode::InternalError));
    pair.drive();
    assert_eq!(pair.outcome(key), Some(Status::Failed));
    // After 0 ns input 26: (scope 2, use 0, entity 1, use 0), code 1, 7 bytes.
    let record = pair.server_records.last().expect("inputs");
    assert_eq!(hex::encode(record), format!("0202001a020001000107{}", hex::encode("because")));

    pair.server = restored(Role::Server, &pair.server_records, pair.now).expect("restored").session;
    let events = drain(&mut pair.server);
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(pair.server.received_open(), [parent.key]);
    // Both ends count the same frames, so the session resumes.
    assert!(pair.client.suspend(pair.now, |_| false));
    pair.reconnect();
    pair.end(&parent);
    assert_eq!(pair.outcome(parent.key), Some(Status::Failed));
    assert_eq!((pair.client.open_owned(), pair.server.open_received()), (0, 0));
}

/// The waiting entity starts over, the failed one is retried, the claim check is issued, and all of it ends.
fn go_on_after_a_restart(mut pair: Pair, sent: [EntityKey; 4], open: [Ticket; 3], parents: [Ticket; 2]) {
    pair.reconnect();
    let token = pair.token();
    pair.client.resume(sent[1], &token).expect("open");
    pair.client.retry(pair.now, sent[0]).expect("failed");
    pair.server.defer(pair.now, sent[3], 7, 9).expect("named");
    pair.wait(SECOND);
    assert_eq!(pair.server_saw(|event| matches!(event, Layer2Event::Resumed { point: None, .. })), 1);
    let restarts = |reason: &Reason| reason.code == ErrorCode::IntegrityError;
    assert_eq!(
        pair.client_saw(
            |event| matches!(event, Layer2Event::ResumeAnswered { refused: Some(reason), .. } if restarts(reason))
        ),
        1
    );
    for ticket in open {
        pair.deliver(&ticket);
    }
    parents.iter().for_each(|parent| pair.end(parent));
    pair.server.answer_claim(1, Ok(ClaimResponse { claim_id: 7, found: None })).expect("open");
    pair.drive();
    assert_eq!((pair.client.open_owned(), pair.server.open_received()), (0, 0));
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!(pair.client_closed, Some(ErrorCode::NoError));
}

#[test]
fn a_label_has_its_limit_and_a_stored_session_its_name() {
    let now = start();
    let client = Session::new(Role::Client, stored(Some(name())), now).expect("client");
    let server = Session::new(Role::Server, surviving(None), now).expect("server");
    let mut pair = Pair::of(client, server, now);
    let long = Bytes::from(vec![0; 1_025]);
    assert!(pair.client.announce_labelled(now, None, false, None, long).is_err());
    let other = stored(Some(crate::SessionId::new([9; 16])));
    let records = pair.client_records.iter().map(|record| record.as_ref());
    assert!(Session::restore(Role::Client, other, records, now, |_| true).is_err());
}

#[test]
fn a_child_whose_dehydrating_is_still_to_come_is_not_timed() {
    let mut pair = Pair::lasting();
    let timed = CompletionPolicy { timeout_ms: Some(5_000), ..policy(FailureAction::Retry) };
    let (parent, _) = pair.parent(&timed, 0);
    let child = pair.announce(Some(parent.key), true);
    drain(&mut pair.client);
    let Some(Transmit::Control(bytes)) = pair.client.poll_transmit(12) else { panic!("PENDING") };
    pair.server.handle_control(pair.now, bytes).expect("an honest client");
    pair.cut();
    pair.wait(60 * SECOND);
    assert!(pair.server_outcome(child.key).is_none() && pair.server.open_received() == 2);
    pair.reconnect();
    pair.wait(60 * SECOND);
    // Now the child is timed, and both ends know that it has children.
    pair.end(&child);
    pair.end(&parent);
    assert_eq!((pair.client.open_owned(), pair.server.open_received()), (0, 0));
    let status = pair.outcome(child.key);
    assert!(status.is_some() && status == pair.server_outcome(child.key).map(|(status, _)| status));
}

#[test]
fn a_parent_that_fails_after_its_payload_has_come_is_not_taken_again() {
    let mut pair = Pair::lasting();
    let parent = pair.announce(None, true);
    let key = pair.open_plain(&parent);
    pair.cut_but_for(&[key]);
    pair.server.fail(pair.now, key, reason(ErrorCode::IntegrityError));
    pair.reconnect();
    assert_eq!(pair.sent_again(), [parent]);
    assert_eq!(pair.open(&parent, 0), Admission::Stopped(ErrorCode::NoError));
    pair.end(&parent);
    assert_eq!(pair.outcome(parent.key), Some(Status::Failed));
}

#[test]
fn a_stream_whose_admission_was_not_reported_is_lost() {
    let mut pair = Pair::lasting();
    let ticket = pair.announce(None, false);
    let header = header(&pair.client, &ticket, 0);
    // The header overtakes its PENDING, and then the connection is lost.
    assert_eq!(pair.server.handle_header(pair.now, 2, &header), Ok(Admission::Held));
    drain(&mut pair.client);
    let Some(Transmit::Control(bytes)) = pair.client.poll_transmit(99) else { panic!("PENDING") };
    pair.server.handle_control(pair.now, bytes).expect("an honest client");
    assert!(pair.client.suspend(pair.now, |_| true) && pair.server.suspend(pair.now, |_| true));
    assert!(!drain(&mut pair.server).iter().any(|event| matches!(event, Event::Admitted { .. })));
    pair.reconnect();
    pair.deliver(&ticket);
    assert_eq!(pair.outcome(ticket.key), Some(Status::Complete));
}
