//! The bodies of the fuzz targets in `/fuzz` for arbitrary bytes: frames and headers.
//!
//! The first byte of the input determines how the rest is cut into pieces, so that the fuzzer also finds cuts.

use bytes::Bytes;
use penstock_pipestream::{
    ChunkTracker, EntityHeader, Error, Frame, FrameDecoder, HeaderDecoder, PayloadCheck, Result,
};

/// Check that a control stream decodes to the same frames however it is cut, and that each frame keeps its meaning when
/// it is encoded again.
pub fn frames(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    let whole = decode_frames(bytes, bytes.len());
    let pieces = decode_frames(bytes, usize::from(*cut));
    assert_eq!(whole, pieces, "frames depend on how the stream is cut");
    for frame in &whole.0 {
        let again = frame.encode_to_vec();
        assert_eq!(Frame::decode(&again), Ok(Some((frame.clone(), again.len()))), "a frame changed when written again");
    }
}

/// Return the frames up to the first error, the error, and whether the stream ended inside a frame.
fn decode_frames(bytes: &[u8], size: usize) -> (Vec<Frame>, Result<()>, bool) {
    let mut decoder = FrameDecoder::new();
    let mut frames = Vec::new();
    for piece in bytes.chunks(size.max(1)) {
        decoder.push(Bytes::copy_from_slice(piece));
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error), true),
            }
        }
    }
    (frames, Ok(()), decoder.is_mid_frame())
}

/// Check that an entity stream decodes to the same header however it is cut, and receive its payload.
pub fn headers(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    let whole = decode_header(bytes, bytes.len());
    let pieces = decode_header(bytes, usize::from(*cut));
    assert_eq!(written(&whole), written(&pieces), "a header depends on how the stream is cut");
    let Ok(Some((header, payload))) = whole else { return };
    let again = header.encode();
    let read = decode_header(&again, again.len());
    assert_eq!(written(&read), Ok(Some((again, [].as_slice()))), "a header changed when written again");
    if header.check(u64::MAX).is_ok() {
        receive(&header, &payload);
    }
}

type Decoded = Result<Option<(EntityHeader, Vec<u8>)>>;

/// Return the header and the payload after it, if the header is whole.
fn decode_header(bytes: &[u8], size: usize) -> Decoded {
    let mut decoder = HeaderDecoder::new();
    let mut header = None;
    let mut payload = Vec::new();
    for piece in bytes.chunks(size.max(1)) {
        if decoder.is_complete() {
            payload.extend_from_slice(piece);
            continue;
        }
        header = decoder.push(Bytes::copy_from_slice(piece))?;
        payload.extend(decoder.take_rest());
    }
    Ok(header.map(|header| (header, payload)))
}

/// Return the header as bytes for comparison, because a ratio of NaN does not equal itself.
fn written(decoded: &Decoded) -> std::result::Result<Option<(Bytes, &[u8])>, &Error> {
    decoded.as_ref().map(|decoded| decoded.as_ref().map(|(header, payload)| (header.encode(), payload.as_slice())))
}

/// Receive a payload in both ways: in one stream, or as a chunk.
fn receive(header: &EntityHeader, payload: &[u8]) {
    let mut check = PayloadCheck::new(header.payload_length, header.checksum.clone());
    if check.update(payload).is_ok() {
        assert!(
            check.finish().is_err() || payload.len() as u64 == header.payload_length,
            "a payload of the wrong length passed"
        );
    }
    let (Some(chunk), Ok(mut tracker)) = (header.chunk_info, ChunkTracker::new(header)) else { return };
    let length = payload.len() as u64;
    if tracker.admit(header).is_ok() && tracker.finish_chunk(chunk.chunk_index, length).is_ok() && tracker.is_complete()
    {
        assert_eq!(length, header.payload_length, "a chunk of the wrong length is the payload");
    }
}
