//! What the fuzz targets in `/fuzz` do with arbitrary bytes: frames and records of a journal.

use penstock_quicx::{Accepts, Decoded, Decoder, Record, Recovery};

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

/// A record of a journal, label and body: what is read of it is what it says, in this format and in the one before.
pub fn quicx_journal(input: &[u8]) {
    let Some((label, body)) = input.split_first_chunk() else { return };
    let mut recovery = Recovery::default();
    if let Some(record) = Record::read(label, body) {
        assert_eq!((record.label(), record.body()), (*label, body), "it reads otherwise");
        recovery.apply(1, body.len() as u64, &record);
    }
    recovery.apply_label(1, label);
    if let Some(record) = Record::read_earlier(input) {
        assert_eq!(Record::read(&record.label(), record.body()), Some(record), "it reads otherwise");
        recovery.apply(2, input.len() as u64, &record);
    }
    assert!(recovery.tasks().iter().all(|task| task.offset as usize + task.bytes <= input.len()));
}
