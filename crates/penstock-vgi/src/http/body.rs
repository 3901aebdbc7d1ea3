//! Bodies: zstd compression.

use std::io::{Read, Write};

use crate::error::{Error, Malformed, Result};

/// The largest window that a body may request, as a power of two: 128 MiB, as in zstd's own tool
/// without `--long`.
const WINDOW: u32 = 27;

/// Inflate a zstd body. Fail as soon as the limit is exceeded, because bytes are counted as they
/// are produced.
pub fn inflate(bytes: &[u8], limit: u64) -> Result<Vec<u8>> {
    let malformed = |error: std::io::Error| Malformed::Zstd { reason: error.to_string() };
    let mut decoder = zstd::stream::read::Decoder::with_buffer(bytes).map_err(malformed)?;
    decoder.window_log_max(WINDOW).map_err(malformed)?;
    let mut inflated = Vec::new();
    decoder.take(limit.saturating_add(1)).read_to_end(&mut inflated).map_err(malformed)?;
    if inflated.len() as u64 > limit {
        return Err(Error::Inflated { limit });
    }
    Ok(inflated)
}

/// The length of the sample: of a longer body, a sample from the middle is compressed first as a
/// test.
const SAMPLE: usize = 64 << 10;
/// The smallest gain that is worth compressing: one part in this many.
const GAIN: usize = 8;

/// Compress the pieces into one zstd frame; return `None` if it is hardly smaller, as with measured
/// numbers.
pub fn compress(pieces: &[&[u8]], level: i32) -> Result<Option<Vec<u8>>> {
    let failed = |error: std::io::Error| Error::Compression { reason: error.to_string() };
    let worth = |bytes: &[u8], of: usize| bytes.len() <= of.saturating_sub(of / GAIN);
    let largest = pieces.iter().max_by_key(|piece| piece.len()).copied().unwrap_or_default();
    if largest.len() > 2 * SAMPLE {
        let start = largest.len().saturating_sub(SAMPLE) / 2;
        let sample = largest.get(start..start.saturating_add(SAMPLE)).unwrap_or_default();
        if !worth(&zstd::bulk::compress(sample, level).map_err(failed)?, sample.len()) {
            return Ok(None);
        }
    }
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level).map_err(failed)?;
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    encoder.set_pledged_src_size(Some(length as u64)).map_err(failed)?;
    for piece in pieces {
        encoder.write_all(piece).map_err(failed)?;
    }
    let compressed = encoder.finish().map_err(failed)?;
    Ok(worth(&compressed, length).then_some(compressed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_in_pieces_is_inflated_up_to_its_limit() {
        let bytes = compress(&[&[7_u8; 1_000], &[8_u8; 10]], 3).expect("zstd works").expect("compressible");
        assert!(bytes.len() < 100);
        let whole = inflate(&bytes, 1_010).expect("within its limit");
        assert_eq!((whole.len(), whole[999], whole[1_000]), (1_010, 7, 8));
        assert_eq!(inflate(&bytes, 1_009), Err(Error::Inflated { limit: 1_009 }));
        for torn in [&bytes[..20], b"no zstd"] {
            assert!(matches!(inflate(torn, 5_000), Err(Error::Malformed(Malformed::Zstd { .. }))));
        }
    }

    #[test]
    fn what_does_not_become_smaller_is_left_as_it_is() {
        let mut state = 1_u64;
        let mut noise = |bytes: usize| {
            let word = |_| {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()
            };
            (0..bytes / 8).flat_map(word).collect::<Vec<u8>>()
        };
        for bytes in [4 << 10, 1 << 20] {
            assert_eq!(compress(&[&[0; 100], &noise(bytes)], 3), Ok(None), "{bytes}");
        }
        // The sample comes from the largest piece.
        let made = compress(&[&noise(64 << 10), &[0; 1 << 20]], 3).expect("zstd works").expect("compressible");
        assert!(made.len() < 100 << 10);
    }
}
