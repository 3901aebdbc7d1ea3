//! Properties of all frames and headers: encoding and decoding are inverse, and no input makes a decoder panic.

use std::collections::BTreeMap;

use bytes::Bytes;
use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction};
use penstock_pipestream::{
    Barrier, Capabilities, Checkpoint, ChunkInfo, EntityHeader, ErrorFrame, Extension, Frame, FrameDecoder,
    HeaderDecoder, ScopeDigest, Status, StatusFrame, YieldReason,
};
use penstock_testkit::vectors::{Golden, load};
use proptest::prelude::*;

use crate::fuzzing;

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..=most).prop_map(Bytes::from)
}

fn status() -> impl Strategy<Value = StatusFrame> {
    let extension = |status: Status| match status {
        Status::Yielded => (prop::sample::select(&YieldReason::ALL[..]), bytes(600))
            .prop_map(|(reason, token)| Some(Extension::Yield { reason, token }))
            .boxed(),
        Status::Deferred => (any::<u64>(), any::<u64>())
            .prop_map(|(claim_id, expiry_micros)| Some(Extension::Claim { claim_id, expiry_micros }))
            .boxed(),
        Status::Unspecified
        | Status::Pending
        | Status::Processing
        | Status::Complete
        | Status::Failed
        | Status::Checkpoint
        | Status::Dehydrating
        | Status::Rehydrating
        | Status::Retrying
        | Status::Skipped
        | Status::Abandoned => Just(None).boxed(),
    };
    prop::sample::select(&Status::ALL[..]).prop_flat_map(move |status| (Just(status), extension(status))).prop_flat_map(
        |(status, extension)| {
            (any::<u32>(), any::<u16>(), 0..=7_u8, any::<Option<u32>>()).prop_map(
                move |(entity_id, scope_id, depth, cursor)| StatusFrame {
                    status,
                    entity_id,
                    scope_id,
                    depth,
                    cursor,
                    extension: extension.clone(),
                },
            )
        },
    )
}

fn frame() -> impl Strategy<Value = Frame> {
    let digest = (any::<u16>(), any::<[u64; 4]>(), any::<[u8; 32]>()).prop_map(|(scope_id, counts, merkle_root)| {
        let [processed, succeeded, failed, deferred] = counts;
        Frame::ScopeDigest(ScopeDigest { scope_id, processed, succeeded, failed, deferred, merkle_root })
    });
    let barrier = any::<(bool, u16, u32)>()
        .prop_map(|(released, barrier_id, parent_id)| Frame::Barrier(Barrier { released, barrier_id, parent_id }));
    let capabilities = any::<([bool; 3], [Option<u32>; 3])>().prop_map(|(layers, numbers)| {
        let ([layer0, layer1, layer2], [max_scope_depth, max_entities_per_scope, max_window_size]) = (layers, numbers);
        let layers = Capabilities { layer0, layer1, layer2, ..Capabilities::default() };
        Frame::Capabilities(Capabilities { max_scope_depth, max_entities_per_scope, max_window_size, ..layers })
    });
    let checkpoint = any::<(String, u64, [u32; 4])>().prop_map(|(checkpoint_id, sequence_number, numbers)| {
        let [checkpoint_entity_id, scope_id, flags, timeout_ms] = numbers;
        let question = Checkpoint { checkpoint_id, sequence_number, ..Checkpoint::default() };
        Frame::Checkpoint(Checkpoint { checkpoint_entity_id, scope_id, flags, timeout_ms, ..question })
    });
    let error = any::<(u32, u32, u32, String)>().prop_map(|(code, scope_id, entity_id, message)| {
        Frame::Error(ErrorFrame { code, scope_id, entity_id, message })
    });
    let private = (0xC1..=0xFF_u8).prop_map(Frame::Private);
    prop_oneof![status().prop_map(Frame::Status), digest, barrier, capabilities, checkpoint, error, private]
}

fn policy() -> impl Strategy<Value = CompletionPolicy> {
    let mode = prop::option::of((0..=4).prop_filter("a mode", |mode| CompletionMode::try_from(*mode).is_ok()));
    let action =
        || prop::option::of((0..=4).prop_filter("an action", |action| FailureAction::try_from(*action).is_ok()));
    (mode, any::<[Option<u32>; 3]>(), prop::option::of(0.0_f32..=1.0), action(), action()).prop_map(
        |(mode, [max_retries, retry_delay_ms, timeout_ms], min_success_ratio, on_timeout, on_failure)| {
            CompletionPolicy {
                mode,
                max_retries,
                retry_delay_ms,
                timeout_ms,
                min_success_ratio,
                on_timeout,
                on_failure,
            }
        },
    )
}

fn header() -> impl Strategy<Value = EntityHeader> {
    let chunk = any::<(u32, u32, u64)>().prop_map(|(total_chunks, chunk_index, chunk_offset)| ChunkInfo {
        total_chunks,
        chunk_index,
        chunk_offset,
    });
    let metadata = prop::collection::btree_map(any::<String>(), any::<String>(), 0..5);
    (any::<([u32; 4], String, u64)>(), bytes(40), metadata, prop::option::of(chunk), prop::option::of(policy()))
        .prop_map(|((ids, content_type, payload_length), checksum, metadata, chunk_info, completion_policy)| {
            let [entity_id, parent_id, scope_id, layer] = ids;
            EntityHeader {
                entity_id,
                parent_id,
                scope_id,
                layer,
                content_type,
                payload_length,
                checksum,
                metadata,
                chunk_info,
                completion_policy,
            }
        })
}

proptest! {
    #[test]
    fn frames_written_one_after_another_are_read_back(
        frames in prop::collection::vec(frame(), 0..8),
        size in 1_usize..80,
    ) {
        let stream: Vec<u8> = frames.iter().flat_map(Frame::encode_to_vec).collect();
        let mut decoder = FrameDecoder::new();
        let mut read = Vec::new();
        for piece in stream.chunks(size) {
            decoder.push(Bytes::copy_from_slice(piece));
            while let Some(frame) = decoder.next_frame().expect("valid") {
                read.push(frame);
            }
        }
        prop_assert_eq!((read, decoder.is_mid_frame()), (frames, false));
    }

    #[test]
    fn a_status_that_can_be_written_passes_its_check(frame in status()) {
        prop_assert_eq!(frame.check(), Ok(()));
    }

    #[test]
    fn headers_are_read_back_and_written_alike(header in header(), payload in bytes(50)) {
        let encoded = header.encode();
        // Metadata that arrived in another order is the same map, and so has the same bytes.
        let metadata: BTreeMap<_, _> = header.metadata.clone().into_iter().rev().collect();
        prop_assert_eq!(&EntityHeader { metadata, ..header.clone() }.encode(), &encoded);
        let mut decoder = HeaderDecoder::new();
        let read = decoder.push([encoded, payload.clone()].concat().into());
        prop_assert_eq!((read, decoder.take_rest()), (Ok(Some(header)), payload));
    }

    #[test]
    fn random_bytes_never_make_a_decoder_panic(input in bytes(300)) {
        fuzzing::bytes::frames(&input);
        fuzzing::bytes::headers(&input);
    }

    #[test]
    fn bytes_of_a_known_type_never_make_a_decoder_panic(
        cut in any::<u8>(),
        frame_type in prop::sample::select(vec![0x50, 0x54, 0x55, 0x80, 0x81, 0xC0, 0xC1]),
        rest in bytes(100),
        length in 0_u8..100,
    ) {
        fuzzing::bytes::frames(&[&[cut, frame_type], &rest[..]].concat());
        fuzzing::bytes::frames(&[&[cut, frame_type, 0, 0, 0, length], &rest[..]].concat());
        fuzzing::bytes::headers(&[&[cut, 0, 0, 0, length], &rest[..]].concat());
    }

    #[test]
    fn golden_bytes_with_one_changed_never_make_a_decoder_panic(
        pick in any::<prop::sample::Index>(),
        place in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<u8>(),
    ) {
        for file in ["frames", "headers"] {
            let vectors: Vec<Golden<serde_json::Value>> = load("pipestream", file).expect("vectors");
            let mut input = pick.get(&vectors).hex.0.clone();
            let length = input.len();
            input[place.index(length)] = byte;
            input.insert(0, cut);
            fuzzing::bytes::frames(&input);
            fuzzing::bytes::headers(&input);
        }
    }
}
