//! Many sessions under chosen and random octets: the fuzz targets' bodies, in the stable tests too.

use std::time::Instant;

use penstock_pipestream::Now;
use penstock_pipestream::fuzzing::session::{dialogue, hostile};
use proptest::prelude::*;

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
