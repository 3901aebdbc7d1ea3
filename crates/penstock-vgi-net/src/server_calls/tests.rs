use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread::JoinHandle;

use arrow_schema::Schema;
use penstock_vgi::external::point;
use penstock_vgi::{Limits, Metadata, Serialized, ServerConfig};

use super::*;
use crate::Error;
use crate::channel::Channel;
use crate::client::ClientConnection;
use crate::client_calls::{ClientCalls, ClientStream, LogSink, Receiver};
use crate::external::tests::{Failing, batch, fetching, stored, storing, values};
use crate::port::ApplicationError;
use crate::segment::Segment;

/// A service with a unary method and an exchange.
fn protocol() -> Arc<Protocol> {
    let method = |name: &str, kind, result: SchemaRef| Method {
        name: name.into(),
        kind,
        params: values(),
        result,
        optional: Vec::new(),
        nulls: Vec::new(),
        header: None,
        is_exchange: Some(true),
        has_return: true,
        doc: None,
        serialized: Serialized::default(),
        param_types: None,
        param_defaults: None,
    };
    let methods = vec![
        method("echo", MethodKind::Unary, values()),
        method("stream", MethodKind::Stream, SchemaRef::new(Schema::empty())),
    ];
    Arc::new(Protocol::new("Test", methods).expect("distinct names"))
}

fn channel(stream: UnixStream) -> Channel {
    let writer = stream.try_clone().expect("a descriptor");
    Channel::descriptors(stream.into(), writer.into())
}

fn go() -> Result<(), crate::Interrupted> {
    Ok(())
}

struct Logs(Mutex<mpsc::Sender<String>>);

impl LogSink for Logs {
    fn log(&self, log: &Log) -> Result<(), ApplicationError> {
        let _ = lock(&self.0).send(log.message.clone());
        Ok(())
    }
}

/// A client, the log messages that it received, and its server's thread.
struct Pair {
    client: Arc<ClientCalls>,
    logs: mpsc::Receiver<String>,
    server: JoinHandle<()>,
}

impl Pair {
    /// Connect a client and a server, each with a policy; `serve` answers the calls.
    fn new(
        ours: Option<External>,
        theirs: Option<External>,
        segment: Option<Arc<Segment>>,
        serve: impl Fn(&ServerCall) + Send + 'static,
    ) -> Self {
        let (near, far) = UnixStream::pair().expect("a pair");
        let config = ServerConfig { server_id: "0".repeat(12), description: None, limits: Limits::default(), seed: 1 };
        let connection = ServerConnection::new(protocol(), config, channel(near), segment, Arc::default());
        let calls = Arc::new(ServerCalls::new(connection.expect("a segment of ours"), theirs.map(Arc::new)));
        let server = std::thread::spawn(move || {
            while let Some(call) = calls.next_call(&mut go).expect("the connection goes on") {
                serve(&call);
            }
        });
        let connection = ClientConnection::new(Limits::default(), channel(far), None).expect("no segment");
        let (sender, logs) = mpsc::channel();
        let receiver = Receiver { logs: Box::new(Logs(Mutex::new(sender))), external: ours.map(Arc::new) };
        Self { client: Arc::new(ClientCalls::new(connection, receiver)), logs, server }
    }

    fn call(&self, metadata: Metadata) -> Result<Batch> {
        self.client.call("echo", batch(&[7.0]), metadata, &mut go)
    }

    fn open(&self) -> ClientStream {
        self.client.open("stream", batch(&[7.0]), Metadata::new(), false, &mut go).expect("sent")
    }

    /// Close the connection, which open streams also keep alive, and wait for the server.
    fn end(self) {
        drop(self.client);
        self.server.join().expect("it ended");
    }
}

/// Answer a unary call with its parameter, and an exchange with each input.
fn echo(call: &ServerCall) {
    if call.result().is_ok() {
        call.log(Log::new("INFO", "hello", None)).expect("kept");
        let value = call.call().request.values.first().and_then(Clone::clone).expect("a value");
        return call.reply(Batch::new(values(), vec![value], 1), &mut go).expect("answered");
    }
    call.open(&values(), &values(), None, &mut go).expect("opened");
    while let Some(input) = call.read(&mut go).expect("in step") {
        call.emit(input, &mut go).expect("answered");
    }
    call.finish(&mut go).expect("ended");
}

fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
    (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"))
}

#[test]
fn a_large_result_lies_in_the_storage_with_the_log_messages_before_it() {
    let (folder, _) = folders();
    let pair = Pair::new(Some(fetching(folder.path())), Some(storing(folder.path(), 1)), None, echo);
    assert_eq!(pair.call(Metadata::new()).expect("an answer").rows, 1);
    assert_eq!((pair.logs.recv().as_deref(), stored(folder.path())), (Ok("hello"), 1));
    assert!(pair.logs.try_recv().is_err(), "it was sent once");
    pair.end();
}

#[test]
fn shared_memory_takes_precedence_over_the_storage() {
    let (folder, _) = folders();
    let segment = Segment::create(1 << 20).expect("a segment");
    let pair = Pair::new(None, Some(storing(folder.path(), 1)), Some(Arc::clone(&segment)), echo);
    // Over the pipe and through the segment alike, the batch must not be stored.
    drop(pair.call(Metadata::new()));
    assert_eq!(stored(folder.path()), 0);
    segment.unlink();
    pair.end();
}

/// Store a batch of one column below a folder, and return the metadata of a pointer to it.
fn pointer(folder: &Path, numbers: &[f64]) -> Metadata {
    storing(folder, 0).store(Vec::new(), batch(numbers)).expect("stored").metadata
}

#[test]
fn a_request_behind_a_pointer_reaches_its_method() {
    let (folder, _) = folders();
    let pair = Pair::new(None, Some(fetching(folder.path())), None, echo);
    let empty = Batch::empty(&values(), Metadata::new());
    let answer = pair.client.call("echo", empty, pointer(folder.path(), &[3.0]), &mut go).expect("an answer");
    assert_eq!(answer.columns, batch(&[3.0]).columns);
    pair.end();
}

#[test]
fn a_pointer_that_is_refused_fails_its_call_or_stream_and_the_connection_serves_on() {
    let (folder, _) = folders();
    let refusing = fetching(folder.path()).with_validator(Box::new(Failing::refusing()));
    let pair = Pair::new(None, Some(refusing), None, echo);
    let far = || point(Metadata::new(), "https://store.example/1", None);
    let is_refused = |error: &Error| {
        matches!(error, Error::Failed(failure)
            if failure.error_type == "ExternalLocationError" && failure.message == "ExternalLocationError: not this one")
    };
    let empty = || Batch::empty(&values(), Metadata::new());
    let error = pair.client.call("echo", empty(), far(), &mut go).expect_err("refused");
    assert!(is_refused(&error), "{error}");
    let stream = pair.open();
    let input = empty().with_metadata(far());
    let error = stream.next(Some(&input), &mut go).expect_err("refused");
    assert!(is_refused(&error), "{error}");
    drop(stream);
    assert_eq!(pair.call(Metadata::new()).expect("an answer").rows, 1);
    pair.end();
}

#[test]
fn inputs_and_outputs_of_a_stream_go_by_the_storage() {
    let (ours, theirs) = folders();
    let pair = Pair::new(Some(fetching(theirs.path())), Some(storing(theirs.path(), 1)), None, echo);
    let stream = pair.open();
    for number in [1.0, 2.0] {
        let answer = stream.next(Some(&batch(&[number])), &mut go).expect("an answer").expect("a batch");
        assert_eq!(answer.columns, batch(&[number]).columns);
    }
    stream.close(&mut go).expect("ended");
    assert_eq!((stored(ours.path()), stored(theirs.path())), (0, 2));
    drop(stream);
    pair.end();
}

#[test]
fn an_answer_that_cannot_be_fetched_ends_its_stream_and_not_the_connection() {
    let (ours, theirs) = folders();
    let pair = Pair::new(Some(fetching(ours.path())), Some(storing(theirs.path(), 1)), None, echo);
    let stream = pair.open();
    let error = stream.next(Some(&batch(&[1.0])), &mut go).expect_err("outside the folder");
    assert!(matches!(error, Error::Unfetched(_)), "{error}");
    assert!(matches!(stream.next(None, &mut go), Err(Error::Misuse(Misuse::StreamOver))));
    let error = pair.call(Metadata::new()).expect_err("outside the folder too");
    assert!(matches!(error, Error::Unfetched(_)), "the connection is in step: {error}");
    drop(stream);
    pair.end();
}

#[test]
fn a_stream_is_over_once_it_has_ended_or_another_call_was_opened() {
    let pair = Pair::new(None, None, None, echo);
    let first = pair.open();
    assert!(first.next(Some(&batch(&[1.0])), &mut go).expect("an answer").is_some());
    let second = pair.open();
    let error = first.next(None, &mut go).expect_err("another one was opened");
    assert!(matches!(error, Error::Misuse(Misuse::StreamOver)), "{error}");
    first.close(&mut go).expect("nothing is left to close");
    assert!(second.next(Some(&batch(&[2.0])), &mut go).expect("an answer").is_some());
    second.close(&mut go).expect("ended");
    let error = second.next(None, &mut go).expect_err("it was closed");
    assert!(matches!(error, Error::Misuse(Misuse::StreamOver)), "{error}");
    drop((first, second));
    pair.end();
}

#[test]
fn a_call_is_answered_once_and_a_cancelled_stream_stays_cancelled() {
    let (sender, receiver) = mpsc::channel();
    let pair = Pair::new(None, None, None, move |call| {
        echo(call);
        let again = call.reply(batch(&[1.0]), &mut go).expect_err("it was answered");
        assert!(call.read(&mut go).expect("nothing is read").is_none());
        let again = matches!(again, Error::Misuse(Misuse::CallOver));
        let _ = sender.send((call.is_cancelled(), again));
    });
    pair.call(Metadata::new()).expect("an answer");
    pair.open().cancel(&mut go).expect("ended");
    pair.open().close(&mut go).expect("ended");
    let seen: Vec<_> = (0..3).map(|_| receiver.recv().expect("a call")).collect();
    assert_eq!(seen, [(false, true), (true, true), (false, true)]);
    pair.end();
}
