//! The clients' ends: when a worker says READY, and when both ask whether the daemon is there.
// What is not as a test says fails it, however that shows.
#![allow(clippy::expect_used, clippy::panic)]

use std::time::Duration;

use penstock_quicx::{
    Accepts, Client, ClientEvent, Decoded, Decoder, Error, ErrorCode, Failure, Frame, Submit, Task, TaskId, Violation,
    Worker, WorkerEvent,
};
use penstock_testkit::clock::FakeClock;

const HEARTBEAT: Duration = Duration::from_secs(15);

fn none() -> Vec<&'static str> {
    Vec::new()
}

fn encoded(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).expect("fits"));
    bytes
}

/// The names of the frames that a client sends.
fn names(bytes: Option<Vec<u8>>) -> Vec<&'static str> {
    let bytes = bytes.unwrap_or_default();
    let (mut rest, mut found) = (bytes.as_slice(), Vec::new());
    let mut decoder = Decoder::new(Accepts::ToDaemon { submit: 4_096 });
    while let Some(decoded) = decoder.next_frame(&mut rest) {
        let Decoded::Frame(frame) = decoded else { panic!("{decoded:?}") };
        found.push(frame.opcode().name());
    }
    found
}

const fn task(id: u32) -> Frame<'static> {
    Frame::Task(Task { id: TaskId(id), submit: Submit { kind: b"a", payload: b"x" } })
}

const REFUSED: Frame<'static> = Frame::Error(Failure { code: ErrorCode::Invalid, message: b"there is no such opcode" });

struct Dialogue {
    clock: FakeClock,
    worker: Worker,
}

impl Dialogue {
    /// A worker that has begun, and whose READY is answered by these.
    fn begun(answers: &[Frame<'_>]) -> Self {
        let clock = FakeClock::new();
        let mut worker = Worker::new(clock.instant(), HEARTBEAT);
        worker.begin(&[b"a"], 4).expect("valid");
        assert_eq!(names(worker.poll_transmit()), ["SUBSCRIBE", "PREFETCH", "READY"]);
        let mut dialogue = Self { clock, worker };
        dialogue.hears(answers);
        dialogue
    }

    fn hears(&mut self, frames: &[Frame<'_>]) {
        self.worker.handle_input(self.clock.instant(), &encoded(frames)).expect("taken");
    }

    fn says(&mut self) -> Vec<&'static str> {
        names(self.worker.poll_transmit())
    }

    /// Time passes up to the next thing that is due; says how long.
    fn pass(&mut self) -> Duration {
        let wait = self.worker.poll_timeout().expect("due").duration_since(self.clock.instant());
        self.clock.advance(wait);
        self.worker.handle_timeout(self.clock.instant()).expect("in time");
        wait
    }

    fn events(&mut self) -> Vec<WorkerEvent> {
        std::iter::from_fn(|| self.worker.poll_event()).collect()
    }

    fn done(&mut self, id: u32) {
        self.worker.done(self.clock.instant(), TaskId(id)).expect("held");
    }
}

#[test]
fn a_worker_says_ready_again_after_wait_from_50_ms_to_1_s_and_from_50_ms_again_after_a_task() {
    let mut d = Dialogue::begun(&[Frame::Wait]);
    for millis in [50, 100, 200, 400, 800, 1_000, 1_000] {
        assert_eq!((d.pass().as_millis(), d.says()), (millis, vec!["READY"]));
        d.hears(&[Frame::Wait]);
    }
    d.hears(&[task(1)]);
    d.done(1);
    // It is pushed to; where it is not, it asks.
    assert_eq!(d.says(), ["DONE"]);
    assert_eq!((d.pass().as_millis(), d.says()), (50, vec!["READY"]));
    d.hears(&[task(2)]);
    d.hears(&[Frame::Wait]);
    d.worker.failed(d.clock.instant(), TaskId(2), b"no").expect("held");
    assert_eq!(d.says(), ["FAILED"]);
    d.worker.rest().expect("rests");
    assert_eq!(d.says(), ["SUBSCRIBE"]);
    d.hears(&[Frame::Wait]);
    assert!(d.pass() > Duration::from_secs(1), "it says READY though it takes no more tasks");
}

#[test]
fn a_daemon_that_refuses_the_extensions_is_asked_for_each_task_as_soon_as_the_one_before_is_over() {
    for answer in [task(1), Frame::Wait] {
        let mut d = Dialogue::begun(&[REFUSED, REFUSED, answer]);
        assert_eq!(d.events().first(), Some(&WorkerEvent::OneByOne));
        if answer == Frame::Wait {
            assert_eq!((d.pass().as_millis(), d.says()), (50, vec!["READY"]));
            d.hears(&[task(1)]);
        }
        assert_eq!(d.says(), none());
        d.done(1);
        assert_eq!(d.says(), ["DONE", "READY"]);
        d.hears(&[task(2)]);
        d.worker.failed(d.clock.instant(), TaskId(2), b"no").expect("held");
        assert_eq!(d.says(), ["FAILED", "READY"]);
        d.hears(&[Frame::Wait, REFUSED]);
        assert!(matches!(d.events().last(), Some(WorkerEvent::Refused(_))));
        d.worker.ask().expect("asks");
        assert_eq!(d.says(), ["READY"]);
        d.worker.rest().expect("rests");
        d.worker.ask().expect("rests");
        assert_eq!(d.says(), none());
        assert!(d.worker.done(d.clock.instant(), TaskId(2)).is_err());
    }
}

#[test]
fn a_daemon_that_refuses_the_subscription_alone_gives_a_worker_nothing() {
    for answer in [task(1), Frame::Wait] {
        let clock = FakeClock::new();
        let mut worker = Worker::new(clock.instant(), HEARTBEAT);
        worker.begin(&[b"a"], 4).expect("valid");
        let error = worker.handle_input(clock.instant(), &encoded(&[REFUSED, answer])).expect_err("refused");
        assert!(matches!(error, Error::Violation(Violation::Subscribe(_))), "{error}");
        assert_eq!(worker.poll_event(), None);
    }
}

#[test]
fn a_worker_asks_whether_the_daemon_is_there_and_gives_up_after_three_heartbeats_without_an_answer() {
    let mut d = Dialogue::begun(&[task(1)]);
    assert_eq!(d.events().len(), 1);
    for beat in 1..=5 {
        assert_eq!((d.pass(), d.says()), (HEARTBEAT, vec!["HEARTBEAT"]));
        d.hears(&[Frame::Pong]);
        assert_eq!(d.events(), [WorkerEvent::Alive(beat)]);
    }
    for _ in 0..3 {
        assert_eq!((d.pass(), d.says(), d.events()), (HEARTBEAT, vec!["HEARTBEAT"], Vec::new()));
    }
    d.pass();
    assert_eq!((d.says(), d.events()), (none(), vec![WorkerEvent::Silent]));
    // Its own are answered.
    d.hears(&[Frame::Heartbeat]);
    assert_eq!(d.says(), ["PONG"]);
}

#[test]
fn a_daemon_that_does_not_know_heartbeat_is_alive_to_its_worker() {
    for begin in [&[Frame::Wait][..], &[REFUSED, REFUSED, Frame::Wait], &[]] {
        let mut d = Dialogue::begun(begin);
        if !begin.is_empty() {
            d.hears(&[task(1)]);
        }
        d.events();
        for beat in 1..=5 {
            assert_eq!((d.pass(), d.says()), (HEARTBEAT, vec!["HEARTBEAT"]));
            d.hears(&[REFUSED]);
            assert_eq!(d.events(), [WorkerEvent::Alive(beat)], "nothing of its own was refused");
        }
        // Where READY had no answer, no refusal was for what came before it.
        d.hears(&[task(2)]);
        assert!(matches!(d.events().as_slice(), [WorkerEvent::Task { .. }]));
    }
}

#[test]
fn any_frame_says_that_the_daemon_is_there() {
    let mut d = Dialogue::begun(&[Frame::Wait, task(1)]);
    d.events();
    for id in 2..=8 {
        assert_eq!((d.pass(), d.says()), (HEARTBEAT, vec!["HEARTBEAT"]));
        d.hears(&[task(id)]);
        assert!(matches!(d.events().as_slice(), [WorkerEvent::Task { .. }]));
    }
}

#[test]
fn a_refusal_before_a_pong_was_not_for_the_heartbeat() {
    let mut d = Dialogue::begun(&[Frame::Wait, task(1)]);
    d.events();
    d.done(1);
    d.worker.heartbeat().expect("sent");
    d.hears(&[REFUSED, Frame::Pong]);
    assert!(matches!(d.events().as_slice(), [WorkerEvent::Alive(1), WorkerEvent::Refused(_)]));
}

#[test]
fn a_producer_asks_while_nothing_else_waits_for_an_answer() {
    let mut clock = FakeClock::new();
    let mut client = Client::new();
    client.beat_every(clock.instant(), HEARTBEAT);
    let mut pass = |client: &mut Client| {
        clock.advance(HEARTBEAT);
        client.handle_timeout(clock.instant()).expect("in time");
        names(client.poll_transmit())
    };
    assert_eq!(pass(&mut client), ["HEARTBEAT"]);
    // The answer to a request comes behind PONG, which is no event.
    let ticket = client.submit(b"a", b"x").expect("valid");
    assert_eq!(names(client.poll_transmit()), ["SUBMIT"]);
    client.handle_input(&encoded(&[Frame::Pong])).expect("taken");
    assert_eq!((client.poll_event(), client.outstanding()), (None, 1));
    for _ in 0..10 {
        assert_eq!(pass(&mut client), none(), "a submit may wait for the disk as long as it takes");
    }
    client.handle_input(&encoded(&[Frame::Ok(TaskId(1))])).expect("taken");
    assert!(
        matches!(client.poll_event(), Some(ClientEvent::Answered { ticket: found, answer: Ok(_) }) if found == ticket)
    );
    // A daemon that does not know it is there too.
    assert_eq!(pass(&mut client), ["HEARTBEAT"]);
    client.handle_input(&encoded(&[REFUSED])).expect("taken");
    assert_eq!(client.poll_event(), None);
    for _ in 0..3 {
        assert_eq!((pass(&mut client), client.poll_event()), (vec!["HEARTBEAT"], None));
    }
    // One that owes an answer to a heartbeat is not waited for, whatever was asked behind it.
    client.stats().expect("asks");
    client.poll_transmit();
    assert_eq!((pass(&mut client), client.poll_event()), (none(), Some(ClientEvent::Silent)));
}
