//! The frames, one file for each, with encoder, decoder and tests.

mod ack;
mod data;
mod json;
mod scan;
mod window;

pub use ack::Ack;
pub use data::{Data, Pair, Pairs};
pub use json::Json;
pub(crate) use scan::{Found, Scan};
pub use window::Window;

use penstock_wire::Reader;

use crate::error::{Malformed, Result};

pub(crate) const WINDOW: u8 = b'W';
pub(crate) const DATA: u8 = b'D';
pub(crate) const JSON: u8 = b'J';
pub(crate) const COMPRESSED: u8 = b'C';
pub(crate) const ACK: u8 = b'A';

/// The first byte of every frame (decision 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// '1': logstash-forwarder.
    V1,
    /// '2': Beats.
    V2,
}

impl Version {
    /// Return the byte.
    pub const fn byte(self) -> u8 {
        match self {
            Self::V1 => b'1',
            Self::V2 => b'2',
        }
    }

    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'1' => Some(Self::V1),
            b'2' => Some(Self::V2),
            _ => None,
        }
    }
}

/// A whole frame, whose content is borrowed from the decoder. There are no compressed frames here: the decoder returns
/// their content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The writer announces its window.
    Window(Window),
    /// An event of pairs.
    Data(Data<'a>),
    /// An event of JSON.
    Json(Json<'a>),
    /// The reader acknowledges.
    Ack(Ack),
}

impl<'a> Frame<'a> {
    /// Decode a complete frame.
    #[inline]
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let (version, kind) = head(&mut reader)?;
        match kind {
            WINDOW => Window::decode(version, &mut reader).map(Self::Window),
            DATA => Data::decode(version, &mut reader).map(Self::Data),
            JSON => Json::decode(version, &mut reader).map(Self::Json),
            ACK => Ack::decode(version, &mut reader).map(Self::Ack),
            other => Err(Malformed::FrameType(other).into()),
        }
    }
}

#[inline]
fn head(reader: &mut Reader<'_>) -> Result<(Version, u8)> {
    let byte = reader.u8()?;
    let version = Version::from_byte(byte).ok_or(Malformed::Version(byte))?;
    Ok((version, reader.u8()?))
}
