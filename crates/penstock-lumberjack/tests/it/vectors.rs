//! Tests of the vectors under `tests/vectors/lumberjack`: valid input decodes as the file says and is encoded again
//! byte for byte; invalid input results in its kind of error after the frames before it; both also hold in pieces.
// A vector that does not match its expectation fails the test that reads it.
#![allow(clippy::expect_used)]

use bytes::BytesMut;
use penstock_lumberjack::{Accepts, Ack, Data, Decoder, Error, Frame, Json, Limits, Version, Window};
use penstock_testkit::vectors::{Golden, Hex, load, splits};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", deny_unknown_fields)]
enum FrameJson {
    Window { version: u8, size: u32 },
    Data { version: u8, sequence: u32, pairs: Vec<(Hex, Hex)> },
    Json { version: u8, sequence: u32, payload: Hex },
    Ack { version: u8, sequence: u32 },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Invalid {
    name: String,
    hex: Hex,
    code: String,
    #[serde(default)]
    frames_before: usize,
    #[serde(default)]
    truncated: bool,
}

const fn number(version: Version) -> u8 {
    match version {
        Version::V1 => 1,
        Version::V2 => 2,
    }
}

fn version(number: u8) -> Version {
    if number == 1 { Version::V1 } else { Version::V2 }
}

fn describe(frame: Frame<'_>) -> FrameJson {
    let hex = |bytes: &[u8]| Hex(bytes.to_vec());
    match frame {
        Frame::Window(Window { version, size }) => FrameJson::Window { version: number(version), size },
        Frame::Data(Data { version, sequence, pairs }) => FrameJson::Data {
            version: number(version),
            sequence,
            pairs: pairs.map(|(key, value)| (hex(key), hex(value))).collect(),
        },
        Frame::Json(Json { version, sequence, payload }) => {
            FrameJson::Json { version: number(version), sequence, payload: hex(payload) }
        }
        Frame::Ack(Ack { version, sequence }) => FrameJson::Ack { version: number(version), sequence },
    }
}

fn encode(frame: &FrameJson, out: &mut BytesMut) {
    match frame {
        FrameJson::Window { version: number, size } => {
            Window { version: version(*number), size: *size }.encode(out);
        }
        FrameJson::Data { version: number, sequence, pairs } => {
            let pairs: Vec<_> = pairs.iter().map(|(key, value)| (&key.0[..], &value.0[..])).collect();
            Data::encode(version(*number), *sequence, pairs, out).expect("fits");
        }
        FrameJson::Json { version: number, sequence, payload } => {
            let json = Json { version: version(*number), sequence: *sequence, payload: &payload.0 };
            json.encode(out).expect("fits");
        }
        FrameJson::Ack { version: number, sequence } => {
            out.extend_from_slice(&Ack { version: version(*number), sequence: *sequence }.encode());
        }
    }
}

/// Return all frames in the pieces, and how the stream ended.
fn decode(accepts: Accepts, pieces: &[&[u8]]) -> (Vec<FrameJson>, Result<Decoder, Error>) {
    let mut decoder = Decoder::new(accepts, Limits::default());
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(describe(frame)),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(decoder))
}

#[test]
fn golden_frames_mean_what_they_say_in_any_pieces() {
    let vectors: Vec<Golden<Vec<FrameJson>>> = load("lumberjack", "frames").expect("readable");
    assert!(vectors.len() >= 15);
    for vector in vectors {
        assert!(vector.is_explained(), "{}", vector.name);
        let ack = matches!(vector.frame.first(), Some(FrameJson::Ack { .. }));
        let accepts = if ack { Accepts::Reader } else { Accepts::Writer };
        for pieces in splits(&vector.hex.0) {
            let (frames, end) = decode(accepts, &pieces);
            let decoder = end.expect("valid");
            assert_eq!(frames, vector.frame, "{}", vector.name);
            assert_eq!(decoder.offset(), vector.hex.0.len() as u64, "{}", vector.name);
            assert!(!decoder.is_mid_frame(), "{}", vector.name);
        }
        let mut again = BytesMut::new();
        vector.frame.iter().for_each(|frame| encode(frame, &mut again));
        assert!(vector.decode_only || again == vector.hex.0, "{}", vector.name);
    }
}

#[test]
fn invalid_frames_get_their_kind_of_error_in_any_pieces() {
    let vectors: Vec<Invalid> = load("lumberjack", "frames-invalid").expect("readable");
    assert!(vectors.len() >= 30);
    for vector in vectors {
        for pieces in splits(&vector.hex.0).filter(|pieces| pieces.len() != 2 || vector.hex.0.len() < 200) {
            let (frames, end) = decode(Accepts::Writer, &pieces);
            assert_eq!(frames.len(), vector.frames_before, "{}", vector.name);
            match end {
                Ok(decoder) => assert!(vector.truncated && decoder.is_mid_frame(), "{}", vector.name),
                Err(error) => {
                    assert!(!vector.truncated, "{}: {error}", vector.name);
                    assert_eq!(error.kind().name(), vector.code, "{}: {error}", vector.name);
                    assert!(error.offset().is_some(), "{}", vector.name);
                }
            }
        }
    }
}
