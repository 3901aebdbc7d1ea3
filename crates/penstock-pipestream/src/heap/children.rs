//! The children of a node: up to nine links are in the node, more of them in a block.
//!
//! With adjacent links the processor can fetch all children of a node in parallel. With a list of
//! siblings, each of which links to the next one, a consolidation would wait for one after the
//! other. Links inside the node are loaded with it, and only one node in a thousand has more than
//! nine.

/// The link that leads to no node.
pub(super) const NIL: u32 = u32::MAX;
/// More than the number of ranks: a node of rank r has at least F(r + 2) descendants including itself, and F(48)
/// exceeds 2^32.
pub(super) const RANKS: usize = 48;
/// The number of links with which a node with a key and a value of four bytes fills a cache line.
pub(super) const INLINE: usize = 9;

/// The links of a node; its rank is their number.
#[derive(Debug, Clone)]
pub(super) struct Children {
    links: [u32; INLINE],
    /// The block with all links, if there are more than `INLINE`.
    block: u32,
}

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Block([u32; RANKS]);

/// The blocks of a heap. The first link of a free block is the next free block.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    free: u32,
}

impl Children {
    pub(super) const NONE: Self = Self { links: [NIL; INLINE], block: NIL };

    #[inline]
    pub(super) fn links<'a>(&'a self, rank: u8, blocks: &'a Blocks) -> &'a [u32] {
        let rank = usize::from(rank);
        if rank > INLINE { blocks.get(self.block) } else { &self.links }.get(..rank).unwrap_or(&[])
    }

    /// Add a link to a node that has `rank` links.
    #[inline]
    pub(super) fn push(&mut self, rank: u8, link: u32, blocks: &mut Blocks) {
        let rank = usize::from(rank);
        if let Some(place) = self.links.get_mut(rank) {
            *place = link;
            return;
        }
        if rank == INLINE {
            self.block = blocks.add(&self.links);
        }
        if let Some(place) = blocks.get_mut(self.block).get_mut(rank) {
            *place = link;
        }
    }

    /// Remove a link; the last one takes its place. Return that last link if it was moved.
    pub(super) fn swap_remove(&mut self, rank: u8, place: u8, blocks: &mut Blocks) -> Option<u32> {
        let (last, place) = (usize::from(rank).checked_sub(1)?, usize::from(place));
        let links = if last >= INLINE { blocks.get_mut(self.block) } else { &mut self.links };
        let moved = links.get(last).copied().filter(|_| place != last);
        if let (Some(moved), Some(place)) = (moved, links.get_mut(place)) {
            *place = moved;
        }
        if last == INLINE {
            self.links.iter_mut().zip(blocks.get(self.block)).for_each(|(place, link)| *place = *link);
            blocks.release(self.block);
        }
        moved
    }

    /// Free the block of a node, if its rank shows that it has one.
    #[inline]
    pub(super) fn release(&self, rank: u8, blocks: &mut Blocks) {
        if usize::from(rank) > INLINE {
            blocks.release(self.block);
        }
    }

    #[cfg(test)]
    pub(super) fn block(&self, rank: u8) -> Option<u32> {
        (usize::from(rank) > INLINE).then_some(self.block)
    }
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self { blocks: Vec::new(), free: NIL }
    }

    #[inline]
    fn get(&self, index: u32) -> &[u32] {
        self.blocks.get(index as usize).map_or(&[], |block| &block.0)
    }

    #[inline]
    fn get_mut(&mut self, index: u32) -> &mut [u32] {
        self.blocks.get_mut(index as usize).map_or(&mut [], |block| &mut block.0)
    }

    /// Add a block that begins with these links. There are never more blocks than nodes, so a u32 counts them.
    #[cold]
    fn add(&mut self, links: &[u32]) -> u32 {
        let mut index = self.free;
        if index == NIL {
            index = self.blocks.len() as u32;
            self.blocks.push(Block([NIL; RANKS]));
        } else {
            self.free = self.get(index).first().copied().unwrap_or(NIL);
        }
        self.get_mut(index).iter_mut().zip(links).for_each(|(place, link)| *place = *link);
        index
    }

    #[cold]
    fn release(&mut self, index: u32) {
        let next = std::mem::replace(&mut self.free, index);
        if let Some(first) = self.get_mut(index).first_mut() {
            *first = next;
        }
    }

    /// Check that every block is either in `used`, once, or free.
    #[cfg(test)]
    pub(super) fn check(&self, mut used: Vec<u32>) {
        let mut free = self.free;
        while free != NIL {
            assert!(used.len() <= self.blocks.len(), "the list of free blocks has an end");
            used.push(free);
            free = self.get(free)[0];
        }
        used.sort_unstable();
        assert!(used.into_iter().eq(0..self.blocks.len() as u32), "every block is used once or free");
    }
}
