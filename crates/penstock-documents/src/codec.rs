//! The decompressors that streams and zip members share, each with bounded memory.

use std::io::{self, BufRead, Chain, Cursor, Read};

use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

/// How much memory a decompressor may take for its window: 128 MiB, which is twice what `xz -9` needs and what zstd
/// allows without being told so.
const MEMORY: u64 = 128 * 1024 * 1024;
const WINDOW_LOG: u32 = 27;

/// bzip2: one stream after the other until the input ends.
pub(crate) fn bzip2<R: BufRead>(input: R) -> impl Read {
    ::bzip2::bufread::MultiBzDecoder::new(input)
}

/// xz: one stream after the other, padding between them, until the input ends.
pub(crate) fn xz<R: BufRead>(input: R) -> io::Result<impl Read> {
    Ok(XzDecoder::new_stream(input, Stream::new_stream_decoder(MEMORY, CONCATENATED)?))
}

/// zstd: one frame after the other until the input ends.
pub(crate) fn zstd<R: BufRead>(input: R) -> io::Result<impl Read> {
    let mut decoder = ::zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.window_log_max(WINDOW_LOG)?;
    Ok(decoder)
}

/// LZMA as zip members hold it (APPNOTE 5.8.8): a version, the length of the properties, the properties, the data.
/// `size` is the inflated size, `None` if a marker ends the data.
pub(crate) fn zip_lzma<R: BufRead>(mut input: R, size: Option<u64>) -> io::Result<impl Read> {
    let mut start = [0; 9];
    input.read_exact(&mut start)?;
    let [_, _, 5, 0, properties @ ..] = start else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the LZMA properties have the wrong length"));
    };
    // What follows is an .lzma file's data; with its 13 bytes of header before it, it is an .lzma file.
    let mut header = properties.to_vec();
    header.extend_from_slice(&size.unwrap_or(u64::MAX).to_le_bytes());
    let file: Chain<Cursor<Vec<u8>>, R> = Cursor::new(header).chain(input);
    Ok(XzDecoder::new_stream(file, Stream::new_lzma_decoder(MEMORY)?))
}
