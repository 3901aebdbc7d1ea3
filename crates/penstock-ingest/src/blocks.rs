//! A reader in blocks, for sources whose reads are expensive.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;

/// The size of the first block. A read may cost a lock or a request to an object store, so blocks grow during
/// sequential reads, and are small after a seek.
const FIRST_BLOCK: u64 = 256 << 10;
const GROWTH: u64 = 8;
const MAX_BLOCK: u64 = 8 << 20;
/// The number of blocks kept: readers of archives alternate between a directory and its members.
const BLOCKS: usize = 6;

/// The source of a [`BlockReader`].
pub trait BlockSource {
    /// Return the source's length in bytes.
    fn length(&self) -> u64;

    /// Return exactly `size` bytes from the position `from` on. The caller requests no bytes beyond
    /// the length.
    ///
    /// # Errors
    ///
    /// The read failed, or the source has become shorter.
    fn fetch(&self, from: u64, size: usize) -> io::Result<Bytes>;
}

/// A reader of a [`BlockSource`] that keeps at most six blocks of 256 KiB to 8 MiB.
pub struct BlockReader<S> {
    source: S,
    position: u64,
    /// The blocks with their positions, the most recently used one first.
    blocks: VecDeque<(u64, Bytes)>,
}

impl<S: BlockSource> BlockReader<S> {
    /// Return a reader at the beginning of a source.
    pub fn new(source: S) -> Self {
        Self { source, position: 0, blocks: VecDeque::with_capacity(BLOCKS) }
    }

    /// Return the bytes at a position before the end: at least one byte.
    fn at(&mut self, position: u64) -> io::Result<Bytes> {
        let end = |block: &(u64, Bytes)| block.0.saturating_add(block.1.len() as u64);
        let found = self.blocks.iter().position(|block| (block.0..end(block)).contains(&position));
        if let Some(place) = found
            && let Some((start, bytes)) = self.blocks.remove(place)
        {
            self.blocks.push_front((start, bytes.clone()));
            let offset = usize::try_from(position.saturating_sub(start)).map_err(io::Error::other)?;
            return Ok(bytes.slice(offset.min(bytes.len())..));
        }
        let before = self.blocks.iter().find(|block| end(block) == position);
        let size = before.map_or(FIRST_BLOCK, |(_, bytes)| MAX_BLOCK.min(GROWTH * bytes.len() as u64));
        let size = size.min(self.source.length().saturating_sub(position));
        let bytes = self.source.fetch(position, usize::try_from(size).map_err(io::Error::other)?)?;
        self.blocks.truncate(BLOCKS - 1);
        self.blocks.push_front((position, bytes.clone()));
        Ok(bytes)
    }
}

impl<S: BlockSource> Read for BlockReader<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.position >= self.source.length() || buffer.is_empty() {
            return Ok(0);
        }
        let count = self.at(self.position)?.as_ref().read(buffer)?;
        self.position = self.position.saturating_add(count as u64);
        Ok(count)
    }
}

impl<S: BlockSource> Seek for BlockReader<S> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.source.length().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// A source that records each fetch. Byte `n` has the value `n % 251`.
    struct Recorded {
        length: u64,
        fetches: RefCell<Vec<(u64, usize)>>,
    }

    impl BlockSource for Recorded {
        fn length(&self) -> u64 {
            self.length
        }

        fn fetch(&self, from: u64, size: usize) -> io::Result<Bytes> {
            self.fetches.borrow_mut().push((from, size));
            Ok((from..from + size as u64).map(byte).collect())
        }
    }

    fn byte(position: u64) -> u8 {
        u8::try_from(position % 251).unwrap_or_default()
    }

    fn reader(length: u64) -> BlockReader<Recorded> {
        BlockReader::new(Recorded { length, fetches: RefCell::default() })
    }

    fn read_at(reader: &mut BlockReader<Recorded>, position: u64) -> u8 {
        let mut found = [0];
        reader.seek(SeekFrom::Start(position)).unwrap();
        reader.read_exact(&mut found).unwrap();
        found[0]
    }

    #[test]
    fn blocks_grow_in_sequence_and_end_at_the_end() {
        let length = 20 << 20;
        let mut reader = reader(length);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all, (0..length).map(byte).collect::<Vec<_>>());
        let fetches = reader.source.fetches.borrow().clone();
        let sizes = [256 << 10, 2 << 20, 8 << 20, 8 << 20, (20 << 20) - (18 << 20) - (256 << 10)];
        assert_eq!(fetches.iter().map(|(_, size)| *size).collect::<Vec<_>>(), sizes);
    }

    #[test]
    fn a_block_after_a_seek_is_small_and_six_are_kept() {
        let mut reader = reader(64 << 20);
        let places: Vec<u64> = (0..7).map(|number| number * (9 << 20)).collect();
        for &place in &places {
            assert_eq!(read_at(&mut reader, place), byte(place));
        }
        assert!(reader.source.fetches.borrow().iter().all(|(_, size)| *size == 256 << 10));
        // The first block made way for the seventh; the others are still there.
        for &place in places[1..].iter().rev() {
            assert_eq!(read_at(&mut reader, place + 1), byte(place + 1));
        }
        assert_eq!(reader.source.fetches.borrow().len(), 7);
        read_at(&mut reader, places[0]);
        assert_eq!(reader.source.fetches.borrow().len(), 8);
    }

    #[test]
    fn seeks_are_checked_and_nothing_is_read_past_the_end() {
        let mut reader = reader(10);
        assert_eq!(reader.seek(SeekFrom::End(-1)).unwrap(), 9);
        assert_eq!(reader.read(&mut [0; 4]).unwrap(), 1);
        assert_eq!(reader.seek(SeekFrom::Current(5)).unwrap(), 15);
        assert_eq!(reader.read(&mut [0; 4]).unwrap(), 0);
        assert!(reader.seek(SeekFrom::Current(-16)).is_err());
        assert!(reader.seek(SeekFrom::End(i64::MIN)).is_err());
        assert_eq!(*reader.source.fetches.borrow(), [(9, 1)]);
    }
}
