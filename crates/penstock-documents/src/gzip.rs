//! gzip (RFC 1952): consecutive members, and the name in the first one's header.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

use crate::name;
use crate::workspace::Source;

/// The most consecutive empty members: a gzip file may have some, but a file with nothing else would keep a read busy
/// without returning a byte.
const EMPTY_MEMBERS: u32 = 1000;

/// All members of a gzip file as one stream.
pub(crate) struct Members<R> {
    /// `None` once the last member has ended.
    decoder: Option<GzDecoder<R>>,
    empty: u32,
}

impl<R: BufRead> Members<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { decoder: Some(GzDecoder::new(input)), empty: 0 }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(decoder) = self.decoder.as_mut() else { return Ok(0) };
            let count = decoder.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                self.empty = 0;
                return Ok(count);
            }
            self.empty += 1;
            if self.empty > EMPTY_MEMBERS {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too many empty gzip members in a row"));
            }
            let Some(mut rest) = self.decoder.take().map(GzDecoder::into_inner) else { return Ok(0) };
            if another_member(&mut rest)? {
                self.decoder = Some(GzDecoder::new(rest));
            }
        }
    }
}

/// Return whether another member follows. Zeros up to the end are padding (as on tapes); anything else would be lost
/// silently, so it counts as damage.
fn another_member(rest: &mut impl BufRead) -> io::Result<bool> {
    let mut padded = false;
    loop {
        let ahead = rest.fill_buf()?;
        let Some(&first) = ahead.first() else { return Ok(false) };
        if first != 0 {
            return match padded {
                false if first == 0x1f => Ok(true),
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "bytes after the last gzip member")),
            };
        }
        let zeros = ahead.iter().take_while(|&&byte| byte == 0).count();
        padded = true;
        rest.consume(zeros);
    }
}

/// Return the name in the first member's header (FNAME), if there is one.
pub(crate) fn file_name(source: &mut dyn Source, limit: usize) -> Option<String> {
    source.rewind().ok()?;
    let decoder = GzDecoder::new(BufReader::new(source));
    let bytes = decoder.header()?.filename()?;
    Some(name::decode(bytes, limit)).filter(|name| !name.is_empty())
}
