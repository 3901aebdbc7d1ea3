use std::fmt;

use crate::BlockError;
use crate::size_class::UNIT;

/// A handle of an allocated block: its pool, its place, and the stamp of its allocation.
///
/// It may be copied and kept. After the block is freed, every use of the handle is rejected, even when its place is
/// allocated again. The stamp is private: a peer that does not know it cannot write bytes into a block that look like a
/// header.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// The pool's number (24 bits), and the header's offset in units of 16 bytes (32 bits).
    place: u64,
    /// The number of the allocation (56 bits) and the class. With the class here, freeing a block finds its list
    /// without waiting for the header to load, nor for the block's address, which a busy list has just handed out.
    pub(crate) stamp: u64,
}

impl Block {
    #[inline]
    pub(crate) const fn new(pool: u32, unit: u32, stamp: u64) -> Self {
        Self { place: (pool as u64) << 40 | unit as u64, stamp }
    }

    /// Return the same handle for another place in the pool, as a wrong offset would produce it.
    ///
    /// Fails as interior if no block can begin at the offset.
    pub fn at(self, offset: u64) -> Result<Self, BlockError> {
        let unit = u32::try_from(offset / UNIT as u64).map_err(|_| BlockError::Interior)?;
        if !offset.is_multiple_of(UNIT as u64) {
            return Err(BlockError::Interior);
        }
        Ok(Self::new(self.pool(), unit, self.stamp))
    }

    /// Return the offset of its header, in units of 16 bytes.
    #[inline]
    pub(crate) const fn unit(self) -> u32 {
        self.place as u32
    }

    #[inline]
    pub(crate) const fn class(self) -> u8 {
        self.stamp as u8
    }

    /// Return the pool's number in the process.
    #[inline]
    pub const fn pool(self) -> u32 {
        (self.place >> 40) as u32
    }

    /// Return the number of bytes from the pool's beginning to the block's header.
    pub const fn offset(self) -> u64 {
        self.unit() as u64 * UNIT as u64
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("pool", &self.pool()).field("offset", &self.offset()).finish_non_exhaustive()
    }
}

/// The 16 bytes before a block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The allocation's stamp; while the block is free, the stamp before the pool's first one.
    pub(crate) stamp: u64,
    /// The number of bytes requested.
    pub(crate) length: u32,
    /// While the block is free, the slab's next free block; otherwise its class.
    pub(crate) link: u32,
}

impl Header {
    #[inline]
    pub(crate) fn decode(bytes: [u8; UNIT]) -> Self {
        let value = u128::from_le_bytes(bytes);
        Self { stamp: value as u64, length: (value >> 64) as u32, link: (value >> 96) as u32 }
    }

    /// Mark a header as that of a free block, by its stamp alone.
    #[inline]
    pub(crate) fn clear(bytes: &mut [u8; UNIT], stamp: u64) {
        if let Some(first) = bytes.first_chunk_mut() {
            *first = stamp.to_le_bytes();
        }
    }

    #[inline]
    pub(crate) fn encode(self) -> [u8; UNIT] {
        let value = u128::from(self.stamp) | u128::from(self.length) << 64 | u128::from(self.link) << 96;
        value.to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_as_it_was_written() {
        let header = Header { stamp: 0x0102_0304_0506_0708, length: 1 << 20, link: u32::MAX - 1 };
        assert_eq!(Header::decode(header.encode()), header);
    }

    #[test]
    fn a_handle_keeps_its_parts_and_lies_on_a_unit() {
        let block = Block::new(0xAB_CDEF, 2, 0x907);
        assert_eq!((block.pool(), block.class(), block.offset()), (0xAB_CDEF, 7, 32));
        assert_eq!(block.at(48), Ok(Block::new(0xAB_CDEF, 3, 0x907)));
        assert_eq!(block.at(33), Err(BlockError::Interior));
        assert_eq!(block.at(u64::MAX - 15), Err(BlockError::Interior));
    }
}
