//! The frames: one file for each, with its encoder and its decoder.

mod ack;
mod code;
mod data;
mod json;
mod scan;
mod window;

pub use ack::Ack;
pub use code::Version;
pub(crate) use code::{ACK, COMPRESSED};
use code::{DATA, JSON, WINDOW};
pub use data::{Data, Pair, Pairs};
pub use json::Json;
pub(crate) use scan::{Found, Scan};
pub use window::Window;

use penstock_wire::Reader;

use crate::error::{Malformed, Result};

/// A whole frame, whose content is borrowed from the decoder. A compressed frame has no variant: the decoder returns
/// the frames in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// The size of the writer's next window.
    Window(Window),
    /// An event of pairs.
    Data(Data<'a>),
    /// An event of JSON.
    Json(Json<'a>),
    /// An acknowledgement of the reader.
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
