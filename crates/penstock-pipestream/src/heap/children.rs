//! Which children a node has: blocks of u32 links, whose size goes with the rank.
//!
//! Links that lie side by side let the processor fetch all children of a node at once. A list of siblings, each of which
//! says where the next one is, makes a consolidation wait for one after the other. Most nodes have one child or none, and
//! need no block.

use super::arena::NIL;

/// More than the ranks there are: a node of rank r has at least F(r + 2) descendants, itself included, and F(48) is above
/// 2^32.
pub(super) const RANKS: usize = 48;
const SMALL: usize = 4;
const MEDIUM: usize = 16;

/// Where the children of a rank are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    /// There is none.
    None,
    /// The node has the link itself.
    One,
    Small,
    Medium,
    Large,
}

impl Size {
    #[inline]
    fn of(rank: u8) -> Self {
        match rank {
            0 => Self::None,
            1 => Self::One,
            2..=4 => Self::Small,
            5..=16 => Self::Medium,
            17.. => Self::Large,
        }
    }
}

#[derive(Debug, Clone)]
#[repr(align(16))]
struct Small([u32; SMALL]);

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Medium([u32; MEDIUM]);

#[derive(Debug, Clone)]
#[repr(align(64))]
struct Large([u32; RANKS]);

/// The blocks of one size. A free one has the next free one in its first place.
#[derive(Debug, Clone)]
struct Pool<B> {
    blocks: Vec<B>,
    free: u32,
}

/// The blocks of all nodes of a heap. What a node has is its `head`: the link of its only child, or the index of the block that
/// goes with its rank.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    small: Pool<Small>,
    medium: Pool<Medium>,
    large: Pool<Large>,
}

impl<B: AsRef<[u32]> + AsMut<[u32]> + Clone> Pool<B> {
    const fn new() -> Self {
        Self { blocks: Vec::new(), free: NIL }
    }

    /// A block that begins with these links and one more. There are never more blocks than nodes, so a u32 counts them.
    #[inline]
    fn add(&mut self, empty: B, links: &[u32], last: Option<u32>) -> u32 {
        let mut index = self.free;
        if index == NIL {
            index = self.blocks.len() as u32;
            self.blocks.push(empty);
        }
        if let Some(block) = self.blocks.get_mut(index as usize) {
            let block = block.as_mut();
            if self.free == index {
                self.free = block.first().copied().unwrap_or(NIL);
            }
            block.iter_mut().zip(links.iter().copied().chain(last)).for_each(|(place, link)| *place = link);
        }
        index
    }

    #[inline]
    fn release(&mut self, index: u32) {
        if let Some(first) = self.blocks.get_mut(index as usize).and_then(|block| block.as_mut().first_mut()) {
            *first = std::mem::replace(&mut self.free, index);
        }
    }

    #[inline]
    fn links(&self, index: u32, rank: u8) -> &[u32] {
        self.blocks.get(index as usize).and_then(|block| block.as_ref().get(..usize::from(rank))).unwrap_or(&[])
    }

    #[inline]
    fn set(&mut self, index: u32, place: u8, link: u32) {
        if let Some(old) = self.blocks.get_mut(index as usize).and_then(|it| it.as_mut().get_mut(usize::from(place))) {
            *old = link;
        }
    }

    #[cfg(test)]
    fn check(&self, mut indices: Vec<u32>) {
        let mut free = self.free;
        while free != NIL {
            assert!(indices.len() <= self.blocks.len(), "the list of free blocks has an end");
            indices.push(free);
            free = self.links(free, 1)[0];
        }
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..self.blocks.len() as u32), "every block is used once or free");
    }
}

impl Blocks {
    pub(super) const fn new() -> Self {
        Self { small: Pool::new(), medium: Pool::new(), large: Pool::new() }
    }

    /// The links of a node.
    #[inline]
    pub(super) fn links<'a>(&'a self, head: &'a u32, rank: u8) -> &'a [u32] {
        match Size::of(rank) {
            Size::None => &[],
            Size::One => std::slice::from_ref(head),
            Size::Small => self.small.links(*head, rank),
            Size::Medium => self.medium.links(*head, rank),
            Size::Large => self.large.links(*head, rank),
        }
    }

    /// Adds a link to those of a node, whose rank is that before; gives the node's head.
    #[inline]
    pub(super) fn push(&mut self, head: u32, rank: u8, link: u32) -> u32 {
        if Size::of(rank) != Size::of(rank + 1) {
            return self.resize(head, rank, rank + 1, Some(link));
        }
        self.set(head, rank, rank, link);
        head
    }

    /// Takes a link out; the last one takes its place. Gives the node's head, and that last one where it was moved.
    pub(super) fn swap_remove(&mut self, head: u32, rank: u8, place: u8) -> (u32, Option<u32>) {
        let left = rank.saturating_sub(1);
        let last = self.links(&head, rank).last().copied().filter(|_| place != left);
        let mut head = head;
        if let Some(last) = last {
            self.set(head, rank, place, last);
        }
        if Size::of(rank) != Size::of(left) {
            head = self.resize(head, rank, left, None);
        }
        (head, last)
    }

    /// Frees what a node of this rank has.
    #[inline]
    pub(super) fn release(&mut self, head: u32, rank: u8) {
        match Size::of(rank) {
            Size::None | Size::One => {}
            Size::Small => self.small.release(head),
            Size::Medium => self.medium.release(head),
            Size::Large => self.large.release(head),
        }
    }

    #[inline]
    fn set(&mut self, head: u32, rank: u8, place: u8, link: u32) {
        match Size::of(rank) {
            // A node with one child has no other place.
            Size::None | Size::One => {}
            Size::Small => self.small.set(head, place, link),
            Size::Medium => self.medium.set(head, place, link),
            Size::Large => self.large.set(head, place, link),
        }
    }

    /// Moves the links of a node to where those of another rank are.
    fn resize(&mut self, head: u32, from: u8, to: u8, last: Option<u32>) -> u32 {
        let mut links = [NIL; RANKS];
        let old = self.links(&head, from);
        links.iter_mut().zip(old).for_each(|(place, link)| *place = *link);
        let kept = links.get(..usize::from(from.min(to))).unwrap_or(&[]);
        self.release(head, from);
        match Size::of(to) {
            Size::None => NIL,
            Size::One => kept.first().copied().or(last).unwrap_or(NIL),
            Size::Small => self.small.add(Small([NIL; SMALL]), kept, last),
            Size::Medium => self.medium.add(Medium([NIL; MEDIUM]), kept, last),
            Size::Large => self.large.add(Large([NIL; RANKS]), kept, last),
        }
    }

    /// That every block is in use, by a node of such a head and rank, or free.
    #[cfg(test)]
    pub(super) fn check(&self, used: &[(u32, u8)]) {
        let of = |size| used.iter().filter(|(_, rank)| Size::of(*rank) == size).map(|(head, _)| *head).collect();
        self.small.check(of(Size::Small));
        self.medium.check(of(Size::Medium));
        self.large.check(of(Size::Large));
    }
}

impl AsRef<[u32]> for Small {
    #[inline]
    fn as_ref(&self) -> &[u32] {
        &self.0
    }
}

impl AsMut<[u32]> for Small {
    #[inline]
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }
}

impl AsRef<[u32]> for Medium {
    #[inline]
    fn as_ref(&self) -> &[u32] {
        &self.0
    }
}

impl AsMut<[u32]> for Medium {
    #[inline]
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }
}

impl AsRef<[u32]> for Large {
    #[inline]
    fn as_ref(&self) -> &[u32] {
        &self.0
    }
}

impl AsMut<[u32]> for Large {
    #[inline]
    fn as_mut(&mut self) -> &mut [u32] {
        &mut self.0
    }
}
