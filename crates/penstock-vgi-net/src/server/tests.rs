use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use arrow_schema::{Schema, SchemaRef};
use penstock_vgi::{Answer, Limits, Method, MethodKind, Serialized};
use penstock_wire::ErrorKind;

use super::super::channel::Interrupted;
use super::super::client::ClientConnection;
use super::*;

fn protocol() -> Arc<Protocol> {
    let empty = SchemaRef::new(Schema::empty());
    let stream = Method {
        name: "stream".into(),
        kind: MethodKind::Stream,
        params: Arc::clone(&empty),
        result: empty,
        optional: Vec::new(),
        nulls: Vec::new(),
        header: None,
        is_exchange: Some(true),
        has_return: false,
        doc: None,
        serialized: Serialized::default(),
        param_types: None,
        param_defaults: None,
    };
    Arc::new(Protocol::new("Test", vec![stream]).expect("one method"))
}

fn channel(stream: UnixStream) -> Channel {
    let writer = stream.try_clone().expect("a descriptor");
    Channel::descriptors(stream.into(), writer.into())
}

/// Return a server that waits `first_byte` for its client, its counters, and the client's end.
fn served(first_byte: Duration) -> (ServerConnection, Arc<Counters>, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair");
    let config = ServerConfig { server_id: "0".repeat(12), description: None, limits: Limits::default(), seed: 1 };
    let (counters, mut channel) = (Arc::<Counters>::default(), channel(near));
    channel.set_first_byte(first_byte);
    let server = ServerConnection::new(protocol(), config, channel, None, Arc::clone(&counters)).expect("no segment");
    (server, counters, far)
}

const LONG: Duration = Duration::from_secs(3_600);

fn nothing() -> Batch {
    Batch::new(SchemaRef::new(Schema::empty()), Vec::new(), 1)
}

#[test]
fn a_connection_that_breaks_before_its_first_request_is_counted_once() {
    let (mut server, counters, _silent) = served(Duration::ZERO);
    assert_eq!(server.next_event(&mut || Ok(())).expect_err("no first byte").kind(), ErrorKind::Deadline);
    assert_eq!(counters.refusals(), 1);

    let (mut server, counters, mut client) = served(LONG);
    client.write_all(&[0xAB; 64]).expect("written");
    assert!(server.next_event(&mut || Ok(())).is_err(), "no IPC");
    assert_eq!(counters.refusals(), 1);

    let (mut server, counters, client) = served(LONG);
    drop(client);
    assert!(server.next_event(&mut || Ok(())).expect("an end").is_none());
    assert_eq!(counters.refusals(), 0, "who only looks whether somebody is there is not refused");

    let (mut server, counters, _silent) = served(LONG);
    assert!(server.next_event(&mut || Err(Interrupted)).is_err());
    assert_eq!(counters.refusals(), 0, "this end was interrupted");
}

#[test]
fn a_request_that_no_method_sees_is_counted_and_the_end_of_its_connection_is_not() {
    let (mut server, counters, far) = served(LONG);
    let mut client = ClientConnection::new(Limits::default(), channel(far), None).expect("no segment");
    let go = &mut || Ok(());
    client.call("unknown", nothing(), Metadata::new(), go).expect("sent");
    drop(client);
    drop(server.next_event(go));
    assert_eq!(counters.refusals(), 1);
}

#[test]
fn a_pointer_into_a_segment_that_was_named_without_its_size_or_not_at_all_fails_its_stream() {
    let named = |pairs: &[(&'static [u8], &str)]| pairs.iter().copied().collect::<Metadata>();
    let name = (key::SHM_SEGMENT_NAME, "some-segment");
    for (segment, why) in [
        (named(&[]), "no segment of it"),
        (named(&[name]), "without its size"),
        (named(&[name, (key::SHM_SEGMENT_SIZE, "many")]), "without its size"),
    ] {
        let (mut server, _, far) = served(LONG);
        let mut client = ClientConnection::new(Limits::default(), channel(far), None).expect("no segment");
        let go = &mut || Ok(());
        client.open("stream", nothing(), segment, false, go).expect("sent");
        assert!(matches!(server.next_event(go), Ok(Some(Event::Call(_)))));
        let empty = SchemaRef::new(Schema::empty());
        server.machine().open(&empty, &empty, None).expect("called");
        let pointer = Batch::empty(&empty, [(key::SHM_OFFSET, "65536"), (key::SHM_LENGTH, "8")].into_iter().collect());
        client.send(Some(&pointer), go).expect("sent");
        match server.next_event(go).expect("the connection is in step") {
            Some(Event::Input(batch)) => assert!(server.machine().conform(batch).expect("open").is_none()),
            event => assert!(matches!(event, Some(Event::Abandoned)), "{event:?}"),
        }
        server.flush(go).expect("written");
        let answer = client.next_answer(go).expect("an answer");
        assert!(matches!(&answer, Answer::Failed(failure) if failure.message.contains(why)), "{answer:?}");
    }
}
