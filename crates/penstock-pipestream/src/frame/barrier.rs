//! BARRIER, 0x55 (section 6.4): 8 bytes.
//!
//! ```text
//! byte 0      1             2            4
//!       +------+-+-----------+------------+-----------+
//!       | 0x55 |S| Reserved 7| Barrier 16 | Parent 32 |
//!       +------+-+-----------+------------+-----------+
//! ```

use bytes::BytesMut;
use penstock_wire::{Reader, Writer};

use super::variable::to_vec;
use crate::error::Result;

pub(super) const TYPE: u8 = 0x55;
pub(super) const LENGTH: usize = 8;

const RELEASED: u8 = 0x80;

/// The end of a scope's announcements (S=0), or of everything below its parent (S=1); decision 11.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    /// S: whether the barrier is released.
    pub released: bool,
    /// The barrier, named by its scope's ID.
    pub barrier_id: u16,
    /// The parent whose subtree ends; 0 for a root scope.
    pub parent_id: u32,
}

impl Barrier {
    /// Append the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let mut writer = Writer::new(out);
        writer.u8(TYPE);
        writer.u8(if self.released { RELEASED } else { 0 });
        writer.u16(self.barrier_id);
        writer.u32(self.parent_id);
    }

    /// Return the bytes of the frame.
    pub fn encode_to_vec(&self) -> Vec<u8> {
        to_vec(|out| self.encode(out))
    }

    /// Parse a whole frame.
    pub(super) fn parse(whole: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(whole);
        reader.u8()?;
        let released = reader.u8()? & RELEASED != 0;
        Ok(Self { released, barrier_id: reader.u16()?, parent_id: reader.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;

    #[test]
    fn the_first_bit_says_whether_it_is_released_and_the_other_seven_nothing() {
        for (released, written, read) in [(false, 0, 0x7F), (true, 0x80, 0xFF)] {
            let barrier = Barrier { released, barrier_id: 4, parent_id: 0x0102_0304 };
            let mut bytes = barrier.encode_to_vec();
            assert_eq!(bytes, [0x55, written, 0, 4, 1, 2, 3, 4]);
            bytes[1] = read;
            assert_eq!(Frame::decode(&bytes), Ok(Some((Frame::Barrier(barrier), 8))));
        }
    }
}
