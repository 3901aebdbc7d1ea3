//! The vectors under `tests/vectors/quicx`: what is right means what the file says and is written again byte for byte;
//! what is wrong is refused with its code and what follows is read; and all of it also in pieces.
// Vectors that do not say what they should fail the test that reads them.
#![allow(clippy::expect_used)]

use penstock_quicx::{Accepts, DeadTask, DeadTasks, Decoded, Decoder, ErrorCode, Frame, Malformed, Opcode, Types};
use penstock_testkit::vectors::{Golden, Hex, load, splits};
use serde::Deserialize;
use serde_json::{Value, json};

const TO_DAEMON: Accepts = Accepts::ToDaemon { submit: 4_096 };

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Invalid {
    name: String,
    hex: Hex,
    code: u8,
    #[serde(default)]
    close: bool,
    #[serde(default)]
    frames_behind: usize,
    #[serde(default)]
    truncated: bool,
}

fn hex(bytes: &[u8]) -> String {
    format!("{:?}", Hex(bytes.to_vec()))
}

fn dead(task: DeadTask<'_>) -> Value {
    json!({"id": task.id.0, "attempts": task.attempts, "kind": hex(task.kind), "reason": hex(task.reason)})
}

fn describe(frame: Frame<'_>) -> Value {
    let mut fields = match frame {
        Frame::Submit(submit) => json!({"kind": hex(submit.kind), "payload": hex(submit.payload)}),
        Frame::SubmitOnce(once) => {
            json!({"key": hex(&once.key), "kind": hex(once.submit.kind), "payload": hex(once.submit.payload)})
        }
        Frame::Ok(id)
        | Frame::Done(id)
        | Frame::Observe(id)
        | Frame::DeadRequeue(id)
        | Frame::DeadDrop(id)
        | Frame::DeadAfter(id) => json!({"id": id.0}),
        Frame::Error(failure) => json!({"code": failure.code.byte(), "message": hex(failure.message)}),
        Frame::Task(task) => {
            json!({"id": task.id.0, "kind": hex(task.submit.kind), "payload": hex(task.submit.payload)})
        }
        Frame::Failed(failed) => json!({"id": failed.id.0, "reason": hex(failed.reason)}),
        Frame::StatsResponse(stats) => json!({
            "queue_depth": stats.queue_depth, "workers_total": stats.workers_total, "workers_idle": stats.workers_idle,
            "pmad_bytes_used": stats.pmad_bytes_used, "pmad_bytes_total": stats.pmad_bytes_total,
        }),
        Frame::Prefetch(prefetch) => json!({"n": prefetch.0}),
        Frame::Subscribe(types) => json!({"kinds": types.map(hex).collect::<Vec<_>>()}),
        Frame::DeadTasks(tasks) => json!({"tasks": tasks.map(dead).collect::<Vec<_>>()}),
        Frame::Ready | Frame::Wait | Frame::Heartbeat | Frame::Pong | Frame::Stats | Frame::DeadList | Frame::Stop => {
            json!({})
        }
    };
    fields.as_object_mut().expect("an object").insert("type".to_owned(), json!(frame.opcode().name()));
    fields
}

/// All frames in the pieces described and written again, what was refused, and the decoder at the end.
fn decode(accepts: Accepts, pieces: &[&[u8]]) -> (Vec<Value>, Vec<u8>, Vec<Malformed>, Decoder) {
    let mut decoder = Decoder::new(accepts);
    let (mut frames, mut again, mut refusals) = (Vec::new(), Vec::new(), Vec::new());
    for mut piece in pieces.iter().copied() {
        while let Some(decoded) = decoder.next_frame(&mut piece) {
            match decoded {
                Decoded::Frame(frame) => {
                    frames.push(describe(frame));
                    frame.encode(&mut again).expect("fits");
                }
                Decoded::Refused(refusal) => refusals.push(refusal),
            }
        }
        assert!(piece.is_empty());
    }
    (frames, again, refusals, decoder)
}

#[test]
fn golden_frames_mean_what_they_say_in_any_pieces() {
    let vectors: Vec<Golden<Vec<Value>>> = load("quicx", "frames").expect("readable");
    assert!(vectors.len() >= 35);
    for vector in vectors {
        assert!(vector.is_explained(), "{}", vector.name);
        let opcode = vector.hex.0.get(1).copied().and_then(Opcode::from_byte).expect("an opcode");
        let accepts = if opcode.is_daemons() { Accepts::ToClient } else { TO_DAEMON };
        for pieces in splits(&vector.hex.0) {
            let (frames, again, refusals, decoder) = decode(accepts, &pieces);
            assert_eq!(frames, vector.frame, "{}", vector.name);
            assert_eq!(again, vector.hex.0, "{}", vector.name);
            assert!(refusals.is_empty() && !decoder.is_mid_frame(), "{}", vector.name);
        }
    }
}

#[test]
fn invalid_frames_are_refused_with_their_code_and_the_next_one_is_read() {
    let vectors: Vec<Invalid> = load("quicx", "frames-invalid").expect("readable");
    assert!(vectors.len() >= 45);
    for vector in vectors {
        for pieces in splits(&vector.hex.0) {
            let (frames, _, refusals, decoder) = decode(TO_DAEMON, &pieces);
            let [refusal] = refusals.as_slice() else { panic!("{}: {refusals:?}", vector.name) };
            assert_eq!((refusal.code().byte(), refusal.is_fatal()), (vector.code, vector.close), "{}", vector.name);
            assert_eq!(frames.len(), vector.frames_behind, "{}", vector.name);
            assert_eq!(decoder.is_mid_frame(), vector.truncated, "{}", vector.name);
            assert_eq!(decoder.kept(), 0, "{}: nothing is kept of what is skipped", vector.name);
        }
    }
}

#[test]
fn a_reason_beyond_64_kib_is_cut_and_its_rest_skipped() {
    let mut bytes = Vec::new();
    let reason = vec![b'r'; 100_000];
    Frame::Failed(penstock_quicx::Failed { id: penstock_quicx::TaskId(1), reason: &reason })
        .encode(&mut bytes)
        .expect("fits");
    Frame::Ready.encode(&mut bytes).expect("fits");
    for size in [bytes.len(), 4_096, 7] {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        let (frames, again, refusals, _) = decode(TO_DAEMON, &pieces);
        assert_eq!((frames.len(), refusals.len(), again.len()), (2, 0, 10 + (64 << 10) + 6));
    }
}

#[test]
fn a_sender_cannot_write_what_the_layout_cannot_say() {
    let mut out = Vec::new();
    let submit = |kind| Frame::Submit(penstock_quicx::Submit { kind, payload: b"" });
    assert!(submit(b"").encode(&mut out).is_err() && submit(&[b'a'; 256]).encode(&mut out).is_err());
    assert!(Types::collect(&[b""], &mut Vec::new()).is_err());
    assert!(out.is_empty());
    assert_eq!(DeadTasks::collect(&[], &mut out).count(), 0);
    assert_eq!(ErrorCode::from_byte(0x09).to_string(), "0x09");
}
