//! How a daemon begins and ends, and what it finds in its journal's folder.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use penstock_quicx::{Journal, QueueConfig, Record, TaskId, Write};

use super::journal::Folder;
use super::{Daemon, DaemonOptions};
use penstock_io::runtime::block_on;

fn on(socket: &Path) -> DaemonOptions {
    DaemonOptions { socket: Some(socket.to_owned()), ..DaemonOptions::default() }
}

#[test]
fn a_daemon_that_cannot_bind_its_metrics_leaves_no_socket_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quicx.sock");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = DaemonOptions { metrics: Some(taken.local_addr().unwrap()), ..on(&path) };
    let error = Daemon::start(options).unwrap_err();
    assert!(error.to_string().contains(&taken.local_addr().unwrap().to_string()), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // And nothing is in the way of the next one.
    drop(Daemon::start(on(&path)).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_daemon_that_has_stopped_leaves_the_socket_of_its_successor_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quicx.sock");
    let first = Daemon::start(on(&path)).unwrap();
    let refused = Daemon::start(on(&path)).unwrap_err();
    assert!(refused.to_string().ends_with("another server listens there"), "{refused}");
    block_on(first.stop(Duration::ZERO)).unwrap().unwrap();
    assert!(!path.exists());
    let second = Daemon::start(on(&path)).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}

/// A segment with three tasks, as a daemon writes it.
fn segment() -> Vec<u8> {
    let mut journal = Journal::new(1 << 20, []);
    for number in 1..=3 {
        let content = [b"\x01a".as_slice(), &[number; 9]].concat();
        let (id, order) = (TaskId(u32::from(number)), u64::from(number));
        journal.append(&Record::Submit { id, order, attempts: 0, content: &content, once: false }, true);
    }
    match journal.poll_write() {
        Some(Write::Append { bytes, .. }) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_bit_that_flips_in_a_segments_header_costs_no_task_and_no_start() {
    let whole = segment();
    for bit in 0..16 * 8 {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("00000000000000000001.journal");
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&file, &flipped).unwrap();
        let (_, queue) = Folder::open(folder.path(), Instant::now(), &QueueConfig::default()).unwrap();
        assert_eq!(queue.tasks(), 3, "bit {bit}");
        let kept = folder.path().join("00000000000000000001.journal.damaged");
        // Format 3 with one bit less is format 1 or 2, which reads the same.
        let told = !matches!(flipped[7], 1 | 2);
        assert_eq!((kept.exists(), queue.counters().damaged), (told, u64::from(told)), "bit {bit}");
        if told {
            assert_eq!(fs::read(kept).unwrap(), flipped);
        }
    }
}
