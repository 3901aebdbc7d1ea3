//! Bodies: zstd in and out, whole streams of IPC.

use std::io::{Read, Write};

use arrow_buffer::Buffer;

use crate::{Error, ErrorKind, Result};

/// The largest window that a body may ask for, as a power of two: 128 MiB, as in zstd's own tool without `--long`.
const WINDOW: u32 = 27;

/// The octets of a zstd body. They are counted while they come, and those beyond the limit are an error.
pub fn inflate(octets: &[u8], limit: u64) -> Result<Vec<u8>> {
    let malformed = |error: std::io::Error| Error::malformed(format!("a zstd body that cannot be read: {error}"));
    let mut decoder = zstd::stream::read::Decoder::with_buffer(octets).map_err(malformed)?;
    decoder.window_log_max(WINDOW).map_err(malformed)?;
    let mut inflated = Vec::new();
    decoder.take(limit.saturating_add(1)).read_to_end(&mut inflated).map_err(malformed)?;
    if inflated.len() as u64 > limit {
        return Err(Error::new(ErrorKind::Limit, format!("a zstd body inflates to more than {limit} octets")));
    }
    Ok(inflated)
}

/// The pieces as one zstd frame.
pub fn compress(pieces: &[Buffer], level: i32) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Error::misuse(format!("a body cannot be compressed: {error}"));
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level).map_err(failed)?;
    let length: usize = pieces.iter().map(Buffer::len).sum();
    encoder.set_pledged_src_size(Some(length as u64)).map_err(failed)?;
    for piece in pieces {
        encoder.write_all(piece).map_err(failed)?;
    }
    encoder.finish().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compressed_in_pieces_is_inflated_up_to_its_limit() {
        let pieces = [Buffer::from_vec(vec![7_u8; 1_000]), Buffer::from_vec(vec![8_u8; 10])];
        let octets = compress(&pieces, 3).expect("compressible");
        assert!(octets.len() < 100);
        let whole = inflate(&octets, 1_010).expect("within its limit");
        assert_eq!((whole.len(), whole[999], whole[1_000]), (1_010, 7, 8));
        assert_eq!(inflate(&octets, 1_009).map_err(|error| error.kind()), Err(ErrorKind::Limit));
        assert_eq!(inflate(&octets[..20], 5_000).map_err(|error| error.kind()), Err(ErrorKind::Malformed));
        assert_eq!(inflate(b"no zstd", 5_000).map_err(|error| error.kind()), Err(ErrorKind::Malformed));
    }
}
