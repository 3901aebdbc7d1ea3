//! A payload that arrives in several streams (decision 15).
//!
//! The headers of the chunks are equal except for index and offset, and the length of a chunk is
//! known only when its stream ends. So overlaps are detected as bytes arrive, and gaps when the
//! last chunk has ended:
//!
//! ```text
//! offset  0          4          9      12 = payload_length
//!         |  chunk 1 |  chunk 0 | chunk 2|      any order, any stream; together exactly the payload
//! ```

use std::collections::BTreeMap;
use std::ops::Bound;

use penstock_wire::Limit;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{EntityError, Error, LimitError, Misuse, Result};
use crate::frame::{ChunkInfo, EntityHeader};

/// The most separate ranges of indices or bytes of one entity, which bounds a tracker's memory if a peer sends only
/// every second chunk. Adjacent chunks are one range.
const FRAGMENTS: Limit = Limit::new("separate stretches of chunks", 65_536);

/// The parts of one payload that have arrived, and whether they are exactly the payload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkTracker {
    /// A digest of the fields that all headers share, because a header may have a megabyte, and there may be many
    /// trackers.
    common: [u8; 32],
    scope_id: u32,
    entity_id: u32,
    payload_length: u64,
    total: u32,
    /// The indices whose streams were admitted.
    admitted: Stretches,
    /// Chunks whose streams have not ended: offsets by index.
    open: BTreeMap<u32, u64>,
    /// The bytes of the chunks whose streams have ended.
    covered: Stretches,
    ended: u32,
}

impl ChunkTracker {
    /// Make a tracker for the entity of this header, which must have chunk_info and have passed
    /// [`EntityHeader::check`]. The header must still be [admitted](Self::admit), like every other one.
    pub fn new(header: &EntityHeader) -> Result<Self> {
        let Some(chunk) = header.chunk_info else { return Err(Misuse::NoChunk.into()) };
        Ok(Self {
            common: common(header),
            scope_id: header.scope_id,
            entity_id: header.entity_id,
            payload_length: header.payload_length,
            total: chunk.total_chunks,
            admitted: Stretches::default(),
            open: BTreeMap::new(),
            covered: Stretches::default(),
            ended: 0,
        })
    }

    /// Check the header of a chunk's stream, and record that the chunk has begun.
    pub fn admit(&mut self, header: &EntityHeader) -> Result<()> {
        let Some(chunk) = header.chunk_info else { return Err(self.invalid(EntityError::ChunkHeaders)) };
        if common(header) != self.common {
            return Err(self.invalid(EntityError::ChunkHeaders));
        }
        let index = u64::from(chunk.chunk_index);
        if chunk.chunk_index >= self.total {
            return Err(self.invalid(EntityError::ChunkIndex { index: chunk.chunk_index, total: self.total }));
        }
        if self.admitted.overlaps(index, index + 1) {
            return Err(self.invalid(EntityError::ChunkTwice { index: chunk.chunk_index }));
        }
        self.admitted.insert(index, index + 1);
        self.open.insert(chunk.chunk_index, chunk.chunk_offset);
        self.check_fragments(&self.admitted)
    }

    /// Record that a chunk's stream has ended after this many bytes. After the last one, the chunks must be exactly the
    /// payload.
    pub fn finish_chunk(&mut self, index: u32, bytes: u64) -> Result<()> {
        let (start, end) = self.place(index, bytes)?;
        self.open.remove(&index);
        self.covered.insert(start, end);
        self.ended += 1;
        if self.ended == self.total && !self.is_complete() {
            return Err(self.invalid(EntityError::ChunkGaps));
        }
        self.check_fragments(&self.covered)
    }

    /// Return whether all chunks have ended, without gaps.
    pub fn is_complete(&self) -> bool {
        self.ended == self.total && self.covered.cover_exactly(self.payload_length)
    }

    /// Return the range of the first `bytes` bytes of an open chunk.
    fn place(&self, index: u32, bytes: u64) -> Result<(u64, u64)> {
        let Some(start) = self.open.get(&index).copied() else {
            return Err(Misuse::ChunkNotOpen { index }.into());
        };
        let length = self.payload_length;
        let Some(end) = start.checked_add(bytes).filter(|end| *end <= length) else {
            return Err(self.invalid(EntityError::ChunkEnd { index, length }));
        };
        if self.covered.overlaps(start, end) {
            return Err(self.invalid(EntityError::ChunkOverlap { index }));
        }
        Ok((start, end))
    }

    fn check_fragments(&self, stretches: &Stretches) -> Result<()> {
        FRAGMENTS
            .check(stretches.ends.len() as u64)
            .map_err(|exceeded| Error::from(LimitError::Fragments(exceeded)).at(self.scope_id, self.entity_id))
    }

    fn invalid(&self, error: EntityError) -> Error {
        Error::from(error).at(self.scope_id, self.entity_id)
    }
}

/// Return a digest of the header without the fields that differ between chunks.
fn common(header: &EntityHeader) -> [u8; 32] {
    let chunk_info = header.chunk_info.map(|chunk| ChunkInfo { chunk_index: 0, chunk_offset: 0, ..chunk });
    Sha256::digest(EntityHeader { chunk_info, ..header.clone() }.encode()).into()
}

/// Disjoint half-open ranges; ranges that touch are merged.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Stretches {
    /// The end of each range, by its start.
    ends: BTreeMap<u64, u64>,
}

impl Stretches {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        start < end && self.ends.range(..end).next_back().is_some_and(|(_, other)| *other > start)
    }

    /// Add a range that overlaps no other.
    fn insert(&mut self, start: u64, end: u64) {
        if start == end {
            return;
        }
        let end = self.ends.remove(&end).unwrap_or(end);
        let before = self.ends.range_mut((Bound::Unbounded, Bound::Excluded(start))).next_back();
        match before {
            Some((_, other)) if *other == start => *other = end,
            Some(_) | None => {
                self.ends.insert(start, end);
            }
        }
    }

    /// Return whether the ranges are exactly the first `length` numbers.
    fn cover_exactly(&self, length: u64) -> bool {
        match self.ends.first_key_value() {
            None => length == 0,
            Some((start, end)) => self.ends.len() == 1 && (*start, *end) == (0, length),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorCode;

    fn chunk(total_chunks: u32, chunk_index: u32, chunk_offset: u64) -> EntityHeader {
        EntityHeader {
            entity_id: 7,
            payload_length: 12,
            checksum: Bytes::from_static(&[1; 32]),
            chunk_info: Some(ChunkInfo { total_chunks, chunk_index, chunk_offset }),
            ..EntityHeader::default()
        }
    }

    fn tracker(chunks: &[EntityHeader]) -> ChunkTracker {
        let mut tracker = ChunkTracker::new(&chunks[0]).expect("chunked");
        for chunk in chunks {
            assert_eq!(chunk.check(12), Ok(()));
            tracker.admit(chunk).expect("admitted");
        }
        tracker
    }

    fn invalid(result: Result<()>, refusal: EntityError) {
        let error = result.expect_err("refused");
        let entity = error.entity();
        assert_eq!((error, entity), (Error::from(refusal).at(0, 7), Some(7)));
    }

    #[test]
    fn chunks_in_any_order_are_the_payload() {
        let mut tracker = tracker(&[chunk(3, 1, 0), chunk(3, 2, 9), chunk(3, 0, 4)]);
        assert_eq!(tracker.finish_chunk(2, 3), Ok(()));
        assert_eq!(tracker.finish_chunk(1, 4), Ok(()));
        assert!(!tracker.is_complete());
        assert_eq!(tracker.finish_chunk(0, 5), Ok(()));
        assert!(tracker.is_complete());
    }

    #[test]
    fn an_index_twice_is_refused_also_after_its_stream_has_ended() {
        let mut tracker = tracker(&[chunk(2, 0, 0)]);
        invalid(tracker.admit(&chunk(2, 0, 0)), EntityError::ChunkTwice { index: 0 });
        tracker.finish_chunk(0, 6).expect("fits");
        invalid(tracker.admit(&chunk(2, 0, 6)), EntityError::ChunkTwice { index: 0 });
    }

    #[test]
    fn an_index_at_the_total_is_refused() {
        let refusal = EntityError::ChunkIndex { index: 2, total: 2 };
        invalid(tracker(&[chunk(2, 0, 0)]).admit(&chunk(2, 2, 6)), refusal);
    }

    #[test]
    fn headers_that_disagree_are_refused() {
        let mut tracker = tracker(&[chunk(2, 0, 0)]);
        let second = || chunk(2, 1, 6);
        let bad = [
            EntityHeader { payload_length: 13, ..second() },
            EntityHeader { checksum: Bytes::from_static(&[2; 32]), ..second() },
            EntityHeader { content_type: "text/plain".into(), ..second() },
            EntityHeader { metadata: [("a".into(), "b".into())].into(), ..second() },
            EntityHeader { chunk_info: None, ..second() },
            chunk(3, 1, 6),
        ];
        for header in &bad {
            invalid(tracker.admit(header), EntityError::ChunkHeaders);
        }
        assert_eq!(tracker.admit(&second()), Ok(()));
    }

    #[test]
    fn a_gap_is_found_when_the_last_chunk_has_ended() {
        let mut tracker = tracker(&[chunk(2, 0, 0), chunk(2, 1, 6)]);
        assert_eq!(tracker.finish_chunk(0, 5), Ok(()));
        invalid(tracker.finish_chunk(1, 6), EntityError::ChunkGaps);
        assert!(!tracker.is_complete());
    }

    #[test]
    fn an_overlap_is_found_before_it_is_written() {
        let mut tracker = tracker(&[chunk(2, 0, 0), chunk(2, 1, 6)]);
        assert_eq!(tracker.finish_chunk(0, 7), Ok(()));
        assert!(tracker.place(1, 0).is_ok());
        invalid(tracker.place(1, 1).map(drop), EntityError::ChunkOverlap { index: 1 });
        invalid(tracker.finish_chunk(1, 6), EntityError::ChunkOverlap { index: 1 });
    }

    #[test]
    fn a_chunk_ends_within_the_payload() {
        let tracker = tracker(&[chunk(1, 0, 8)]);
        assert!(tracker.place(0, 4).is_ok());
        invalid(tracker.place(0, 5).map(drop), EntityError::ChunkEnd { index: 0, length: 12 });
        invalid(tracker.place(0, u64::MAX).map(drop), EntityError::ChunkEnd { index: 0, length: 12 });
    }

    #[test]
    fn an_empty_payload_may_be_one_chunk() {
        let header = EntityHeader { payload_length: 0, ..chunk(1, 0, 0) };
        let mut tracker = tracker(&[header]);
        assert_eq!((tracker.finish_chunk(0, 0), tracker.is_complete()), (Ok(()), true));
    }

    #[test]
    fn asking_for_a_chunk_that_is_not_open_is_misuse() {
        let error = tracker(&[chunk(2, 0, 0)]).finish_chunk(1, 1).expect_err("not open");
        assert_eq!(error.kind(), penstock_wire::ErrorKind::Misuse);
        assert!(ChunkTracker::new(&EntityHeader::default()).is_err());
    }

    #[test]
    fn every_second_chunk_of_very_many_is_refused_at_the_limit() {
        let header = |index: u32| EntityHeader { payload_length: 1 << 20, ..chunk(1 << 20, index, index.into()) };
        let mut tracker = ChunkTracker::new(&header(0)).expect("chunked");
        let refused = (0..1 << 20).step_by(2).map(header).find_map(|header| tracker.admit(&header).err());
        let error = refused.expect("bounded");
        assert_eq!((error.code(), tracker.admitted.ends.len()), (ErrorCode::EntityTooLarge, 65_537));
    }

    proptest! {
        #[test]
        fn any_cut_in_any_order_is_whole_and_costs_what_is_apart(
            lengths in prop::collection::vec(1_u64..50, 1..40),
            seed in any::<u64>(),
        ) {
            let total = u32::try_from(lengths.len()).expect("few");
            let payload_length = lengths.iter().sum();
            let mut offset = 0;
            let mut order: Vec<_> = (0..total).zip(lengths).map(|(index, length)| {
                let header = EntityHeader { payload_length, ..chunk(total, index, offset) };
                offset += length;
                (header, length)
            }).collect();
            order.sort_by_key(|(header, _)| {
                u64::from(header.chunk_info.map_or(0, |chunk| chunk.chunk_index)).wrapping_mul(seed | 1)
            });
            let mut tracker = ChunkTracker::new(&order[0].0).expect("chunked");
            for (header, length) in &order {
                prop_assert!(!tracker.is_complete());
                tracker.admit(header).expect("admitted");
                tracker.finish_chunk(header.chunk_info.map_or(0, |chunk| chunk.chunk_index), *length).expect("fits");
            }
            prop_assert!(tracker.is_complete());
            prop_assert_eq!((tracker.admitted.ends.len(), tracker.covered.ends.len()), (1, 1));
        }
    }
}
