use penstock_wire::Reader;

use super::code::{ACK, COMPRESSED, DATA, JSON, Version, WINDOW};
use super::data::PairScan;
use super::{Ack, Json, Window};
use crate::accepts::Accepts;
use crate::error::{Malformed, Result, Violation};
use crate::limits::Limits;

/// The frame at the beginning of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A complete frame of this length.
    Frame(usize),
    /// The six bytes that begin a compressed frame; this many compressed bytes follow.
    Compressed(u32),
}

/// A search for the end of the first frame, which remembers between calls how far it has searched.
///
/// ```text
///             type J                       all there
///  ┌─Start ───────────▶ Length(bytes) ────────────────▶ Found::Frame ─▶ Start
///  │  type D                                   ▲
///  └─────────▶ Pairs(so far) ──────────────────┘
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Scan {
    #[default]
    Start,
    Length(usize),
    Pairs(PairScan),
}

impl Scan {
    /// Scan the bytes, which must begin at the same frame as in the last call; return `None` if the frame's end has not
    /// arrived.
    pub(crate) fn scan(&mut self, bytes: &[u8], accepts: Accepts, limits: &Limits) -> Result<Option<Found>> {
        loop {
            match self {
                Self::Start => match Self::start(bytes, accepts, limits)? {
                    None => return Ok(None),
                    Some(Started::Compressed(length)) => return Ok(Some(Found::Compressed(length))),
                    Some(Started::Scan(scan)) => *self = scan,
                },
                Self::Length(length) if bytes.len() < *length => return Ok(None),
                Self::Length(length) => {
                    let found = Found::Frame(*length);
                    *self = Self::Start;
                    return Ok(Some(found));
                }
                Self::Pairs(pairs) => match pairs.scan(bytes, limits)? {
                    None => return Ok(None),
                    Some(length) => *self = Self::Length(length),
                },
            }
        }
    }

    fn start(bytes: &[u8], accepts: Accepts, limits: &Limits) -> Result<Option<Started>> {
        let mut reader = Reader::new(bytes);
        let Ok(version) = reader.u8() else { return Ok(None) };
        if Version::from_byte(version).is_none() {
            return Err(Malformed::Version(version).into());
        }
        let Ok(kind) = reader.u8() else { return Ok(None) };
        if !accepts.accepts(kind) {
            return Err(match kind {
                ACK | WINDOW | DATA | JSON | COMPRESSED => {
                    Violation::FrameType { sender: accepts, frame_type: kind }.into()
                }
                other => Malformed::FrameType(other).into(),
            });
        }
        let scan = match kind {
            WINDOW => Some(Self::Length(Window::LENGTH)),
            ACK => Some(Self::Length(Ack::LENGTH)),
            JSON => Json::scan(bytes, limits)?.map(Self::Length),
            DATA => PairScan::begin(bytes, limits)?.map(Self::Pairs),
            COMPRESSED => {
                let Ok(length) = reader.u32() else { return Ok(None) };
                limits.compressed().check(length.into())?;
                return Ok(Some(Started::Compressed(length)));
            }
            other => return Err(Malformed::FrameType(other).into()),
        };
        Ok(scan.map(Started::Scan))
    }
}

enum Started {
    Scan(Scan),
    Compressed(u32),
}
