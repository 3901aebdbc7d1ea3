use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread::{sleep, spawn};

use arrow_schema::{Schema, SchemaRef};
use penstock_vgi::ipc::{self, Output};
use penstock_vgi::key;
use penstock_wire::ErrorKind;

use super::*;

fn pair() -> (ClientConnection, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair");
    let writer = near.try_clone().expect("a descriptor");
    let channel = Channel::descriptors(near.into(), writer.into());
    (ClientConnection::new(Limits::default(), channel, None).expect("no segment"), far)
}

fn call(client: &mut ClientConnection) -> Result<Answer> {
    let go = &mut || Ok(());
    client.call("add", Batch::new(SchemaRef::new(Schema::empty()), Vec::new(), 1), Metadata::new(), go)?;
    client.next_answer(go)
}

#[test]
fn a_server_that_drips_its_answer_does_not_prolong_its_time() {
    let (mut client, mut far) = pair();
    client.set_timeout(Some(Duration::from_millis(200)));
    let dripping = spawn(move || {
        // The head of a message of 1 MiB, then single bytes for two seconds, then the end.
        let head = [0xFFFF_FFFF_u32.to_le_bytes(), (1_u32 << 20).to_le_bytes()].concat();
        let mut rest = 400;
        far.write_all(&head).expect("written");
        while rest > 0 && far.write_all(&[0]).is_ok() {
            sleep(Duration::from_millis(5));
            rest -= 1;
        }
    });
    let error = call(&mut client).expect_err("no answer");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::Deadline, "the peer has not answered within the time-out of 0.2 s")
    );
    drop(client);
    dripping.join().expect("it ended");
}

#[test]
fn each_answer_has_a_time_of_its_own() {
    let (mut client, mut far) = pair();
    let schema = SchemaRef::new(Schema::empty());
    let answer = || Batch::empty(&schema, Metadata::new());
    // Two calls, and a stream that answers twice.
    for answers in [vec![answer()], vec![answer()], vec![answer(), answer()]] {
        let mut out = Output::new();
        ipc::stream(&schema, &answers, &mut out).expect("writable");
        far.write_all(&out.concat()).expect("written");
    }
    client.set_timeout(Some(Duration::from_secs(3_600)));
    let go = &mut || Ok(());
    for _ in 0..2 {
        client.channel.expire();
        assert!(matches!(call(&mut client), Ok(Answer::Batch(_))));
    }
    client.channel.expire();
    client.open("stream", Batch::new(Arc::clone(&schema), Vec::new(), 1), Metadata::new(), false, go).expect("sent");
    for _ in 0..2 {
        client.channel.expire();
        client.send(None, go).expect("sent");
        assert!(matches!(client.next_answer(go), Ok(Answer::Batch(_))));
    }
    client.channel.expire();
    client.close(false, go, &mut drop).expect("its end is there");
    assert!(!client.is_streaming());
}

#[test]
fn an_answer_that_is_a_pointer_without_a_segment_is_an_error() {
    let (mut client, mut far) = pair();
    let mut out = Output::new();
    let schema = SchemaRef::new(Schema::empty());
    let pointer = Batch::empty(&schema, [(key::SHM_OFFSET, "65536")].into_iter().collect());
    ipc::stream(&schema, [&pointer], &mut out).expect("writable");
    far.write_all(&out.concat()).expect("written");
    let error = call(&mut client).expect_err("no empty batch");
    assert!(matches!(error, Error::Pointer), "{error}");
}
