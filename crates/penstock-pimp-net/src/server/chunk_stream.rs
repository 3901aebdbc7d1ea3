//! Chunks for a response, read piece by piece as the client reads, in a limited amount of memory.

use std::io::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, try_unfold};
use penstock_io::DriverError as _;
use penstock_io::memory::{MemoryBudget, MemoryPermit};
use penstock_io::runtime::spawn_blocking;
use penstock_pimp::{JobId, Limits};

use super::body::Broken;
use super::jobs::Jobs;
use super::refused::Refused;

/// The most bytes of chunks that are read together for a response; a larger chunk is read alone.
pub(super) const PIECE: u64 = 256 << 10;
/// The most chunks that are read together.
const CHUNKS: usize = 256;

/// Return the most bytes of a stored chunk: JSON writes a byte of text as up to six bytes.
pub(super) const fn largest(limits: &Limits) -> u64 {
    limits.value.saturating_add(limits.error).saturating_mul(6).saturating_add(1 << 10)
}

/// The source of the chunks of responses, and the memory that responses hold.
pub(super) struct ChunkSource {
    pub(super) jobs: Arc<Jobs>,
    /// The memory of responses.
    pub(super) memory: MemoryBudget,
}

impl ChunkSource {
    /// Make a source with this many bytes of memory.
    pub(super) fn new(jobs: Arc<Jobs>, bytes: u64) -> Arc<Self> {
        let most = largest(jobs.limits()).max(PIECE).saturating_mul(2);
        Arc::new(Self { jobs, memory: MemoryBudget::new(bytes, most) })
    }

    /// Return these chunks of a job, of which none is read yet.
    pub(super) fn chunks(self: &Arc<Self>, id: JobId, peer: IpAddr, indices: Vec<u32>) -> Chunks {
        Chunks { source: Arc::clone(self), id, peer, indices, read: 0 }
    }
}

/// Chunks of a job that a response reads in order.
pub(super) struct Chunks {
    source: Arc<ChunkSource>,
    id: JobId,
    peer: IpAddr,
    indices: Vec<u32>,
    /// How many of the indices were read.
    read: usize,
}

impl Chunks {
    /// Return whether all chunks were read.
    pub(super) fn are_read(&self) -> bool {
        self.read >= self.indices.len()
    }

    /// Reserve memory for the next chunks.
    pub(super) async fn permit(&self) -> Result<MemoryPermit, Refused> {
        Ok(self.source.memory.reserve(self.peer, PIECE.max(largest(self.source.jobs.limits()))).await?)
    }

    /// Return the next chunks; none after the last. Fails if they are missing, because the job has
    /// ended or the store has lost them.
    pub(super) async fn read(&mut self) -> Result<Vec<Bytes>, Refused> {
        let rest = self.indices.get(self.read..).unwrap_or_default();
        let asked = rest.get(..CHUNKS).unwrap_or(rest).to_vec();
        let wanted = asked.first().copied();
        let chunks = self.source.jobs.store.read(self.id, asked, PIECE).await?;
        if let Some(index) = wanted.filter(|_| chunks.is_empty()) {
            return Err(self.source.jobs.missing(self.id, index).await);
        }
        self.read += chunks.len();
        Ok(chunks)
    }

    /// Return the next chunks with their memory permit; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<(Vec<Bytes>, MemoryPermit)>, Refused> {
        if self.are_read() {
            return Ok(None);
        }
        let mut permit = self.permit().await?;
        let chunks = self.read().await?;
        permit.shrink(chunks.iter().map(Bytes::len).sum());
        Ok(Some((chunks, permit)))
    }
}

/// The body of a response to a poll that is larger than one piece.
pub(super) struct PollPieces {
    pub(super) chunks: Chunks,
    pub(super) next_index: u64,
    /// The chunks that were already read.
    pub(super) first: Option<(Vec<Bytes>, MemoryPermit)>,
    /// The compressor, if the response is gzip.
    pub(super) packer: Option<GzEncoder<Vec<u8>>>,
}

/// Return the compressor of a response.
pub(super) fn packer() -> GzEncoder<Vec<u8>> {
    GzEncoder::new(Vec::new(), Compression::fast())
}

impl PollPieces {
    /// Turn the pieces into a body.
    pub(super) fn stream(self) -> BoxStream<'static, Result<Bytes, Broken>> {
        try_unfold((self, true), |(mut pieces, begins)| async move {
            Ok(pieces.next(begins).await?.map(|bytes| (bytes, (pieces, false))))
        })
        .boxed()
    }

    async fn next(&mut self, begins: bool) -> Result<Option<Bytes>, Refused> {
        let piece = match self.first.take() {
            Some(piece) => Some(piece),
            None => self.chunks.next().await?,
        };
        let Some((chunks, permit)) = piece else { return Ok(None) };
        let mut bytes = Vec::with_capacity(chunks.iter().map(|chunk| chunk.len() + 1).sum::<usize>() + 64);
        bytes.extend_from_slice(if begins { b"{\"chunks\":[" } else { b"," });
        for (place, chunk) in chunks.iter().enumerate() {
            if place > 0 {
                bytes.push(b',');
            }
            bytes.extend_from_slice(chunk);
        }
        drop(chunks);
        let ends = self.chunks.are_read();
        if ends {
            bytes.extend_from_slice(format!("],\"nextIndex\":{}}}", self.next_index).as_bytes());
        }
        if let Some(packer) = self.packer.take() {
            let (packer, packed) = packed(packer, bytes, ends).await?;
            (self.packer, bytes) = (packer, packed);
        }
        Ok(Some(permit.holds(bytes)))
    }
}

/// Compress a piece on a thread of the pool, and flush it, so that the client sees the chunks that it has.
async fn packed(
    mut packer: GzEncoder<Vec<u8>>,
    bytes: Vec<u8>,
    ends: bool,
) -> crate::Result<(Option<GzEncoder<Vec<u8>>>, Vec<u8>)> {
    let packing = spawn_blocking(move || {
        packer.write_all(&bytes)?;
        if ends {
            return packer.finish().map(|packed| (None, packed));
        }
        packer.flush()?;
        let packed = std::mem::take(packer.get_mut());
        Ok((Some(packer), packed))
    })?;
    let failed = |error: std::io::Error| crate::Error::io("cannot pack an answer", error);
    packing.await.unwrap_or_else(|error| Err(std::io::Error::other(error))).map_err(failed)
}
