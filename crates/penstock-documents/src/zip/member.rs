//! One member's bytes: decompressed, counted and checked against the directory.

use std::io::{self, BufRead, BufReader, Read, SeekFrom};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::directory::Entry;
use crate::codec;
use crate::context::{Context, Fetched, Meter, Origin};
use crate::failure::{Failure, FailureKind};
use crate::workspace::Source;

/// The flags of a member that is encrypted, and of LZMA data that a marker ends (APPNOTE 4.4.4).
const ENCRYPTED: u16 = 1;
const END_MARKED: u16 = 2;
/// The method of members that are encrypted with WinZip's AES (APPNOTE 4.4.5).
const AES: u16 = 99;

/// Read the member that `entry` describes, whose bytes are in the range `data`.
pub(crate) fn fetch(
    source: &mut Box<dyn Source>,
    entry: &Entry,
    data: (u64, u64),
    context: &mut Context<'_>,
) -> Result<Fetched, Failure> {
    if entry.flags & ENCRYPTED != 0 || entry.method == AES {
        return Err(Failure::new(FailureKind::Encrypted, "the member is encrypted"));
    }
    admit(entry, context)?;
    let meter = Meter::default();
    let mut reader = open(source, entry, data, &meter)?;
    context.fetch(&mut reader, &meter, Origin::Compressed)
}

/// Read up to `limit` bytes of a member to determine the kind of the archive. They are not counted, and are
/// checked only if the member ends before `limit`.
pub(crate) fn peek(source: &mut Box<dyn Source>, entry: &Entry, data: (u64, u64), limit: u64) -> Option<Vec<u8>> {
    let meter = Meter::default();
    let reader = open(source, entry, data, &meter).ok().filter(|_| entry.flags & ENCRYPTED == 0)?;
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Check the declared size of an entry, so that most bombs are refused without inflating a byte.
fn admit(entry: &Entry, context: &Context<'_>) -> Result<(), Failure> {
    let limits = context.limits;
    if entry.size > limits.max_inflated {
        let (size, limit) = (entry.size, limits.max_inflated);
        return Err(Failure::limit(format!("has {size} bytes, the limit for one part is {limit}")));
    }
    Ok(())
}

fn open<'m>(
    source: &'m mut Box<dyn Source>,
    entry: &Entry,
    (start, end): (u64, u64),
    meter: &'m Meter,
) -> Result<Box<dyn Read + 'm>, Failure> {
    source.seek(SeekFrom::Start(start)).map_err(|error| Failure::io("reading the container failed", &error))?;
    let input = BufReader::new(meter.tap(source.take(end.saturating_sub(start))));
    let inner = decoder(input, entry).map_err(|error| match error.kind() == io::ErrorKind::Unsupported {
        true => Failure::unsupported(error.to_string()),
        false => meter.blame(&error),
    })?;
    Ok(Box::new(ChecksumReader { inner, crc: Crc::new(), left: entry.size, expected: entry.crc }))
}

fn decoder<'m>(input: impl BufRead + 'm, entry: &Entry) -> io::Result<Box<dyn Read + 'm>> {
    Ok(match entry.method {
        0 => Box::new(input),
        8 => Box::new(DeflateDecoder::new(input)),
        9 => Box::new(deflate64::Deflate64Decoder::with_buffer(input)),
        12 => Box::new(codec::bzip2(input)),
        14 => Box::new(codec::zip_lzma(input, (entry.flags & END_MARKED == 0).then_some(entry.size))?),
        20 | 93 => Box::new(codec::zstd(input)?),
        95 => Box::new(codec::xz(input)?),
        other => {
            let message = format!("compression method {other} is not supported");
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
    })
}

/// Reads `inner`, and at its end checks it against the size and the CRC in the directory.
struct ChecksumReader<'m> {
    inner: Box<dyn Read + 'm>,
    crc: Crc,
    left: u64,
    expected: u32,
}

impl Read for ChecksumReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        let damage = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if count == 0 && !buffer.is_empty() {
            return match (self.left, self.crc.sum() == self.expected) {
                (0, true) => Ok(0),
                (0, false) => damage("the CRC does not match"),
                _ => damage("the member is shorter than the directory says"),
            };
        }
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => return damage("the member is longer than the directory says"),
        }
        self.crc.update(buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}
