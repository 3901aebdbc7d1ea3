//! With a journal: OK means that the task is on the disk, and what was OK is there after a restart.

use penstock_quicx::{Event, Frame, Policy, QueueConfig, TaskId};

use crate::log::ModelLog;
use crate::queue::support::{Dialogue, done, failed, observe, once, submit};

fn none() -> Vec<String> {
    Vec::new()
}

fn journaled() -> Dialogue {
    Dialogue::with_journal(QueueConfig::default())
}

#[test]
fn answers_wait_for_the_disk_and_keep_their_order() {
    let mut d = journaled();
    let (producer, worker) = (d.connect(), d.worker(1));
    d.hears(worker);
    d.send(producer, &[Frame::Heartbeat, submit("a", b"x"), Frame::Heartbeat, observe(9)]);
    d.send(producer, &[submit("a", b"y"), Frame::Stats]);
    assert_eq!((d.hears(producer), d.hears(worker)), (vec!["PONG".to_owned()], none()));
    d.write();
    assert_eq!(d.hears(producer)[..3], ["OK 1", "PONG", "ERROR 0x02 task 9 is not known"]);
    assert_eq!(d.hears(worker), ["TASK 1 a x"]);
}

#[test]
fn what_is_not_done_is_there_after_a_restart_in_its_order_and_with_its_attempts() {
    let mut d = journaled();
    d.config.default = Policy { attempts: 2, ..Policy::default() };
    let producer = d.connect();
    for payload in [b"1", b"2", b"3", b"4"] {
        d.send(producer, &[submit("a", payload)]);
    }
    d.write();
    let worker = d.worker(3);
    d.send(worker, &[done(2)]);
    d.write();
    let mut d = d.restart();
    let (worker, monitor) = (d.worker(9), d.connect());
    assert_eq!(d.hears(worker), ["TASK 1 a 1", "TASK 3 a 3", "TASK 4 a 4"]);
    d.queue.handle_closed(d.clock.instant(), worker);
    d.write();
    let mut d = d.restart();
    let why = "the worker's connection ended";
    assert_eq!(d.ask(monitor, Frame::DeadList), none());
    let monitor = d.connect();
    assert_eq!(d.ask(monitor, Frame::DeadList), [format!("DEAD_TASKS [1 2 a {why}, 3 2 a {why}, 4 2 a {why}]")]);
    assert_eq!(d.ask(monitor, Frame::DeadRequeue(TaskId(3))), none());
    d.write();
    assert_eq!(d.hears(monitor), ["OK 3"]);
    let producer = d.connect();
    d.send(producer, &[submit("a", b"5")]);
    d.write();
    assert_eq!(d.hears(producer), ["OK 5"]);
    let mut d = d.restart();
    let worker = d.worker(9);
    assert_eq!(d.hears(worker), ["TASK 3 a 3", "TASK 5 a 5"]);
    assert_eq!(d.queue.dead(), 2);
}

#[test]
fn a_full_disk_refuses_submits_and_loses_nothing_else() {
    let mut d = journaled();
    let (producer, worker) = (d.connect(), d.worker(1));
    d.send(producer, &[submit("a", b"1")]);
    d.write();
    assert_eq!(d.hears(worker), ["WAIT", "TASK 1 a 1"]);
    d.send(producer, &[submit("a", b"2"), Frame::Heartbeat]);
    d.send(worker, &[done(1)]);
    d.fail();
    assert_eq!(d.hears(producer), ["OK 1", "ERROR 0x01 the journal cannot be written", "PONG"]);
    assert_eq!(d.ask(producer, submit("a", b"3")), ["ERROR 0x01 the journal cannot be written"]);
    assert_eq!((d.queue.tasks(), d.queue.pool().bytes_used()), (0, 0));
    d.pass(1.1);
    d.fail();
    d.pass(1.1);
    d.write();
    assert_eq!(d.ask(producer, submit("a", b"4")), none());
    d.write();
    assert_eq!(d.hears(producer), ["OK 3"]);
    let events: Vec<_> = std::iter::from_fn(|| d.queue.poll_event()).collect();
    assert!(matches!(events[0], Event::JournalFailed { refused: 1, .. }), "{events:?}");
    assert!(events.contains(&Event::JournalWorks));
    let mut d = d.restart();
    let worker = d.worker(9);
    assert_eq!(d.hears(worker), ["TASK 3 a 4"]);
}

#[test]
fn a_task_that_is_not_durable_cannot_be_observed_and_a_unique_one_is_waited_for() {
    let mut d = journaled();
    d.config.default = Policy { unique: true, ..Policy::default() };
    let mut d = d.restart();
    let (producer, other) = (d.connect(), d.connect());
    d.send(producer, &[submit("a", b"x")]);
    d.send(other, &[observe(1), submit("a", b"x")]);
    assert_eq!(d.hears(other), ["ERROR 0x02 task 1 is not known"]);
    d.write();
    assert_eq!((d.hears(producer), d.hears(other)), (vec!["OK 1".to_owned()], vec!["OK 1".to_owned()]));
}

#[test]
fn segments_go_when_their_tasks_are_over_and_those_that_stay_are_written_again() {
    let mut d = journaled();
    let producer = d.connect();
    d.send(producer, &[submit("stays", b"!")]);
    d.write();
    let worker = d.worker(2);
    d.hears(worker);
    for id in 2..300 {
        d.send(producer, &[submit("a", b"payload")]);
        d.write();
        d.send(worker, &[done(id)]);
        d.write();
        d.hears(producer);
        d.hears(worker);
    }
    assert!(d.log.bytes() < 4_000, "{}", d.log.bytes());
    let mut d = d.restart();
    let worker = d.worker(9);
    assert_eq!(d.hears(worker), ["TASK 1 stays !"]);
}

#[test]
fn a_key_comes_back_with_its_task_and_one_that_was_not_written_may_be_tried_again() {
    let mut d = journaled();
    let (producer, other) = (d.connect(), d.connect());
    d.send(producer, &[once(7, "a", b"x")]);
    d.send(other, &[once(7, "a", b"x")]);
    assert_eq!((d.hears(producer), d.hears(other)), (none(), none()));
    d.write();
    assert_eq!((d.hears(producer), d.hears(other)), (vec!["OK 1".to_owned()], vec!["OK 1".to_owned()]));
    let mut d = d.restart();
    let producer = d.connect();
    assert_eq!(d.ask(producer, once(7, "a", b"x")), ["OK 1"]);
    d.send(producer, &[once(8, "a", b"y")]);
    d.fail();
    assert_eq!(d.hears(producer), ["ERROR 0x01 the journal cannot be written"]);
    d.pass(2.0);
    d.send(producer, &[once(8, "a", b"y")]);
    d.write();
    assert_eq!(d.hears(producer), ["OK 3"]);
    let worker = d.worker(9);
    assert_eq!(d.hears(worker), ["TASK 1 a x", "TASK 3 a y"]);
}

#[test]
fn many_small_tasks_that_stay_are_not_written_again_and_again() {
    let mut d = journaled();
    let producer = d.connect();
    for _ in 0..500 {
        d.send(producer, &[submit("a", b"")]);
    }
    d.write();
    // Nothing in any segment is over, so there is nothing to be gained.
    assert_eq!(d.log.segments().next().map(|(number, _)| number), Some(1));
    assert_eq!(d.restart().queue.tasks(), 500);
}

#[test]
fn a_disk_that_stays_full_gets_one_file_and_a_line_each_minute() {
    let mut d = journaled();
    let producer = d.connect();
    d.send(producer, &[submit("a", b"1")]);
    d.write();
    let before = d.log.segments().count();
    let mut told = Vec::new();
    for second in 0..70 {
        d.send(producer, &[submit("a", b"2")]);
        d.fail();
        told.extend(std::iter::from_fn(|| d.queue.poll_event()).map(|_| second));
        d.pass(1.0);
    }
    assert_eq!(told, [0, 60]);
    assert_eq!(d.log.segments().count(), before);
    d.write();
    d.hears(producer);
    d.send(producer, &[submit("a", b"3")]);
    d.write();
    let mut d = d.restart();
    let worker = d.worker(9);
    let heard = d.hears(worker).join(", ");
    assert!(heard.starts_with("TASK 1 a 1, TASK ") && heard.ends_with(" a 3"), "{heard}");
}

#[test]
fn connections_paused_by_a_slow_disk_are_read_again_and_workers_are_read_meanwhile() {
    let mut d = journaled();
    let (bulk, other, worker) = (d.connect(), d.connect(), d.worker(1));
    d.send(other, &[submit("a", b"x")]);
    d.write();
    assert_eq!(
        (d.hears(other), d.hears(worker)),
        (vec!["OK 1".to_owned()], vec!["WAIT".to_owned(), "TASK 1 a x".to_owned()])
    );
    let payload = [b'x'; 4_000];
    while d.queue.wants_input(bulk) {
        d.send(bulk, &[submit("a", &payload)]);
    }
    assert!(d.queue.journal_waiting() > 8 << 20);
    assert!(!d.queue.wants_input(other) && d.queue.wants_input(worker));
    assert_eq!(d.ask(worker, Frame::Heartbeat), ["PONG"]);
    while d.queue.poll_connection().is_some() {}
    d.write();
    let named: Vec<_> = std::iter::from_fn(|| d.queue.poll_connection()).collect();
    assert!(named.contains(&other) && named.contains(&bulk));
    assert!(d.queue.wants_input(other) && d.queue.wants_input(bulk));
}

#[test]
fn a_key_that_was_merged_with_a_task_that_could_not_be_written_is_free_again() {
    let mut d = journaled();
    d.config.policies = [("a".to_owned(), Policy { unique: true, ..Policy::default() })].into();
    let mut d = d.restart();
    let producer = d.connect();
    d.send(producer, &[once(1, "a", b"x"), once(2, "a", b"x")]);
    d.fail();
    assert!(d.hears(producer).iter().all(|answer| answer.starts_with("ERROR 0x01")));
    d.pass(1.1);
    d.send(producer, &[once(2, "a", b"y"), once(1, "a", b"x")]);
    d.write();
    assert_eq!(d.hears(producer), ["OK 2", "OK 3"]);
}

#[test]
fn a_dead_task_has_its_workers_reason_after_restarts_and_when_it_is_written_again() {
    let mut d = journaled();
    d.config.default = Policy { attempts: 1, retry_failed: true, ..Policy::default() };
    let mut d = d.restart();
    let (producer, worker, lost) = (d.connect(), d.worker(1), d.worker(1));
    d.send(producer, &[submit("a", b"1"), submit("a", b"2")]);
    d.write();
    assert_eq!(
        (d.hears(worker), d.hears(lost)),
        (vec!["WAIT".into(), "TASK 1 a 1".into()], vec!["WAIT".into(), "TASK 2 a 2".into()])
    );
    let why = format!("no such address: {}", "r".repeat(2_000));
    d.send(worker, &[failed(1, why.as_bytes())]);
    d.queue.handle_closed(d.clock.instant(), lost);
    d.write();
    // Many others make the journal write the dead ones again.
    for id in 3..300 {
        d.send(producer, &[submit("a", b"payload")]);
        d.write();
        d.send(worker, &[done(id)]);
        d.write();
        d.hears(producer);
        d.hears(worker);
    }
    assert!(d.log.segments().all(|(number, _)| number != 1));
    for _ in 0..2 {
        d.write();
        d = d.restart();
        let producer = d.connect();
        assert_eq!(d.ask(producer, observe(1)), [format!("FAILED 1 {why}")]);
        assert_eq!(d.ask(producer, observe(2)), ["FAILED 2 max attempts"]);
        let list = format!("DEAD_TASKS [1 1 a {why}, 2 1 a the worker's connection ended]");
        assert_eq!(d.ask(producer, Frame::DeadList), [list]);
    }
}

#[test]
fn what_was_counted_as_accepted_stays_counted_when_the_disk_is_full() {
    let mut d = journaled();
    let producer = d.connect();
    d.send(producer, &[submit("a", b"1")]);
    assert_eq!(d.queue.counters().submitted, 0, "nobody has heard OK");
    d.write();
    assert_eq!(d.queue.counters().submitted, 1);
    d.send(producer, &[submit("a", b"2"), submit("a", b"3")]);
    assert_eq!(d.queue.counters().submitted, 1);
    d.fail();
    assert_eq!((d.queue.counters().submitted, d.queue.counters().write_failures), (1, 1));
    d.pass(1.1);
    d.send(producer, &[submit("a", b"4")]);
    d.write();
    assert_eq!(d.queue.counters().submitted, 2);
    assert_eq!(d.hears(producer).iter().filter(|answer| answer.starts_with("OK")).count(), 2);
}

#[test]
fn a_task_whose_last_delivery_was_under_way_in_a_crash_is_dead_and_not_delivered_once_more() {
    let mut d = journaled();
    d.config.default = Policy { attempts: 2, ..Policy::default() };
    let mut d = d.restart();
    let producer = d.connect();
    d.send(producer, &[once(7, "a", b"1"), submit("a", b"2")]);
    d.write();
    for _ in 0..2 {
        let worker = d.worker(1);
        assert_eq!(d.hears(worker), ["TASK 1 a 1"]);
        d.write();
        d = d.restart();
    }
    let why = "the daemon ended during the last delivery";
    let dead = Event::Dead { id: TaskId(1), kind: "a".into(), attempts: 2, reason: why.into() };
    for counted in [1, 0] {
        assert_eq!((d.queue.tasks(), d.queue.dead(), d.queue.counters().died), (2, 1, counted));
        assert_eq!(d.queue.poll_event(), (counted == 1).then(|| dead.clone()));
        let (worker, monitor) = (d.worker(9), d.connect());
        assert_eq!(d.hears(worker), ["TASK 2 a 2"]);
        assert_eq!(d.ask(monitor, observe(1)), ["FAILED 1 max attempts"]);
        assert_eq!(d.ask(monitor, Frame::DeadList), [format!("DEAD_TASKS [1 2 a {why}]")]);
        d.write();
        // Once it is on the disk that the task is dead, a later process need not find it out again; its key stays known.
        d = d.restart();
    }
}

/// One answer: DEAD_TASKS.
const ANSWER: usize = 6 + (512 << 10);

/// A daemon with 600 dead tasks, of which DEAD_TASKS has room for some 500.
fn with_dead() -> Dialogue {
    let default = Policy { attempts: 1, retry_failed: true, ..Policy::default() };
    let config = QueueConfig { default, ..QueueConfig::default() };
    let mut d = Dialogue::with_log(config, ModelLog::new(1 << 20));
    let (producer, worker) = (d.connect(), d.worker(9));
    for id in 1..=600 {
        d.send(producer, &[submit("a", b"")]);
        d.write();
        d.send(worker, &[failed(id, &[b'x'; 1_024])]);
        d.hears(producer);
    }
    d.write();
    d.queue.handle_closed(d.clock.instant(), worker);
    assert_eq!(d.queue.dead(), 600);
    d
}

fn encoded(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frames.iter().for_each(|frame| frame.encode(&mut bytes).expect("fits"));
    bytes
}

#[test]
fn answers_behind_one_that_waits_for_the_disk_count_and_all_come_in_their_order_when_it_has_it() {
    let mut d = with_dead();
    let limit = d.config.output + ANSWER;
    let floods = [
        (Frame::DeadList, "DEAD_TASKS"),
        (Frame::DeadAfter(TaskId(7)), "DEAD_TASKS"),
        (Frame::Stats, "STATS"),
        (Frame::Heartbeat, "PONG"),
    ];
    let peers = floods.map(|(flood, answer)| {
        let peer = d.connect();
        let requests = [submit("b", b""), submit("b", b""), Frame::Heartbeat, submit("b", b"")];
        let bytes = [encoded(&requests), encoded(&[flood]).repeat(100), encoded(&[submit("b", b"")])].concat();
        d.queue.handle_input(d.clock.instant(), peer, &bytes);
        // What one read has brought is the driver's to limit.
        assert!(d.queue.buffered(peer) <= limit + bytes.len(), "{flood:?}: {}", d.queue.buffered(peer));
        assert_eq!(d.queue.poll_transmit(peer).len(), 0);
        (peer, flood, answer)
    });
    for (peer, flood, answer) in peers {
        let mut heard = Vec::new();
        while heard.len() < 105 {
            d.write();
            assert!(d.queue.buffered(peer) <= limit + (16 << 10), "{flood:?}: {}", d.queue.buffered(peer));
            heard.extend(d.hears(peer).into_iter().map(|word| word.split(' ').next().unwrap_or_default().to_owned()));
        }
        let mut expected = vec!["OK", "OK", "PONG", "OK"];
        expected.extend([answer].repeat(100));
        expected.push("OK");
        assert_eq!(heard, expected);
        assert!(d.queue.wants_input(peer));
    }
}

#[test]
fn a_dead_list_is_asked_for_again_when_the_one_before_is_written() {
    let mut d = with_dead();
    let monitor = d.connect();
    d.send(monitor, &[Frame::DeadList, Frame::DeadList, Frame::Heartbeat]);
    let first = d.queue.poll_transmit(monitor).len();
    assert!((510 << 10..=ANSWER).contains(&first), "{first}");
    d.queue.handle_written(d.clock.instant(), monitor, first - 1);
    assert_eq!((d.queue.poll_transmit(monitor).len(), d.queue.wants_input(monitor)), (1, false));
    d.queue.handle_written(d.clock.instant(), monitor, 1);
    assert_eq!(d.queue.poll_transmit(monitor).len(), first);
    d.queue.handle_written(d.clock.instant(), monitor, first);
    assert_eq!((d.hears(monitor), d.queue.wants_input(monitor)), (vec!["PONG".to_owned()], true));
}

#[test]
fn while_the_journal_cannot_be_written_nothing_piles_up_behind_what_waits_for_it() {
    let mut d = with_dead();
    let limit = d.config.output + ANSWER;
    for flood in [Frame::Stats, Frame::Heartbeat, Frame::DeadList, submit("b", b""), observe(600)] {
        let peer = d.connect();
        d.send(peer, &[Frame::DeadRequeue(TaskId(1 + d.queue.counters().requeued as u32))]);
        d.fail();
        let bytes = encoded(&[flood]).repeat(1_000);
        let mut reads = 0;
        while d.queue.wants_input(peer) && reads < 1_000 {
            d.queue.handle_input(d.clock.instant(), peer, &bytes);
            d.pass(0.5);
            d.fail();
            reads += 1;
        }
        assert!(reads < 1_000, "{flood:?} is read without an end");
        assert!(d.queue.buffered(peer) <= limit + bytes.len(), "{flood:?}: {}", d.queue.buffered(peer));
        d.pass(1.1);
        d.write();
        assert!(d.queue.buffered(peer) <= limit + bytes.len(), "{flood:?}: {}", d.queue.buffered(peer));
        let heard = d.hears(peer);
        assert!(heard.iter().any(|word| word.starts_with("OK")), "{flood:?}: {:?}", heard.first());
    }
}

#[test]
fn as_many_submits_as_one_likes_wait_for_the_disk_in_a_few_bytes_and_all_hear_what_became_of_them() {
    for works in [true, false] {
        let mut d = Dialogue::with_log(QueueConfig::default(), ModelLog::new(16 << 20));
        let producer = d.connect();
        let bytes = encoded(&[submit("a", b"")]).repeat(5_000);
        for _ in 0..10 {
            assert!(d.queue.wants_input(producer));
            d.queue.handle_input(d.clock.instant(), producer, &bytes);
        }
        assert!(d.queue.buffered(producer) < 100, "{}", d.queue.buffered(producer));
        if works {
            d.write()
        } else {
            d.fail()
        }
        let mut heard = Vec::new();
        while heard.len() < 50_000 {
            assert!(d.queue.buffered(producer) <= d.config.output + 512, "{}", d.queue.buffered(producer));
            heard.extend(d.hears(producer));
        }
        let expected =
            |id| if works { format!("OK {id}") } else { "ERROR 0x01 the journal cannot be written".to_owned() };
        assert!(heard.iter().zip(1..).all(|(word, id)| *word == expected(id)));
        assert_eq!((heard.len(), d.hears(producer)), (50_000, none()));
    }
}
