//! The port of sinks, with a sink of a few lines that stores everything in memory.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use penstock_pipestream_net::port::{
    Attempt, Body, BoxFuture, EntityBatch, EntitySink, NewSession, OpenSession, SessionControl, SinkEvent, SinkSession,
    Spool,
};
use penstock_pipestream_net::{ErrorCode, Payload, Reason, Result, Status};
use tokio::sync::{Notify, oneshot};

use crate::common::{Pair, block, draft, eventually};

/// A sink that records its calls, and refuses payloads of the type `no/thanks`.
#[derive(Debug, Default)]
struct Memory {
    calls: Mutex<Vec<String>>,
    /// If present, the sink is behind with its events until this fires.
    behind: Option<Arc<Notify>>,
}

/// One session's place in the sink. Dropping it ends the session's part in the sink.
#[derive(Debug)]
struct Place {
    sink: Arc<Memory>,
    control: Arc<dyn SessionControl>,
    done: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Debug)]
struct Handle(Arc<Memory>);

impl Memory {
    fn note(&self, what: impl Into<String>) {
        self.calls.lock().unwrap().push(what.into());
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

impl EntitySink for Handle {
    fn open(&self, session: NewSession) -> BoxFuture<'static, Result<OpenSession>> {
        let sink = Arc::clone(&self.0);
        Box::pin(async move {
            let (done, ended) = oneshot::channel();
            let place = Place { sink, control: session.control, done: Mutex::new(Some(done)) };
            Ok(OpenSession { sink: Arc::new(place), done: ended })
        })
    }
}

impl SinkSession for Place {
    fn deliver(&self, entities: EntityBatch<'_>) {
        for entity in entities {
            let key = entity.key();
            let refused = entity.header().content_type == "no/thanks";
            let Some(parts) = entity.into_parts() else { continue };
            let Body::Whole(bytes) = parts.body else { continue };
            self.sink.note(format!("payload {} of {} bytes", key.entity, bytes.len()));
            if refused {
                let reason = Reason { code: ErrorCode::InternalError, message: "not here".to_owned() };
                self.control.fail(parts.attempt, reason);
            } else {
                self.control.count(bytes.len() as u64);
                self.control.complete(vec![parts.attempt]);
            }
        }
    }

    fn observe(&self, events: Vec<SinkEvent>) -> Option<BoxFuture<'_, ()>> {
        for event in events {
            match event {
                SinkEvent::Admitted { attempt, .. } => self.sink.note(format!("admitted {}", attempt.key.entity)),
                SinkEvent::Resolved { key, status, .. } => self.sink.note(format!("{status} {}", key.entity)),
                SinkEvent::Closed(code) => self.sink.note(format!("closed {}", code.code())),
                SinkEvent::AttemptFailed { .. } | SinkEvent::Gathered { .. } => {}
            }
        }
        let behind = self.sink.behind.as_ref()?;
        Some(Box::pin(behind.notified()))
    }

    fn spool(&self, _attempt: Attempt) -> io::Result<Spool> {
        tempfile::tempfile().map(Spool::anonymous)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.sink.note("gone");
        if let Some(done) = self.done.lock().unwrap().take() {
            let _ = done.send(());
        }
    }
}

fn serve(behind: Option<Arc<Notify>>) -> (Pair, Arc<Memory>) {
    let memory = Arc::new(Memory { behind, ..Memory::default() });
    let sink = Arc::new(Handle(Arc::clone(&memory)));
    (Pair::bind(tempfile::tempdir().unwrap(), sink, |_| {}), memory)
}

#[test]
fn a_sink_hears_of_an_entity_before_its_payload_and_of_its_end_after() {
    let (pair, memory) = serve(None);
    let session = pair.connect();
    let kept = block(session.send(draft("x/y"), Payload::bytes(&b"payload"[..]))).unwrap();
    assert_eq!(block(session.wait_resolved(kept.key)).unwrap().status, Status::Complete);
    let refused = block(session.send(draft("no/thanks"), Payload::bytes(&b"x"[..]))).unwrap();
    let resolution = block(session.wait_resolved(refused.key)).unwrap();
    assert_eq!((resolution.status, resolution.reason.unwrap().message.as_str()), (Status::Failed, "not here"));
    block(session.close()).unwrap();
    eventually("the session goes on", || memory.calls().last().is_some_and(|last| last == "gone"));
    let expected = [
        "admitted 1",
        "payload 1 of 7 bytes",
        "COMPLETE 1",
        "admitted 2",
        "payload 2 of 1 bytes",
        "FAILED 2",
        "closed 0",
        "gone",
    ];
    assert_eq!(memory.calls(), expected);
    let counters = pair.server.counters().unwrap();
    assert_eq!((counters.entities, counters.bytes, counters.completed, counters.failed), (1, 7, 1, 1));
}

#[test]
fn a_sink_that_is_behind_gets_no_payload_until_it_has_taken_the_events() {
    let behind = Arc::new(Notify::new());
    let (pair, memory) = serve(Some(Arc::clone(&behind)));
    let session = pair.connect();
    let sent = block(session.send(draft("x/y"), Payload::bytes(&b"payload"[..]))).unwrap();
    eventually("nothing was admitted", || !memory.calls().is_empty());
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(memory.calls(), ["admitted 1"]);
    let going = Arc::clone(&behind);
    let (stop, mut stopped) = oneshot::channel::<()>();
    let ticking = std::thread::spawn(move || {
        while matches!(stopped.try_recv(), Err(oneshot::error::TryRecvError::Empty)) {
            going.notify_one();
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(block(session.wait_resolved(sent.key)).unwrap().status, Status::Complete);
    block(session.close()).unwrap();
    eventually("the session goes on", || memory.calls().last().is_some_and(|last| last == "gone"));
    assert_eq!(memory.calls()[..2], ["admitted 1", "payload 1 of 7 bytes"]);
    drop(stop);
    ticking.join().unwrap();
}
