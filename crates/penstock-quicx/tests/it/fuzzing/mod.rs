//! What the fuzz target of the queue does, on stable, with scripts that are made up and with some that are known to be hard.

#[allow(unreachable_pub)]
pub(crate) mod bytes;
#[allow(unreachable_pub)]
mod queue;

use std::time::Instant;

use proptest::prelude::*;

use crate::fuzzing::queue::quicx_queue;

/// An operation: what, which peer, how often, and one more byte.
fn operation() -> impl Strategy<Value = [u8; 4]> {
    let requests = (0..16_u8, any::<u8>(), any::<u8>(), any::<u8>()).prop_map(<[u8; 4]>::from);
    let others = (16..24_u8, any::<u8>(), any::<u8>(), any::<u8>()).prop_map(<[u8; 4]>::from);
    // A connection that ends ends its script: it is seldom.
    let others = others.prop_filter("an end", |operation| operation[0] != 18 || operation[3] < 32);
    prop_oneof![5 => requests, 3 => others]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_any_input_the_buffers_of_a_connection_have_room_for_its_output_and_one_answer(
        how in 0..4_u8,
        script in prop::collection::vec(operation(), 1..200),
    ) {
        quicx_queue(Instant::now(), &[&[how], script.concat().as_slice()].concat());
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(script in prop::collection::vec(any::<u8>(), 0..600)) {
        quicx_queue(Instant::now(), &script);
    }
}

/// Tasks of peer 0 that die with peer 1: 64 of them, each with two deliveries.
const DEAD: &[[u8; 4]] = &[
    [0, 0, 63, 48],
    [20, 0, 0, 0],
    [17, 0, 255, 9],
    [5, 1, 0, 255],
    [4, 1, 0, 0],
    [17, 1, 255, 99],
    [19, 1, 0, 0],
    [5, 1, 0, 255],
    [4, 1, 0, 0],
    [17, 1, 255, 99],
    [19, 1, 0, 0],
    [20, 0, 0, 0],
    [17, 0, 255, 99],
];

#[test]
fn answers_behind_one_that_waits_for_the_disk_have_no_more_room_than_all_others() {
    for waits in [[0, 2, 0, 0], [14, 2, 0, 1]] {
        for flood in [10, 11, 12, 13, 9, 0] {
            for disk in [[22, 0, 255, 19], [21, 0, 0, 0]] {
                let attack =
                    [waits, disk, [flood, 2, 255, 0], [flood, 2, 255, 0], disk, [flood, 2, 255, 0], [20, 0, 0, 0]];
                let script = [&[1], DEAD.concat().as_slice(), attack.concat().as_slice()].concat();
                quicx_queue(Instant::now(), &script);
            }
        }
    }
}
