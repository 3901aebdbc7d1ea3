//! Many sessions driven by random bytes: the bodies of the fuzz targets, which run in the stable tests too.

use std::time::Instant;

use penstock_pipestream::Now;
use proptest::prelude::*;

use crate::fuzzing::session::{dialogue, hostile};

fn start() -> Now {
    Now { instant: Instant::now(), unix_micros: 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { ..ProptestConfig::default() })]

    #[test]
    fn honest_ends_agree_over_a_link_that_delays_and_reorders(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        dialogue(&input, start());
    }

    #[test]
    fn a_hostile_peer_gets_a_code_and_nothing_else(input in proptest::collection::vec(any::<u8>(), 0..600)) {
        hostile(&input, start());
    }
}

/// Check that random dialogues at layer 2 reach all of its features.
#[test]
fn dialogues_at_layer_2_retry_wait_defer_and_skip() {
    let mut random: u64 = 1;
    let mut seen = [0_u64; 5];
    for _ in 0..400 {
        let bytes = (0..400).map(|at| {
            // Knuth's MMIX generator; any generator is good enough.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if at == 0 { 3 } else { (random >> 56) as u8 }
        });
        let input: Vec<u8> = bytes.collect();
        for counters in dialogue(&input, start()) {
            let counts = [counters.completed, counters.retries, counters.yields, counters.deferred, counters.skipped];
            for (sum, count) in seen.iter_mut().zip(counts) {
                *sum += count;
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}
