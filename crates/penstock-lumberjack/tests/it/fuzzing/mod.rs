//! The bodies of the fuzz targets, on inputs that are nearly valid.

#[allow(unreachable_pub)]
mod bodies;

use std::io::Write as _;
use std::time::Instant;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;

use crate::fuzzing::bodies::{lumberjack_frames, lumberjack_server};

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0_u32..8, 1 => 60_u32..70, 1 => any::<u32>()]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..12)
}

fn field(bytes: &[u8], lie: Option<u32>) -> Vec<u8> {
    let length = lie.unwrap_or(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
    [length.to_be_bytes().as_slice(), bytes].concat()
}

fn lie() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![30 => Just(None), 1 => any::<u32>().prop_map(Some), 1 => (0_u32..20).prop_map(Some)]
}

fn plain() -> impl Strategy<Value = Vec<u8>> {
    let version = prop_oneof![20 => Just(b'1'), 20 => Just(b'2'), 1 => any::<u8>()];
    let window = number().prop_map(|size| [b"W".as_slice(), &size.to_be_bytes()].concat());
    let json = (number(), text(), lie())
        .prop_map(|(sequence, text, lie)| [b"J".as_slice(), &sequence.to_be_bytes(), &field(&text, lie)].concat());
    let data = (number(), prop::collection::vec((text(), lie()), 0..6), lie()).prop_map(|(sequence, texts, lie)| {
        let count = lie.unwrap_or(u32::try_from(texts.len() / 2).unwrap_or(0));
        let pairs: Vec<u8> = texts.into_iter().flat_map(|(text, lie)| field(&text, lie)).collect();
        [b"D".as_slice(), &sequence.to_be_bytes(), &count.to_be_bytes(), &pairs].concat()
    });
    let other = prop::collection::vec(any::<u8>(), 0..4);
    let body = prop_oneof![6 => window, 12 => json, 6 => data, 1 => other];
    (version, body).prop_map(|(version, body)| [[version].as_slice(), &body].concat())
}

fn compressed(inside: Vec<u8>, cut: usize, lie: Option<u32>) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let written = encoder.write_all(&inside).and_then(|()| encoder.finish());
    let mut bytes = written.unwrap_or_default();
    bytes.truncate(bytes.len().saturating_sub(cut));
    [b"2C".as_slice(), &field(&bytes, lie)].concat()
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let plains = || prop::collection::vec(plain(), 0..6).prop_map(|frames| frames.concat());
    let cut = prop_oneof![10 => Just(0_usize), 1 => 1_usize..8];
    let once = (plains(), cut, lie()).prop_map(|(inside, cut, lie)| compressed(inside, cut, lie));
    let twice = plains().prop_map(|inside| compressed(compressed(inside, 0, None), 0, None));
    prop_oneof![20 => plain(), 6 => once, 1 => twice]
}

fn input() -> impl Strategy<Value = Vec<u8>> {
    (any::<u8>(), prop::collection::vec(frame(), 0..20))
        .prop_map(|(cut, frames)| [[cut].as_slice(), &frames.concat()].concat())
}

proptest! {
    #[test]
    fn frames_do_not_depend_on_cuts(input in input()) {
        lumberjack_frames(&input);
    }

    #[test]
    fn a_reader_counts_correctly_for_any_input(input in input()) {
        lumberjack_server(Instant::now(), &input);
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(input in prop::collection::vec(any::<u8>(), 0..200)) {
        lumberjack_frames(&input);
        lumberjack_server(Instant::now(), &input);
    }
}
