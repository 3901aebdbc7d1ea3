//! The vectors of layer 2: its frames mean what the file says once the layer is agreed on, and are skipped unread
//! before that.
// A vector that does not match its expectation fails the test that reads it.
#![allow(clippy::expect_used)]

use bytes::Bytes;
use penstock_pipestream::messages::{ClaimCheck, StoppingPointValidation};
use penstock_pipestream::{
    ClaimResponse, Error, FoundClaim, Frame, FrameDecoder, Layer2Frame, SessionFrame, SessionId, Status,
};
use penstock_testkit::vectors::{Golden, Hex, Invalid, load, splits};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", deny_unknown_fields)]
enum FrameJson {
    ClaimQuery { claim_id: u64 },
    ClaimResponse { claim_id: u64, found: Option<FoundJson> },
    ClaimRedeem { claim_id: u64, session: String },
    Resume { scope_id: u16, entity_id: u32, token: Hex },
    Session { session: String, received: Option<u64>, sent: Option<u64> },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FoundJson {
    entity_id: u32,
    scope_id: u32,
    expiry_micros: u64,
    validation: Option<ValidationJson>,
    status: String,
    file: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ValidationJson {
    state_checksum: Hex,
    bytes_processed: u64,
    children_complete: u32,
    children_total: u32,
    is_resumable: bool,
    checkpoint_ref: String,
}

impl From<FrameJson> for Frame {
    fn from(json: FrameJson) -> Self {
        let session = |text: String| SessionId::parse(&text).expect("a session ID");
        Self::Layer2(match json {
            FrameJson::ClaimQuery { claim_id } => Layer2Frame::ClaimQuery { claim_id },
            FrameJson::ClaimResponse { claim_id, found } => {
                Layer2Frame::ClaimResponse(ClaimResponse { claim_id, found: found.map(|found| found.of(claim_id)) })
            }
            FrameJson::ClaimRedeem { claim_id, session: text } => {
                Layer2Frame::ClaimRedeem { claim_id, session: session(text) }
            }
            FrameJson::Resume { scope_id, entity_id, token } => {
                Layer2Frame::Resume { scope_id, entity_id, token: token.0.into() }
            }
            FrameJson::Session { session: text, received, sent } => {
                Layer2Frame::Session(SessionFrame { received, sent, ..SessionFrame::named(session(text)) })
            }
        })
    }
}

impl FoundJson {
    fn of(self, claim_id: u64) -> FoundClaim {
        let check = ClaimCheck {
            claim_id: Some(claim_id),
            entity_id: Some(self.entity_id),
            scope_id: Some(self.scope_id),
            expiry_timestamp: Some(self.expiry_micros),
            validation: self.validation.map(|validation| StoppingPointValidation {
                state_checksum: Some(validation.state_checksum.0.into()),
                bytes_processed: Some(validation.bytes_processed),
                children_complete: Some(validation.children_complete),
                children_total: Some(validation.children_total),
                is_resumable: Some(validation.is_resumable),
                checkpoint_ref: Some(validation.checkpoint_ref),
            }),
        };
        let status = Status::ALL.into_iter().find(|status| status.name() == self.status).expect("a status");
        FoundClaim { check, status, file: self.file }
    }
}

/// Return all frames of the pieces, or the first error, and whether a frame was left incomplete.
fn decode(pieces: &[&[u8]], layer2: bool) -> (Result<Vec<Frame>, Error>, bool) {
    let mut decoder = FrameDecoder::new();
    if layer2 {
        decoder.expect_layer2();
    }
    let mut frames = Vec::new();
    for piece in pieces {
        decoder.push(Bytes::copy_from_slice(piece));
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (Err(error), decoder.is_mid_frame()),
            }
        }
    }
    (Ok(frames), decoder.is_mid_frame())
}

#[test]
fn golden_frames_mean_what_the_file_says_and_are_skipped_below_layer_2() {
    let vectors: Vec<Golden<FrameJson>> = load("pipestream", "frames-layer2").expect("vectors");
    assert!(vectors.len() >= 10, "only {} vectors", vectors.len());
    for vector in vectors {
        assert!(vector.is_explained(), "{}", vector.name);
        let Golden { name, hex: Hex(bytes), frame, decode_only, .. } = vector;
        let frame = Frame::from(frame);
        let skipped = Frame::Private(frame.frame_type());
        assert_eq!(Frame::decode_layer2(&bytes), Ok(Some((frame.clone(), bytes.len()))), "{name}");
        assert_eq!(Frame::decode(&bytes), Ok(Some((skipped.clone(), bytes.len()))), "{name}");
        for pieces in splits(&bytes) {
            assert_eq!(decode(&pieces, true), (Ok(vec![frame.clone()]), false), "{name}");
            assert_eq!(decode(&pieces, false), (Ok(vec![skipped.clone()]), false), "{name}");
        }
        assert_eq!(frame.encode_to_vec() == bytes, !decode_only, "{name}");
    }
}

#[test]
fn invalid_frames_get_their_code_however_they_are_cut() {
    let vectors: Vec<Invalid> = load("pipestream", "frames-layer2-invalid").expect("vectors");
    assert!(vectors.len() >= 25, "only {} vectors", vectors.len());
    for Invalid { name, hex: Hex(bytes), code, truncated, .. } in vectors {
        for pieces in splits(&bytes) {
            let (frames, is_mid_frame) = decode(&pieces, true);
            if truncated {
                assert_eq!((frames, is_mid_frame, code.as_str()), (Ok(Vec::new()), true, "ENTITY_INVALID"), "{name}");
            } else {
                let name_of = |error: &Error| error.code().name().trim_start_matches("PIPESTREAM_");
                assert_eq!(frames.as_ref().map_err(name_of), Err(code.as_str()), "{name}");
            }
        }
    }
}
