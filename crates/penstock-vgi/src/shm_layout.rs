//! The header of a shared memory segment and its allocator (section 11). They work on bytes that
//! are passed in; the memory itself belongs to the driver.

pub(crate) mod format;

use penstock_wire::{Reader, Writer};

pub use self::format::{ENTRY, FIXED, HEADER, MOST};
use self::format::{MAGIC, VERSION};
use crate::error::{Malformed, Misuse, Result, SegmentHeader, Violation};
use crate::metadata::{Metadata, key};

/// The alignment of our regions, so that batches can be used in place.
const ALIGNMENT: u64 = 64;

/// A region in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The region's offset from the start of the segment.
    pub offset: u64,
    /// The region's length in bytes.
    pub length: u64,
}

impl Region {
    const fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// The allocations of a segment, ordered by offset and checked: each is inside the data region, and
/// none overlaps another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    size: u64,
    regions: Vec<Region>,
}

impl Table {
    /// Make the table of a new segment, whose size must be larger than the header.
    pub fn new(size: u64) -> Result<Self> {
        if size <= HEADER {
            return Err(Misuse::SegmentSize(size).into());
        }
        Ok(Self { size, regions: Vec::new() })
    }

    /// Return the number of bytes of the header, up to the last allocation that `fixed` counts.
    pub fn bytes(fixed: &[u8], size: u64) -> Result<usize> {
        count(fixed, size).map(|count| FIXED.saturating_add(count.saturating_mul(ENTRY)))
    }

    /// Read a header, of which at least [`bytes`](Self::bytes) must be present.
    pub fn read(header: &[u8], size: u64) -> Result<Self> {
        let count = count(header, size)?;
        let mut reader = Reader::new(header.get(FIXED..).unwrap_or_default());
        let mut table = Self::new(size)?;
        let mut end = HEADER;
        for index in 0..count {
            let region = Region { offset: reader.u64_le()?, length: reader.u64_le()? };
            let after = region.offset.checked_add(region.length);
            if region.offset < end || region.length == 0 || after.is_none_or(|after| after > size) {
                return Err(Malformed::Segment(SegmentHeader::Allocation(index)).into());
            }
            end = region.end();
            table.regions.push(region);
        }
        Ok(table)
    }

    /// Return the header up to the last allocation.
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::new(Vec::with_capacity(FIXED.saturating_add(self.regions.len().saturating_mul(ENTRY))));
        out.bytes(&MAGIC);
        out.u32_le(VERSION);
        out.u64_le(self.size.saturating_sub(HEADER));
        out.u32_le(u32::try_from(self.regions.len()).unwrap_or(u32::MAX));
        out.u32_le(0);
        for region in &self.regions {
            out.u64_le(region.offset);
            out.u64_le(region.length);
        }
        out.into_inner()
    }

    /// Return the regions in use.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Allocate in the first gap that is large enough (first fit). Return `None` if there is none,
    /// or if there are too many regions.
    pub fn allocate(&mut self, length: u64) -> Option<Region> {
        let length = length.max(1).checked_next_multiple_of(ALIGNMENT)?;
        if self.regions.len() >= MOST {
            return None;
        }
        let ends = std::iter::once(HEADER).chain(self.regions.iter().map(|region| region.end()));
        let starts = self.regions.iter().map(|region| region.offset).chain(std::iter::once(self.size));
        let fits = ends.zip(starts).map(|(from, to)| (from.next_multiple_of(ALIGNMENT), to));
        let (index, offset) = fits
            .enumerate()
            .find(|(_, (from, to))| to.checked_sub(*from).is_some_and(|gap| gap >= length))
            .map(|(index, (from, _))| (index, from))?;
        let region = Region { offset, length };
        self.regions.insert(index, region);
        Some(region)
    }

    /// Free the region that begins at an offset. Return whether there was one.
    pub fn free(&mut self, offset: u64) -> bool {
        let before = self.regions.len();
        self.regions.retain(|region| region.offset != offset);
        self.regions.len() != before
    }

    /// Check that a pointer leads to the start of a region in use, and not beyond its end.
    pub fn check(&self, pointer: Region) -> Result<()> {
        let region = self.regions.iter().find(|region| region.offset == pointer.offset);
        if region.is_some_and(|region| pointer.length <= region.length) {
            return Ok(());
        }
        let Region { offset, length } = pointer;
        Err(Violation::Region { offset, length }.into())
    }
}

fn count(header: &[u8], size: u64) -> Result<usize> {
    let mut reader = Reader::new(header);
    if reader.array()? != MAGIC {
        return Err(Malformed::Segment(SegmentHeader::Magic).into());
    }
    let version = reader.u32_le()?;
    if version != VERSION {
        return Err(Malformed::Segment(SegmentHeader::Version(version)).into());
    }
    let data = reader.u64_le()?;
    if data.checked_add(HEADER) != Some(size) {
        return Err(Malformed::Segment(SegmentHeader::Size { data, size }).into());
    }
    let count = reader.u32_le()? as usize;
    if count > MOST {
        return Err(Malformed::Segment(SegmentHeader::Count(count)).into());
    }
    Ok(count)
}

/// Return whether a batch with this many rows is a pointer into a segment (section 7). Keys of log
/// messages take precedence.
pub fn is_pointer(rows: usize, metadata: &Metadata) -> bool {
    rows == 0 && metadata.contains(key::SHM_OFFSET) && !metadata.contains(key::LOG_LEVEL)
}

/// Set the metadata of a pointer.
pub fn set_pointer(metadata: &mut Metadata, region: Region) {
    metadata.set(key::SHM_OFFSET, region.offset.to_string());
    metadata.set(key::SHM_LENGTH, region.length.to_string());
}

/// Return the pointer that a zero-row batch has in place of its data.
pub fn pointer(metadata: &Metadata) -> Result<Region> {
    let number = |name: &[u8]| {
        let text = metadata.text(name).filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
        let number = text.and_then(|text| text.parse::<u64>().ok());
        number.ok_or_else(|| Malformed::PointerNumber { key: name.escape_ascii().to_string() })
    };
    Ok(Region { offset: number(key::SHM_OFFSET)?, length: number(key::SHM_LENGTH)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_batch_without_rows_and_log_keys_is_a_pointer_to_the_region_that_was_set() {
        let region = Region { offset: 65_536, length: 8 };
        let mut metadata = Metadata::new();
        assert!(!is_pointer(0, &metadata));
        set_pointer(&mut metadata, region);
        assert_eq!(pointer(&metadata).unwrap(), region);
        assert!(is_pointer(0, &metadata) && !is_pointer(1, &metadata));
        metadata.set(key::LOG_LEVEL, "INFO");
        assert!(!is_pointer(0, &metadata));
    }

    #[test]
    fn the_header_is_that_of_the_specification() {
        let mut table = Table::new(HEADER + 4096).expect("large enough");
        table.allocate(64).expect("room");
        let bytes = table.write();
        assert_eq!(
            bytes,
            [
                b"VGIS".as_slice(),
                &[1, 0, 0, 0],
                &[0, 16, 0, 0, 0, 0, 0, 0],
                &[1, 0, 0, 0],
                &[0; 4],
                &[0, 0, 1, 0, 0, 0, 0, 0],
                &[64, 0, 0, 0, 0, 0, 0, 0]
            ]
            .concat()
        );
        assert_eq!(Table::read(&bytes, HEADER + 4096), Ok(table));
        assert_eq!(MOST, 4094);
    }

    #[test]
    fn the_first_gap_that_fits_is_taken_and_free_neighbours_are_one_gap() {
        let mut table = Table::new(HEADER + 640).expect("large enough");
        let at = |table: &mut Table, length| table.allocate(length).map(|region| region.offset - HEADER);
        assert_eq!([128, 128, 128].map(|length| at(&mut table, length)), [Some(0), Some(128), Some(256)]);
        assert!(table.free(HEADER) && table.free(HEADER + 128) && !table.free(HEADER + 1));
        assert_eq!(at(&mut table, 256), Some(0));
        assert_eq!((at(&mut table, 300), at(&mut table, 256)), (None, Some(384)));
    }

    #[test]
    fn a_full_header_allocates_nothing_more() {
        let mut table = Table::new(HEADER + (1 << 20)).expect("large enough");
        assert!((0..MOST).all(|_| table.allocate(1).is_some()));
        assert_eq!(table.allocate(1), None);
    }

    #[test]
    fn corrupt_headers_are_refused() {
        let size = HEADER + 4096;
        let header = |count: u32, entries: &[u64]| {
            let mut bytes = [b"VGIS".as_slice(), &[1, 0, 0, 0], &4096_u64.to_le_bytes(), &count.to_le_bytes(), &[0; 4]];
            let entries: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
            let fixed = std::mem::take(&mut bytes).concat();
            [fixed, entries].concat()
        };
        for (what, bytes) in [
            ("too many", header(4095, &[])),
            ("entries that are not there", header(2, &[HEADER, 64])),
            ("in the header", header(1, &[HEADER - 1, 8])),
            ("beyond the end", header(1, &[HEADER, 4097])),
            ("an overflow", header(1, &[HEADER, u64::MAX])),
            ("overlapping", header(2, &[HEADER, 64, HEADER + 63, 64])),
            ("not sorted", header(2, &[HEADER + 64, 64, HEADER, 64])),
            ("empty", header(1, &[HEADER, 0])),
            ("another magic", [b"VGIX".as_slice(), &header(0, &[])[4..]].concat()),
            ("nothing", Vec::new()),
        ] {
            assert!(Table::read(&bytes, size).is_err(), "{what}");
        }
        assert!(Table::read(&header(0, &[]), size + 1).is_err(), "another size");
    }

    #[test]
    fn a_pointer_must_lead_to_a_region() {
        let mut table = Table::new(HEADER + 4096).expect("large enough");
        let region = table.allocate(100).expect("room");
        assert!(table.check(Region { length: 100, ..region }).is_ok());
        assert!(table.check(Region { length: 129, ..region }).is_err());
        assert!(table.check(Region { offset: region.offset + 8, length: 8 }).is_err());
        for wrong in ["", "-1", "1.0", "0x10", "99999999999999999999", " 1"] {
            let metadata = [(key::SHM_OFFSET, wrong.as_bytes()), (key::SHM_LENGTH, b"8")].into_iter().collect();
            assert!(pointer(&metadata).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn regions_never_overlap_after_any_allocations_and_frees(steps in prop::collection::vec((any::<bool>(), 1_u64..500), 0..200)) {
            let mut table = Table::new(HEADER + 4096).expect("large enough");
            let mut used: Vec<Region> = Vec::new();
            for (take, number) in steps {
                if take || used.is_empty() {
                    used.extend(table.allocate(number));
                } else {
                    let region = used.swap_remove(number as usize % used.len());
                    prop_assert!(table.free(region.offset));
                }
                let size = HEADER + 4096;
                let again = Table::read(&table.write(), size);
                prop_assert_eq!(again.as_ref(), Ok(&table));
                prop_assert_eq!(table.regions().len(), used.len());
            }
        }
    }
}
