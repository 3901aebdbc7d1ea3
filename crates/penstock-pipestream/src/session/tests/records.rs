//! The bytes of records, which outlive the program that wrote them.
//!
//! `records.txt` was written by penstock 0.1.0: what both ends of [`dialogue`] store, and a snapshot of each end after
//! its restart. Any other encoder must read these records and write the same ones.

use super::resilience::{SECOND, name, point, policy};
use super::survival::stored;
use super::*;
use crate::messages::{ClaimCheck, CompletionMode, CompletionPolicy, FailureAction};
use crate::{ChunkInfo, ClaimResponse, FoundClaim, Layer2Frame, SessionFrame};

const RECORDS: &str = include_str!("records.txt");

/// Return the records of this kind in the file.
fn golden(kind: &str) -> Vec<Vec<u8>> {
    let lines = RECORDS.lines().filter_map(|line| line.split_once(' ')).filter(|(name, _)| *name == kind);
    lines.map(|(_, digits)| bytes(digits)).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

/// Give both ends every kind of input that records contain, except those that end a session, and
/// `RefuseClaim`, which is newer than the file.
fn dialogue() -> Pair {
    let now = start();
    let client = Session::new(Role::Client, stored(Some(name())), now).expect("client");
    let server = Session::new(Role::Server, stored(None), now).expect("server");
    let mut pair = Pair::of(client, server, now);
    pair.wait(Duration::from_nanos(300));
    let timed = CompletionPolicy {
        mode: Some(CompletionMode::Quorum.into()),
        max_retries: Some(2),
        retry_delay_ms: Some(5_000),
        timeout_ms: Some(600_000),
        min_success_ratio: Some(0.75),
        on_timeout: Some(FailureAction::Skip.into()),
        on_failure: Some(FailureAction::Retry.into()),
    };
    let (parent, children) = pair.parent(&timed, 5);
    let (other, deferred) = pair.parent(&policy(FailureAction::Defer), 2);
    let keys = [0, 1, 2].map(|child| pair.open_plain(&children[child]));
    pair.wait(SECOND);
    pair.fail_at_server(keys[0]);
    pair.client.retry(pair.now, keys[0]).expect("failed");
    pair.server.yield_entity(pair.now, keys[1], &point()).expect("receiving");
    pair.drive();
    let token = pair.token();
    pair.client.resume(keys[1], &token).expect("open");
    pair.drive();
    pair.server.yield_entity(pair.now, keys[1], &point()).expect("receiving");
    pair.server.note_state(keys[1], Bytes::from_static(b"changed since"));
    pair.server.complete(pair.now, keys[2]);
    pair.client.skip(pair.now, children[3].key, reason(ErrorCode::NoError)).expect("ours");
    pair.client.abandon(pair.now, children[4].key, reason(ErrorCode::IdleTimeout)).expect("ours");
    let keys = [0, 1].map(|child| pair.open_plain(&deferred[child]));
    pair.fail_at_server(keys[0]);
    pair.server.defer(pair.now, keys[1], 7, pair.now.unix_micros + 9).expect("named");
    pair.client.end_children(pair.now, other.key).expect("open");
    pair.ask();
    pair.send_in_chunks();
    pair.client.checkpoint(pair.now, 0, 0, Some(600 * SECOND)).expect("open");
    pair.server.checkpoint(pair.now, 1, 0, None).expect("open");
    pair.drive();
    pair.cut_but_for(&[]);
    pair.reconnect();
    let label = Bytes::from_static(b"page 9");
    let labelled = pair.client.announce_labelled(pair.now, None, false, None, label).expect("short").expect("room");
    let unsent = pair.announce(None, true);
    pair.drive();
    pair.client.fail_unsent(pair.now, unsent.key, reason(ErrorCode::InternalError));
    pair.client.fail(pair.now, labelled.key, reason(ErrorCode::Other(0x1_00)));
    pair.overtake(parent.key);
    pair.client.end_root(pair.now).expect("open");
    pair.drive();
    pair
}

impl Pair {
    /// Ask about claim checks; some of the queries are answered.
    fn ask(&mut self) {
        let check = ClaimCheck { claim_id: Some(7), entity_id: Some(3), ..ClaimCheck::default() };
        let found = |file| Some(FoundClaim { check: check.clone(), status: Status::Deferred, file });
        let answers = [
            Ok(ClaimResponse { claim_id: 7, found: None }),
            Ok(ClaimResponse { claim_id: 7, found: found(None) }),
            Ok(ClaimResponse { claim_id: 7, found: found(Some("ab/2/3".to_owned())) }),
            Err(reason(ErrorCode::ClaimExpired)),
        ];
        for _ in 0..3 {
            self.client.ask_claim(ClaimAsk::Query { claim_id: 7 }).expect("named");
        }
        self.client.ask_claim(ClaimAsk::Redeem { claim_id: 1 << 63, session: name() }).expect("named");
        for claim_id in 8..11 {
            self.client.ask_claim(ClaimAsk::Query { claim_id }).expect("named");
        }
        self.drive();
        for (request, answer) in (1..).zip(answers.clone()) {
            self.server.answer_claim(request, answer).expect("open");
        }
        // These answers wait for the one to the fifth query.
        for (request, answer) in (6..).zip([answers[2].clone(), answers[3].clone()]) {
            self.server.answer_claim(request, answer).expect("open");
        }
        self.drive();
    }

    /// Send an entity of three chunks, of which one has arrived and one is arriving.
    fn send_in_chunks(&mut self) {
        let ticket = self.announce(None, false);
        self.drive();
        for (index, offset) in [(2, 500), (0, 0)] {
            let mut header = header(&self.client, &ticket, 1_000);
            header.metadata.insert("author".to_owned(), "Zoë".to_owned());
            header.chunk_info = Some(ChunkInfo { total_chunks: 3, chunk_index: index, chunk_offset: offset });
            self.open_with(&header);
        }
        assert_eq!(self.server.chunk_finished(self.now, ticket.key, 2, 500), ChunkProgress::Waiting);
    }

    /// Send a header that overtakes its announcement and is held, and acknowledge frames.
    fn overtake(&mut self, parent: EntityKey) {
        let child = self.announce(Some(parent), false);
        let header = header(&self.client, &child, 3);
        let stream = self.next_stream;
        self.next_stream += 4;
        assert_eq!(self.server.handle_header(self.now, stream, &header), Ok(Admission::Held));
        let (received, mut frame) = (Some(self.client.taken()), BytesMut::new());
        let named = SessionFrame { received, ..SessionFrame::named(name()) };
        Frame::Layer2(Layer2Frame::Session(named)).encode(&mut frame);
        self.server.handle_control(self.now, frame.freeze()).expect("a count");
    }
}

/// Return a snapshot of the session restored from these records, which is suspended.
fn restarted(role: Role, records: &[Vec<u8>], now: Now) -> Vec<u8> {
    let records = records.iter().map(Vec::as_slice);
    let mut session = Session::restore(role, stored(Some(name())), records, now, |_| false).expect("records").session;
    drain(&mut session);
    session.snapshot().expect("no events").to_vec()
}

#[test]
fn records_are_written_as_ever() {
    let mut pair = dialogue();
    assert_eq!(pair.client_records, golden("client"));
    assert_eq!(pair.server_records, golden("server"));
    pair.client.close(pair.now);
    pair.drive();
    assert_eq!(pair.client_records[golden("client").len()..], golden("client-closing"));
    assert!(!pair.server.close_when_idle(pair.now));
}

#[test]
fn records_of_an_earlier_release_are_read() {
    let pair = dialogue();
    for (role, kind) in [(Role::Client, "client"), (Role::Server, "server")] {
        let snapshots = golden(&format!("{kind}-restarted"));
        assert_eq!(restarted(role, &golden(kind), pair.now), snapshots[0], "{kind}");
        assert_eq!(restarted(role, &snapshots, pair.now), snapshots[0], "{kind}");
    }
}

/// Return, for each open entity, how many attempts had failed and how many were made when its
/// session ends.
fn counts(mut session: Session, now: Now) -> Vec<(EntityKey, u32, u32)> {
    drain(&mut session);
    session.abort(now, reason(ErrorCode::InternalError));
    let end = |event: &Event| match event {
        Event::Resolved { key, failures, attempts, .. } => Some((*key, *failures, *attempts)),
        _ => None,
    };
    drain(&mut session).iter().filter_map(end).collect()
}

#[test]
fn attempts_are_counted_by_records_of_an_earlier_release_as_before() {
    let Pair { client, server, now, .. } = dialogue();
    for (role, kind, session, expected) in [
        // The client's entity waits for its retry, so no attempt has followed its failure.
        (Role::Client, "client", client, (1, 1)),
        (Role::Server, "server", server, (1, 2)),
    ] {
        let before = counts(session, now);
        let failed: Vec<_> = before.iter().filter(|(_, failures, _)| *failures > 0).collect();
        assert!(matches!(failed[..], [(_, failures, attempts)] if (*failures, *attempts) == expected), "{failed:?}");
        let (inputs, snapshot) = (golden(kind), golden(&format!("{kind}-restarted")));
        for records in [inputs, snapshot] {
            let records = records.iter().map(Vec::as_slice);
            let restored = Session::restore(role, stored(Some(name())), records, now, |_| false).expect("records");
            assert_eq!(counts(restored.session, now), before, "{kind}");
        }
    }
}
