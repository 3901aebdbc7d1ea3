use std::sync::Arc;

use penstock_pipestream::Role;
use tokio::task::JoinSet;

use crate::incoming::{accept_bidirectional, accept_streams};
use crate::link::Link;
use crate::liveness;

/// Spawn the tasks that accept the peer's streams, and that watch whether a server is still there.
pub(super) fn accept(link: &Arc<Link>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(accept_streams(Arc::clone(link)));
    tasks.spawn(accept_bidirectional(Arc::clone(link)));
    if link.shared.role == Role::Client && link.shared.peer.ip().to_canonical().is_loopback() {
        tasks.spawn(liveness::watch(Arc::clone(link)));
    }
    tasks
}
