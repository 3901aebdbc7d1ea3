//! Every possible course of a small layer 2 dialogue between two real sessions. From every reachable state, every order
//! of frames and streams between them is tried, with decisions, retries, yields, giving up and timeouts; and wherever
//! the world allows it, the connection is lost, or an end's process is killed and restored from its records. In every
//! state, or in a sample of the states of a world with losses, a restored end must equal the suspended one. Wherever
//! nothing more can happen, both ends must agree, no entity may be open, none may have been delivered twice, and the
//! session must close.
//!
//! Equal states are explored once. The observed statuses must match the diagram in `docs/protocols/pipestream.md`.
//! `cargo test -p penstock-pipestream --test it -- exhaustive --ignored --nocapture` explores larger worlds.
// A panic in these helpers is a failed test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::wildcard_enum_match_arm)]
// Runs that take minutes print their progress.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod run;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use penstock_pipestream::Status;
use penstock_pipestream::messages::{CompletionMode, CompletionPolicy, FailureAction};

use crate::exhaustive::run::{Run, Seen, Step, World};

/// Prints the steps of a run that panics.
struct Where(Vec<Step>);

impl Drop for Where {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.0);
        }
    }
}

/// Explore every path of a world.
fn explore(world: World) -> Seen {
    let (began, seen) = (Instant::now(), Rc::new(RefCell::new(Seen::default())));
    let hasher = RandomState::new();
    let mut known = HashSet::new();
    let mut runs = vec![Run::new(world, Instant::now(), seen.clone())];
    while let Some(run) = runs.pop() {
        if !known.insert(hasher.hash_one(run.fingerprint())) {
            continue;
        }
        let at = Where(run.path.clone());
        if known.len().is_multiple_of(world.cuts.max(world.kills) * 8 + 1) {
            run.check_restored();
        }
        let steps = run.steps();
        if steps.is_empty() {
            run.check_end();
            seen.borrow_mut().ends += 1;
            continue;
        }
        drop(at);
        for step in steps {
            let mut next = run.clone();
            let at = Where(next.path.iter().copied().chain([step]).collect());
            next.take(step);
            drop(at);
            runs.push(next);
        }
    }
    println!("{world:?}: {} states, {:?}", known.len(), began.elapsed());
    let mut seen = seen.take();
    seen.states = known.len();
    seen
}

fn policy(on_failure: FailureAction, on_timeout: FailureAction, timeout_ms: u32) -> CompletionPolicy {
    CompletionPolicy {
        mode: Some(CompletionMode::Lenient.into()),
        max_retries: Some(1),
        retry_delay_ms: Some(10),
        timeout_ms: Some(timeout_ms),
        min_success_ratio: None,
        on_timeout: Some(on_timeout.into()),
        on_failure: Some(on_failure.into()),
    }
}

/// Return a world with one child, in which no connection is lost.
const fn one(policy: CompletionPolicy, yields: usize, left_out: usize, waits: usize) -> World {
    World { policy, children: 1, yields, left_out, waits, cuts: 0, kills: 0 }
}

/// Explore worlds in parallel, and return everything that was seen in them.
fn walk(worlds: impl IntoIterator<Item = World>) -> Seen {
    let mut seen = Seen::default();
    thread::scope(|scope| {
        let each: Vec<_> = worlds.into_iter().map(|world| scope.spawn(move || explore(world))).collect();
        each.into_iter().for_each(|world| seen.add(world.join().unwrap()));
    });
    println!("{} states, {} ends, {} restored", seen.states, seen.ends, seen.restored);
    seen
}

#[test]
fn every_way_that_a_small_session_can_go_ends_and_both_ends_know_the_same() {
    use FailureAction::{Defer, Fail, Retry, Skip};
    let worlds = [
        one(policy(Retry, Retry, 100), 0, 0, 2),
        one(policy(Fail, Defer, 100), 0, 0, 1),
        one(policy(Skip, Fail, 100), 0, 0, 1),
        one(policy(Defer, Fail, 0), 0, 1, 0),
        one(policy(Retry, Fail, 0), 1, 1, 0),
        one(policy(Retry, Skip, 100), 1, 0, 1),
        one(policy(Retry, Defer, 100), 1, 0, 1),
        one(policy(Fail, Fail, 100), 2, 0, 1),
        one(policy(Fail, Fail, 0), 2, 1, 0),
        one(policy(Retry, Skip, 100), 0, 1, 2),
    ];
    let seen = walk(worlds);
    for status in [Status::Complete, Status::Failed, Status::Skipped, Status::Abandoned, Status::Deferred] {
        assert!(seen.statuses.contains_key(&status), "never {status}: {:?}", seen.statuses);
    }
    assert!(seen.states > 1_000 && seen.ends > 8 && seen.restored > 1_000, "{} states", seen.states);
    compare(&diagram(&seen));
}

#[test]
fn a_connection_may_be_lost_and_a_process_die_at_any_point() {
    use FailureAction::{Defer, Fail, Retry};
    let worlds = [
        World { cuts: 1, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { kills: 1, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { kills: 1, ..one(policy(Defer, Fail, 0), 1, 0, 0) },
        World { cuts: 2, ..one(policy(Fail, Fail, 0), 0, 0, 0) },
    ];
    let seen = walk(worlds);
    assert!(seen.states > 10_000 && seen.ends > 8 && seen.restored > 1_000, "{} states", seen.states);
}

#[test]
#[ignore = "takes minutes"]
fn larger_worlds() {
    use FailureAction::{Defer, Fail, Retry};
    walk([
        World { cuts: 2, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { cuts: 1, kills: 1, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { kills: 1, ..one(policy(Retry, Defer, 100), 0, 1, 1) },
        World { children: 2, ..one(policy(Retry, Fail, 0), 0, 0, 0) },
        World { children: 2, cuts: 1, ..one(policy(Fail, Fail, 0), 0, 0, 0) },
        World { cuts: 1, ..one(policy(Retry, Defer, 100), 1, 1, 1) },
        World { kills: 1, ..one(policy(Retry, Fail, 100), 2, 0, 1) },
        World { children: 2, ..one(policy(Retry, Fail, 0), 1, 1, 0) },
    ]);
}

fn diagram(seen: &Seen) -> String {
    let mut lines = vec!["stateDiagram-v2".to_owned()];
    let mut who: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for (from, to, by) in &seen.edges {
        who.entry((from, to)).or_default().push(by);
    }
    for ((from, to), by) in who {
        let by = by.join(", ");
        lines.push(if by.is_empty() { format!("    {from} --> {to}") } else { format!("    {from} --> {to}: {by}") });
    }
    lines.join("\n")
}

/// Check that the documentation shows the observed diagram.
fn compare(diagram: &str) {
    let page = include_str!("../../../../../docs/protocols/pipestream.md");
    let shown = page.split("```mermaid\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap_or_default();
    assert_eq!(shown, diagram, "docs/protocols/pipestream.md should show:\n{diagram}");
}
