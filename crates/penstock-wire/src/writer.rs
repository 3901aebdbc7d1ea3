use bytes::{BufMut, Bytes, BytesMut};

use crate::limit::{Limit, LimitExceeded};

/// The twin of [`Reader`](crate::Reader): appends to a buffer that grows (`Vec<u8>`, `BytesMut`, or a `&mut` of one).
///
/// Integers without a suffix are big-endian (network order); the `_le` twins are little-endian.
#[derive(Debug, Default)]
pub struct Writer<B = BytesMut> {
    out: B,
}

impl<B: BufMut> Writer<B> {
    /// Appends to `out`.
    pub const fn new(out: B) -> Self {
        Self { out }
    }

    /// The buffer, with all that was written.
    pub fn into_inner(self) -> B {
        self.out
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) {
        self.out.put_u8(value);
    }

    /// Two bytes, big-endian.
    pub fn u16(&mut self, value: u16) {
        self.out.put_u16(value);
    }

    /// Three bytes, big-endian; a value that takes four is refused.
    pub fn u24(&mut self, value: u32) -> Result<(), LimitExceeded> {
        let [_, bytes @ ..] = checked_u24(value)?.to_be_bytes();
        self.bytes(&bytes);
        Ok(())
    }

    /// Four bytes, big-endian.
    pub fn u32(&mut self, value: u32) {
        self.out.put_u32(value);
    }

    /// Eight bytes, big-endian.
    pub fn u64(&mut self, value: u64) {
        self.out.put_u64(value);
    }

    /// Two bytes, little-endian.
    pub fn u16_le(&mut self, value: u16) {
        self.out.put_u16_le(value);
    }

    /// Three bytes, little-endian; a value that takes four is refused.
    pub fn u24_le(&mut self, value: u32) -> Result<(), LimitExceeded> {
        let [bytes @ .., _] = checked_u24(value)?.to_le_bytes();
        self.bytes(&bytes);
        Ok(())
    }

    /// Four bytes, little-endian.
    pub fn u32_le(&mut self, value: u32) {
        self.out.put_u32_le(value);
    }

    /// Eight bytes, little-endian.
    pub fn u64_le(&mut self, value: u64) {
        self.out.put_u64_le(value);
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, data: &[u8]) {
        self.out.put_slice(data);
    }
}

impl Writer<BytesMut> {
    /// Appends to a new buffer that holds `capacity` bytes before it grows.
    pub fn with_capacity(capacity: usize) -> Self {
        Self::new(BytesMut::with_capacity(capacity))
    }

    /// What was written.
    pub fn into_bytes(self) -> Bytes {
        self.out.freeze()
    }
}

fn checked_u24(value: u32) -> Result<u32, LimitExceeded> {
    Limit::new("a 24-bit field", 0xFF_FFFF).check(u64::from(value)).map(|()| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::with_capacity(64);
        writer.u8(1);
        writer.u16(2);
        writer.u24(0xFF_FFFF).expect("fits");
        writer.u32(4);
        writer.u64(5);
        writer.u16_le(6);
        writer.u24_le(0x01_0203).expect("fits");
        writer.u32_le(8);
        writer.u64_le(9);
        writer.bytes(b"end");
        let bytes = writer.into_bytes();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u16(), reader.u24()), (Ok(1), Ok(2), Ok(0xFF_FFFF)));
        assert_eq!((reader.u32(), reader.u64()), (Ok(4), Ok(5)));
        assert_eq!((reader.u16_le(), reader.u24_le()), (Ok(6), Ok(0x01_0203)));
        assert_eq!((reader.u32_le(), reader.u64_le()), (Ok(8), Ok(9)));
        assert_eq!((reader.take(3), reader.is_empty()), (Ok(b"end".as_slice()), true));
    }

    #[test]
    fn a_value_too_large_for_its_field_is_refused_and_writes_nothing() {
        let mut writer = Writer::new(Vec::new());
        assert_eq!(writer.u24(0x100_0000).expect_err("too large").actual, 0x100_0000);
        assert!(writer.u24_le(u32::MAX).is_err());
        assert!(writer.into_inner().is_empty());
    }
}
