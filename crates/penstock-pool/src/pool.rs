use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::block::Header;
use crate::size_class::{SizeClasses, UNIT};
use crate::slab::{CACHED, Class, NONE, Slab};
use crate::{AllocError, Block, BlockError, ConfigError, PoolConfig};

/// The distance between two stamps: the low byte is the class.
const STEP: u64 = 256;

static POOLS: AtomicU32 = AtomicU32::new(1);

/// A pool of blocks in fixed memory, for one thread.
///
/// ```
/// use penstock_pool::{BlockError, Pool, PoolConfig};
///
/// let mut pool = Pool::new(&PoolConfig::default())?;
/// let block = pool.alloc(5)?;
/// pool.get_mut(block)?.copy_from_slice(b"hello");
/// assert_eq!(pool.get(block)?, b"hello");
/// assert_eq!(pool.bytes_used(), 16);
/// pool.free(block)?;
/// assert_eq!(pool.free(block), Err(BlockError::Freed));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Pool {
    number: u32,
    bytes: usize,
    sizes: SizeClasses,
    units: Box<[[u8; UNIT]]>,
    slabs: Box<[Slab]>,
    /// As many classes as a byte can name, so that a look-up cannot fail.
    classes: Box<[Class; 256]>,
    /// Slabs that belong to no class; the last one is used next.
    free: Vec<u32>,
    /// The stamp before the first one: random, so that a peer's bytes in a block never look like a header.
    origin: u64,
    /// The last stamp, without its class.
    stamp: u64,
}

/// The state of a pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stats {
    /// The sum of the class sizes of all allocated blocks.
    pub bytes_used: u64,
    /// Bytes of the pool.
    pub bytes_total: u64,
    /// How many slabs the pool has.
    pub slabs_total: u32,
    /// How many slabs belong to no class.
    pub slabs_free: u32,
    /// The state of each size class.
    pub classes: Vec<ClassStats>,
}

/// The state of a size class at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes of a block.
    pub size: u32,
    /// How many blocks are allocated.
    pub blocks: u64,
    /// How many slabs the class has.
    pub slabs: u32,
}

impl Pool {
    /// Make a pool. Its memory is reserved now, and its pages are touched when they are first used.
    ///
    /// Fails where the classes are wrong or the pool has no room for a slab.
    pub fn new(config: &PoolConfig) -> Result<Self, ConfigError> {
        let sizes = SizeClasses::new(&config.classes)?;
        let slabs = config.slabs(&sizes)?;
        // Allocated on the heap from the start, because 32 KiB are too much for a stack.
        let classes = vec![Class::NOTHING; 256].into_boxed_slice();
        let mut classes: Box<[Class; 256]> = classes.try_into().map_err(|_| ConfigError::Count(256))?;
        classes.iter_mut().zip(&sizes.classes).for_each(|(class, size)| class.size = *size);
        let origin = RandomState::new().hash_one(0_u8) & !(STEP - 1);
        Ok(Self {
            number: POOLS.fetch_add(1, Ordering::Relaxed) & 0xFF_FFFF,
            bytes: config.bytes,
            // The system zeroes an allocation this large: it is a separate mapping, without pages until they are
            // touched.
            units: vec![[0; UNIT]; slabs as usize * sizes.slab_units as usize].into_boxed_slice(),
            slabs: vec![Slab::FREE; slabs as usize].into_boxed_slice(),
            classes,
            free: (0..slabs).rev().collect(),
            origin,
            stamp: origin,
            sizes,
        })
    }

    /// Allocate a block for this many bytes. It still holds the bytes that were in its place before.
    ///
    /// Fails where `bytes` is above the largest class, or no block is free.
    #[inline]
    pub fn alloc(&mut self, bytes: usize) -> Result<Block, AllocError> {
        if let Some(number) = self.sizes.class_of(bytes)
            && let Some(class) = self.classes.get_mut(usize::from(number))
            && let Some(unit) = class.pop()
            && let Some(header) = self.units.get_mut(unit as usize)
        {
            self.stamp = self.stamp.wrapping_add(STEP);
            let stamp = self.stamp | u64::from(number);
            *header = Header { stamp, length: bytes as u32, link: u32::from(number) }.encode();
            return Ok(Block::new(self.number, unit, stamp));
        }
        self.alloc_from_slab(bytes)
    }

    #[cold]
    #[inline(never)]
    fn alloc_from_slab(&mut self, bytes: usize) -> Result<Block, AllocError> {
        let number = self.sizes.class_of(bytes);
        let number = number.ok_or(AllocError::TooLarge { bytes, largest: self.largest() })?;
        self.refill(number)?;
        self.alloc(bytes)
    }

    /// Free a block.
    ///
    /// Fails, without changing anything, where the handle is not that of an allocated block.
    #[inline]
    pub fn free(&mut self, block: Block) -> Result<(), BlockError> {
        let Some(bytes) = self.units.get_mut(block.unit() as usize) else { return Err(self.why_not(block)) };
        if Header::decode(*bytes).stamp != block.stamp || block.pool() != self.number {
            return Err(self.why_not(block));
        }
        Header::clear(bytes, self.origin);
        let number = block.class();
        if let Some(class) = self.classes.get_mut(usize::from(number))
            && !class.push(block.unit())
        {
            self.spill(number, block.unit());
        }
        Ok(())
    }

    /// Return a block's content: as many bytes as were requested.
    ///
    /// Fails where the handle is not that of an allocated block.
    #[inline]
    pub fn get(&self, block: Block) -> Result<&[u8], BlockError> {
        let content =
            self.units.get(block.unit() as usize..).and_then(<[_]>::split_first).and_then(|(header, rest)| {
                let header = Header::decode(*header);
                let held = header.stamp == block.stamp && block.pool() == self.number;
                if held { rest.as_flattened().get(..header.length as usize) } else { None }
            });
        content.ok_or_else(|| self.why_not(block))
    }

    /// Return a block's content for writing.
    ///
    /// Fails where the handle is not that of an allocated block.
    #[inline]
    pub fn get_mut(&mut self, block: Block) -> Result<&mut [u8], BlockError> {
        let length = self.get(block)?.len();
        let content = self.units.get_mut(block.unit() as usize + 1..).unwrap_or_default().as_flattened_mut();
        Ok(content.get_mut(..length).unwrap_or_default())
    }

    /// Return the error for a handle that is not that of an allocated block.
    #[cold]
    fn why_not(&self, block: Block) -> BlockError {
        if block.pool() != self.number {
            return BlockError::Foreign;
        }
        let (at, units) = self.sizes.slab_of(block.unit());
        let Some(slab) = self.slabs.get(at as usize) else { return BlockError::Interior };
        let class = self.classes.get(usize::from(slab.class)).map(|class| class.size);
        let begins = units < slab.carved && class.is_some_and(|size| size.begins_at(units));
        // The stamp is older than the slab's last change of class, which happens only while the slab is empty.
        let older = block.stamp.wrapping_sub(self.origin) <= slab.since.wrapping_sub(self.origin);
        if begins || older { BlockError::Freed } else { BlockError::Interior }
    }

    /// Return the size of the largest class in bytes.
    pub fn largest(&self) -> usize {
        self.sizes.classes.last().map_or(0, |class| class.size as usize)
    }

    /// Return the sum of the class sizes of all allocated blocks.
    pub fn bytes_used(&self) -> u64 {
        self.used_classes().map(|class| u64::from(class.size.size) * class.blocks()).sum()
    }

    /// Return the size of the pool in bytes.
    pub const fn bytes_total(&self) -> u64 {
        self.bytes as u64
    }

    /// Return the pool's state now.
    pub fn stats(&self) -> Stats {
        Stats {
            bytes_used: self.bytes_used(),
            bytes_total: self.bytes_total(),
            slabs_total: self.slabs.len() as u32,
            slabs_free: self.free.len() as u32,
            classes: self
                .used_classes()
                .map(|class| ClassStats { size: class.size.size, blocks: class.blocks(), slabs: class.slabs })
                .collect(),
        }
    }

    fn used_classes(&self) -> impl Iterator<Item = &Class> {
        self.classes.iter().take(self.sizes.classes.len())
    }

    /// Move free blocks of the class's slabs into its cache, at least one.
    fn refill(&mut self, number: u8) -> Result<(), AllocError> {
        let first = self.classes.get(usize::from(number)).map_or(NONE, |class| class.first);
        if first == NONE {
            self.give_slab(number)?;
        }
        let Some(class) = self.classes.get_mut(usize::from(number)) else { return Ok(()) };
        while class.cached < CACHED / 2 {
            let at = class.first;
            let Some(slab) = self.slabs.get_mut(at as usize) else { break };
            let unit = if slab.free == NONE {
                slab.carved += class.size.stride;
                at.wrapping_mul(self.sizes.slab_units) + slab.carved - class.size.stride
            } else {
                let unit = slab.free;
                slab.free = self.units.get(unit as usize).map_or(NONE, |header| Header::decode(*header).link);
                unit
            };
            if slab.taken == 0 {
                class.empty = NONE;
            }
            slab.taken += 1;
            class.taken += 1;
            class.push(unit);
            if slab.is_full(class.size) {
                class.first = slab.next;
                if let Some(next) = self.slabs.get_mut(class.first as usize) {
                    next.before = NONE;
                }
            }
        }
        Ok(())
    }

    /// Assign a slab to the class: an unused one, or an empty one of another class.
    fn give_slab(&mut self, number: u8) -> Result<(), AllocError> {
        if self.free.is_empty() {
            self.take_empty();
        }
        let Some(class) = self.classes.get_mut(usize::from(number)) else { return Ok(()) };
        // The search may have given the class room in one of its own slabs.
        if class.first == NONE {
            let at = self.free.pop().ok_or(AllocError::Exhausted { class: class.size.size as usize })?;
            if let Some(slab) = self.slabs.get_mut(at as usize) {
                *slab = Slab { class: number, since: self.stamp | (STEP - 1), ..Slab::FREE };
            }
            (class.first, class.empty) = (at, at);
            class.slabs += 1;
        }
        Ok(())
    }

    /// Take an empty slab from the first class that has one after its cache is emptied.
    fn take_empty(&mut self) {
        for number in 0..self.sizes.classes.len() {
            let number = number as u8;
            self.spill_to(number, 0);
            let empty = self.classes.get(usize::from(number)).map_or(NONE, |class| class.empty);
            if empty != NONE {
                self.take_back(empty);
                return;
            }
        }
    }

    /// Return half of a full cache to the slabs, to make room for a block that was freed.
    #[cold]
    #[inline(never)]
    fn spill(&mut self, number: u8, unit: u32) {
        self.spill_to(number, CACHED / 2);
        if let Some(class) = self.classes.get_mut(usize::from(number)) {
            class.push(unit);
        }
    }

    fn spill_to(&mut self, number: u8, left: u32) {
        while let Some(class) = self.classes.get_mut(usize::from(number)).filter(|class| class.cached > left)
            && let Some(unit) = class.pop()
        {
            let (at, _) = self.sizes.slab_of(unit);
            let (Some(slab), Some(header)) = (self.slabs.get_mut(at as usize), self.units.get_mut(unit as usize))
            else {
                return;
            };
            let full = slab.is_full(class.size);
            *header = Header { stamp: self.origin, length: 0, link: slab.free }.encode();
            slab.free = unit;
            slab.taken -= 1;
            class.taken -= 1;
            let empty = slab.taken == 0;
            if full {
                self.open_again(at);
            }
            if empty {
                self.is_empty(number, at);
            }
        }
    }

    /// Put a slab that was full back on the list of slabs with room.
    fn open_again(&mut self, at: u32) {
        let Some(slab) = self.slabs.get_mut(at as usize) else { return };
        let Some(class) = self.classes.get_mut(usize::from(slab.class)) else { return };
        let second = std::mem::replace(&mut class.first, at);
        (slab.next, slab.before) = (second, NONE);
        if let Some(second) = self.slabs.get_mut(second as usize) {
            second.before = at;
        }
    }

    /// Handle an empty slab. The class keeps one, so that allocating and freeing a single block moves no slab.
    fn is_empty(&mut self, number: u8, at: u32) {
        let Some(class) = self.classes.get_mut(usize::from(number)) else { return };
        if class.empty == NONE {
            class.empty = at;
        } else {
            self.take_back(at);
        }
    }

    /// Take an empty slab from its class.
    fn take_back(&mut self, at: u32) {
        let Some(slab) = self.slabs.get_mut(at as usize) else { return };
        let (number, next, before) = (slab.class, slab.next, slab.before);
        *slab = Slab { class: number, since: self.stamp | (STEP - 1), ..Slab::FREE };
        let Some(class) = self.classes.get_mut(usize::from(number)) else { return };
        class.slabs -= 1;
        if class.empty == at {
            class.empty = NONE;
        }
        match self.slabs.get_mut(before as usize) {
            Some(slab) => slab.next = next,
            None => class.first = next,
        }
        if let Some(slab) = self.slabs.get_mut(next as usize) {
            slab.before = before;
        }
        // This does not allocate: the list has had room for all slabs since the pool was made.
        self.free.push(at);
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("number", &self.number)
            .field("bytes", &self.bytes)
            .field("used", &self.bytes_used())
            .finish_non_exhaustive()
    }
}
