use penstock_wire::Reader;

use super::code::{ACK, Version};
use crate::Result;

/// An acknowledgement: the reader has taken all events up to this one. 0 is a keep-alive (decision 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ack {
    /// The version of the frame that is acknowledged.
    pub version: Version,
    /// The sequence number of the event.
    pub sequence: u32,
}

impl Ack {
    /// The length of the frame.
    pub const LENGTH: usize = 6;

    /// Return the frame.
    pub const fn encode(self) -> [u8; Self::LENGTH] {
        let [a, b, c, d] = self.sequence.to_be_bytes();
        [self.version.byte(), ACK, a, b, c, d]
    }

    pub(super) fn decode(version: Version, reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { version, sequence: reader.u32()? })
    }
}
