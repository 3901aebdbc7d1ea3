//! How a daemon begins and ends.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use penstock_io::Busy;
use penstock_io::runtime::block_on;

use super::{Daemon, DaemonOptions};
use crate::Error;

fn on(socket: &Path) -> DaemonOptions {
    DaemonOptions { socket: Some(socket.to_owned()), ..DaemonOptions::default() }
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
    assert!(matches!(refused, Error::Local(penstock_io::Error::Busy(Busy::Socket { .. }))), "{refused}");
    block_on(first.stop(Duration::ZERO)).unwrap().unwrap();
    assert!(!path.exists());
    let second = Daemon::start(on(&path)).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}
