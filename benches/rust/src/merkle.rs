//! `merkle WHAT LEAVES`: the root over that many entities (`tree`), or SHA-256's block function over as many blocks and
//! nothing else (`blocks`); prints JSON.

#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use penstock_pipestream::{MerkleTree, Status};
use serde_json::json;
use sha2::block_api::compress256;

/// The initial state of SHA-256 (FIPS 180-4, section 5.3.3).
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];
/// The second block of a node: its padding, always the same.
const PADDING: [u8; 64] = {
    let mut block = [0; 64];
    block[0] = 0x80;
    block[62] = 0x02;
    block
};

fn tree(leaves: u32) -> u8 {
    let mut tree = MerkleTree::new();
    for entity_id in 1..=leaves {
        tree.push(entity_id, if entity_id % 1000 == 0 { Status::Failed } else { Status::Complete });
    }
    let [first, ..] = tree.root();
    first
}

/// One block for each leaf and two for each node, each from the initial state, as the tree needs them. The first block
/// is the same every time: nothing is written, moved or kept.
fn blocks(leaves: u32) -> u8 {
    let block = black_box([0x5a; 64]);
    let mut sum = 0;
    for _ in 0..leaves {
        let mut state = INITIAL;
        compress256(&mut state, black_box(&[block]));
        sum ^= state[0];
    }
    let node = black_box([block, PADDING]);
    for _ in 1..leaves {
        let mut state = INITIAL;
        compress256(&mut state, black_box(&node));
        sum ^= state[0];
    }
    sum.to_be_bytes()[0]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: merkle tree|blocks LEAVES";
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or(usage)?;
    let leaves = arguments.next().ok_or(usage)?.parse()?;
    let run = match what.as_str() {
        "tree" => tree,
        "blocks" => blocks,
        _ => return Err(usage.into()),
    };
    let started = Instant::now();
    let first_byte = black_box(run(black_box(leaves)));
    println!("{}", json!({"seconds": started.elapsed().as_secs_f64(), "first_byte": first_byte}));
    Ok(())
}
