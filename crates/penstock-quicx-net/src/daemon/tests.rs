//! How a daemon starts and stops.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use penstock_io::Busy;
use penstock_io::admission::{Admission, Config};
use penstock_io::runtime::block_on;
use penstock_quicx::{Queue, QueueConfig};
use tokio::time::timeout;

use super::state::{Phase, Shared};
use super::{Daemon, DaemonOptions};
use crate::Error;

fn on(socket: &Path) -> DaemonOptions {
    DaemonOptions { socket: Some(socket.to_owned()), ..DaemonOptions::default() }
}

fn shared() -> Shared {
    let queue = Queue::new(Instant::now(), QueueConfig::default()).unwrap();
    let admission = Admission::new(Config::new("a test", 1), Arc::default()).unwrap();
    Shared::new(queue, admission, None)
}

#[test]
fn a_phase_that_is_past_does_not_come_back() {
    let shared = shared();
    shared.cut();
    shared.enter(Phase::Draining);
    assert_eq!(shared.phase(), Phase::Ended);
}

#[test]
fn a_queue_that_a_client_has_stopped_is_drained_once_the_daemon_stops() {
    let shared = shared();
    let mut state = shared.lock();
    state.queue.stop();
    shared.settle(&mut state, None);
    assert_eq!(shared.phase(), Phase::Running);
    shared.enter(Phase::Draining);
    shared.settle(&mut state, None);
    assert_eq!(shared.phase(), Phase::Drained);
}

#[test]
fn a_daemon_that_its_owner_stops_was_not_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(on(&folder.path().join("quicx.sock"))).unwrap();
    block_on(daemon.stop(Duration::ZERO)).unwrap().unwrap();
    let asked = block_on(async { timeout(Duration::from_millis(50), daemon.asked_to_stop()).await }).unwrap();
    assert!(asked.is_err());
}

#[test]
fn a_daemon_that_cannot_bind_its_metrics_leaves_no_socket_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quicx.sock");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = DaemonOptions { metrics: Some(taken.local_addr().unwrap().into()), ..on(&path) };
    let error = Daemon::start(options).unwrap_err();
    assert!(error.to_string().contains(&taken.local_addr().unwrap().to_string()), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // Nothing prevents the next daemon from starting either.
    drop(Daemon::start(on(&path)).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_daemon_that_has_stopped_leaves_the_socket_of_its_successor_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quicx.sock");
    let first = Daemon::start(on(&path)).unwrap();
    let refused = Daemon::start(on(&path)).unwrap_err();
    assert!(matches!(refused, Error::Local(penstock_io::Error::Busy(Busy::Socket { .. }))), "{refused}");
    block_on(first.stop(Duration::ZERO)).unwrap().unwrap();
    assert!(!path.exists());
    let second = Daemon::start(on(&path)).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}
