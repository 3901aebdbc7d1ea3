//! Who gets which task, and what happens to those that workers do not answer for.

use std::time::Duration;

use penstock_quicx::{Frame, Prefetch, QueueConfig};

use crate::queue::support::{Dialogue, done, failed, submit, subscribe};

fn none() -> Vec<String> {
    Vec::new()
}

#[test]
fn a_worker_that_waits_is_pushed_to_and_one_that_polls_is_answered_each_time() {
    let mut d = Dialogue::new();
    let (producer, worker) = (d.connect(), d.connect());
    assert_eq!(d.ask(worker, Frame::Ready), ["WAIT"]);
    assert_eq!(d.ask(worker, Frame::Ready), ["WAIT"]);
    d.send(producer, &[submit("a", b"1"), submit("a", b"2")]);
    assert_eq!(d.hears(worker), ["TASK 1 a 1"]);
    assert_eq!(d.ask(worker, Frame::Ready), none(), "a busy worker's READY is ignored");
    assert_eq!(d.ask(worker, done(1)), ["TASK 2 a 2"]);
    d.send(worker, &[done(2), Frame::Ready]);
    assert_eq!(d.hears(worker), ["WAIT"]);
}

#[test]
fn the_worker_that_was_idle_longest_is_first_and_workers_with_tasks_are_last() {
    let mut d = Dialogue::new();
    let producer = d.connect();
    let (first, second, third) = (d.worker(2), d.worker(1), d.worker(1));
    d.send(producer, &[submit("a", b""), submit("a", b""), submit("a", b""), submit("a", b"")]);
    assert_eq!(d.hears(first), ["WAIT", "TASK 1 a ", "TASK 4 a "]);
    assert_eq!(d.hears(second), ["WAIT", "TASK 2 a "]);
    assert_eq!(d.hears(third), ["WAIT", "TASK 3 a "]);
    d.send(third, &[done(3)]);
    d.send(second, &[done(2)]);
    d.send(producer, &[submit("a", b"")]);
    assert_eq!((d.hears(second), d.hears(third)), (none(), vec!["TASK 5 a ".to_owned()]));
}

#[test]
fn a_worker_gets_only_the_types_it_has_subscribed_to_last() {
    let mut d = Dialogue::new();
    let (producer, worker) = (d.connect(), d.connect());
    let mut bytes = Vec::new();
    d.send(worker, &[subscribe(&[b"a", b"b", b"a"], &mut bytes), Frame::Prefetch(Prefetch(9)), Frame::Ready]);
    d.send(producer, &[submit("c", b""), submit("b", b""), submit("a", b"")]);
    assert_eq!(d.hears(worker), ["WAIT", "TASK 2 b ", "TASK 3 a "]);
    d.send(worker, &[subscribe(&[b"c"], &mut Vec::new())]);
    d.send(producer, &[submit("a", b"")]);
    assert_eq!(d.hears(worker), ["TASK 1 c "]);
    d.send(worker, &[subscribe(&[], &mut Vec::new())]);
    assert_eq!(d.hears(worker), ["TASK 4 a "]);
}

#[test]
fn a_lost_workers_tasks_go_back_to_the_head_in_their_order() {
    let mut d = Dialogue::new();
    let producer = d.connect();
    for payload in [b"1", b"2", b"3", b"4"] {
        d.send(producer, &[submit("a", payload)]);
    }
    let lost = d.worker(3);
    d.send(lost, &[done(2)]);
    d.hears(lost);
    d.queue.handle_closed(d.clock.instant(), lost);
    let worker = d.worker(9);
    assert_eq!(d.hears(worker), ["TASK 1 a 1", "TASK 3 a 3", "TASK 4 a 4"]);
    assert_eq!(d.queue.counters().lost, 3);
}

#[test]
fn a_task_comes_back_when_its_time_is_over_unless_the_worker_says_that_it_is_at_work() {
    let mut d = Dialogue::new();
    let (producer, slow, other) = (d.connect(), d.worker(1), d.worker(1));
    d.send(producer, &[submit("a", b"")]);
    assert_eq!(d.hears(slow), ["WAIT", "TASK 1 a "]);
    d.pass(50.0);
    assert_eq!(d.ask(slow, Frame::Heartbeat), ["PONG"]);
    d.pass(59.0);
    assert_eq!(d.hears(other), ["WAIT"]);
    d.pass(1.5);
    assert_eq!(d.hears(other), ["TASK 1 a "]);
    assert_eq!(d.ask(slow, done(1)), ["ERROR 0x02 task 1 is not held by this connection"]);
    assert_eq!(d.ask(other, done(1)), none());
    assert_eq!((d.queue.counters().late, d.queue.tasks()), (1, 0));
}

#[test]
fn a_task_that_five_deliveries_do_not_settle_is_dead() {
    let mut d = Dialogue::new();
    let producer = d.connect();
    d.send(producer, &[submit("a", b"")]);
    for _ in 0..5 {
        let worker = d.worker(1);
        assert_eq!(d.hears(worker), ["TASK 1 a "]);
        d.queue.handle_closed(d.clock.instant(), worker);
    }
    assert_eq!(d.hears(producer), ["OK 1", "FAILED 1 max attempts"]);
    assert_eq!(d.queue.dead(), 1);
}

#[test]
fn frames_of_another_role_and_tasks_of_others_are_refused_and_change_nothing() {
    let mut d = Dialogue::new();
    let (producer, worker, thief) = (d.connect(), d.worker(1), d.worker(1));
    d.send(producer, &[submit("a", b"")]);
    assert_eq!(d.hears(worker), ["WAIT", "TASK 1 a "]);
    d.hears(thief);
    assert_eq!(d.ask(producer, Frame::Ready), ["OK 1", "ERROR 0x02 READY is for a worker"]);
    assert_eq!(d.ask(thief, submit("a", b"")), ["ERROR 0x02 SUBMIT is for a producer"]);
    for frame in [done(1), failed(1, b""), done(7)] {
        assert!(d.ask(thief, frame)[0].starts_with("ERROR 0x02 task"), "{frame:?}");
        assert!(d.ask(producer, frame)[0].starts_with("ERROR 0x02 task"), "{frame:?}");
    }
    assert_eq!((d.queue.held(), d.ask(worker, done(1))), (1, none()));
}

#[test]
fn idle_workers_get_heartbeats_and_are_cut_off_after_three_without_an_answer() {
    let heartbeat_interval = Some(Duration::from_secs(5));
    let mut d = Dialogue::with(QueueConfig { heartbeat_interval, ..QueueConfig::default() });
    let (alive, gone) = (d.worker(1), d.worker(1));
    for _ in 0..3 {
        d.pass(5.0);
        assert!(d.hears(alive).ends_with(&["HEARTBEAT".to_owned()]) && !d.queue.is_ending(gone));
        d.send(alive, &[Frame::Pong]);
    }
    d.pass(5.0);
    assert!(d.queue.is_ending(gone) && !d.queue.is_ending(alive));
    assert_eq!((d.queue.stats().workers_total, d.queue.counters().silent), (1, 1));
}

#[test]
fn idle_producers_get_heartbeats_too_and_active_ones_do_not() {
    let heartbeat_interval = Some(Duration::from_secs(5));
    let mut d = Dialogue::with(QueueConfig { heartbeat_interval, ..QueueConfig::default() });
    let (alive, busy, gone, monitor) = (d.connect(), d.connect(), d.connect(), d.connect());
    for peer in [alive, busy, gone] {
        d.ask(peer, submit("a", b""));
    }
    d.ask(monitor, Frame::Stats);
    // All of them have just said something.
    d.pass(5.0);
    for _ in 0..4 {
        d.send(busy, &[submit("a", b"")]);
        assert!(!d.queue.is_ending(gone));
        d.pass(5.0);
        assert_eq!(d.hears(busy).len(), 1, "it was asked though it is at work");
        if !d.queue.is_ending(gone) {
            assert_eq!(d.hears(alive), ["HEARTBEAT"]);
            d.send(alive, &[Frame::Pong]);
        }
    }
    assert!(d.queue.is_ending(gone) && !d.queue.is_ending(alive) && !d.queue.is_ending(busy));
    assert_eq!((d.queue.counters().silent, d.queue.counters().silent_producers), (0, 1));
    assert_eq!((d.hears(monitor), d.queue.tasks()), (none(), 7));
}
