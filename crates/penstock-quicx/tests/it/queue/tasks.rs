//! Submits, outcomes, the dead list, and what policies do.

use std::time::Duration;

use penstock_quicx::{Event, Frame, Policy, PoolConfig, QueueConfig, TaskId};

use crate::queue::support::{Dialogue, done, failed, observe, once, submit};

fn config(policy: Policy) -> QueueConfig {
    QueueConfig { policies: [("a".to_owned(), policy)].into(), ..QueueConfig::default() }
}

#[test]
fn a_task_goes_from_its_producer_to_a_worker_and_its_block_is_free_when_it_is_done() {
    let mut d = Dialogue::new();
    let (producer, worker) = (d.connect(), d.connect());
    assert_eq!(d.ask(producer, submit("mail", b"hello")), ["OK 1"]);
    assert_eq!(d.ask(producer, Frame::Stats), ["STATS 1 0 0 16"]);
    assert_eq!(d.ask(worker, Frame::Ready), ["TASK 1 mail hello"]);
    assert_eq!(d.ask(producer, Frame::Stats), ["STATS 0 1 0 16"]);
    assert_eq!(d.ask(worker, done(1)), Vec::<String>::new());
    assert_eq!(d.ask(producer, Frame::Stats), ["STATS 0 1 1 0"]);
    assert_eq!(d.hears(producer), Vec::<String>::new());
}

#[test]
fn waits_beyond_the_clock_never_end() {
    let leased = Policy { task_timeout: Some(Duration::MAX), rate: Some(1e-300), ..Policy::default() };
    let delayed = Policy { start_delay: Duration::MAX, ..Policy::default() };
    let policies = [("a".to_owned(), leased), ("b".to_owned(), delayed)].into();
    let heartbeat_interval = Some(Duration::MAX);
    let mut d = Dialogue::with(QueueConfig { policies, heartbeat_interval, ..QueueConfig::default() });
    d.pass(1.0);
    let producer = d.connect();
    for (id, kind) in [(1, "a"), (2, "a"), (3, "b")] {
        assert_eq!(d.ask(producer, submit(kind, b"x")), [format!("OK {id}")]);
    }
    let worker = d.worker(1);
    assert_eq!(d.hears(worker), ["TASK 1 a x"]);
    d.pass(1e6);
    assert_eq!(d.ask(worker, done(1)), Vec::<String>::new());
    d.pass(1e6);
    assert_eq!(d.hears(worker), Vec::<String>::new());
}

#[test]
fn a_sequential_producer_is_distinguished_from_all_others() {
    let mut d = Dialogue::new();
    let (producer, worker) = (d.connect(), d.worker(1));
    assert!(!d.queue.is_in_turn(producer));
    for (frames, in_turn) in [(1, true), (2, false), (1, true)] {
        let bytes = encoded(submit("a", b"x")).repeat(frames);
        d.queue.handle_input(d.clock.instant(), producer, &bytes);
        assert_eq!(d.queue.is_in_turn(producer), in_turn);
        d.hears(producer);
    }
    d.send(worker, &[done(1)]);
    assert!(!d.queue.is_in_turn(worker));
    // A connection that waits for the disk gets no fast path: the task does not stay awake for it.
    let mut d = Dialogue::with_journal(QueueConfig::default());
    let producer = d.connect();
    d.send(producer, &[submit("a", b"x")]);
    assert!(!d.queue.is_in_turn(producer));
}

fn encoded(frame: Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes).expect("a frame");
    bytes
}

#[test]
fn a_full_pool_refuses_and_takes_again_when_something_is_done() {
    let mut d = Dialogue::with(QueueConfig { pool: PoolConfig::with_bytes(64 << 10), ..QueueConfig::default() });
    let (producer, worker) = (d.connect(), d.connect());
    let payload = [b'x'; 3_000];
    let mut accepted = 0;
    while d.ask(producer, submit("a", &payload)) == [format!("OK {}", accepted + 1)] {
        accepted += 1;
    }
    assert!(accepted >= 8, "{accepted}");
    assert!(d.ask(producer, submit("a", &payload))[0].starts_with("ERROR 0x01 the pool"));
    assert!(d.ask(producer, submit("a", &[0; 5_000]))[0].starts_with("ERROR 0x03"));
    d.send(worker, &[Frame::Ready, done(1)]);
    assert!(d.ask(producer, submit("a", &payload))[0].starts_with("OK"));
}

#[test]
fn types_that_are_not_allowed_are_refused_and_so_are_too_many() {
    let allow = Some([String::from("a")].into());
    let mut d = Dialogue::with(QueueConfig { allow, ..QueueConfig::default() });
    let producer = d.connect();
    assert_eq!(d.ask(producer, submit("b", b"")), ["ERROR 0x04 tasks of type b are not taken here"]);
    assert_eq!(d.ask(producer, submit("a", b"")), ["OK 1"]);
    let mut d = Dialogue::with(QueueConfig { types: 2, ..QueueConfig::default() });
    let (producer, worker) = (d.connect(), d.connect());
    d.send(producer, &[submit("a", b""), submit("b", b""), submit("c", b"")]);
    assert_eq!(d.hears(producer), ["OK 1", "OK 2", "ERROR 0x01 there are 2 types of tasks already"]);
    d.send(worker, &[Frame::Ready, done(1)]);
    assert_eq!(d.ask(producer, submit("c", b"")), ["OK 3"]);
}

#[test]
fn an_outcome_goes_to_observers_and_a_failure_to_the_submitter_once() {
    let mut d = Dialogue::new();
    let (submitter, observer, worker) = (d.connect(), d.connect(), d.worker(9));
    d.send(submitter, &[submit("a", b""), submit("a", b""), submit("a", b"")]);
    assert_eq!(d.hears(submitter), ["OK 1", "OK 2", "OK 3"]);
    d.send(submitter, &[observe(2), observe(2)]);
    d.send(observer, &[observe(1), observe(2)]);
    d.send(worker, &[done(1), failed(2, b"no \xFF"), failed(3, b"no")]);
    assert_eq!(d.hears(submitter), ["FAILED 2 no \u{FFFD}", "FAILED 3 no"]);
    assert_eq!(d.hears(observer), ["DONE 1", "FAILED 2 no \u{FFFD}"]);
    assert_eq!(d.ask(observer, observe(3)), ["FAILED 3 no"]);
    assert_eq!(d.ask(observer, observe(4)), ["ERROR 0x02 task 4 is not known"]);
    d.pass(601.0);
    assert_eq!(d.ask(observer, observe(3)), ["ERROR 0x02 task 3 is not known"]);
    assert_eq!(d.queue.pool().bytes_used(), 0);
}

#[test]
fn a_failure_is_tried_again_later_and_later_where_the_policy_says_so_and_then_the_task_is_dead() {
    let policy = Policy { retry_failed: true, attempts: 3, ..Policy::default() };
    let mut d = Dialogue::with(config(policy));
    let (producer, worker) = (d.connect(), d.worker(1));
    d.send(producer, &[submit("a", b"x"), observe(1)]);
    assert_eq!(d.hears(worker), ["WAIT", "TASK 1 a x"]);
    for wait in [1.0, 2.0] {
        assert_eq!(d.ask(worker, failed(1, b"busy")), Vec::<String>::new());
        d.pass(wait - 0.1);
        assert_eq!(d.hears(worker), Vec::<String>::new());
        d.pass(0.2);
        assert_eq!(d.hears(worker), ["TASK 1 a x"]);
    }
    assert_eq!(d.hears(producer), ["OK 1"]);
    d.send(worker, &[failed(1, b"busy")]);
    assert_eq!(d.hears(producer), ["FAILED 1 busy"]);
    let monitor = d.connect();
    assert_eq!(d.ask(monitor, Frame::DeadList), ["DEAD_TASKS [1 3 a busy]"]);
    assert_eq!(d.ask(producer, observe(1)), ["FAILED 1 busy"]);
    let events: Vec<_> = std::iter::from_fn(|| d.queue.poll_event()).collect();
    assert!(matches!(events.last(), Some(Event::Dead { id: TaskId(1), attempts: 3, .. })), "{events:?}");
}

#[test]
fn the_last_workers_reason_reaches_producers_verbatim_and_max_attempts_is_for_those_without_one() {
    let policy = Policy { retry_failed: true, attempts: 2, delay: Duration::ZERO, ..Policy::default() };
    let mut d = Dialogue::with(config(policy));
    let (submitter, observer) = (d.connect(), d.connect());
    d.send(submitter, &[submit("a", b""), submit("a", b"")]);
    d.send(observer, &[observe(1), observe(2)]);
    assert_eq!(d.hears(submitter), ["OK 1", "OK 2"]);
    let (first, long) = (d.worker(2), vec![b'r'; 60_000]);
    // The last word is what counts: of the first task a worker's, of the second one none.
    d.send(first, &[failed(1, b"first"), failed(2, b"first")]);
    d.pass(0.1);
    d.send(first, &[failed(1, &long)]);
    d.queue.handle_closed(d.clock.instant(), first);
    let whole = format!("FAILED 1 {}", "r".repeat(60_000));
    for peer in [submitter, observer] {
        assert_eq!(d.hears(peer), [whole.as_str(), "FAILED 2 max attempts"]);
    }
    assert_eq!(d.ask(observer, observe(1)), [whole], "those who ask later hear it too");
    assert_eq!(d.ask(observer, observe(2)), ["FAILED 2 max attempts"]);
}

#[test]
fn a_late_observer_gets_a_whole_reason_and_of_many_the_oldest_are_forgotten() {
    let mut d = Dialogue::new();
    let (producer, worker, observer) = (d.connect(), d.worker(1), d.connect());
    let reason = vec![b'r'; 64 << 10];
    // 64 of them are 4 MiB.
    for id in 1..=100 {
        d.send(producer, &[submit("a", b"")]);
        d.send(worker, &[failed(id, &reason)]);
        d.hears(producer);
        d.hears(worker);
    }
    for id in [37, 64, 100] {
        assert_eq!(d.ask(observer, observe(id)), [format!("FAILED {id} {}", "r".repeat(64 << 10))]);
    }
    for id in [1, 36] {
        assert_eq!(d.ask(observer, observe(id)), [format!("FAILED {id} ")]);
    }
}

#[test]
fn the_dead_list_keeps_what_a_worker_has_said_of_each_however_many_there_are() {
    let mut d = Dialogue::with(config(Policy { attempts: 1, retry_failed: true, ..Policy::default() }));
    let (producer, worker, observer) = (d.connect(), d.worker(1), d.connect());
    let reason = vec![b'r'; 64 << 10];
    for id in 1..=4_200 {
        d.send(producer, &[submit("a", b"")]);
        d.send(worker, &[failed(id, &reason)]);
        d.hears(producer);
        d.hears(worker);
    }
    for (id, bytes) in [(1, 64 << 10), (64, 64 << 10), (65, 1 << 10), (4_200, 1 << 10)] {
        assert_eq!(d.ask(observer, observe(id)), [format!("FAILED {id} {}", "r".repeat(bytes))]);
    }
    let list = d.ask(observer, Frame::DeadList).join("");
    assert!(list.starts_with(&format!("DEAD_TASKS [1 1 a {},", "r".repeat(65_535))), "as much as a length can say");
}

#[test]
fn a_dead_task_keeps_its_block_and_is_requeued_at_the_tail_or_dropped() {
    let mut d = Dialogue::with(config(Policy { attempts: 1, ..Policy::default() }));
    let (producer, monitor) = (d.connect(), d.connect());
    d.send(producer, &[submit("a", b"x"), submit("a", b"y"), submit("b", b"z")]);
    let worker = d.worker(2);
    d.queue.handle_closed(d.clock.instant(), worker);
    assert_eq!(d.hears(producer), ["OK 1", "OK 2", "OK 3", "FAILED 1 max attempts", "FAILED 2 max attempts"]);
    let why = "the worker's connection ended";
    assert_eq!(d.ask(monitor, Frame::DeadList), [format!("DEAD_TASKS [1 1 a {why}, 2 1 a {why}]")]);
    assert_eq!(d.ask(monitor, Frame::Stats), ["STATS 1 0 0 48"]);
    assert_eq!(d.ask(monitor, Frame::DeadRequeue(TaskId(2))), ["OK 2"]);
    assert_eq!(d.ask(monitor, Frame::DeadDrop(TaskId(2))), ["ERROR 0x02 task 2 is not on the dead list"]);
    assert_eq!(d.ask(monitor, Frame::DeadDrop(TaskId(1))), ["OK 1"]);
    let worker = d.worker(9);
    assert_eq!(d.hears(worker), ["TASK 3 b z", "TASK 2 a y"]);
    d.send(worker, &[done(3), done(2)]);
    assert_eq!(d.ask(monitor, Frame::Stats), ["STATS 0 1 1 0"]);
}

#[test]
fn priorities_go_first_delays_wait_and_rates_hold_back() {
    let mut config = config(Policy { priority: 5, ..Policy::default() });
    config.policies.insert("slow".into(), Policy { start_delay: Duration::from_secs(10), ..Policy::default() });
    config.policies.insert("rated".into(), Policy { rate: Some(2.0), ..Policy::default() });
    let mut d = Dialogue::with(config);
    let producer = d.connect();
    d.send(producer, &[submit("slow", b""), submit("b", b""), submit("a", b"")]);
    d.send(producer, &[submit("rated", b"1"), submit("rated", b"2"), submit("rated", b"3")]);
    let worker = d.worker(9);
    assert_eq!(d.hears(worker), ["TASK 3 a ", "TASK 2 b ", "TASK 4 rated 1"]);
    assert_eq!(d.ask(producer, Frame::Stats).last().expect("answered"), "STATS 3 1 0 96");
    d.pass(0.4);
    assert_eq!(d.hears(worker), Vec::<String>::new());
    d.pass(0.11);
    assert_eq!(d.hears(worker), ["TASK 5 rated 2"]);
    d.pass(0.5);
    assert_eq!(d.hears(worker), ["TASK 6 rated 3"]);
    d.pass(9.0);
    assert_eq!(d.hears(worker), ["TASK 1 slow "]);
}

#[test]
fn a_unique_task_stands_for_the_same_one_until_it_is_over() {
    let mut d = Dialogue::with(config(Policy { unique: true, ..Policy::default() }));
    let (producer, worker) = (d.connect(), d.connect());
    d.send(producer, &[submit("a", b"x"), submit("a", b"y"), submit("a", b"x"), submit("b", b"x"), submit("b", b"x")]);
    assert_eq!(d.hears(producer), ["OK 1", "OK 2", "OK 1", "OK 3", "OK 4"]);
    d.send(worker, &[Frame::Ready, done(1)]);
    assert_eq!(d.ask(producer, submit("a", b"x")), ["OK 5"]);
    assert_eq!(d.queue.counters().merged, 1);
}

#[test]
fn nothing_is_taken_or_given_once_it_stops_and_only_the_trusted_may_ask_for_that() {
    let mut d = Dialogue::new();
    let (producer, worker) = (d.connect(), d.worker(1));
    d.send(producer, &[submit("a", b"1"), submit("a", b"2")]);
    assert_eq!(d.hears(worker), ["WAIT", "TASK 1 a 1"]);
    assert!(d.ask(producer, Frame::Stop).last().expect("answered").starts_with("ERROR 0x02 STOP"));
    let operator = d.queue.open(true);
    assert_eq!(d.ask(operator, Frame::Stop), ["OK 0"]);
    assert!(d.queue.is_stopping());
    assert_eq!(d.ask(producer, submit("a", b"3")), ["ERROR 0x01 shutting down"]);
    assert_eq!((d.queue.held(), d.ask(worker, done(1))), (1, vec![]));
    assert_eq!((d.queue.held(), d.ask(worker, Frame::Ready)), (0, vec!["WAIT".to_owned()]));
}

#[test]
fn a_key_stands_for_one_task_while_it_waits_runs_is_dead_and_when_it_is_over() {
    let mut d = Dialogue::with(config(Policy { attempts: 1, ..Policy::default() }));
    let (producer, other) = (d.connect(), d.connect());
    assert_eq!(d.ask(producer, once(7, "a", b"hello")), ["OK 1"]);
    assert_eq!(d.ask(other, once(7, "a", b"hello")), ["OK 1"]);
    assert_eq!(d.ask(other, once(8, "a", b"hello")), ["OK 2"]);
    // The key is in the block, and no worker sees it.
    assert_eq!(d.ask(producer, Frame::Stats), ["STATS 2 0 0 64"]);
    let worker = d.worker(2);
    assert_eq!(d.hears(worker), ["TASK 1 a hello", "TASK 2 a hello"]);
    assert_eq!(d.ask(other, once(7, "a", b"hello")), ["OK 1"]);
    d.send(worker, &[done(1)]);
    d.queue.handle_closed(d.clock.instant(), worker);
    assert_eq!(d.hears(other), ["FAILED 2 max attempts"]);
    assert_eq!(d.ask(other, once(7, "a", b"hello")), ["OK 1"]);
    assert_eq!(d.ask(other, once(8, "a", b"hello")), ["OK 2"]);
    assert_eq!((d.queue.dead(), d.queue.tasks(), d.queue.counters().merged), (1, 1, 4));
}

#[test]
fn the_oldest_keys_of_tasks_that_are_over_are_forgotten() {
    let mut d = Dialogue::with(QueueConfig { keys: 2, ..QueueConfig::default() });
    let (producer, worker) = (d.connect(), d.worker(9));
    for key in 1..=3 {
        d.send(producer, &[once(key, "a", b"")]);
        d.send(worker, &[done(u32::from(key))]);
    }
    d.hears(producer);
    assert_eq!(d.ask(producer, once(3, "a", b"")), ["OK 3"]);
    assert_eq!(d.ask(producer, once(2, "a", b"")), ["OK 2"]);
    assert_eq!(d.ask(producer, once(1, "a", b"")), ["OK 4"]);
}

#[test]
fn the_dead_list_is_complete_at_any_length_even_if_tasks_leave_it_meanwhile() {
    let policy = Policy { retry_failed: true, attempts: 1, ..Policy::default() };
    let mut d = Dialogue::with(config(policy));
    let (producer, worker, monitor) = (d.connect(), d.worker(9), d.connect());
    // Reasons of 1 KiB: an answer has room for about 500.
    for id in 1..=1_100 {
        d.send(producer, &[submit("a", b"")]);
        d.send(worker, &[failed(id, &[b'x'; 1_024])]);
        d.hears(producer);
    }
    let ids = |answer: &[String]| -> Vec<u32> {
        let list = answer.concat();
        let list =
            list.strip_prefix("DEAD_TASKS [").and_then(|list| list.strip_suffix(']')).expect("a list").to_owned();
        list.split(", ").filter_map(|task| task.split(' ').next()?.parse().ok()).collect()
    };
    let mut found = Vec::new();
    loop {
        let after = found.last().copied().unwrap_or(0);
        let page = ids(&d.ask(monitor, Frame::DeadAfter(TaskId(after))));
        let Some(last) = page.last().copied() else { break };
        assert!(page.len() < 600);
        found.extend(page);
        // The very task where the next answer begins.
        d.send(monitor, &[Frame::DeadDrop(TaskId(last))]);
        assert_eq!(d.hears(monitor), [format!("OK {last}")]);
    }
    assert_eq!(found, (1..=1_100).collect::<Vec<_>>());
    assert!(d.queue.dead() < 1_100);
}

#[test]
fn a_key_for_which_another_task_stands_is_that_tasks_key_too() {
    let mut d = Dialogue::with(config(Policy { unique: true, ..Policy::default() }));
    let (producer, worker) = (d.connect(), d.worker(1));
    d.send(producer, &[once(1, "a", b"x"), once(2, "a", b"x"), once(2, "a", b"y")]);
    assert_eq!(d.hears(producer), ["OK 1", "OK 1", "OK 1"]);
    assert_eq!(d.hears(worker), ["WAIT", "TASK 1 a x"]);
    d.send(worker, &[done(1)]);
    d.send(producer, &[once(1, "a", b"x"), once(2, "a", b"x"), once(3, "a", b"x")]);
    assert_eq!(d.hears(producer), ["OK 1", "OK 1", "OK 2"]);
}
