//! A receiver of a batch in shared memory must not copy it, so its allocations are counted. This is a separate process,
//! because the counting allocator is process-wide.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests stand outside of the test functions that clippy.toml lets do this"
)]

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use allocation_counter::measure;
use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{BinaryArray, Float64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use penstock_vgi::{Answer, Batch, Event, Limits, Metadata, Method, MethodKind, Protocol, Serialized, ServerConfig};
use penstock_vgi_net::{Channel, ClientConnection, Segment, ServerConnection};

/// The size of a batch, and the most bytes that an end may allocate to receive or send one: heads, and buffers for
/// them.
const BYTES: usize = 8 << 20;
const SMALL: u64 = 200 << 10;

fn schema(name: &str, data_type: DataType) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(name, data_type, false)]))
}

fn numbers() -> Batch {
    let values = Float64Array::from_iter_values((0..BYTES / 8).map(|number| number as f64));
    Batch::new(schema("value", DataType::Float64), vec![Arc::new(values)], BYTES / 8)
}

fn protocol() -> Arc<Protocol> {
    let method = |name: &str, kind, result: SchemaRef| Method {
        name: name.into(),
        kind,
        params: Arc::new(Schema::empty()),
        result,
        optional: Vec::new(),
        nulls: Vec::new(),
        header: None,
        is_exchange: Some(true),
        has_return: kind == MethodKind::Unary,
        doc: None,
        serialized: Serialized::default(),
        param_types: None,
        param_defaults: None,
    };
    let methods = vec![
        method("blob", MethodKind::Unary, schema("result", DataType::Binary)),
        method("echo", MethodKind::Stream, Arc::new(Schema::empty())),
    ];
    Arc::new(Protocol::new("Counted", methods).expect("two methods"))
}

/// Return the bytes that a piece of work has allocated, and its result.
fn allocated<T>(work: impl FnOnce() -> T) -> (u64, T) {
    let mut given = None;
    let info = measure(|| given = Some(work()));
    (info.bytes_total, given.expect("it ran"))
}

/// Serve one exchange and one call, and return what each step has allocated.
fn serve(channel: Channel) -> Vec<(&'static str, u64)> {
    let config = ServerConfig { server_id: "0".repeat(12), description: None, limits: Limits::default(), seed: 1 };
    let mut server = ServerConnection::new(protocol(), config, channel, None, Arc::default()).expect("no segment");
    let go = &mut || Ok(());
    let blob = |bytes| {
        let column = BinaryArray::from_iter_values([vec![7_u8; bytes]]);
        Batch::new(schema("result", DataType::Binary), vec![Arc::new(column)], 1)
    };
    // The first answer tells the client that this end uses the sealed segment.
    let Some(Event::Call(_)) = server.next_event(go).unwrap() else { panic!("no call") };
    server.machine().reply(&blob(1)).unwrap();
    server.flush(go).unwrap();
    let Some(Event::Call(_)) = server.next_event(go).unwrap() else { panic!("no call") };
    let values = schema("value", DataType::Float64);
    server.machine().open(&values, &values, None).unwrap();
    server.flush(go).unwrap();
    let (received, event) = allocated(|| server.next_event(go).unwrap());
    let Some(Event::Input(batch)) = event else { panic!("no input") };
    let (answered, ()) = allocated(|| {
        let shared = server.share(batch).unwrap();
        server.machine().emit(&shared).unwrap();
        server.flush(go).unwrap();
    });
    let Some(Event::InputEnd) = server.next_event(go).unwrap() else { panic!("more input") };
    server.machine().finish().unwrap();
    server.flush(go).unwrap();
    let Some(Event::Call(_)) = server.next_event(go).unwrap() else { panic!("no call") };
    let result = blob(BYTES);
    let (replied, ()) = allocated(|| {
        let shared = server.share(result).unwrap();
        server.machine().reply(&shared).unwrap();
        server.flush(go).unwrap();
    });
    assert!(server.next_event(go).unwrap().is_none(), "the client has ended");
    vec![("the server's input", received), ("the server's batch", answered), ("the server's result", replied)]
}

#[test]
fn a_batch_in_shared_memory_is_not_copied_by_its_receiver() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs = Channel::descriptors(theirs.try_clone().unwrap().into(), theirs.into());
    let server = thread::spawn(move || serve(theirs));
    let segment = Segment::create(64 << 20).unwrap();
    let ours = Channel::descriptors(ours.try_clone().unwrap().into(), ours.into());
    let mut client = ClientConnection::new(Limits::default(), ours, Some(Arc::clone(&segment))).expect("a child's");
    let go = &mut || Ok(());
    let nothing = || Batch::new(Arc::new(Schema::empty()), Vec::new(), 1);

    client.call("blob", nothing(), Metadata::new(), go).unwrap();
    let Answer::Batch(_) = client.next_answer(go).unwrap() else { panic!("no result") };

    client.open("echo", nothing(), Metadata::new(), false, go).unwrap();
    let batch = numbers();
    let (sent, ()) = allocated(|| client.send(Some(&batch), go).unwrap());
    let (received, answer) = allocated(|| client.next_answer(go).unwrap());
    let Answer::Batch(given) = answer else { panic!("no batch") };
    let values = given.columns.first().unwrap().as_primitive::<Float64Type>();
    assert_eq!((values.len(), values.value(BYTES / 8 - 1)), (BYTES / 8, (BYTES / 8 - 1) as f64));
    client.close(false, go, &mut drop).unwrap();

    client.call("blob", nothing(), Metadata::new(), go).unwrap();
    let (result, answer) = allocated(|| client.next_answer(go).unwrap());
    let Answer::Batch(blob) = answer else { panic!("no result") };
    assert_eq!(blob.columns.first().unwrap().as_binary::<i32>().value(0), vec![7_u8; BYTES]);
    drop(client);

    let mut counts =
        vec![("the client's batch", sent), ("the client's answer", received), ("the client's result", result)];
    counts.extend(server.join().unwrap());
    for (what, bytes) in counts {
        assert!(bytes < SMALL, "{what} of {BYTES} bytes took {bytes}");
        assert!(bytes > 0, "{what} took nothing: nobody counts");
    }
}
