//! Tests of a sender, a buffer and a consumer over a network that loses requests and answers: the payload must arrive
//! as it was sent.
#![allow(clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use penstock_pimp::{
    Answer, Batch, Code, Consumer, ConsumerConfig, ConsumerEvent, Encoding, Error, Job, JobId, Limits, Now, Query,
    Refusal, Rejection, Sender, SenderConfig, SenderEvent, Settings, Transmit, poll_body,
};
use penstock_testkit::clock::FakeClock;
use penstock_wire::LimitExceeded;
use proptest::prelude::*;

const KEY: Option<&str> = Some("key");

/// A buffer in memory.
struct Buffer {
    id: JobId,
    job: Job,
    chunks: BTreeMap<u32, Vec<u8>>,
    limits: Limits,
}

impl Buffer {
    fn write(&mut self, now: Now, body: &[u8]) -> Result<(u16, Vec<u8>), Error> {
        let batch = Batch::decode(body, self.id, &self.limits)?;
        let written = self.job.handle_write(now, KEY, &batch, &self.limits)?;
        let answer = Answer {
            written: written.new.len() as u64,
            duplicates: written.duplicates as u64,
            cancelled: written.cancelled,
        };
        for place in written.new {
            let (envelope, mut bytes) = (&batch.envelopes()[place], Vec::new());
            envelope.encode(&mut bytes)?;
            assert!(self.chunks.insert(envelope.index, bytes).is_none(), "a chunk is written twice");
        }
        Ok((answer.status(), serde_json::to_vec(&answer).expect("memory")))
    }

    fn poll(&self, now: Now, query: &str, limit: Option<u64>) -> Result<(u16, Vec<u8>), Error> {
        let query = Query::decode(query.strip_prefix('?'))?;
        let found = self.job.handle_poll(now, None, query.from, limit)?;
        let chunks = found.indices.iter().map(|index| &self.chunks[index]);
        Ok((200, poll_body(chunks, found.next_index)))
    }
}

fn refusal(error: &Error) -> (u16, Vec<u8>) {
    let body = serde_json::to_vec(&Refusal::from(error)).expect("memory");
    (error.code().status().expect("an answer of a buffer"), body)
}

/// Return whether the sender has reported its end since the last call.
fn is_finished(sender: &mut Sender) -> bool {
    std::iter::from_fn(|| sender.poll_event()).any(|event| event == SenderEvent::Finished)
}

/// The bytes that the consumer received, and how it ended.
struct Received {
    bytes: Vec<u8>,
    result: Result<(), Error>,
}

struct Transfer {
    clock: FakeClock,
    rng: Rng,
    loss: f64,
    sender: Sender,
    buffer: Buffer,
    consumer: Consumer,
    received: Vec<u8>,
}

impl Transfer {
    fn new(config: SenderConfig, seed: u64, loss: f64) -> Self {
        let clock = FakeClock::new();
        let now = Now { instant: clock.instant(), unix_micros: clock.unix_micros() };
        let (id, limits) = (JobId::from_random([7; 16]), Limits::default());
        let job = Job::create(now, "key", Settings::default(), &limits).expect("valid");
        Self {
            rng: Rng::with_seed(seed),
            loss,
            sender: Sender::new(id, config).expect("valid"),
            buffer: Buffer { id, job, chunks: BTreeMap::new(), limits },
            consumer: Consumer::new(now, id, ConsumerConfig::default()),
            received: Vec::new(),
            clock,
        }
    }

    fn now(&self) -> Now {
        Now { instant: self.clock.instant(), unix_micros: self.clock.unix_micros() }
    }

    /// Make a request; the request or its answer may be lost.
    fn exchange<T>(&mut self, serve: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.rng.f64() < self.loss {
            return None;
        }
        let answer = serve(self);
        (self.rng.f64() >= self.loss).then_some(answer)
    }

    /// Read the payload with a new consumer.
    fn payload(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let now = self.now();
        let mut consumer = Consumer::new(now, self.buffer.id, ConsumerConfig::default());
        let (status, body) = self.buffer.poll(now, "?from=0", None)?;
        let result = consumer.handle_response(now, status, &body);
        while let Some(event) = consumer.poll_event() {
            if let ConsumerEvent::Data(bytes) = event {
                out.extend_from_slice(&bytes);
            }
        }
        result
    }

    fn write(&mut self, now: Now) -> Result<(), Error> {
        self.sender.handle_timeout(now)?;
        if let Some(request) = self.sender.poll_transmit(now)? {
            let serve = |all: &mut Self| match &request {
                Transmit::Write(body) => all.buffer.write(now, body),
                Transmit::Probe(poll) => all.buffer.poll(now, &poll.query(), None),
            };
            let answer = self.exchange(|all| serve(all).unwrap_or_else(|error| refusal(&error)));
            match answer {
                Some((status, body)) => self.sender.handle_response(now, status, &body)?,
                None => self.sender.handle_failure(now, "lost"),
            }
        }
        Ok(())
    }

    /// Send and flush, and handle the requests that result: a chunk, or chunk 0 and a chunk.
    fn flush(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let now = self.now();
        self.sender.send(now, bytes)?;
        self.sender.flush();
        self.write(now)?;
        self.write(now)
    }

    fn step(&mut self) -> Result<(), Error> {
        let now = self.now();
        self.write(now)?;
        self.consumer.handle_timeout(now)?;
        if let Some(poll) = self.consumer.poll_transmit(now) {
            let limit = self.rng.bool().then_some(1 + self.rng.u64(..3));
            let serve =
                |all: &mut Self| all.buffer.poll(now, &poll.query(), limit).unwrap_or_else(|error| refusal(&error));
            let answer = self.exchange(serve);
            let result = match answer {
                Some((status, body)) => self.consumer.handle_response(now, status, &body),
                None => {
                    self.consumer.handle_failure(now, "lost");
                    Ok(())
                }
            };
            while let Some(event) = self.consumer.poll_event() {
                match event {
                    ConsumerEvent::Data(bytes) => self.received.extend_from_slice(&bytes),
                    ConsumerEvent::Metadata(_) | ConsumerEvent::Completed => {}
                }
            }
            result?;
        }
        Ok(())
    }

    /// Send pieces with pauses, and run everything until the consumer has ended.
    fn run(mut self, pieces: &[Vec<u8>], end: impl FnOnce(&mut Sender)) -> Received {
        for piece in pieces {
            let now = self.now();
            let sent = self.sender.send(now, piece);
            let result = sent.and_then(|()| self.step());
            if result.is_err() {
                return Received { bytes: self.received, result };
            }
            self.clock.advance(Duration::from_millis(self.rng.u64(..200)));
        }
        end(&mut self.sender);
        while !self.consumer.is_completed() {
            if let Err(error) = self.step() {
                return Received { bytes: self.received, result: Err(error) };
            }
            let due = self.sender.poll_timeout().into_iter().chain(self.consumer.poll_timeout()).min();
            let Some(due) = due.filter(|due| *due > self.clock.instant()) else { continue };
            self.clock.advance_to(due);
        }
        Received { bytes: self.received, result: Ok(()) }
    }
}

fn config() -> impl Strategy<Value = SenderConfig> {
    let content_type = prop::sample::select(vec!["text/plain", "application/octet-stream"]);
    let encoding = prop_oneof![Just(Encoding::Auto), Just(Encoding::Base64)];
    (content_type, encoding, any::<bool>(), 4_usize..64, 1_usize..5).prop_map(
        |(content_type, encoding, gzip, max_chunk, max_chunks_per_batch)| SenderConfig {
            content_type: content_type.to_owned(),
            encoding,
            gzip,
            max_chunk,
            max_chunks_per_batch,
            ..SenderConfig::default()
        },
    )
}

proptest! {
    #[test]
    fn what_arrives_is_what_was_sent(
        config in config(), seed in any::<u64>(), text in any::<bool>(),
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8),
        words in prop::collection::vec("\\PC{0,60}", 0..8),
    ) {
        let pieces = if text { words.into_iter().map(String::into_bytes).collect() } else { pieces };
        let sent = pieces.concat();
        // A payload that begins as text stays text. Bytes that are not text then fail the job, which the next property
        // covers.
        let config = if text { config } else { SenderConfig { encoding: Encoding::Base64, ..config } };
        let transfer = Transfer::new(config, seed, 0.1);
        let received = transfer.run(&pieces, |sender| sender.finish().expect("open"));
        prop_assert_eq!(received.result, Ok(()));
        prop_assert_eq!(received.bytes, sent);
    }

    #[test]
    fn a_sender_that_takes_a_job_over_writes_it_whole_or_fails_it(
        config in config(), other in config(), seed in any::<u64>(), begun in 0_usize..7, ended in any::<bool>(),
        pieces in prop::collection::vec("[a-c]{0,40}", 0..6), same in any::<bool>(),
    ) {
        // Another writer began the job, and may have ended it.
        let pieces: Vec<_> = pieces.into_iter().map(String::into_bytes).collect();
        let before = if same { config.clone() } else { other };
        let mut transfer = Transfer::new(before, seed, 0.1);
        for piece in &pieces[..begun.min(pieces.len())] {
            let now = transfer.now();
            transfer.sender.send(now, piece).expect("open");
            transfer.sender.flush();
            while transfer.sender.is_asking() || transfer.sender.waiting() > 2 {
                let now = transfer.now();
                transfer.clock.advance(Duration::from_millis(500));
                prop_assert!(transfer.write(now).is_ok());
            }
        }
        if ended {
            transfer.sender.finish().expect("open");
            while !is_finished(&mut transfer.sender) {
                let now = transfer.now();
                transfer.clock.advance(Duration::from_millis(500));
                prop_assert!(transfer.write(now).is_ok());
            }
        }
        transfer.sender = Sender::new(transfer.buffer.id, config).expect("valid");
        transfer.sender.send(transfer.now(), &pieces.concat()).expect("open");
        transfer.sender.finish().expect("open");
        let mut written = Ok(());
        while written.is_ok() && !is_finished(&mut transfer.sender) {
            let now = transfer.now();
            transfer.clock.advance(Duration::from_millis(500));
            written = transfer.write(now);
        }
        let first = &transfer.buffer.job;
        prop_assert!(first.done().is_some(), "readers wait for ever");
        let mut out = Vec::new();
        let read = transfer.payload(&mut out);
        match written {
            Ok(()) => prop_assert_eq!((read, out), (Ok(()), pieces.concat())),
            Err(error) => {
                prop_assert_eq!(error.code(), Code::Conflict);
                // Our sender failed the job, or the other writer had already ended it.
                prop_assert!(transfer.buffer.job.done().is_some_and(|done| done.failed) || ended);
            }
        }
    }

    #[test]
    fn what_is_no_text_after_all_never_arrives_as_whole(seed in any::<u64>(), at in 1_usize..6) {
        let mut pieces = vec![b"text ".to_vec(); 6];
        pieces[at] = vec![0xFF];
        let config = SenderConfig { content_type: "text/plain".to_owned(), ..SenderConfig::default() };
        let received = Transfer::new(config, seed, 0.0).run(&pieces, |_| {});
        prop_assert_eq!(received.result.map_err(|error| error.code()), Err(Code::Misuse));
    }
}

#[test]
fn a_job_has_room_for_4_094_flushes_and_its_end_and_no_more() {
    for (flushes, whole) in [(4_094, true), (4_095, false)] {
        let mut transfer = Transfer::new(SenderConfig::default(), 1, 0.0);
        for number in 1..=4_094 {
            assert_eq!(transfer.flush(b"abc"), Ok(()), "flush {number}");
        }
        assert_eq!(transfer.buffer.job.indices().count(), 4_095, "chunk 0 is there too");
        let mut out = Vec::new();
        if whole {
            transfer.sender.finish().expect("open");
            assert_eq!(transfer.write(transfer.now()), Ok(()));
            assert_eq!((transfer.payload(&mut out), out.len()), (Ok(()), 3 * flushes));
            continue;
        }
        let refused = transfer.flush(b"abc").expect_err("there is no chunk for it");
        assert_eq!(refused.code(), Code::TooLarge);
        let limit = LimitExceeded { name: "the index of a chunk that is not final", limit: 4_094, actual: 4_095 };
        let says_which = |rejection: &Rejection| rejection.excerpt.contains(&limit.to_string());
        assert!(matches!(&refused, Error::Rejected(rejection) if says_which(rejection)), "{refused}");
        let failed = transfer.payload(&mut out).expect_err("the consumer is told too");
        assert_eq!(failed, Error::Failed { reason: "the job is larger than the buffer allows".to_owned() });
        assert_eq!(transfer.buffer.job.indices().count(), 4_096);
    }
}

#[test]
fn the_consumer_learns_why_a_job_failed() {
    let transfer = Transfer::new(SenderConfig::default(), 1, 0.3);
    let received = transfer.run(&[b"some".to_vec()], |sender| sender.fail("out of ideas").expect("open"));
    let error = received.result.expect_err("failed");
    assert_eq!(error, Error::Failed { reason: "out of ideas".to_owned() });
}

#[test]
fn a_cancelled_job_stops_its_sender() {
    let mut transfer = Transfer::new(SenderConfig::default(), 1, 0.0);
    let now = transfer.now();
    assert_eq!(transfer.step(), Ok(()));
    assert_eq!(transfer.buffer.job.handle_cancel(now, KEY), Ok(true));
    transfer.sender.send(now, b"abc").expect("not known yet");
    transfer.sender.flush();
    assert_eq!(transfer.step(), Ok(()));
    let events: Vec<_> = std::iter::from_fn(|| transfer.sender.poll_event()).collect();
    assert_eq!(events.last(), Some(&SenderEvent::Cancelled));
    assert_eq!(transfer.step().map_err(|error| error.code()), Err(Code::Cancelled));
    assert!(transfer.buffer.job.done().is_some_and(|done| done.failed));
}
