//! The two bytes that begin every frame.

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
