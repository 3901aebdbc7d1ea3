//! The vectors under `tests/vectors/pipestream`: valid input means what the file says and is encoded again byte for
//! byte; invalid input gets its code; and all of this holds in pieces, cut at every position.
// A vector that does not match its expectation fails the test that reads it.
#![allow(clippy::expect_used)]

use std::collections::BTreeMap;

use bytes::Bytes;
use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction};
use penstock_pipestream::{
    Barrier, Capabilities, Checkpoint, ChunkInfo, EntityHeader, Error, ErrorFrame, Extension, Frame, FrameDecoder,
    HeaderDecoder, ScopeDigest, Status, StatusFrame, YieldReason,
};
use penstock_testkit::vectors::{Golden, Hex, Invalid, load, splits};
use serde::Deserialize;

/// The payload limit that the vectors of failing entities assume.
const MAX_PAYLOAD: u64 = 1024 * 1024;

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE", deny_unknown_fields)]
enum FrameJson {
    Status {
        status: String,
        entity_id: u32,
        scope_id: u16,
        depth: u8,
        cursor: Option<u32>,
        extension: Option<ExtensionJson>,
    },
    ScopeDigest {
        scope_id: u16,
        processed: u64,
        succeeded: u64,
        failed: u64,
        deferred: u64,
        merkle_root: Hex,
    },
    Barrier {
        released: bool,
        barrier_id: u16,
        parent_id: u32,
    },
    Capabilities {
        layer0: bool,
        layer1: bool,
        layer2: bool,
        max_scope_depth: Option<u32>,
        max_entities_per_scope: Option<u32>,
        max_window_size: Option<u32>,
    },
    Checkpoint {
        checkpoint_id: String,
        sequence_number: u64,
        checkpoint_entity_id: u32,
        scope_id: u32,
        flags: u32,
        timeout_ms: u32,
    },
    Error {
        code: u32,
        scope_id: u32,
        entity_id: u32,
        message: String,
    },
    Private {
        frame_type: u8,
    },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ExtensionJson {
    Yield { reason: String, token: Hex },
    Claim { claim_id: u64, expiry_micros: u64 },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderJson {
    entity_id: u32,
    parent_id: u32,
    scope_id: u32,
    layer: u32,
    content_type: String,
    payload_length: u64,
    checksum: Hex,
    metadata: BTreeMap<String, String>,
    chunk_info: Option<ChunkJson>,
    completion_policy: Option<PolicyJson>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChunkJson {
    total_chunks: u32,
    chunk_index: u32,
    chunk_offset: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyJson {
    mode: Option<String>,
    max_retries: Option<u32>,
    retry_delay_ms: Option<u32>,
    timeout_ms: Option<u32>,
    min_success_ratio: Option<f32>,
    on_timeout: Option<String>,
    on_failure: Option<String>,
}

impl From<FrameJson> for Frame {
    fn from(json: FrameJson) -> Self {
        match json {
            FrameJson::Status { status, entity_id, scope_id, depth, cursor, extension } => {
                let status = Status::ALL.into_iter().find(|known| known.name() == status).expect("a status");
                let extension = extension.map(Extension::from);
                Self::Status(StatusFrame { status, entity_id, scope_id, depth, cursor, extension })
            }
            FrameJson::ScopeDigest { scope_id, processed, succeeded, failed, deferred, merkle_root } => {
                let merkle_root = merkle_root.0.try_into().expect("32 bytes");
                Self::ScopeDigest(ScopeDigest { scope_id, processed, succeeded, failed, deferred, merkle_root })
            }
            FrameJson::Barrier { released, barrier_id, parent_id } => {
                Self::Barrier(Barrier { released, barrier_id, parent_id })
            }
            FrameJson::Capabilities {
                layer0,
                layer1,
                layer2,
                max_scope_depth,
                max_entities_per_scope,
                max_window_size,
            } => Self::Capabilities(Capabilities {
                layer0,
                layer1,
                layer2,
                max_scope_depth,
                max_entities_per_scope,
                max_window_size,
            }),
            FrameJson::Checkpoint {
                checkpoint_id,
                sequence_number,
                checkpoint_entity_id,
                scope_id,
                flags,
                timeout_ms,
            } => Self::Checkpoint(Checkpoint {
                checkpoint_id,
                sequence_number,
                checkpoint_entity_id,
                scope_id,
                flags,
                timeout_ms,
            }),
            FrameJson::Error { code, scope_id, entity_id, message } => {
                Self::Error(ErrorFrame { code, scope_id, entity_id, message })
            }
            FrameJson::Private { frame_type } => Self::Private(frame_type),
        }
    }
}

impl From<ExtensionJson> for Extension {
    fn from(json: ExtensionJson) -> Self {
        match json {
            ExtensionJson::Yield { reason, token } => {
                let reason = YieldReason::ALL.into_iter().find(|known| known.name() == reason).expect("a reason");
                Self::Yield { reason, token: token.0.into() }
            }
            ExtensionJson::Claim { claim_id, expiry_micros } => Self::Claim { claim_id, expiry_micros },
        }
    }
}

impl From<HeaderJson> for EntityHeader {
    fn from(json: HeaderJson) -> Self {
        Self {
            entity_id: json.entity_id,
            parent_id: json.parent_id,
            scope_id: json.scope_id,
            layer: json.layer,
            content_type: json.content_type,
            payload_length: json.payload_length,
            checksum: json.checksum.0.into(),
            metadata: json.metadata,
            chunk_info: json.chunk_info.map(|chunk| ChunkInfo {
                total_chunks: chunk.total_chunks,
                chunk_index: chunk.chunk_index,
                chunk_offset: chunk.chunk_offset,
            }),
            completion_policy: json.completion_policy.map(CompletionPolicy::from),
        }
    }
}

impl From<PolicyJson> for CompletionPolicy {
    fn from(json: PolicyJson) -> Self {
        let action = |name: String| FailureAction::from_str_name(&name).expect("an action").into();
        Self {
            mode: json.mode.map(|name| CompletionMode::from_str_name(&name).expect("a mode").into()),
            max_retries: json.max_retries,
            retry_delay_ms: json.retry_delay_ms,
            timeout_ms: json.timeout_ms,
            min_success_ratio: json.min_success_ratio,
            on_timeout: json.on_timeout.map(action),
            on_failure: json.on_failure.map(action),
        }
    }
}

/// Return all frames of the pieces, or the first error, and whether a frame was left incomplete.
fn decode_frames(pieces: &[&[u8]]) -> (Result<Vec<Frame>, Error>, bool) {
    let mut decoder = FrameDecoder::new();
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

/// Return the header of the pieces, and the payload after it.
fn decode_header(pieces: &[&[u8]]) -> Result<(Option<EntityHeader>, Vec<u8>), Error> {
    let mut decoder = HeaderDecoder::new();
    let (mut header, mut payload) = (None, Vec::new());
    for piece in pieces {
        if decoder.is_complete() {
            payload.extend_from_slice(piece);
            continue;
        }
        header = decoder.push(Bytes::copy_from_slice(piece))?;
        payload.extend(decoder.take_rest());
    }
    Ok((header, payload))
}

fn code(error: &Error) -> &'static str {
    error.code().name().trim_start_matches("PIPESTREAM_")
}

#[test]
fn golden_frames_mean_what_the_file_says_however_they_are_cut() {
    let vectors: Vec<Golden<FrameJson>> = load("pipestream", "frames").expect("vectors");
    assert!(vectors.len() >= 50, "only {} vectors", vectors.len());
    for Golden { name, hex: Hex(bytes), frame, decode_only, .. } in vectors {
        let frame = Frame::from(frame);
        assert_eq!(Frame::decode(&bytes), Ok(Some((frame.clone(), bytes.len()))), "{name}");
        for pieces in splits(&bytes) {
            assert_eq!(decode_frames(&pieces), (Ok(vec![frame.clone()]), false), "{name}");
        }
        assert_eq!(frame.encode_to_vec() == bytes, !decode_only, "{name}");
    }
}

#[test]
fn frames_after_frames_come_out_one_by_one_however_they_are_cut() {
    let vectors: Vec<Golden<FrameJson>> = load("pipestream", "frames").expect("vectors");
    let bytes: Vec<u8> = vectors.iter().flat_map(|vector| vector.hex.0.clone()).collect();
    let frames: Vec<Frame> = vectors.into_iter().map(|vector| vector.frame.into()).collect();
    for pieces in splits(&bytes) {
        assert_eq!(decode_frames(&pieces), (Ok(frames.clone()), false));
    }
}

#[test]
fn golden_frames_and_headers_are_explained_byte_for_byte() {
    let frames: Vec<Golden<serde_json::Value>> = load("pipestream", "frames").expect("vectors");
    let headers: Vec<Golden<serde_json::Value>> = load("pipestream", "headers").expect("vectors");
    for vector in frames.iter().chain(&headers) {
        assert!(vector.is_explained(), "{}", vector.name);
    }
}

#[test]
fn invalid_frames_get_their_code_however_they_are_cut() {
    let vectors: Vec<Invalid> = load("pipestream", "frames-invalid").expect("vectors");
    assert!(vectors.len() >= 48, "only {} vectors", vectors.len());
    for Invalid { name, hex: Hex(bytes), code: expected, truncated, .. } in vectors {
        for pieces in splits(&bytes) {
            let (frames, is_mid_frame) = decode_frames(&pieces);
            if truncated {
                // ENTITY_INVALID then follows only at the stream's end (decision 4).
                assert!(frames.is_ok_and(|frames| frames.iter().all(|frame| matches!(frame, Frame::Private(_)))));
                assert_eq!((is_mid_frame, expected.as_str()), (true, "ENTITY_INVALID"), "{name}");
            } else {
                assert_eq!(frames.as_ref().map_err(code), Err(expected.as_str()), "{name}");
            }
        }
    }
}

#[test]
fn golden_headers_mean_what_the_file_says_however_they_are_cut() {
    let vectors: Vec<Golden<HeaderJson>> = load("pipestream", "headers").expect("vectors");
    assert!(vectors.len() >= 14, "only {} vectors", vectors.len());
    for Golden { name, hex: Hex(bytes), frame, decode_only, .. } in vectors {
        let header = EntityHeader::from(frame);
        assert_eq!(header.check(u64::MAX), Ok(()), "{name}");
        assert_eq!(header.encode() == bytes, !decode_only, "{name}");
        let bytes = [bytes.as_slice(), b"payload"].concat();
        for pieces in splits(&bytes) {
            assert_eq!(decode_header(&pieces), Ok((Some(header.clone()), b"payload".to_vec())), "{name}");
        }
    }
}

#[test]
fn invalid_headers_get_their_code_however_they_are_cut() {
    let vectors: Vec<Invalid> = load("pipestream", "headers-invalid").expect("vectors");
    assert!(vectors.len() >= 22, "only {} vectors", vectors.len());
    for Invalid { name, hex: Hex(bytes), code: expected, truncated, entity_only } in vectors {
        for pieces in splits(&bytes) {
            let decoded = decode_header(&pieces);
            if truncated {
                assert_eq!((decoded, expected.as_str()), (Ok((None, Vec::new())), "ENTITY_INVALID"), "{name}");
            } else if entity_only {
                let (header, _) = decoded.expect("the header parses");
                let checked = header.expect("the header is whole").check(MAX_PAYLOAD);
                assert_eq!(checked.as_ref().map_err(code), Err(expected.as_str()), "{name}");
            } else {
                assert_eq!(decoded.as_ref().map_err(code), Err(expected.as_str()), "{name}");
            }
        }
    }
}
