//! The memory that a process uses, which can be measured only in a separate process. Linux only: it
//! reads /proc.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests stand outside of the test functions that clippy.toml lets do this"
)]

#[path = "../../penstock-pipestream-net/tests/pipestream/common.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod common;
#[path = "../../penstock-pipestream-net/tests/pipestream/raw.rs"]
#[allow(dead_code, reason = "the other tests use the rest")]
mod raw;
#[path = "pipestream/support.rs"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod support;

use std::fs::{self, File};
use std::io::Write as _;
use std::time::Duration;

use penstock_pipestream_net::{Payload, Status, channel};

use crate::raw::{RawClient, pending, run, status};
use crate::support::{Pair, block, draft};

/// Return this process's peak memory in MiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// One test, so that no other test runs at the same time.
#[test]
fn memory_does_not_grow_with_what_is_sent() {
    a_large_payload_is_streamed();
    a_peer_that_does_not_read_stream_0_is_no_longer_read();
}

fn a_large_payload_is_streamed() {
    let pair = Pair::with_sink();
    let source = pair.dir.path().join("source");
    let mut file = File::create(&source).unwrap();
    for n in 0..200_u8 {
        file.write_all(&vec![n; 1 << 20]).unwrap();
    }
    let session = pair.connect();
    let small = block(session.send(draft("x/y"), Payload::bytes(&b"x"[..]))).unwrap();
    block(session.wait_resolved(small.key)).unwrap();
    let before = peak();
    let large = block(session.send(draft("x/y"), Payload::path(&source).unwrap())).unwrap();
    assert_eq!(block(session.wait_resolved(large.key)).unwrap().status, Status::Complete);
    let grown = peak() - before;
    // Both ends are in this process.
    assert!(grown < 48, "200 MiB took {grown} MiB");
    block(session.close()).unwrap();
}

fn a_peer_that_does_not_read_stream_0_is_no_longer_read() {
    let (consumer, _sessions) = channel(1);
    let pair = Pair::new(tempfile::tempdir().unwrap(), consumer, |_| {});
    let before = peak();
    let announced = run(async {
        let mut peer = RawClient::agreed(&pair).await;
        let mut announced = 0_u32;
        // The server answers every pair with a STATUS, which the peer does not read.
        while announced < 2_000_000 {
            let frames: Vec<_> = (announced + 1..=announced + 1_000)
                .flat_map(|entity| [pending(entity), status(entity, Status::Failed)])
                .collect();
            if tokio::time::timeout(Duration::from_secs(3), peer.send_frames(&frames)).await.is_err() {
                break;
            }
            announced += 1_000;
        }
        announced
    });
    assert!((50_000..2_000_000).contains(&announced), "{announced} pairs were taken");
    let grown = peak() - before;
    assert!(grown < 96, "{announced} pairs took {grown} MiB");
}
