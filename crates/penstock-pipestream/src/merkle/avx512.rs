//! SHA-256 of sixteen messages in parallel, in the lanes of AVX-512 (FIPS 180-4, section 6.2.2).
//!
//! ```text
//!  vector      0  1  2 ... 15       lane l of vector v holds leaf 16 l + v, so two neighbours are in the same lane of
//!  lane 0      ●──●  ●───●          neighbouring vectors, and so are their parents, up to one vector: the roots of
//!  lane 1      ●──●  ●───●          sixteen subtrees
//! ```
//!
//! Digests stay words throughout, so no bytes are swapped in between. A node's second block is its
//! padding, whose schedule is a constant.

use std::arch::x86_64::__m512i;

use pulp::x86::V4;
use pulp::{NullaryFnOnce, cast};

use super::digest::{BATCH, Digest, INITIAL, LANES, to_digest};
use crate::status::Status;

/// One word of each of sixteen messages.
type Word = __m512i;
type State = [Word; 8];

/// The constants of the rounds (FIPS 180-4, section 4.2.2).
const K: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

/// Return the root of each group of sixteen leaves in a batch, in order; `None` on a CPU without AVX-512.
pub(super) fn roots(leaves: &[(u32, Status); BATCH]) -> Option<[Digest; LANES]> {
    let simd = V4::try_new()?;
    let words = simd.vectorize(Roots { lanes: Lanes(simd), leaves }).map(cast::<Word, [u32; LANES]>);
    let mut digests = [[0; 32]; LANES];
    for (lane, digest) in digests.iter_mut().enumerate() {
        *digest = to_digest(&words.each_ref().map(|word| word.get(lane).copied().unwrap_or_default()));
    }
    Some(digests)
}

/// The work that `vectorize` compiles for AVX-512; everything it calls must be inlined into it.
struct Roots<'a> {
    lanes: Lanes,
    leaves: &'a [(u32, Status); BATCH],
}

impl NullaryFnOnce for Roots<'_> {
    type Output = State;

    #[inline(always)]
    fn call(self) -> State {
        let Self { lanes, leaves } = self;
        let mut sixteen = [[lanes.all(0); 8]; 16];
        for (vector, place) in sixteen.iter_mut().enumerate() {
            *place = lanes.leaves(leaves.iter().skip(vector).step_by(LANES));
        }
        let mut eight = [[lanes.all(0); 8]; 8];
        lanes.nodes(&sixteen, &mut eight);
        let mut four = [[lanes.all(0); 8]; 4];
        lanes.nodes(&eight, &mut four);
        let mut two = [[lanes.all(0); 8]; 2];
        lanes.nodes(&four, &mut two);
        let mut one = [[lanes.all(0); 8]; 1];
        lanes.nodes(&two, &mut one);
        let [root] = one;
        root
    }
}

/// The functions of the specification, on sixteen words each.
#[derive(Clone, Copy)]
struct Lanes(V4);

impl Lanes {
    #[inline(always)]
    fn all(self, word: u32) -> Word {
        self.0.avx512f._mm512_set1_epi32(word.cast_signed())
    }

    #[inline(always)]
    fn add(self, a: Word, b: Word) -> Word {
        self.0.avx512f._mm512_add_epi32(a, b)
    }

    #[inline(always)]
    fn xor(self, a: Word, b: Word, c: Word) -> Word {
        self.0.avx512f._mm512_ternarylogic_epi32::<0x96>(a, b, c)
    }

    #[inline(always)]
    fn rotate<const BY: i32>(self, word: Word) -> Word {
        self.0.avx512f._mm512_ror_epi32::<BY>(word)
    }

    /// Return the digests of sixteen leaves, one block each: ID, status, end mark, and the length of 40 bits.
    #[inline(always)]
    fn leaves<'a>(self, leaves: impl Iterator<Item = &'a (u32, Status)>) -> State {
        let (mut ids, mut statuses) = ([0; LANES], [0; LANES]);
        for ((id, status), leaf) in ids.iter_mut().zip(&mut statuses).zip(leaves) {
            (*id, *status) = (leaf.0, u32::from(leaf.1.code()) << 24 | 0x80 << 16);
        }
        let mut block = [self.all(0); 16];
        block[0] = cast(ids);
        block[1] = cast(statuses);
        block[15] = self.all(40);
        self.block(INITIAL.map(|word| self.all(word)), block)
    }

    /// Compute the level above: for each pair, hash one block with both digests and one with the
    /// padding.
    #[inline(always)]
    fn nodes(self, level: &[State], above: &mut [State]) {
        let (pairs, _) = level.as_chunks::<2>();
        for (place, pair) in above.iter_mut().zip(pairs) {
            let mut block = [self.all(0); 16];
            for (word, half) in block.iter_mut().zip(pair.as_flattened()) {
                *word = *half;
            }
            let state = self.block(INITIAL.map(|word| self.all(word)), block);
            let mut padded = state;
            for scheduled in PADDING {
                padded = self.round(padded, self.all(scheduled));
            }
            *place = self.sum(state, padded);
        }
    }

    #[inline(always)]
    fn block(self, before: State, mut w: [Word; 16]) -> State {
        let mut state = before;
        for (sixteenth, keys) in K.as_chunks::<16>().0.iter().enumerate() {
            macro_rules! rounds {
                ($($t:literal)*) => {$(
                    if sixteenth > 0 {
                        let recent = self.add(w[($t + 9) % 16], self.sigma_1(w[($t + 14) % 16]));
                        w[$t] = self.add(self.add(w[$t], self.sigma_0(w[($t + 1) % 16])), recent);
                    }
                    state = self.round(state, self.add(w[$t], self.all(keys[$t])));
                )*};
            }
            rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        }
        self.sum(before, state)
    }

    #[inline(always)]
    fn sigma_0(self, word: Word) -> Word {
        let shifted = self.0.avx512f._mm512_srli_epi32::<3>(word);
        self.xor(self.rotate::<7>(word), self.rotate::<18>(word), shifted)
    }

    #[inline(always)]
    fn sigma_1(self, word: Word) -> Word {
        let shifted = self.0.avx512f._mm512_srli_epi32::<10>(word);
        self.xor(self.rotate::<17>(word), self.rotate::<19>(word), shifted)
    }

    /// Compute a round; `scheduled` is the sum of the message's word and the round's constant.
    #[inline(always)]
    fn round(self, [a, b, c, d, e, f, g, h]: State, scheduled: Word) -> State {
        let sum_1 = self.xor(self.rotate::<6>(e), self.rotate::<11>(e), self.rotate::<25>(e));
        let choice = self.0.avx512f._mm512_ternarylogic_epi32::<0xca>(e, f, g);
        let first = self.add(self.add(h, scheduled), self.add(sum_1, choice));
        let sum_0 = self.xor(self.rotate::<2>(a), self.rotate::<13>(a), self.rotate::<22>(a));
        let majority = self.0.avx512f._mm512_ternarylogic_epi32::<0xe8>(a, b, c);
        [self.add(first, self.add(sum_0, majority)), a, b, c, self.add(d, first), e, f, g]
    }

    #[inline(always)]
    fn sum(self, mut a: State, b: State) -> State {
        for (a, b) in a.iter_mut().zip(b) {
            *a = self.add(*a, b);
        }
        a
    }
}

/// The schedule of the padding, with the rounds' constants added.
#[expect(clippy::indexing_slicing, reason = "an index out of bounds would not compile")]
const PADDING: [u32; 64] = {
    let mut w = [0_u32; 64];
    w[0] = 0x8000_0000;
    w[15] = 512;
    let mut t = 16;
    while t < 64 {
        let (a, b) = (w[t - 15], w[t - 2]);
        let sigma_0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
        let sigma_1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
        w[t] = w[t - 16].wrapping_add(sigma_0).wrapping_add(w[t - 7]).wrapping_add(sigma_1);
        t += 1;
    }
    t = 0;
    while t < 64 {
        w[t] = w[t].wrapping_add(K[t]);
        t += 1;
    }
    w
};
