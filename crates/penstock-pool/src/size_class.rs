//! Size classes: how large blocks are, and which class a length belongs to.

use crate::ConfigError;

/// Bytes of a block's header. Every class is a multiple of this.
pub const UNIT: usize = 16;
/// The largest class that may be configured.
const LARGEST: usize = 1 << 20;
/// The approximate size of a slab, which is never less than a block of the largest class. Slabs are small so that small
/// pools have slabs for every class.
const SLAB: usize = 32 << 10;
/// The most bytes of a pool, because an offset is a 32-bit number of units.
const POOL: u64 = 64 << 30;

/// The size of a pool and of its blocks. A value after a colon is the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolConfig {
    /// Bytes of the pool, headers included: 64 MiB.
    pub bytes: usize,
    /// Bytes of the blocks of each size class, ascending, multiples of 16 up to 1 MiB: 16 to 4,096 by powers of two.
    pub classes: Vec<usize>,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { bytes: 64 << 20, classes: (4..=12).map(|power| 1 << power).collect() }
    }
}

impl PoolConfig {
    /// Return the default classes in a pool of this many bytes.
    pub fn with_bytes(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Return the largest class.
    pub fn largest(&self) -> usize {
        self.classes.last().copied().unwrap_or(0)
    }

    /// Return the smallest pool that holds blocks of these lengths, allocated in any order.
    ///
    /// Fails where a length is above the largest class, or the classes are wrong.
    pub fn bytes_for(&self, lengths: impl IntoIterator<Item = usize>) -> Result<usize, ConfigError> {
        let sizes = SizeClasses::new(&self.classes)?;
        let mut counts = vec![0_usize; self.classes.len()];
        for bytes in lengths {
            let class = sizes.class_of(bytes).ok_or(ConfigError::Class(bytes))?;
            if let Some(count) = counts.get_mut(usize::from(class)) {
                *count += 1;
            }
        }
        let slabs = counts
            .iter()
            .zip(&sizes.classes)
            .map(|(count, class)| count.div_ceil((sizes.slab_units / class.stride).max(1) as usize));
        Ok(slabs.sum::<usize>().max(1).saturating_mul(sizes.slab_units as usize * UNIT))
    }

    pub(crate) fn slabs(&self, sizes: &SizeClasses) -> Result<u32, ConfigError> {
        let slab = sizes.slab_units as usize * UNIT;
        if self.bytes < slab || self.bytes as u64 > POOL {
            return Err(ConfigError::Pool { bytes: self.bytes, least: slab });
        }
        u32::try_from(self.bytes / slab).map_err(|_| ConfigError::Pool { bytes: self.bytes, least: slab })
    }
}

/// A class: the size of its blocks and the values computed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeClass {
    /// Bytes of a block.
    pub(crate) size: u32,
    /// Units from one block of a slab to the next: its header and its content.
    pub(crate) stride: u32,
    /// The offset in a slab, in units, from which on no block begins.
    pub(crate) end: u32,
    reciprocal: u64,
}

impl SizeClass {
    pub(crate) const NOTHING: Self = Self { size: 0, stride: 1, end: 0, reciprocal: 0 };

    /// Return whether a block may begin this many units after the slab's beginning: whether the stride divides that
    /// number, computed by one multiplication (Lemire, Kaser, Kurz 2019).
    #[inline]
    pub(crate) fn begins_at(&self, units: u32) -> bool {
        self.reciprocal.wrapping_mul(u64::from(units)) < self.reciprocal
    }
}

/// The classes, and the table from a length to its class.
#[derive(Debug, Clone)]
pub(crate) struct SizeClasses {
    pub(crate) classes: Vec<SizeClass>,
    /// The class for each length in units, rounded up.
    table: Vec<u8>,
    /// Units of a slab, the same for all classes so that a slab can serve any class.
    pub(crate) slab_units: u32,
    slab_reciprocal: u64,
}

impl SizeClasses {
    pub(crate) fn new(sizes: &[usize]) -> Result<Self, ConfigError> {
        if sizes.is_empty() || sizes.len() > 255 {
            return Err(ConfigError::Count(sizes.len()));
        }
        let mut before = 0;
        for &size in sizes {
            if size <= before || size > LARGEST || !size.is_multiple_of(UNIT) {
                return Err(ConfigError::Class(size));
            }
            before = size;
        }
        // A slab is as many blocks of the largest class as fit, so that this class wastes nothing.
        let largest = before + UNIT;
        let units = u32::try_from((SLAB / largest).max(1) * largest / UNIT).map_err(|_| ConfigError::Class(before))?;
        let class = |size: usize| {
            let bytes = u32::try_from(size).map_err(|_| ConfigError::Class(size))?;
            let stride = bytes / UNIT as u32 + 1;
            let end = units / stride * stride;
            Ok(SizeClass { size: bytes, stride, end, reciprocal: u64::MAX / u64::from(stride) + 1 })
        };
        let classes = sizes.iter().copied().map(class).collect::<Result<Vec<_>, _>>()?;
        let mut table = vec![0];
        for (number, size) in (0..=u8::MAX).zip(sizes) {
            table.resize(size / UNIT + 1, number);
        }
        Ok(Self { classes, table, slab_units: units, slab_reciprocal: u64::MAX / u64::from(units) + 1 })
    }

    /// Return the smallest class that holds this many bytes.
    #[inline]
    pub(crate) fn class_of(&self, bytes: usize) -> Option<u8> {
        self.table.get(bytes.div_ceil(UNIT)).copied()
    }

    /// Return the slab in which a unit lies, and its distance from the slab's beginning: a division by multiplication,
    /// exact for 32 bits.
    #[inline]
    pub(crate) fn slab_of(&self, unit: u32) -> (u32, u32) {
        let slab = (u128::from(self.slab_reciprocal) * u128::from(unit)) >> 64;
        let slab = slab as u32;
        (slab, unit.wrapping_sub(slab.wrapping_mul(self.slab_units)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_gets_the_smallest_class_that_holds_it() {
        let sizes = SizeClasses::new(&PoolConfig::default().classes).expect("valid");
        let class = |bytes| sizes.class_of(bytes).map(|class| sizes.classes[usize::from(class)].size);
        let lengths = [0, 1, 16, 17, 32, 33, 64, 65, 4_095, 4_096, 4_097, usize::MAX];
        let expected = [16, 16, 16, 32, 32, 64, 64, 128, 4_096, 4_096];
        assert_eq!(lengths.map(class)[..10], expected.map(Some));
        assert_eq!(lengths.map(class)[10..], [None, None]);
    }

    #[test]
    fn multiplications_divide_exactly() {
        for sizes in [vec![16], vec![16, 48, 4_096], vec![1 << 20]] {
            let sizes = SizeClasses::new(&sizes).expect("valid");
            let units = sizes.slab_units;
            for unit in
                (0..5_000).chain((1..50).flat_map(|n| [n * units - 1, n * units])).chain([u32::MAX, u32::MAX - 1])
            {
                assert_eq!(sizes.slab_of(unit), (unit / units, unit % units));
                for class in &sizes.classes {
                    assert_eq!(class.begins_at(unit), unit % class.stride == 0, "{unit} {}", class.stride);
                }
            }
        }
    }

    #[test]
    fn classes_ascend_in_multiples_of_16_up_to_a_mebibyte() {
        let error = |sizes: &[usize]| SizeClasses::new(sizes).expect_err("wrong");
        assert_eq!(error(&[]), ConfigError::Count(0));
        assert_eq!(error(&vec![16; 256]), ConfigError::Count(256));
        for (sizes, wrong) in
            [(vec![0], 0), (vec![24], 24), (vec![32, 16], 16), (vec![16, 16], 16), (vec![1 << 21], 1 << 21)]
        {
            assert_eq!(error(&sizes), ConfigError::Class(wrong));
        }
    }

    #[test]
    fn the_pool_that_lengths_need_is_counted_in_slabs() {
        let config = PoolConfig::default();
        let slab = 7 * (4_096 + 16);
        assert_eq!(config.bytes_for([]), Ok(slab));
        assert_eq!(config.bytes_for([4_096; 7]), Ok(slab));
        assert_eq!(config.bytes_for([4_096; 8]), Ok(2 * slab));
        assert_eq!(config.bytes_for([1, 17, 4_000]), Ok(3 * slab));
        assert_eq!(config.bytes_for([4_097]), Err(ConfigError::Class(4_097)));
    }
}
