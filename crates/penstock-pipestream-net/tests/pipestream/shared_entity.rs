//! An entity that several callers hold: one caller at a time may use it, and a caller that gives up
//! leaves it to the next one.

use std::time::Instant;

use penstock_io::runtime::wait;
use penstock_pipestream_net::{
    Error, IncomingSessions, Misuse, Payload, Result, SentEntity, SessionHandle, SharedEntity, Status, channel,
};

use crate::support::{Pair, block, container, draft};

struct Ends {
    _pair: Pair,
    _sessions: IncomingSessions,
    client: SessionHandle,
    server: SessionHandle,
}

fn ends() -> Ends {
    let (consumer, sessions) = channel(1);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |_| {});
    let client = pair.connect();
    let server = block(sessions.next()).unwrap();
    Ends { _pair: pair, _sessions: sessions, client, server }
}

impl Ends {
    fn send(&self, payload: Vec<u8>) -> (SentEntity, SharedEntity) {
        let sent = block(self.client.send(draft("x/y"), Payload::bytes(payload))).unwrap();
        (sent, self.next())
    }

    fn next(&self) -> SharedEntity {
        block(self.server.next_entity()).unwrap().unwrap().into()
    }

    fn status(&self, sent: &SentEntity) -> Status {
        block(self.client.wait_resolved(sent.key)).unwrap().status
    }
}

fn is_taken<T>(result: Result<T>) -> bool {
    matches!(result.map(drop), Err(Error::Misuse(Misuse::EntityTaken)))
}

#[test]
fn one_caller_at_a_time_reads_an_entity_and_one_ends_it() {
    let ends = ends();
    let (sent, entity) = ends.send(b"payload".to_vec());
    let reading = entity.borrow().unwrap();
    assert!(is_taken(entity.borrow()) && is_taken(entity.take()) && is_taken(entity.take_to_skip()));
    drop(reading);
    block(entity.borrow().unwrap().complete()).unwrap();
    assert!(is_taken(entity.borrow()) && is_taken(entity.take_to_defer()));
    assert_eq!(ends.status(&sent), Status::Complete);
    assert_eq!((entity.accepted().key, entity.header().payload_length), (sent.key, 7));
}

#[test]
fn completing_reads_what_was_not_read_yet() {
    let ends = ends();
    let (sent, entity) = ends.send(vec![3; 5 << 20]);
    let mut reading = entity.borrow().unwrap();
    let piece = block(reading.chunk()).unwrap().unwrap();
    reading.unread(piece).unwrap();
    block(reading.complete()).unwrap();
    assert_eq!(ends.status(&sent), Status::Complete);
}

#[test]
fn completing_that_is_given_up_leaves_the_entity_to_the_next_caller() {
    let ends = ends();
    let (sent, entity) = ends.send(vec![3; 5 << 20]);
    // There is one poll, which yields after 1 MiB, whatever has arrived by then.
    assert!(wait(entity.borrow().unwrap().complete(), Some(Instant::now()), &mut || Ok(())).is_err());
    let mut reading = entity.borrow().unwrap();
    assert!(block(reading.chunk()).unwrap().is_some());
    block(reading.complete()).unwrap();
    assert_eq!(ends.status(&sent), Status::Complete);
}

#[test]
fn an_entity_that_cannot_be_skipped_or_deferred_stays() {
    let ends = ends();
    let parent = block(ends.client.send(container(), Payload::empty())).unwrap();
    let entity = ends.next();
    for refused in [entity.take_to_skip(), entity.take_to_defer()] {
        assert!(matches!(&refused, Err(Error::Misuse(Misuse::Dehydrated))), "{refused:?}");
    }
    block(entity.borrow().unwrap().complete()).unwrap();
    block(ends.client.end_children(parent.key)).unwrap();
    assert_eq!(ends.status(&parent), Status::Complete);
}
