use std::future::poll_fn;
use std::task::Poll;

use penstock_io::runtime::block_on;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::{Daemon, DaemonOptions, Target, Worker, WorkerOptions};

const PATIENCE: Duration = Duration::from_secs(30);

/// A daemon with tasks, of which the first is done, and a producer.
struct Fixture {
    producer: Producer,
    ids: Vec<TaskId>,
    _daemon: Daemon,
    _folder: TempDir,
}

impl Fixture {
    fn new(tasks: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let daemon = Daemon::start(DaemonOptions { socket: Some(socket.clone()), ..DaemonOptions::default() }).unwrap();
        let to = ConnectOptions::new(Target::Unix(socket));
        let producer = run(Producer::connect(ProducerOptions::new(to.clone())));
        let mut batch = Batch::default();
        (0..tasks).for_each(|_| batch.push(b"a", b"").unwrap());
        let ids = run(producer.submit(batch)).into_iter().map(|answer| answer.unwrap()).collect();
        let worker = run(Worker::connect(WorkerOptions::new(to)));
        let task = run(worker.next());
        run(worker.done(task.id));
        run(worker.settle());
        Self { producer, ids, _daemon: daemon, _folder: folder }
    }
}

fn run<T>(future: impl Future<Output = Result<T>>) -> T {
    block_on(async { timeout(PATIENCE, future).await.expect("in time") }).unwrap().unwrap()
}

#[test]
fn a_done_task_is_found_behind_more_unfinished_ones_than_a_connection_observes_however_often_one_asks() {
    let all = Fixture::new(OBSERVED + 1);
    let ids: Vec<_> = all.ids.iter().rev().copied().collect();
    let expected: Vec<_> = ids.iter().map(|id| *id == all.ids[0]).collect();
    for _ in 0..2 {
        assert!(run(all.producer.done_before(&ids)) == expected);
    }
}

#[test]
fn waits_for_one_task_take_the_place_of_one_however_many_were_dropped() {
    let all = Fixture::new(2);
    for _ in 0..=OBSERVED / 100 {
        let mut waits: Vec<_> = (0..100).map(|_| Box::pin(all.producer.observe(all.ids[1]))).collect();
        run(poll_fn(|context| {
            assert!(waits.iter_mut().all(|wait| wait.as_mut().poll(context).is_pending()));
            Poll::Ready(Ok(()))
        }));
        // The commands are handled in order.
        run(all.producer.stats());
    }
    assert_eq!(run(all.producer.observe(all.ids[0])), Ok(()));
}

#[test]
fn a_producer_that_is_closed_does_not_connect_again_to_ask_what_is_done() {
    let all = Fixture::new(1);
    all.producer.close();
    let refused = block_on(all.producer.done_before(&all.ids)).unwrap();
    assert!(matches!(refused, Err(Error::Misuse(Misuse::ProducerClosed))), "{refused:?}");
}
