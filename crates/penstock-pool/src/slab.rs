//! Slabs: which class has each, and which of their blocks are free.

use crate::size_class::SizeClass;

/// The value for no slab, or no block.
pub(crate) const NONE: u32 = u32::MAX;
/// The most free blocks in a class's cache, outside its slabs. They count as taken from their slabs.
pub(crate) const CACHED: u32 = 16;

/// The state of a slab, kept outside its bytes.
///
/// ```text
///          a class needs one               its last free block goes
///  free ─────────────────────▶ with room ◀────────────────────────▶ full
///    ▲                             │            a block comes back
///    └─────────────────────────────┘
///      it is empty, and the class has another empty one, or another class needs it
/// ```
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slab {
    /// The class that has it, or had it last.
    pub(crate) class: u8,
    /// How many blocks are allocated or in the class's cache.
    pub(crate) taken: u32,
    /// The head of the list of blocks that were allocated and freed, in units from the pool's beginning.
    pub(crate) free: u32,
    /// How many units were carved into blocks since the class got the slab.
    pub(crate) carved: u32,
    /// The pool's last stamp when the slab joined or left a class: blocks with older stamps are not in it.
    pub(crate) since: u64,
    /// Its neighbours among the class's slabs with room.
    pub(crate) next: u32,
    pub(crate) before: u32,
}

impl Slab {
    pub(crate) const FREE: Self =
        Self { class: 0, taken: 0, free: NONE, carved: 0, since: 0, next: NONE, before: NONE };

    pub(crate) const fn is_full(&self, size: SizeClass) -> bool {
        self.free == NONE && self.carved == size.end
    }
}

/// The state of a class. Aligned so that a shift computes its address.
#[derive(Debug, Clone, Copy)]
#[repr(align(128))]
pub(crate) struct Class {
    /// The size of its blocks.
    pub(crate) size: SizeClass,
    /// The first of its slabs with room.
    pub(crate) first: u32,
    /// The slab among them that is empty, if any.
    pub(crate) empty: u32,
    /// How many slabs it has.
    pub(crate) slabs: u32,
    /// How many free blocks are in the cache, with which most allocations and frees do not touch a slab.
    pub(crate) cached: u32,
    /// How many blocks are allocated or in the cache.
    pub(crate) taken: u64,
    cache: [u32; CACHED as usize],
}

impl Class {
    pub(crate) const NOTHING: Self = Self {
        size: SizeClass::NOTHING,
        first: NONE,
        empty: NONE,
        slabs: 0,
        cached: 0,
        taken: 0,
        cache: [NONE; CACHED as usize],
    };

    /// Return the number of allocated blocks.
    pub(crate) const fn blocks(&self) -> u64 {
        self.taken - self.cached as u64
    }

    /// Take a block from the cache.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<u32> {
        let left = self.cached.wrapping_sub(1);
        let unit = *self.cache.get(left as usize)?;
        self.cached = left;
        Some(unit)
    }

    /// Put a block into the cache; return `false` if the cache is full.
    #[inline]
    pub(crate) fn push(&mut self, unit: u32) -> bool {
        let Some(place) = self.cache.get_mut(self.cached as usize) else { return false };
        *place = unit;
        self.cached += 1;
        true
    }
}
