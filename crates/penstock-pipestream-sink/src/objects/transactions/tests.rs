use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

use super::*;
use crate::format::LOG;
use crate::transactions::owner::Owner;

const QUERY: &str = "01234567-89ab-cdef-0123-456789abcdef";
const SESSION: &str = "11111111111111111111111111111111";
const OTHER: &str = "22222222222222222222222222222222";

fn of(key: &str, owner: Owner) -> Transaction {
    Transaction { key: key.into(), owner }
}

/// Prepare sessions that have ended, for a commit.
async fn prepare_all(place: &ObjectPrefix, of: &Transaction, sessions: &[&str]) {
    for session in sessions {
        prepare(place, of, session).await.unwrap();
    }
}

fn order(of: &Transaction, sessions: &[&str], exclusive: bool) -> TransactionCommand {
    let sessions = sessions.iter().map(|session| (*session).to_owned()).collect();
    TransactionCommand { of: of.clone(), act: TransactionAction::Commit { sessions, exclusive } }
}

async fn code(place: &ObjectPrefix, order: &TransactionCommand) -> Option<ErrorCode> {
    carry_out(place, order).await.err().map(|refusal| refusal.reason("k").code)
}

async fn commit_all(place: &ObjectPrefix, keys: &[String]) {
    for key in keys {
        let of = of(key, Owner::Anyone);
        prepare_all(place, &of, &[OTHER]).await;
        carry_out(place, &order(&of, &[OTHER], false)).await.unwrap();
    }
}

/// Return which of these transactions have a record.
async fn kept<'a>(place: &ObjectPrefix, keys: &'a [String]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    for key in keys {
        if !committed(place, key).await.unwrap().is_empty() {
            kept.push(key.as_str());
        }
    }
    kept
}

#[test]
fn records_of_micro_batches_that_cannot_run_again_go_with_later_commits() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let batch = |number: u64| format!("spark/{QUERY}/{number}");
    let keys = [batch(3), batch(4), batch(5), batch(6), "spark/daily/3".into(), "job".into()];
    penstock_io::runtime::block_on(async {
        commit_all(&place, &keys).await;
        // This session has to be closed first: its server was killed.
        let marker = place.path(&format!("{}/{SESSION}", name_folder(&batch(4))));
        place.store().put(&marker, PutPayload::default()).await.unwrap();
        commit_all(&place, &[batch(105)]).await;
        assert_eq!(kept(&place, &keys).await, [batch(4).as_str(), &batch(6), "spark/daily/3", "job"]);
    })
    .unwrap();
}

#[test]
fn records_of_jobs_that_cannot_run_again_go_when_they_are_old_and_no_others() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let keys = [format!("spark/{}", "ab".repeat(16)), format!("spark/{QUERY}/0"), "spark/nightly".into()];
    penstock_io::runtime::block_on(async {
        commit_all(&place, &keys).await;
        // Each start begins at a random position; a hundred of them handle everything.
        for (later, left) in [(JOB_RETENTION / 2, 3), (JOB_RETENTION * 2, 2)] {
            for _ in 0..100 {
                redo(&place, SystemTime::now() + later).await.unwrap();
            }
            assert_eq!(kept(&place, &keys).await, keys[3 - left..]);
        }
    })
    .unwrap();
}

#[test]
fn transactions_of_different_owners_do_not_touch_one_another() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let (mine, theirs, anyones) =
        (of("k", Owner::Token([1; 32])), of("k", Owner::Certificate([1; 32])), of("k", Owner::Anyone));
    penstock_io::runtime::block_on(async {
        prepare_all(&place, &mine, &[SESSION]).await;
        for other in [&theirs, &anyones] {
            assert_eq!(code(&place, &order(other, &[], false)).await, Some(ErrorCode::Other(0x44)));
            assert_eq!(code(&place, &order(other, &[SESSION], false)).await, Some(ErrorCode::Other(0x44)));
            let named =
                TransactionCommand { of: other.clone(), act: TransactionAction::Abort(Some(vec![SESSION.to_owned()])) };
            assert_eq!(code(&place, &named).await, Some(ErrorCode::Other(0x44)));
        }
        assert_eq!(
            code(&place, &TransactionCommand { of: theirs.clone(), act: TransactionAction::Abort(None) }).await,
            None,
            "its own"
        );
        prepare_all(&place, &theirs, &[OTHER]).await;
        assert_eq!(code(&place, &order(&theirs, &[OTHER], false)).await, None);
        assert_eq!(prepared(&place, "k").await.unwrap(), [SESSION]);
        assert_eq!(code(&place, &order(&mine, &[SESSION], true)).await, Some(ErrorCode::Other(0x44)));
        for _ in 0..2 {
            assert_eq!(code(&place, &order(&mine, &[SESSION], false)).await, None);
        }
        let mut committed = committed(&place, "k").await.unwrap();
        committed.sort();
        assert_eq!(committed, [[SESSION], [OTHER]]);
        assert_eq!(code(&place, &order(&mine, &[OTHER], false)).await, Some(ErrorCode::Other(0x43)));
    })
    .unwrap();
}

#[test]
fn a_record_of_a_server_that_knew_no_owners_is_read_and_stands() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let old = format!("{{\"transaction\":\"k\",\"sessions\":[\"{OTHER}\"]}}");
    penstock_io::runtime::block_on(async {
        let path = place.path(&format!("{}/{RECORD}", name_folder("k")));
        place.store().put(&path, old.into()).await.unwrap();
        assert_eq!(committed(&place, "k").await.unwrap(), [[OTHER]]);
        assert_eq!(code(&place, &order(&of("k", Owner::Anyone), &[OTHER], false)).await, None, "the same again");
        let mine = of("k", Owner::Token([1; 32]));
        prepare_all(&place, &mine, &[SESSION]).await;
        assert_eq!(code(&place, &order(&mine, &[SESSION], false)).await, Some(ErrorCode::Other(0x44)));
    })
    .unwrap();
}

/// Return the code with which a session's list was closed; `None` while it is in pieces.
async fn end(place: &ObjectPrefix, session: &str) -> Option<u64> {
    match place.store().get(&place.path(&format!("{session}/{LOG}"))).await {
        Ok(list) => encode::code_of(&list.bytes().await.unwrap()),
        Err(Error::NotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Prepare sessions that have ended, with their lists in pieces.
async fn prepare_with_lists(place: &ObjectPrefix, of: &Transaction) {
    for session in [SESSION, OTHER] {
        let piece = place.path(&format!("{}/{session}/0000000000-0000000000.jsonl", list::OPEN));
        place.store().put(&piece, PutPayload::default()).await.unwrap();
    }
    prepare_all(place, of, &[SESSION, OTHER]).await;
}

fn abort(of: &Transaction, sessions: &[&str]) -> TransactionCommand {
    let sessions = sessions.iter().map(|session| (*session).to_owned()).collect();
    TransactionCommand { of: of.clone(), act: TransactionAction::Abort(Some(sessions)) }
}

#[test]
fn a_commit_behind_an_abort_commits_nothing_and_an_abort_behind_a_commit_gives_nothing_up() {
    let of = of("k", Owner::Token([1; 32]));
    let commit = order(&of, &[SESSION, OTHER], false);
    penstock_io::runtime::block_on(async {
        let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
        prepare_with_lists(&place, &of).await;
        // An abort whose server was killed immediately after its decision.
        let own = place.path(&folder(&of));
        let given_up = Decision::GivenUp { given_up: vec![SESSION.to_owned()] };
        assert!(Decisions::default().decide(&place, &own, &given_up).await.unwrap());
        assert!(!Decisions::default().decide(&place, &own, &given_up).await.unwrap(), "there is one");
        assert_eq!(code(&place, &commit).await, Some(ErrorCode::Other(0x43)));
        // Each start begins at a random position.
        for _ in 0..100 {
            redo(&place, SystemTime::now()).await.unwrap();
        }
        assert_eq!([end(&place, SESSION).await, end(&place, OTHER).await], [Some(GIVEN_UP.code()), None]);
        assert_eq!(code(&place, &commit).await, Some(ErrorCode::EntityInvalid), "it is not prepared any more");
        assert_eq!(code(&place, &order(&of, &[OTHER], false)).await, None);
        assert_eq!(end(&place, OTHER).await, Some(0));

        let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
        prepare_with_lists(&place, &of).await;
        // A commit whose server was killed immediately after its decision, too.
        let sessions = vec![SESSION.to_owned(), OTHER.to_owned()];
        let committed = Decision::Committed(Record::new(&of, sessions));
        assert!(Decisions::default().decide(&place, &own, &committed).await.unwrap());
        assert_eq!(code(&place, &abort(&of, &[SESSION])).await, None);
        assert_eq!([end(&place, SESSION).await, end(&place, OTHER).await], [Some(0); 2]);
        assert_eq!(code(&place, &commit).await, None);
    })
    .unwrap();
}

/// Return a server's view of a store: each request takes some time, different for each server.
fn server(store: &Arc<InMemory>, random: &mut fastrand::Rng) -> ObjectPrefix {
    let mut wait = || Duration::from_micros(random.u64(0..2_000));
    let config = ThrottleConfig {
        wait_delete_per_call: wait(),
        wait_get_per_call: wait(),
        wait_list_per_call: wait(),
        wait_put_per_call: wait(),
        ..ThrottleConfig::default()
    };
    ObjectPrefix::of(Arc::new(ThrottledStore::new(Arc::clone(store), config)), "sink")
}

#[test]
fn however_aborts_and_commits_of_many_servers_cross_a_commit_has_all_of_its_sessions_or_none() {
    let of = of("k", Owner::Token([1; 32]));
    let orders = [
        order(&of, &[SESSION, OTHER], false),
        abort(&of, &[SESSION]),
        abort(&of, &[OTHER]),
        TransactionCommand { of: of.clone(), act: TransactionAction::Abort(None) },
        order(&of, &[SESSION, OTHER], false),
    ];
    let mut outcomes = [0, 0];
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let store = Arc::new(InMemory::new());
        let servers: Vec<_> = orders.iter().map(|_| server(&store, &mut random)).collect();
        penstock_io::runtime::block_on(async {
            let place = ObjectPrefix::of(store, "sink");
            prepare_with_lists(&place, &of).await;
            let all = servers.iter().zip(&orders).map(|(server, order)| code(server, order));
            let codes = futures_util::future::join_all(all).await;
            assert!(codes[1..4].iter().all(Option::is_none), "seed {seed}: an abort is refused: {codes:?}");
            let ends = [end(&place, SESSION).await, end(&place, OTHER).await];
            let committed = ends == [Some(0); 2];
            assert!(committed || !ends.contains(&Some(0)), "seed {seed}: one of two: {ends:?}");
            for code in [codes[0], codes[4]] {
                assert_eq!(code.is_none(), committed, "seed {seed}: {codes:?} {ends:?}");
            }
            outcomes[usize::from(committed)] += 1;
            // A later caller gets the same answer.
            assert_eq!(code(&place, &orders[0]).await.is_none(), committed, "seed {seed}");
        })
        .unwrap();
    }
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

#[test]
fn old_decisions_of_transactions_that_were_only_aborted_go() {
    let place = ObjectPrefix::of(Arc::new(InMemory::new()), "sink");
    let of = of("nightly", Owner::Token([1; 32]));
    penstock_io::runtime::block_on(async {
        prepare_with_lists(&place, &of).await;
        assert_eq!(code(&place, &abort(&of, &[SESSION])).await, None);
        assert_eq!(code(&place, &abort(&of, &[SESSION])).await, None, "said again");
        let decisions = async || TransactionObjects::list(&place, "nightly").await.unwrap().decisions().count();
        assert_eq!(decisions().await, 1);
        for later in [JOB_RETENTION / 2, JOB_RETENTION * 2] {
            for _ in 0..100 {
                redo(&place, SystemTime::now() + later).await.unwrap();
            }
            assert_eq!(decisions().await, 1, "a session is prepared");
        }
        assert_eq!(code(&place, &abort(&of, &[OTHER])).await, None);
        for _ in 0..100 {
            redo(&place, SystemTime::now() + JOB_RETENTION * 2).await.unwrap();
        }
        assert_eq!(decisions().await, 0);
    })
    .unwrap();
}

#[test]
fn a_session_that_is_open_under_an_id_that_was_used_before_has_not_ended_yet() {
    let (place, of) = (ObjectPrefix::of(Arc::new(InMemory::new()), "sink"), of("k", Owner::Token([1; 32])));
    penstock_io::runtime::block_on(async {
        let list = place.path(&format!("{SESSION}/entities.jsonl"));
        place.store().put(&list, PutPayload::from(encode::closed(ErrorCode::NoError))).await.unwrap();
        let commit = order(&of, &[SESSION], false);
        assert_eq!(code(&place, &commit).await, Some(ErrorCode::EntityInvalid));
        let piece = place.path(&format!("{}/{SESSION}.1/0000000000-0000000000.jsonl", list::OPEN));
        place.store().put(&piece, PutPayload::default()).await.unwrap();
        assert_eq!(code(&place, &commit).await, Some(ErrorCode::Other(0x40)));
    })
    .unwrap();
}
