//! The Merkle root of a scope's digest (section 9.4, with the details that the decisions restored).
//!
//! ```text
//!  leaf  = SHA-256(entity ID, 4 bytes big-endian ‖ Stat code in the low 4 bits of 1 byte)
//!  node  = SHA-256(left ‖ right)              no prefixes
//!  level = pairs from the left; an odd last node goes up unhashed
//!  root of nothing = SHA-256 of the empty string (decision 11)
//! ```
//!
//! The root covers only IDs and statuses; [`crate::ContentTree`] covers the content of parts.
//!
//! Leaves and nodes are messages of fixed length, so their padding is fixed as well and the block
//! function is called directly, without a hasher: one block for a leaf, two for a node. A block
//! takes the time of its chain of rounds; independent blocks overlap in the CPU. So leaves wait
//! until there are [`BATCH`] of them, and their subtrees are computed level by level, where
//! neighbours are independent: sixteen in parallel if the CPU has AVX-512, otherwise one after
//! another.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod digest;

use std::slice::from_ref;

use serde::{Deserialize, Serialize};
use sha2::block_api::compress256;

pub(crate) use self::digest::Digest;
use self::digest::{BATCH, INITIAL, LANES, LEAVES, to_digest};
use crate::status::Status;

/// SHA-256 of the empty string.
pub(crate) const EMPTY_ROOT: Digest = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24, 0x27, 0xae, 0x41,
    0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];
/// The second block of a 64-byte message: the end mark and the length, 512 bits.
const NODE_PADDING: [u8; 64] = {
    let mut block = [0; 64];
    block[0] = 0x80;
    block[62] = 0x02;
    block
};

/// The streaming root: leaves are added by ascending entity ID, and only one node for each level and the last few
/// leaves are kept.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct MerkleTree {
    /// The tree over the subtrees of full batches.
    peaks: Peaks,
    /// The leaves of the incomplete batch, fewer than `BATCH`.
    pending: Vec<(u32, Status)>,
}

impl MerkleTree {
    /// Make a tree without leaves.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add the next entity; the caller ensures ascending IDs.
    pub fn push(&mut self, entity_id: u32, status: Status) {
        self.pending.push((entity_id, status));
        if let Some(batch) = self.pending.first_chunk() {
            for root in batch_roots(batch) {
                self.peaks.push(root, node);
            }
            self.pending.clear();
        }
    }

    /// Return how many entities were added.
    pub fn len(&self) -> u64 {
        self.peaks.len * LEAVES as u64 + self.pending.len() as u64
    }

    /// Return whether no entity was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Return the root over all entities added so far; more may be added afterwards.
    pub fn root(&self) -> [u8; 32] {
        let mut last = Peaks::default();
        for (entity_id, status) in &self.pending {
            last.push(leaf(*entity_id, *status), node);
        }
        last.nodes.splice(..0, self.peaks.nodes.iter().copied());
        last.root(node)
    }
}

/// Return the root over entities in any order: they are sorted by ID first.
pub fn merkle_root(entities: impl IntoIterator<Item = (u32, Status)>) -> [u8; 32] {
    let mut entities: Vec<_> = entities.into_iter().collect();
    entities.sort_by_key(|(entity_id, _)| *entity_id);
    let mut tree = MerkleTree::new();
    for (entity_id, status) in entities {
        tree.push(entity_id, status);
    }
    tree.root()
}

/// The complete subtrees of a tree under construction, the largest first, one for each set bit in the number of leaves.
/// Promoting odd last nodes is the same as joining these from the smallest up.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Peaks {
    nodes: Vec<Digest>,
    pub(crate) len: u64,
}

impl Peaks {
    /// Add a leaf's digest. This allocates memory only when the tree gets more levels, so a few
    /// times at most.
    pub(crate) fn push(&mut self, mut digest: Digest, join: impl Fn(&Digest, &Digest) -> Digest) {
        for _ in 0..self.len.trailing_ones() {
            if let Some(left) = self.nodes.pop() {
                digest = join(&left, &digest);
            }
        }
        self.nodes.push(digest);
        self.len += 1;
    }

    pub(crate) fn root(&self, join: impl Fn(&Digest, &Digest) -> Digest) -> Digest {
        let mut peaks = self.nodes.iter().rev();
        match peaks.next() {
            Some(smallest) => peaks.fold(*smallest, |right, left| join(left, &right)),
            None => EMPTY_ROOT,
        }
    }
}

/// Return the roots over the subtrees of a batch, in order.
fn batch_roots(leaves: &[(u32, Status); BATCH]) -> [Digest; LANES] {
    #[cfg(target_arch = "x86_64")]
    if let Some(roots) = avx512::roots(leaves) {
        return roots;
    }
    narrow_roots(leaves)
}

/// Return the same roots with the block function alone.
fn narrow_roots(leaves: &[(u32, Status); BATCH]) -> [Digest; LANES] {
    // All messages are written before the first is hashed, because loading a block right after it was stored in small
    // pieces is slow.
    let messages = leaves.map(|(entity_id, status)| leaf_block(entity_id, status));
    // Two blocks for each node, so that a digest is written where its parent reads it, and the padding stays. A level
    // overwrites the one below: each node that is overwritten was read before.
    let mut nodes = [[[0; 64], NODE_PADDING]; BATCH / 2];
    let (pairs, _) = messages.as_chunks::<2>();
    for ([children, _], pair) in nodes.iter_mut().zip(pairs) {
        let (halves, _) = children.as_chunks_mut();
        for (half, block) in halves.iter_mut().zip(pair) {
            *half = hash(from_ref(block));
        }
    }
    let mut level = BATCH / 2;
    while level > LANES / 2 {
        for index in 0..level {
            let Some(blocks) = nodes.get(index) else { break };
            let digest = hash(blocks);
            if let Some([children, _]) = nodes.get_mut(index / 2)
                && let Some(place) = children.as_chunks_mut().0.get_mut(index % 2)
            {
                *place = digest;
            }
        }
        level /= 2;
    }
    let mut roots = [[0; 32]; LANES];
    let halves = nodes.iter().flat_map(|[children, _]| children.as_chunks().0);
    for (root, digest) in roots.iter_mut().zip(halves) {
        *root = *digest;
    }
    roots
}

/// Return the message of a leaf with its padding: its length is 40 bits.
fn leaf_block(entity_id: u32, status: Status) -> [u8; 64] {
    let [a, b, c, d] = entity_id.to_be_bytes();
    let mut block = [0; 64];
    block[..6].copy_from_slice(&[a, b, c, d, status.code(), 0x80]);
    block[63] = 40;
    block
}

fn leaf(entity_id: u32, status: Status) -> Digest {
    hash(&[leaf_block(entity_id, status)])
}

fn node(left: &Digest, right: &Digest) -> Digest {
    let mut block = [0; 64];
    block[..32].copy_from_slice(left);
    block[32..].copy_from_slice(right);
    hash(&[block, NODE_PADDING])
}

/// Return the SHA-256 of a message that includes its padding.
#[inline]
fn hash(blocks: &[[u8; 64]]) -> Digest {
    let mut state = INITIAL;
    compress256(&mut state, blocks);
    to_digest(&state)
}

#[cfg(test)]
mod tests {
    use penstock_wire::hex;
    use proptest::prelude::*;
    use sha2::{Digest as _, Sha256};

    use super::*;

    /// Compute the construction literally, level by level.
    fn plain_root(entities: &[(u32, Status)]) -> Vec<u8> {
        let mut level: Vec<Vec<u8>> = entities
            .iter()
            .map(|(id, status)| {
                let mut leaf = id.to_be_bytes().to_vec();
                leaf.push(status.code());
                Sha256::digest(leaf).to_vec()
            })
            .collect();
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| if pair.len() == 2 { Sha256::digest(pair.concat()).to_vec() } else { pair[0].clone() })
                .collect();
        }
        level.pop().unwrap_or_else(|| Sha256::digest([]).to_vec())
    }

    #[test]
    fn the_golden_root_of_the_decisions() {
        let root = merkle_root([(3, Status::Failed), (1, Status::Complete), (2, Status::Complete)]);
        assert_eq!(hex::encode(root), "bd7c6e1d581366151db93921858e5ab9ec0f71d574b5dc33208300a3b37d4297");
    }

    #[test]
    fn an_empty_scopes_root_is_the_digest_of_nothing() {
        assert_eq!(MerkleTree::new().root().to_vec(), Sha256::digest([]).to_vec());
        assert!(MerkleTree::new().is_empty());
    }

    #[test]
    fn every_vector_holds() {
        let text = include_str!("../../../../tests/vectors/pipestream/merkle.json");
        let vectors: Vec<Vector> = serde_json::from_str(text).expect("valid JSON");
        assert!(vectors.len() >= 10, "only {} vectors", vectors.len());
        for vector in vectors {
            let leaves = vector.leaves.iter().map(|(id, name)| {
                let status = Status::ALL.into_iter().find(|status| status.name() == name).expect("a status");
                (*id, status)
            });
            assert_eq!(hex::encode(merkle_root(leaves)), vector.root, "{}", vector.name);
        }
    }

    #[derive(serde::Deserialize)]
    struct Vector {
        name: String,
        leaves: Vec<(u32, String)>,
        root: String,
    }

    fn many(count: u32) -> Vec<(u32, Status)> {
        (1..=count).map(|id| (id.wrapping_mul(0x9E37_79B9), Status::ALL[id as usize % Status::ALL.len()])).collect()
    }

    #[test]
    fn the_root_is_the_plain_one_around_every_batch() {
        let entities = many(1_100);
        let mut tree = MerkleTree::new();
        for (index, (id, status)) in entities.iter().enumerate() {
            if index % BATCH < 3 || index % LEAVES == 1 {
                assert_eq!(tree.root().to_vec(), plain_root(&entities[..index]), "{index} leaves");
            }
            tree.push(*id, *status);
        }
        assert_eq!((tree.root().to_vec(), tree.len()), (plain_root(&entities), 1_100));
    }

    #[test]
    fn a_batch_is_the_same_on_every_cpu() {
        let entities = many(BATCH as u32);
        let batch = entities.first_chunk().expect("a batch");
        let plain: Vec<_> = entities.chunks(LEAVES).map(plain_root).collect();
        assert_eq!(narrow_roots(batch).map(|root| root.to_vec()).to_vec(), plain);
        assert_eq!(batch_roots(batch).map(|root| root.to_vec()).to_vec(), plain);
    }

    proptest! {
        #[test]
        fn the_streaming_root_is_the_plain_one_at_every_length(
            entities in prop::collection::vec((any::<u32>(), prop::sample::select(&Status::ALL[..])), 0..70),
        ) {
            let mut tree = MerkleTree::new();
            for (index, (id, status)) in entities.iter().enumerate() {
                prop_assert_eq!(tree.root().to_vec(), plain_root(&entities[..index]));
                tree.push(*id, *status);
            }
            prop_assert_eq!(tree.root().to_vec(), plain_root(&entities));
            prop_assert_eq!(tree.len(), entities.len() as u64);
        }
    }
}
