//! Maps whose keys are a few small integers, usually IDs.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map for keys that are made of integers. Its hash is one multiplication for each integer. Each map has a random
/// seed, which a peer cannot know, so a peer that chooses the keys cannot make them collide.
pub type FastMap<K, V> = HashMap<K, V, FastHash>;

/// The source of a [`FastMap`]'s hashers.
#[derive(Debug, Clone)]
pub struct FastHash {
    seed: u64,
}

/// The hasher of one key.
#[derive(Debug)]
pub struct FastHasher {
    state: u64,
}

impl Default for FastHash {
    fn default() -> Self {
        Self { seed: RandomState::new().hash_one(0_u8) }
    }
}

impl BuildHasher for FastHash {
    type Hasher = FastHasher;

    fn build_hasher(&self) -> FastHasher {
        FastHasher { state: self.seed }
    }
}

impl FastHasher {
    /// Multiply a value into the state and combine both halves of the product, so that every bit of the value reaches
    /// every bit of the state.
    fn fold(&mut self, value: u64) {
        let product = u128::from(self.state ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        self.state = (product >> 64) as u64 ^ product as u64;
    }
}

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            self.fold(u64::from_le_bytes(word));
        }
        self.fold(bytes.len() as u64);
    }

    fn write_u8(&mut self, value: u8) {
        self.fold(u64::from(value));
    }

    fn write_u16(&mut self, value: u16) {
        self.fold(u64::from(value));
    }

    fn write_u32(&mut self, value: u32) {
        self.fold(u64::from(value));
    }

    fn write_u64(&mut self, value: u64) {
        self.fold(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.fold(value as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn neighbouring_keys_spread_over_low_and_high_bits() {
        let hash = FastHash::default();
        let hashes: Vec<u64> = (0..4_096_u32).map(|id| hash.hash_one((7_u16, id))).collect();
        // The map takes the bucket from the low bits and the tag from the highest seven.
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xFFFF).collect();
        let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
        assert!(low.len() > 3_500 && high.len() == 128, "{} {}", low.len(), high.len());
    }

    #[test]
    fn every_map_has_a_seed_of_its_own() {
        assert_ne!(FastHash::default().hash_one(1_u32), FastHash::default().hash_one(1_u32));
    }
}
