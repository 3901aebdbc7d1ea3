use std::path::Path;
use std::time::Duration;

use penstock_io::runtime::block_on;
use penstock_quicx::{Batch, ErrorCode};
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::{ConnectOptions, Daemon, DaemonOptions, Error, ProducerOptions, Target, Worker, WorkerOptions};

const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for a call that does not wait.
const MOMENT: Duration = Duration::from_millis(300);

/// A daemon, a watch with a bound, and the IDs of three tasks.
struct Fixture {
    watch: Arc<Watch>,
    ids: Vec<TaskId>,
    _daemon: Daemon,
    folder: TempDir,
}

fn to(socket: &Path) -> ConnectOptions {
    ConnectOptions::new(Target::Unix(socket.to_owned()))
}

impl Fixture {
    fn new(most: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let daemon = Daemon::start(DaemonOptions { socket: Some(socket.clone()), ..DaemonOptions::default() }).unwrap();
        let producer = run(Producer::connect(ProducerOptions::new(to(&socket))));
        let mut batch = Batch::default();
        for payload in [b"1", b"2", b"3"] {
            batch.push(b"a", payload).unwrap();
        }
        let ids = run(producer.submit(batch)).into_iter().map(|answer| answer.unwrap()).collect();
        let watch = Arc::new(Watch::bounded(Arc::new(producer), most));
        Self { watch, ids, _daemon: daemon, folder }
    }

    /// Take this many tasks: the first submitted one fails, the others are done.
    fn work(&self, tasks: usize) {
        let worker = run(Worker::connect(WorkerOptions::new(to(&self.folder.path().join("socket")))));
        for _ in 0..tasks {
            let task = run(worker.next());
            run(async {
                if task.id == self.ids[0] {
                    return worker.failed(task.id, b"no".to_vec()).await;
                }
                worker.done(task.id).await
            });
        }
        run(worker.settle());
    }

    /// Return the next outcome.
    fn next(&self) -> (TaskId, Outcome) {
        let (id, outcome) = run(async { Ok(self.watch.next().await) });
        (id, outcome.unwrap())
    }
}

fn run<T>(future: impl Future<Output = Result<T>>) -> T {
    block_on(async { timeout(PATIENCE, future).await.expect("in time") }).unwrap().unwrap()
}

/// Return whether a task can be watched now.
fn adds(watch: &Watch, id: TaskId) -> bool {
    block_on(async { timeout(MOMENT, watch.add(id)).await }).unwrap().is_ok_and(|added| added.map(|()| true).unwrap())
}

#[test]
fn a_watch_is_bounded_and_loses_no_outcome() {
    let all = Fixture::new(2);
    run(all.watch.add(all.ids[0]));
    run(all.watch.add(all.ids[1]));
    assert!(!adds(&all.watch, all.ids[2]));
    // Outcomes that have arrived but were not taken count too.
    all.work(3);
    assert!(!adds(&all.watch, all.ids[2]));
    let first = all.next();
    run(all.watch.add(all.ids[2]));
    let mut found = vec![first, all.next(), all.next()];
    found.sort_by_key(|(id, _)| *id);
    let expected = all.ids.iter().copied().zip([Err(b"no".to_vec()), Ok(()), Ok(())]);
    assert_eq!(found, expected.collect::<Vec<_>>());
}

#[test]
fn a_task_that_is_watched_twice_has_two_outcomes() {
    let all = Fixture::new(2);
    run(all.watch.add(all.ids[0]));
    run(all.watch.add(all.ids[0]));
    all.work(1);
    let failed = (all.ids[0], Err(b"no".to_vec()));
    assert_eq!([all.next(), all.next()], [failed.clone(), failed]);
}

#[test]
fn an_outcome_that_is_unknown_is_an_error_with_the_tasks_id() {
    let all = Fixture::new(1);
    run(all.watch.add(TaskId(77)));
    let (id, outcome) = run(async { Ok(all.watch.next().await) });
    assert_eq!(id, TaskId(77));
    assert!(matches!(outcome, Err(Error::Refused(refused)) if refused.code == ErrorCode::Invalid));
}

#[test]
fn closing_ends_a_wait_for_a_place_and_fails_what_is_watched() {
    let all = Fixture::new(1);
    run(all.watch.add(all.ids[0]));
    let (watch, id) = (Arc::clone(&all.watch), all.ids[1]);
    let waiting = runtime::spawn(async move { watch.add(id).await }).unwrap();
    assert!(!adds(&all.watch, all.ids[2]));
    all.watch.close();
    let refused = block_on(async { timeout(PATIENCE, waiting).await.expect("in time") }).unwrap().unwrap();
    assert!(matches!(refused, Err(Error::Misuse(Misuse::ProducerClosed))), "{refused:?}");
    let (id, outcome) = run(async { Ok(all.watch.next().await) });
    assert!(id == all.ids[0] && outcome.is_err());
}
