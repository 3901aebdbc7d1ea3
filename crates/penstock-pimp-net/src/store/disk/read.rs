//! Reading chunks from segments.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use penstock_log::DiskFile;

use super::record;
use super::state::ChunkPosition;

/// Chunks with a smaller gap between them are read together.
const BETWEEN: u64 = 256;

/// Read chunks, adjacent ones together.
pub(super) fn read(found: &[(Arc<dyn DiskFile>, ChunkPosition)]) -> io::Result<Vec<Bytes>> {
    let mut chunks = Vec::with_capacity(found.len());
    let mut rest = found;
    while let Some((file, first)) = rest.first() {
        let mut end = first.end();
        let together = rest.iter().skip(1).take_while(|(_, place)| {
            let near = place.segment == first.segment && (end..=end.saturating_add(BETWEEN)).contains(&place.offset);
            if near {
                end = place.end();
            }
            near
        });
        let count = 1 + together.count();
        let length = usize::try_from(end - first.offset).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        file.read_at(&mut bytes, first.offset)?;
        let bytes = Bytes::from(bytes);
        let (now, later) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        for (_, place) in now {
            let at = usize::try_from(place.offset - first.offset).map_err(io::Error::other)?;
            let chunk = bytes.slice(at..at + place.length as usize);
            if record::checksum(&chunk) != place.sum {
                return Err(io::Error::other(format!("segment {} is damaged at byte {}", place.segment, place.offset)));
            }
            chunks.push(chunk);
        }
        rest = later;
    }
    Ok(chunks)
}
