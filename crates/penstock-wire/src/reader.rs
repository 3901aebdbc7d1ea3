use std::fmt;

/// The error for input with fewer bytes than a field needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncated {
    /// How many bytes the field takes.
    pub needed: usize,
    /// How many were left.
    pub available: usize,
}

impl fmt::Display for Truncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "truncated: {} bytes needed, {} there", self.needed, self.available)
    }
}

impl std::error::Error for Truncated {}

/// A cursor over bytes that came from a peer. It cannot overrun them, and a read that fails does not move it.
///
/// Integers without a suffix are big-endian (network order); the `_le` twins are little-endian.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Make a cursor at the first of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Return how many bytes are left.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Return whether all bytes have been read.
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Return the next `length` bytes, borrowed from the input. Nothing is allocated, whatever length a peer wrote.
    #[inline]
    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Truncated> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(self.truncated(length))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Return the next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(self.truncated(N))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Read a byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array().map(|[byte]| byte)
    }

    /// Read two bytes, big-endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_be_bytes)
    }

    /// Read three bytes, big-endian.
    #[inline]
    pub fn u24(&mut self) -> Result<u32, Truncated> {
        self.array().map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    /// Read four bytes, big-endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_be_bytes)
    }

    /// Read eight bytes, big-endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_be_bytes)
    }

    /// Read two bytes, little-endian.
    #[inline]
    pub fn u16_le(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_le_bytes)
    }

    /// Read four bytes, little-endian.
    #[inline]
    pub fn u32_le(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_le_bytes)
    }

    /// Read eight bytes, little-endian.
    #[inline]
    pub fn u64_le(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_le_bytes)
    }

    const fn truncated(&self, needed: usize) -> Truncated {
        Truncated { needed, available: self.rest.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_in_both_orders() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        let read = || Reader::new(&bytes);
        assert_eq!(read().u8(), Ok(1));
        assert_eq!((read().u16(), read().u16_le()), (Ok(0x0102), Ok(0x0201)));
        assert_eq!(read().u24(), Ok(0x01_0203));
        assert_eq!((read().u32(), read().u32_le()), (Ok(0x0102_0304), Ok(0x0403_0201)));
        assert_eq!((read().u64(), read().u64_le()), (Ok(0x0102_0304_0506_0708), Ok(0x0807_0605_0403_0201)));
    }

    #[test]
    fn a_read_past_the_end_says_by_how_much_and_moves_nothing() {
        let mut reader = Reader::new(&[1, 2, 3]);
        assert_eq!(reader.u32(), Err(Truncated { needed: 4, available: 3 }));
        assert_eq!(reader.take(usize::MAX), Err(Truncated { needed: usize::MAX, available: 3 }));
        assert_eq!(reader.take(3), Ok([1, 2, 3].as_slice()));
        assert!(reader.is_empty());
        assert_eq!(reader.u8().map_err(|error| error.to_string()), Err("truncated: 1 bytes needed, 0 there".into()));
    }
}
