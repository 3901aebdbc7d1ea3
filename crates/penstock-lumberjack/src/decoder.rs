use bytes::{Buf as _, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};

use crate::accepts::Accepts;
use crate::error::{Error, Malformed, Result, Violation};
use crate::frame::{Found, Frame, Json, Scan};
use crate::limits::Limits;

/// How much is inflated in one step, which is also the memory that a compressed frame needs, except for larger frames
/// in it.
const INFLATE: usize = 64 << 10;
/// The memory of a frame larger than this is freed with it, even if the next one has begun; otherwise a peer could hold
/// it indefinitely.
const LARGE: usize = 1 << 20;
/// The number of inflated bytes below which the ratio is not meaningful.
const RATIO_FROM: u64 = 64 << 10;

/// A decoder of frames from bytes that arrive in arbitrary pieces.
///
/// Append arriving bytes to [`input`](Self::input), then take frames until there are none. A compressed frame is
/// inflated as it arrives, 64 KiB at a time, and its frames are returned as if they had been sent uncompressed. So its
/// content is never in memory as a whole, and the frames before an error in it are returned. After an error the decoder
/// returns nothing more.
#[derive(Debug)]
pub struct Decoder {
    accepts: Accepts,
    limits: Limits,
    input: BytesMut,
    /// How many bytes were removed from `input`.
    offset: u64,
    scan: Scan,
    /// How many bytes at the front of the input belong to frames already returned.
    given: usize,
    inflating: Option<Box<Inflating>>,
    failed: Option<Error>,
}

/// A compressed frame whose content is not returned completely yet.
#[derive(Debug)]
struct Inflating {
    /// Its offset in the connection.
    offset: u64,
    /// How many compressed bytes are not inflated yet.
    left: usize,
    zlib: Decompress,
    stream: Stream,
    output: BytesMut,
    scan: Scan,
    given: usize,
}

/// The state of a zlib stream.
#[derive(Debug)]
enum Stream {
    Open,
    Ended,
    /// The stream is invalid. Frames that were inflated before the error are returned first (decision 8).
    Broken(Error),
}

/// The position of the next frame.
enum Place {
    Input(usize),
    Inflated(usize),
}

impl Decoder {
    /// Make a decoder at the beginning of a connection.
    pub fn new(accepts: Accepts, limits: Limits) -> Self {
        Self {
            accepts,
            limits,
            input: BytesMut::new(),
            offset: 0,
            scan: Scan::Start,
            given: 0,
            inflating: None,
            failed: None,
        }
    }

    /// Return the buffer for arriving bytes. The caller must only append to it.
    pub fn input(&mut self) -> &mut BytesMut {
        self.drop_given();
        &mut self.input
    }

    /// Append bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.input().extend_from_slice(bytes);
    }

    /// Free the memory of the input, if it is empty.
    pub fn release(&mut self) {
        self.drop_given();
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// Return how many bytes have arrived and belong to no returned frame, including the inflated ones.
    pub fn waiting(&self) -> usize {
        let inflated = self.inflating.as_ref().map_or(0, |inflating| inflating.waiting());
        self.input.len().saturating_sub(self.given) + inflated
    }

    /// Return whether a frame has begun but is incomplete. A compressed frame counts as one.
    pub fn is_mid_frame(&self) -> bool {
        self.failed.is_none() && (self.waiting() > 0 || self.inflating.is_some())
    }

    /// Return how many bytes of the connection belong to returned frames.
    pub fn offset(&self) -> u64 {
        self.offset + self.given as u64
    }

    /// Return the limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Return the next whole frame; `None` until more bytes have arrived.
    ///
    /// Fails where the bytes do not parse, are a frame that this side never receives, or exceed a limit; from then on
    /// it fails in the same way.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        // The fast path: nearly every frame is a complete JSON frame.
        let (scan, source, given) = match &mut self.inflating {
            Some(inflating) => (&inflating.scan, &inflating.output, &mut inflating.given),
            None => (&self.scan, &self.input, &mut self.given),
        };
        if matches!((scan, self.accepts), (Scan::Start, Accepts::Writer))
            && let Some(rest) = source.get(*given..)
            && let Some(length) = Json::whole(rest, &self.limits)
        {
            let start = *given;
            *given += length;
            let source = self.inflating.as_ref().map_or(&self.input, |inflating| &inflating.output);
            return Frame::decode(source.get(start..start + length).unwrap_or_default()).map(Some);
        }
        let place = match self.find() {
            Ok(Some(place)) => place,
            Ok(None) => return Ok(None),
            Err(error) => {
                let at = self.inflating.as_ref().map_or(self.offset, |inflating| inflating.offset);
                let error = error.at(at);
                self.failed = Some(error.clone());
                return Err(error);
            }
        };
        let bytes = match (place, &mut self.inflating) {
            (Place::Inflated(length), Some(inflating)) => {
                inflating.given = length;
                inflating.output.get(..length)
            }
            (Place::Inflated(length) | Place::Input(length), _) => {
                self.given = length;
                self.input.get(..length)
            }
        };
        Frame::decode(bytes.unwrap_or_default()).map(Some)
    }

    fn find(&mut self) -> Result<Option<Place>> {
        self.drop_given();
        loop {
            if let Some(inflating) = &mut self.inflating {
                let before = self.input.len();
                let found = inflating.find(&mut self.input, self.accepts, &self.limits);
                self.offset += before.saturating_sub(self.input.len()) as u64;
                match found? {
                    Inflated::Frame(length) => return Ok(Some(Place::Inflated(length))),
                    Inflated::More => return Ok(None),
                    Inflated::End => self.inflating = None,
                }
            }
            match self.scan.scan(&self.input, self.accepts, &self.limits)? {
                None => return Ok(None),
                Some(Found::Frame(length)) => return Ok(Some(Place::Input(length))),
                Some(Found::Compressed(length)) => self.begin(length),
            }
        }
    }

    fn begin(&mut self, length: u32) {
        let offset = self.offset;
        self.advance(6);
        self.inflating = Some(Box::new(Inflating {
            offset,
            left: usize::try_from(length).unwrap_or(usize::MAX),
            zlib: Decompress::new(true),
            stream: Stream::Open,
            output: BytesMut::new(),
            scan: Scan::Start,
            given: 0,
        }));
    }

    fn drop_given(&mut self) {
        let given = std::mem::take(&mut self.given);
        self.advance(given);
        give_back(given, &mut self.input);
    }

    fn advance(&mut self, bytes: usize) {
        self.input.advance(bytes.min(self.input.len()));
        self.offset += bytes as u64;
    }
}

/// Free the memory of large frames that were returned, copying the few bytes after them.
fn give_back(given: usize, bytes: &mut BytesMut) {
    if given > LARGE {
        *bytes = BytesMut::from(bytes.as_ref());
    }
}

enum Inflated {
    Frame(usize),
    More,
    End,
}

impl Inflating {
    /// Return how many inflated bytes belong to no returned frame.
    fn waiting(&self) -> usize {
        self.output.len().saturating_sub(self.given)
    }

    fn find(&mut self, input: &mut BytesMut, accepts: Accepts, limits: &Limits) -> Result<Inflated> {
        let given = std::mem::take(&mut self.given);
        self.output.advance(given.min(self.output.len()));
        give_back(given, &mut self.output);
        loop {
            match self.scan.scan(&self.output, accepts, limits)? {
                Some(Found::Frame(length)) => return Ok(Inflated::Frame(length)),
                Some(Found::Compressed(_)) => {
                    return Err(Violation::NestedCompression.into());
                }
                None => match &self.stream {
                    Stream::Ended => return self.end(),
                    Stream::Broken(error) => return Err(error.clone()),
                    Stream::Open => {}
                },
            }
            if !self.inflate(input, limits) {
                return Ok(Inflated::More);
            }
        }
    }

    /// Inflate one step further; return `false` if that needs bytes that have not arrived.
    fn inflate(&mut self, input: &mut BytesMut, limits: &Limits) -> bool {
        let available = input.len().min(self.left);
        if available == 0 && self.left > 0 {
            return false;
        }
        let start = self.output.len();
        self.output.resize(start + INFLATE, 0);
        let (before_in, before_out) = (self.zlib.total_in(), self.zlib.total_out());
        let (from, into) = (input.get(..available), self.output.get_mut(start..));
        let status = self.zlib.decompress(from.unwrap_or_default(), into.unwrap_or_default(), FlushDecompress::None);
        let taken = usize::try_from(self.zlib.total_in() - before_in).unwrap_or(available).min(available);
        let given = usize::try_from(self.zlib.total_out() - before_out).unwrap_or(0);
        self.output.truncate(start + given);
        input.advance(taken);
        self.left -= taken;
        let left = self.left;
        let went_well = self.check(limits).and_then(|()| match status {
            Ok(Status::StreamEnd) => Ok(Stream::Ended),
            Ok(Status::Ok | Status::BufError) if left == 0 && given == 0 => Err(Malformed::ZlibTruncated.into()),
            Ok(Status::Ok | Status::BufError) => Ok(Stream::Open),
            Err(error) => Err(Malformed::Zlib { reason: error.to_string() }.into()),
        });
        self.stream = went_well.unwrap_or_else(Stream::Broken);
        true
    }

    fn check(&self, limits: &Limits) -> Result<()> {
        let inflated = self.zlib.total_out();
        limits.inflated().check(inflated)?;
        if inflated > RATIO_FROM {
            limits.ratio().check(inflated / self.zlib.total_in().max(1))?;
        }
        Ok(())
    }

    fn end(&self) -> Result<Inflated> {
        if self.left > 0 {
            return Err(Malformed::ZlibTrailing { bytes: self.left }.into());
        }
        if !self.output.is_empty() {
            return Err(Malformed::CompressedEnd.into());
        }
        Ok(Inflated::End)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Json, Version, encoder};

    #[test]
    fn the_memory_of_a_large_inflated_frame_is_given_back_while_its_compressed_frame_goes_on() {
        let (mut frames, mut out) = (BytesMut::new(), BytesMut::new());
        for payload in [&vec![b'x'; 8 << 20], b"{}".as_slice(), b"{}".as_slice()] {
            Json { version: Version::V2, sequence: 1, payload }.encode(&mut frames).expect("fits");
        }
        encoder::compress(Version::V2, &frames, 3, &mut out);
        let mut decoder = Decoder::new(Accepts::Writer, Limits::default());
        // The checksum of the stream is missing.
        decoder.push(out.get(..out.len() - 4).unwrap_or_default());
        let mut given = 0;
        while decoder.next_frame().expect("legal").is_some() {
            given += 1;
        }
        let capacity = decoder.inflating.as_ref().map(|inflating| inflating.output.capacity());
        assert_eq!(given, 3);
        assert!(capacity.is_some_and(|capacity| capacity < 1 << 20), "{capacity:?}");
    }
}
