use bytes::BufMut;
use penstock_wire::{Reader, Writer};

use super::code::{Version, WINDOW};
use crate::Result;

/// How many events the writer sends before it waits for their acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The frame's version.
    pub version: Version,
    /// The number of events.
    pub size: u32,
}

impl Window {
    /// The length of the frame.
    pub const LENGTH: usize = 6;

    /// Append the frame.
    pub fn encode(self, out: &mut impl BufMut) {
        let mut writer = Writer::new(out);
        writer.u8(self.version.byte());
        writer.u8(WINDOW);
        writer.u32(self.size);
    }

    pub(super) fn decode(version: Version, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { version, size: reader.u32()? })
    }
}
