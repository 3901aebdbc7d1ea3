//! Compression of the frames that a writer sends.

use std::io::{self, Write};

use bytes::{BufMut as _, BytesMut};
use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::frame::COMPRESSED;
use crate::{Limits, Version};

/// The bytes after which the ratio is checked: no reader checks it for fewer bytes (decision 7).
const PIECE: usize = 64 << 10;
/// The compression ratio above which the stream is flushed after a piece. zlib's best ratio is 1,032; with another
/// block's header for each piece it is 900, so no part of a stream exceeds the 1,000 of decision 7.
const RATIO: u64 = 500;

/// Append a compressed frame with these frames, which must be whole, at zlib's level 1 to 9. Where the result
/// would be longer than readers accept (decision 7), append the frames uncompressed.
pub fn compress(version: Version, frames: &[u8], level: u32, out: &mut BytesMut) {
    let start = out.len();
    out.put_slice(&[version.byte(), COMPRESSED, 0, 0, 0, 0]);
    let body = out.len();
    let mut encoder = ZlibEncoder::new((&mut *out).writer(), Compression::new(level.min(9)));
    let written = write(&mut encoder, frames);
    drop(encoder);
    let length = out.len().checked_sub(body).and_then(|length| u32::try_from(length).ok());
    let length = length.filter(|length| written.is_ok() && u64::from(*length) <= Limits::default().compressed);
    match (length, out.get_mut(start + 2..body)) {
        (Some(length), Some(field)) => field.copy_from_slice(&length.to_be_bytes()),
        _ => {
            out.truncate(start);
            out.extend_from_slice(frames);
        }
    }
}

fn write<W: Write>(encoder: &mut ZlibEncoder<W>, frames: &[u8]) -> io::Result<()> {
    for piece in frames.chunks(PIECE) {
        encoder.write_all(piece)?;
        if encoder.total_out() < encoder.total_in() / RATIO {
            encoder.flush()?;
        }
    }
    encoder.try_finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accepts, Decoder, Frame, Json};

    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 1_u64;
        let next = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        });
        next.take(bytes).collect()
    }

    fn through(payloads: &[Vec<u8>], level: u32) -> BytesMut {
        let (mut frames, mut out) = (BytesMut::new(), BytesMut::new());
        for (sequence, payload) in (1..).zip(payloads) {
            Json { version: Version::V2, sequence, payload }.encode(&mut frames).expect("fits");
        }
        compress(Version::V2, &frames, level, &mut out);
        let mut decoder = Decoder::new(Accepts::Writer, Limits::default());
        decoder.push(&out);
        for payload in payloads {
            match decoder.next_frame().expect("within the limits") {
                Some(Frame::Json(json)) => assert!(json.payload == payload),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(decoder.next_frame(), Ok(None));
        assert!(!decoder.is_mid_frame());
        out
    }

    #[test]
    fn a_reader_accepts_the_ratio_of_every_frame() {
        let (same, mixed) = (vec![b'x'; 9 << 20], noise(200_000));
        for level in [1, 3, 6, 9] {
            through(std::slice::from_ref(&same), level);
            through(&[same.clone(), mixed.clone()], level);
            through(&[mixed.clone(), same.clone()], level);
        }
        through(&[vec![0; 16 << 20], vec![b' '; 16 << 20]], 3);
    }

    #[test]
    fn what_would_be_too_long_compressed_goes_as_it_is() {
        let large = vec![noise(11 << 20); 3];
        assert_eq!(through(&large, 1).get(..2), Some(b"2J".as_slice()));
        assert_eq!(through(&large[..1], 1).get(..2), Some(b"2C".as_slice()));
    }
}
