use bytes::BufMut;
use penstock_wire::{Reader, Truncated, Writer};

/// The payload of STATS_RESPONSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatsResponse {
    /// Tasks that wait for a worker or for their time (decision 15).
    pub queue_depth: u32,
    /// Workers that have sent READY.
    pub workers_total: u32,
    /// Workers among these that hold no task.
    pub workers_idle: u32,
    /// The sum of the class sizes of all allocated blocks.
    pub pmad_bytes_used: u64,
    /// The bytes of the pool.
    pub pmad_bytes_total: u64,
}

impl StatsResponse {
    /// Bytes on the wire.
    pub const LENGTH: usize = 28;

    pub(super) fn encode(&self, writer: &mut Writer<impl BufMut>) {
        writer.u32(self.queue_depth);
        writer.u32(self.workers_total);
        writer.u32(self.workers_idle);
        writer.u64(self.pmad_bytes_used);
        writer.u64(self.pmad_bytes_total);
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self {
            queue_depth: reader.u32()?,
            workers_total: reader.u32()?,
            workers_idle: reader.u32()?,
            pmad_bytes_used: reader.u64()?,
            pmad_bytes_total: reader.u64()?,
        })
    }
}
