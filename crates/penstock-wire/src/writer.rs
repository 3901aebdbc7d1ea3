use bytes::BufMut;

/// The counterpart of [`Reader`](crate::Reader), which appends to a buffer that grows (`Vec<u8>`, `BytesMut`, or a
/// `&mut` of one).
///
/// Integers without a suffix are big-endian (network order); the `_le` twins are little-endian.
#[derive(Debug, Default)]
pub struct Writer<B> {
    out: B,
}

impl<B: BufMut> Writer<B> {
    /// Make a writer that appends to `out`.
    pub const fn new(out: B) -> Self {
        Self { out }
    }

    /// Return the buffer with everything that was written.
    pub fn into_inner(self) -> B {
        self.out
    }

    /// Append a byte.
    pub fn u8(&mut self, value: u8) {
        self.out.put_u8(value);
    }

    /// Append two bytes, big-endian.
    pub fn u16(&mut self, value: u16) {
        self.out.put_u16(value);
    }

    /// Append four bytes, big-endian.
    pub fn u32(&mut self, value: u32) {
        self.out.put_u32(value);
    }

    /// Append eight bytes, big-endian.
    pub fn u64(&mut self, value: u64) {
        self.out.put_u64(value);
    }

    /// Append four bytes, little-endian.
    pub fn u32_le(&mut self, value: u32) {
        self.out.put_u32_le(value);
    }

    /// Append eight bytes, little-endian.
    pub fn u64_le(&mut self, value: u64) {
        self.out.put_u64_le(value);
    }

    /// Append bytes as they are.
    pub fn bytes(&mut self, data: &[u8]) {
        self.out.put_slice(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reader;

    #[test]
    fn what_is_written_is_read_back() {
        let mut writer = Writer::new(Vec::new());
        writer.u8(1);
        writer.u16(2);
        writer.u32(4);
        writer.u64(5);
        writer.u32_le(8);
        writer.u64_le(9);
        writer.bytes(b"end");
        let bytes = writer.into_inner();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u16()), (Ok(1), Ok(2)));
        assert_eq!((reader.u32(), reader.u64()), (Ok(4), Ok(5)));
        assert_eq!((reader.u32_le(), reader.u64_le()), (Ok(8), Ok(9)));
        assert_eq!((reader.take(3), reader.is_empty()), (Ok(b"end".as_slice()), true));
    }
}
