//! What the fuzz targets in `/fuzz` do with arbitrary bytes: frames and segments.

use penstock_quicx::{Accepts, Decoded, Decoder, Recovery};

/// A client's stream, cut as the first byte says: the same frames and refusals as when it comes whole, and each frame reads
/// the same when it is written again.
pub fn quicx_frames(input: &[u8]) {
    let Some((cut, bytes)) = input.split_first() else { return };
    for accepts in [Accepts::ToDaemon { submit: 64 }, Accepts::ToClient] {
        let whole = decode(accepts, bytes, bytes.len());
        let pieces = decode(accepts, bytes, usize::from(*cut));
        assert_eq!(whole, pieces, "frames depend on how the stream is cut");
    }
}

fn decode(accepts: Accepts, bytes: &[u8], size: usize) -> Vec<String> {
    let mut decoder = Decoder::new(accepts);
    let mut found = Vec::new();
    for mut piece in bytes.chunks(size.max(1)) {
        while let Some(decoded) = decoder.next_frame(&mut piece) {
            if let Decoded::Frame(frame) = &decoded {
                let mut again = Vec::new();
                assert_eq!(frame.encode(&mut again), Ok(()));
                let mut second = Decoder::new(accepts);
                assert_eq!(second.next_frame(&mut again.as_slice()), Some(decoded.clone()), "it reads otherwise");
            }
            found.push(format!("{decoded:?}"));
        }
    }
    found
}

/// A segment of a journal: what is read of it is what it holds, and content is found for each task that counts.
pub fn quicx_journal(segment: &[u8]) {
    let mut recovery = Recovery::default();
    // The number that it says it has, so that most inputs are read and not refused.
    let number =
        segment.get(8..).and_then(|number| number.first_chunk()).map_or(1, |number| u64::from_be_bytes(*number));
    if recovery.scan(number, segment).is_ok_and(|is_segment| is_segment) {
        let content = recovery.content(number, segment).filter(|(task, content)| task.bytes == content.len());
        assert_eq!(content.count(), recovery.tasks().len(), "a task without content");
    }
}
