use bytes::BufMut;
use penstock_wire::{Reader, Truncated, Writer};

/// The payload of PREFETCH: how many tasks a worker may hold at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch(pub u16);

impl Prefetch {
    /// The bytes on the wire.
    pub const LENGTH: usize = 2;

    pub(super) fn encode(self, writer: &mut Writer<impl BufMut>) {
        writer.u16(self.0);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> std::result::Result<Self, Truncated> {
        reader.u16().map(Self)
    }
}
