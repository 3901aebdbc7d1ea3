//! The decompressors for streams and zip members, each with bounded memory.

use std::io::{self, BufRead, Chain, Cursor, Read};

use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

/// The most memory for a decompressor's window: 128 MiB, which is twice what `xz -9` needs, and what zstd allows by
/// default.
const MEMORY: u64 = 128 * 1024 * 1024;
const WINDOW_LOG: u32 = 27;

/// Decompress bzip2: consecutive streams until the input ends.
pub(crate) fn bzip2<R: BufRead>(input: R) -> impl Read {
    ::bzip2::bufread::MultiBzDecoder::new(input)
}

/// Decompress xz: consecutive streams, with padding between them, until the input ends.
pub(crate) fn xz<R: BufRead>(input: R) -> io::Result<impl Read> {
    Ok(XzDecoder::new_stream(input, Stream::new_stream_decoder(MEMORY, CONCATENATED)?))
}

/// Decompress zstd: consecutive frames until the input ends.
pub(crate) fn zstd<R: BufRead>(input: R) -> io::Result<impl Read> {
    let mut decoder = ::zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(decoder)
}

/// Decompress LZMA in the form of zip members (APPNOTE 5.8.8): a version, the length of the properties, the properties,
/// the data. `size` is the inflated size, `None` if a marker ends the data.
pub(crate) fn zip_lzma<R: BufRead>(mut input: R, size: Option<u64>) -> io::Result<impl Read> {
    let mut start = [0; 9];
    input.read_exact(&mut start)?;
    let [_, _, 5, 0, properties @ ..] = start else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the LZMA properties have the wrong length"));
    };
    // The rest is the data of an .lzma file; only that format's header of 13 bytes is missing.
    let mut header = properties.to_vec();
    header.extend_from_slice(&size.unwrap_or(u64::MAX).to_le_bytes());
    let file: Chain<Cursor<Vec<u8>>, R> = Cursor::new(header).chain(input);
    Ok(XzDecoder::new_stream(file, Stream::new_lzma_decoder(MEMORY)?))
}
