//! A client and a server that talk in memory, and clients that break the rules.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, Float64Array, Int64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use penstock_vgi::ipc::{self, Item, Output};
use penstock_vgi::{
    Answer, Batch, Client, Description, Dialect, Error, Event, Failure, Limits, Log, Metadata, Method, MethodKind,
    Protocol, Serialized, Server, ServerConfig, Violation, key,
};

fn schema(fields: &[(&str, DataType)]) -> SchemaRef {
    Arc::new(Schema::new(fields.iter().map(|(name, of)| Field::new(*name, of.clone(), false)).collect::<Vec<_>>()))
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> Batch {
    let fields: Vec<_> = columns.iter().map(|(name, column)| (*name, column.data_type().clone())).collect();
    let rows = columns.first().map_or(1, |(_, column)| column.len());
    Batch::new(schema(&fields), columns.into_iter().map(|(_, column)| column).collect(), rows)
}

fn floats(values: &[f64]) -> ArrayRef {
    Arc::new(Float64Array::from(values.to_vec()))
}

fn method(name: &str, kind: MethodKind, params: SchemaRef, result: SchemaRef, header: Option<SchemaRef>) -> Method {
    Method {
        name: name.to_owned(),
        kind,
        params,
        has_return: !result.fields().is_empty(),
        result,
        optional: vec!["scale".to_owned()],
        nulls: Vec::new(),
        header,
        is_exchange: None,
        doc: None,
        serialized: Serialized::default(),
        param_types: None,
        param_defaults: None,
    }
}

fn protocol() -> Arc<Protocol> {
    let float = DataType::Float64;
    let two = schema(&[("a", float.clone()), ("b", float.clone()), ("scale", float.clone())]);
    let empty = schema(&[]);
    let header = schema(&[("total", DataType::Int64)]);
    let methods = vec![
        method("add", MethodKind::Unary, two, schema(&[("result", float)]), None),
        method("nothing", MethodKind::Unary, Arc::clone(&empty), Arc::clone(&empty), None),
        method("count", MethodKind::Stream, Arc::clone(&empty), Arc::clone(&empty), None),
        method("headed", MethodKind::Stream, Arc::clone(&empty), empty, Some(header)),
    ];
    Arc::new(Protocol::new("Service", methods).expect("no name twice"))
}

/// Return the message that begins a stream without columns.
fn beginning() -> Vec<u8> {
    let mut out = Output::new();
    ipc::stream(&schema(&[]), [], &mut out).expect("writable");
    let mut bytes = out.concat();
    bytes.truncate(bytes.len() - ipc::END.len());
    bytes
}

struct Pair {
    client: Client,
    server: Server,
}

impl Pair {
    fn new() -> Self {
        let protocol = protocol();
        let description = Arc::new(Description::new(&protocol, Dialect::Spec, "0123456789ab"));
        let config = ServerConfig {
            server_id: "0123456789ab".to_owned(),
            description: Some(description),
            limits: Limits::default(),
            seed: 7,
        };
        Self { client: Client::new(Limits::default()), server: Server::new(protocol, config) }
    }

    /// Return the server's next event for what the client has sent.
    fn event(&mut self) -> Option<Event> {
        let bytes = self.client.output().concat();
        self.feed(&bytes)
    }

    fn feed(&mut self, mut bytes: &[u8]) -> Option<Event> {
        loop {
            self.server.handle_input().expect("an honest client");
            if let Some(event) = self.server.poll_event() {
                assert!(bytes.is_empty(), "an event before all was read");
                return Some(event);
            }
            if bytes.is_empty() {
                return None;
            }
            bytes = self.push(bytes);
        }
    }

    /// Give the server as many bytes as it has space for; return the rest.
    fn push<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let space = self.server.input().space();
        let (now, later) = bytes.split_at(space.len().min(bytes.len()));
        space[..now.len()].copy_from_slice(now);
        self.server.input().advance(now.len());
        later
    }

    /// Give the server bytes that break a rule; return the error.
    fn broken(&mut self, mut bytes: &[u8]) -> Error {
        loop {
            if let Err(error) = self.server.handle_input() {
                return error;
            }
            assert!(!bytes.is_empty(), "no rule is broken");
            bytes = self.push(bytes);
        }
    }

    /// Return the client's answers for what the server has sent.
    fn answers(&mut self) -> Vec<Answer> {
        let bytes = self.server.output().concat();
        let mut rest = bytes.as_slice();
        let mut answers = Vec::new();
        loop {
            self.client.handle_input().expect("an honest server");
            while let Some(answer) = self.client.poll_answer() {
                answers.push(answer);
                self.client.handle_input().expect("an honest server");
            }
            if rest.is_empty() {
                return answers;
            }
            let space = self.client.input().space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            self.client.input().advance(count);
            rest = &rest[count..];
        }
    }

    fn add_works(&mut self) {
        let params = batch(vec![("b", floats(&[2.0])), ("a", Arc::new(Int64Array::from(vec![1])))]);
        self.client.call("add", params, Metadata::new()).expect("idle");
        let Some(Event::Call(call)) = self.event() else { panic!("no call") };
        assert_eq!(call.request_id.len(), 16);
        let values: Vec<f64> =
            call.request.values.iter().flatten().map(|v| v.as_primitive::<Float64Type>().value(0)).collect();
        assert_eq!(values, [1.0, 2.0], "columns in another order, an integer for a float, a parameter left out");
        self.server.log(Log::new("INFO", "adding", None));
        self.server.reply(&batch(vec![("result", floats(&[3.0]))])).expect("called");
        let answers = self.answers();
        let [Answer::Log(log), Answer::Batch(result)] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!((log.message.as_str(), log.server_id.as_deref()), ("adding", Some("0123456789ab")));
        assert_eq!(result.column("result"), Some(&floats(&[3.0])));
    }

    fn open(&mut self, name: &str) {
        let nothing = Batch::new(schema(&[]), Vec::new(), 1);
        self.client.open(name, nothing, Metadata::new(), name == "headed").expect("idle");
        assert!(matches!(self.event(), Some(Event::Call(_))));
    }

    fn serve(&mut self, header: Option<&Batch>) {
        let output = schema(&[("x", DataType::Float64)]);
        self.server.open(&output, &schema(&[]), header).expect("called");
    }

    /// Send a request of any shape, and return the error type of the answer.
    fn refused(&mut self, params: Batch) -> String {
        let mut out = Output::new();
        ipc::stream(&Arc::clone(&params.schema), [&params], &mut out).expect("writable");
        let event = self.feed(&out.concat());
        assert!(event.is_none(), "{event:?}");
        let mut items = Vec::new();
        let bytes = self.server.output().concat();
        ipc::Decoder::new(Limits::default()).push(&bytes, &mut items).expect("valid");
        let [Item::Schema(_), Item::Batch(error), Item::End] = items.as_slice() else { panic!("{items:?}") };
        let penstock_vgi::Class::Error(failure) = error.class() else { panic!("{error:?}") };
        failure.error_type
    }
}

#[test]
fn calls_follow_one_another_on_one_connection() {
    let mut pair = Pair::new();
    pair.add_works();
    pair.client.call("nothing", Batch::new(schema(&[]), Vec::new(), 1), Metadata::new()).expect("idle");
    assert!(matches!(pair.event(), Some(Event::Call(_))));
    pair.server.fail(&Failure::new("ValueError", "boom")).expect("called");
    let answers = pair.answers();
    assert!(matches!(answers.as_slice(), [Answer::Failed(failure)] if failure.message == "ValueError: boom"));
    pair.add_works();
}

#[test]
fn a_producer_answers_each_tick_until_it_finishes() {
    let mut pair = Pair::new();
    pair.open("count");
    pair.serve(None);
    for value in [1.0, 2.0] {
        pair.client.tick().expect("open");
        assert!(matches!(pair.event(), Some(Event::Input(_))));
        pair.server.emit(&batch(vec![("x", floats(&[value]))])).expect("owed");
        assert!(
            matches!(pair.answers().as_slice(), [Answer::Batch(read)] if read.column("x") == Some(&floats(&[value])))
        );
    }
    pair.client.tick().expect("open");
    assert!(matches!(pair.event(), Some(Event::Input(_))));
    pair.server.finish().expect("open");
    assert!(matches!(pair.answers().as_slice(), [Answer::End]));
    assert!(pair.event().is_none(), "the client's end of stream is no event");
    pair.add_works();
}

#[test]
fn a_header_comes_before_the_first_batch_and_an_error_may_stand_in_its_place() {
    let mut pair = Pair::new();
    let header = batch(vec![("total", Arc::new(Int64Array::from(vec![9])))]);
    pair.open("headed");
    pair.serve(Some(&header));
    assert!(matches!(pair.answers().as_slice(), [Answer::Batch(read)] if read.columns == header.columns));
    pair.client.close(false).expect("open");
    assert!(matches!(pair.event(), Some(Event::InputEnd)));
    pair.server.settle().expect("open");
    assert!(matches!(pair.answers().as_slice(), [Answer::End]));
    pair.open("headed");
    pair.server.fail(&Failure::new("KeyError", "'x'")).expect("called");
    assert!(matches!(pair.answers().as_slice(), [Answer::Failed(_)]));
    pair.add_works();
}

#[test]
fn an_error_in_the_beginning_of_a_stream_leaves_the_connection_usable() {
    let mut pair = Pair::new();
    for ticked in [true, false] {
        pair.open("count");
        pair.server.fail(&Failure::new("KeyError", "'x'")).expect("called");
        if ticked {
            pair.client.tick().expect("it does not know yet");
        } else {
            pair.client.close(false).expect("open");
        }
        assert!(matches!(pair.answers().as_slice(), [Answer::Failed(_)]));
        assert!(pair.event().is_none(), "the input of the failed stream is dropped");
        pair.add_works();
    }
}

#[test]
fn a_cancelled_stream_ends_and_the_next_call_is_served() {
    let mut pair = Pair::new();
    for ticked in [true, false] {
        pair.open("count");
        pair.serve(None);
        if ticked {
            pair.client.tick().expect("open");
            assert!(matches!(pair.event(), Some(Event::Input(_))));
            pair.server.emit(&batch(vec![("x", floats(&[1.0]))])).expect("owed");
            assert_eq!(pair.answers().len(), 1);
        }
        pair.client.close(true).expect("open");
        let bytes = pair.client.output().concat();
        // The end of the input comes after the cancel batch, and is read after the answer.
        let (cancel, end) = bytes.split_at(bytes.len() - ipc::END.len());
        assert!(matches!(pair.feed(cancel), Some(Event::Cancelled)));
        pair.server.settle().expect("open");
        assert!(pair.feed(end).is_none());
        assert!(matches!(pair.answers().as_slice(), [Answer::End]));
        pair.add_works();
    }
}

#[test]
fn a_stream_that_is_left_behind_ends_with_the_next_request() {
    let mut pair = Pair::new();
    pair.open("count");
    pair.serve(None);
    pair.client.tick().expect("open");
    assert!(matches!(pair.event(), Some(Event::Input(_))));
    pair.server.emit(&batch(vec![("x", floats(&[1.0]))])).expect("owed");
    assert_eq!(pair.answers().len(), 1);
    // Another client on the same connection does not know of the stream.
    pair.client = Client::new(Limits::default());
    pair.client.call("nothing", Batch::new(schema(&[]), Vec::new(), 1), Metadata::new()).expect("idle");
    let bytes = pair.client.output().concat();
    // The request's schema message ends the stream; the rest of the request makes the call.
    let (begun, rest) = bytes.split_at(beginning().len());
    assert!(matches!(pair.feed(begun), Some(Event::Abandoned)));
    assert!(matches!(pair.feed(rest), Some(Event::Call(_))));
    pair.server.reply(&Batch::empty(&schema(&[]), Metadata::new())).expect("called");
    assert!(matches!(pair.answers().as_slice(), [Answer::Batch(_)]));
    pair.add_works();
}

#[test]
fn a_request_that_begins_again_abandons_no_stream() {
    let mut pair = Pair::new();
    let event = pair.feed(&beginning());
    assert!(event.is_none(), "{event:?}");
    pair.add_works();
}

#[test]
fn a_client_that_does_not_wait_for_an_answer_gets_an_error_before_its_connection_ends() {
    let mut pair = Pair::new();
    pair.open("count");
    assert_eq!(pair.broken(&beginning()), Error::from(Violation::Request));
    let answers = pair.answers();
    assert!(
        matches!(answers.as_slice(), [Answer::Failed(failure)] if failure.message.contains("outside a request")),
        "{answers:?}"
    );

    let mut pair = Pair::new();
    pair.open("count");
    pair.serve(None);
    pair.client.tick().expect("open");
    let first = pair.client.output().concat();
    assert!(matches!(pair.feed(&first), Some(Event::Input(_))));
    let second = &first[beginning().len()..];
    assert_eq!(pair.broken(second), Error::from(Violation::EarlyInput));
    let answers = pair.answers();
    assert!(
        matches!(answers.as_slice(), [Answer::Failed(failure)] if failure.message.contains("before the answer")),
        "{answers:?}"
    );
}

#[test]
fn a_client_that_sends_more_while_its_values_are_fetched_gets_an_error_before_its_connection_ends() {
    let mut pair = Pair::new();
    pair.server.follow_pointers();
    let params = batch(vec![("a", floats(&[])), ("b", floats(&[]))]);
    pair.client.call("add", params, [(key::LOCATION, "https://host/object")].into_iter().collect()).expect("idle");
    assert!(matches!(pair.event(), Some(Event::Pointer(_))));
    assert_eq!(pair.broken(&beginning()), Error::from(Violation::Request));
    assert_eq!(pair.server.take_refused(), 1);
    assert!(matches!(pair.answers().as_slice(), [Answer::Failed(_)]));
}

#[test]
fn requests_that_break_a_rule_are_answered_with_the_error_of_section_13() {
    let mut pair = Pair::new();
    let with = |pairs: &[(&[u8], &[u8])], params: Batch| params.with_metadata(pairs.iter().copied().collect());
    let good = || batch(vec![("a", floats(&[1.0])), ("b", floats(&[2.0]))]);
    let method: (&[u8], &[u8]) = (key::METHOD, b"add");
    let version: (&[u8], &[u8]) = (key::REQUEST_VERSION, b"1");
    for (expected, params) in [
        ("ProtocolError", with(&[version], good())),
        ("ProtocolError", with(&[version], good())),
        ("VersionError", with(&[method], good())),
        ("VersionError", with(&[method, (key::REQUEST_VERSION, b"2")], good())),
        ("AttributeError", with(&[(key::METHOD, b"sub"), version], good())),
        ("AttributeError", with(&[(key::METHOD, b"\xFF"), version], good())),
        (
            "ProtocolError",
            with(&[method, version], batch(vec![("a", floats(&[1.0, 2.0])), ("b", floats(&[2.0, 3.0]))])),
        ),
        ("TypeError", with(&[method, version], batch(vec![("a", floats(&[1.0]))]))),
        ("TypeError", with(&[method, version], batch(vec![("a", floats(&[1.0])), ("c", floats(&[1.0]))]))),
        (
            "TypeError",
            with(&[method, version], {
                let null: ArrayRef = Arc::new(Float64Array::from(vec![None]));
                batch(vec![("a", floats(&[1.0])), ("b", null)])
            }),
        ),
    ] {
        assert_eq!(pair.refused(params), expected);
        assert_eq!(pair.server.take_refused(), 1, "{expected}");
    }
    pair.add_works();
    assert_eq!(pair.server.take_refused(), 0);
}

#[test]
fn an_input_that_is_an_unresolved_pointer_fails_only_its_stream() {
    let mut pair = Pair::new();
    for (place, why) in [(key::LOCATION, "behind a URL"), (key::SHM_OFFSET, "in shared memory")] {
        pair.open("count");
        pair.serve(None);
        let pointer = Batch::empty(&schema(&[]), [(place, "65536")].into_iter().collect());
        pair.client.send(&pointer).expect("open");
        let Some(Event::Input(batch)) = pair.event() else { panic!("no input") };
        assert!(pair.server.conform(batch).expect("open").is_none(), "it would be taken for an empty batch");
        let answers = pair.answers();
        let [Answer::Failed(failure)] = answers.as_slice() else { panic!("{answers:?}") };
        assert!(failure.error_type == "ProtocolError" && failure.message.contains(why), "{failure:?}");
        pair.add_works();
    }
}

#[test]
fn a_request_with_external_values_fails_on_a_server_that_fetches_none() {
    let mut pair = Pair::new();
    let params = batch(vec![("a", floats(&[])), ("b", floats(&[]))]);
    let pointer = [(key::LOCATION, "https://host/object")].into_iter().collect();
    pair.client.call("add", params, pointer).expect("idle");
    assert!(pair.event().is_none());
    let answers = pair.answers();
    let [Answer::Failed(failure)] = answers.as_slice() else { panic!("{answers:?}") };
    assert!(failure.message.contains("behind a URL"), "{failure:?}");
}

#[test]
fn a_description_has_the_columns_of_section_14() {
    let mut pair = Pair::new();
    pair.client.call("__describe__", Batch::new(schema(&[]), Vec::new(), 1), Metadata::new()).expect("idle");
    assert!(pair.event().is_none());
    let answers = pair.answers();
    let [Answer::Batch(description)] = answers.as_slice() else { panic!("{answers:?}") };
    let names: Vec<&str> = description.schema.fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!((names.len(), description.rows), (10, 4));
    assert_eq!(names[..4], ["name", "method_type", "doc", "has_return"]);
    assert_eq!(description.metadata.text(key::DESCRIBE_VERSION), Some("2"));
    let protocol = protocol();
    let other = Description::new(&protocol, Dialect::V0_10, "id");
    assert_eq!(other.batch().schema.fields().len(), 8);
    assert_eq!(other.batch().metadata.text(key::PROTOCOL_HASH).map(str::len), Some(64));
}
