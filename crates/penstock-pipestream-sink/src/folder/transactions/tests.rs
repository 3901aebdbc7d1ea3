//! Tests of transactions on a disk that dies at any step.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::read::{FolderStore, Journal, Store, closed_session, closed_sessions};
use crate::transactions::owner::Owner;

const ONE: &str = "11111111111111111111111111111111";
const TWO: &str = "22222222222222222222222222222222";
const LATE: &str = "33333333333333333333333333333333";
const PAST: &str = "99999999999999999999999999999999";
const COMMITTED: Option<ErrorCode> = Some(ErrorCode::Other(0x43));
const NOT_YOURS: Option<ErrorCode> = Some(ErrorCode::Other(0x44));

/// Return a sink with sessions whose lists have one line each.
fn sink(sessions: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for session in sessions {
        fs::create_dir(dir.path().join(session)).unwrap();
        fs::write(dir.path().join(session).join(LOG), format!("{OPEN}\n")).unwrap();
    }
    dir
}

fn records(dir: &Path) -> TransactionLog {
    TransactionLog::new(dir, Faults::default())
}

fn last_line(dir: &Path, session: &str) -> String {
    fs::read_to_string(dir.join(session).join(LOG)).unwrap().lines().last().unwrap().to_owned()
}

fn anyones(key: &str) -> Transaction {
    Transaction { key: key.into(), owner: Owner::Anyone }
}

fn mine(key: &str) -> Transaction {
    Transaction { key: key.into(), owner: Owner::Token([7; 32]) }
}

/// Commit a transaction with a session that has no list.
fn commit(records: &TransactionLog, of: &Transaction) {
    records.prepare(of, PAST).unwrap();
    records.commit(of, &names(&[PAST]), false).unwrap();
}

fn code(outcome: Result<(), Refusal>) -> Option<ErrorCode> {
    outcome.err().map(|refusal| refusal.reason("k").code)
}

fn names(sessions: &[&str]) -> Vec<String> {
    sessions.iter().map(|session| (*session).to_owned()).collect()
}

const OPEN: &str = r#"{"scope":0,"entity":1,"parent":null,"layer":0,"content_type":"a/b","bytes":0,"sha256":null,"metadata":{"penstock.transaction":"k"},"status":"COMPLETE","reason":null,"file":null}"#;
const READABLE: &str = "{\"closed\":0}";
const GONE: &str = "{\"closed\":65}";

#[test]
fn a_commit_closes_what_it_lists_and_gives_up_the_rest() {
    let dir = sink(&[ONE, TWO, LATE]);
    let (records, of) = (records(dir.path()), mine("k"));
    for session in [ONE, TWO] {
        assert_eq!(records.prepare(&of, session).unwrap(), PrepareOutcome::Prepared);
        assert_eq!(last_line(dir.path(), session), OPEN);
    }
    records.commit(&of, &names(&[ONE]), false).unwrap();
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (READABLE.into(), GONE.into()));
    // A repeated commit succeeds; one with other sessions is refused, and a session that is
    // prepared now is too late.
    records.commit(&of, &names(&[ONE, ONE]), true).unwrap();
    for others in [&[TWO][..], &[ONE, TWO], &[LATE]] {
        assert_eq!(code(records.commit(&of, &names(others), false)), COMMITTED, "{others:?}");
    }
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (READABLE.into(), GONE.into()));
    assert_eq!(records.prepare(&of, LATE).unwrap(), PrepareOutcome::TooLate);
    records.abort(&of, None).unwrap();
    assert_eq!(fs::read_to_string(dir.path().join(ONE).join(LOG)).unwrap(), format!("{OPEN}\n{READABLE}\n"));
}

#[test]
fn a_commit_of_a_session_that_is_not_prepared_commits_nothing() {
    let dir = sink(&[ONE, TWO]);
    let (records, of) = (records(dir.path()), mine("k"));
    records.prepare(&of, ONE).unwrap();
    records.prepare(&mine("other"), TWO).unwrap();
    for wrong in [TWO, LATE] {
        let refused = records.commit(&of, &names(&[ONE, wrong]), false);
        assert!(matches!(refused, Err(Refusal::Unknown(name)) if name == wrong));
    }
    let open = File::open(dir.path().join(TWO).join(LOG)).unwrap();
    open.lock().unwrap();
    let refused = records.commit(&of, &names(&[ONE, TWO]), false);
    assert!(matches!(refused, Err(Refusal::StillOpen(name)) if name == TWO));
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (OPEN.into(), OPEN.into()));
    drop(open);
    records.abort(&of, Some(&names(&[TWO]))).unwrap();
    assert_eq!(last_line(dir.path(), ONE), OPEN);
    records.abort(&of, None).unwrap();
    assert_eq!(last_line(dir.path(), ONE), GONE);
    assert!(!records.name_folder("k").exists());
}

/// Return the log of a server that is interrupted when it first reaches a step: then `then` runs
/// with the log of another server.
fn interrupted(
    dir: &Path,
    at: impl Fn(Step, &Path) -> bool + Send + Sync + 'static,
    then: impl Fn(&TransactionLog) + Send + Sync + 'static,
) -> TransactionLog {
    let (other, done) = (records(dir), std::sync::atomic::AtomicBool::new(false));
    let fault = move |step, path: &Path| {
        if at(step, path) && !done.swap(true, Ordering::SeqCst) {
            then(&other);
        }
        Ok(())
    };
    TransactionLog::new(dir, Faults::new(fault))
}

#[test]
fn a_commit_that_comes_while_a_session_is_being_given_up_commits_nothing_and_says_so() {
    let dir = sink(&[ONE, TWO]);
    let (records, of) = (records(dir.path()), mine("k"));
    for session in [ONE, TWO] {
        records.prepare(&of, session).unwrap();
    }
    // The commit finds its markers, then the abort runs, then the record appears.
    let abort = |records: &TransactionLog| records.abort(&mine("k"), Some(&names(&[ONE]))).unwrap();
    let committing = interrupted(dir.path(), |step, path| step == Step::Rename && path.ends_with(RECORD), abort);
    for _ in 0..2 {
        assert_eq!(code(committing.commit(&of, &names(&[ONE, TWO]), false)), COMMITTED);
        assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (GONE.into(), GONE.into()));
    }
    records.abort(&of, None).unwrap();
    records.redo().unwrap();
    assert!(seen(dir.path()).is_empty());
}

#[test]
fn commits_at_the_same_time_do_not_share_a_file() {
    let dir = sink(&[ONE, TWO]);
    let (records, of) = (records(dir.path()), mine("k"));
    for session in [ONE, TWO] {
        records.prepare(&of, session).unwrap();
    }
    // The other commit begins and ends while this one has written its record and not linked it yet.
    let commit = |records: &TransactionLog| records.commit(&mine("k"), &names(&[TWO]), false).unwrap();
    let late = interrupted(dir.path(), |step, path| step == Step::Rename && path.ends_with(RECORD), commit);
    assert_eq!(code(late.commit(&of, &names(&[ONE]), false)), COMMITTED);
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (GONE.into(), READABLE.into()));
    assert_eq!(fs::read_dir(records.folder(&of)).unwrap().count(), 1);
}

#[test]
fn a_commit_waits_for_the_abort_that_closes_one_of_its_sessions() {
    let dir = sink(&[ONE, TWO]);
    let (records, of) = (records(dir.path()), mine("k"));
    for session in [ONE, TWO] {
        records.prepare(&of, session).unwrap();
    }
    let commit = |records: &TransactionLog| {
        let (of, both) = (mine("k"), names(&[ONE, TWO]));
        assert!(records.write_record(&records.folder(&of), &Record::new(&of, both.clone())).unwrap());
        let refused = records.commit(&of, &both, false);
        assert!(matches!(refused, Err(Refusal::StillOpen(session)) if session == ONE));
    };
    let aborting = interrupted(dir.path(), |step, _| step == Step::Append, commit);
    aborting.abort(&of, Some(&names(&[ONE]))).unwrap();
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (GONE.into(), OPEN.into()));
    assert_eq!(code(records.commit(&of, &names(&[ONE, TWO]), false)), COMMITTED);
    assert_eq!(last_line(dir.path(), TWO), GONE);
}

#[test]
fn an_abort_that_sees_the_record_of_a_commit_leaves_it_its_sessions() {
    let dir = sink(&[ONE, TWO]);
    let (records, of) = (records(dir.path()), mine("k"));
    for session in [ONE, TWO] {
        records.prepare(&of, session).unwrap();
    }
    let folder = records.folder(&of);
    let commit = |records: &TransactionLog| {
        let (of, both) = (mine("k"), names(&[ONE, TWO]));
        assert!(records.write_record(&records.folder(&of), &Record::new(&of, both.clone())).unwrap());
        assert!(matches!(records.commit(&of, &both, false), Err(Refusal::StillOpen(_))));
    };
    // By then the abort has removed its markers.
    let aborting = interrupted(dir.path(), move |step, path| step == Step::Sync && path == folder, commit);
    aborting.abort(&of, None).unwrap();
    records.commit(&of, &names(&[ONE, TWO]), false).unwrap();
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (READABLE.into(), READABLE.into()));
}

#[test]
fn transactions_of_different_owners_do_not_touch_one_another() {
    let dir = sink(&[ONE, TWO, LATE]);
    let (records, of) = (records(dir.path()), mine("k"));
    records.prepare(&of, ONE).unwrap();
    let certificate = |digit| Transaction { key: "k".into(), owner: Owner::Certificate([digit; 32]) };
    let token = Transaction { key: "k".into(), owner: Owner::Token([8; 32]) };
    for other in [anyones("k"), certificate(7), token] {
        assert_eq!(code(records.commit(&other, &names(&[ONE]), false)), NOT_YOURS);
        assert_eq!(code(records.abort(&other, Some(&names(&[ONE])))), NOT_YOURS);
        records.abort(&other, None).unwrap();
        assert_eq!(last_line(dir.path(), ONE), OPEN);
    }
    // First, others prepare and commit sessions under the same name.
    records.prepare(&anyones("k"), TWO).unwrap();
    records.commit(&anyones("k"), &names(&[TWO]), false).unwrap();
    records.prepare(&certificate(1), LATE).unwrap();
    records.commit(&certificate(1), &names(&[LATE]), false).unwrap();
    assert_eq!((seen(dir.path()), last_line(dir.path(), ONE)), (names(&[TWO, LATE]), OPEN.into()));
    assert_eq!(code(records.commit(&of, &names(&[ONE]), true)), NOT_YOURS, "it wants to be the only one");
    records.commit(&of, &names(&[ONE]), false).unwrap();
    records.commit(&of, &names(&[ONE]), true).unwrap();
    assert_eq!(seen(dir.path()), names(&[ONE, TWO, LATE]));
    assert_eq!(records.committed("k").unwrap().len(), 3);
}

#[test]
fn a_record_of_a_server_that_knew_no_owners_is_read_and_stands() {
    let dir = sink(&[ONE, TWO, LATE]);
    let records = records(dir.path());
    let folder = records.name_folder("k");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(RECORD), format!("{{\"transaction\":\"k\",\"sessions\":[\"{ONE}\"]}}")).unwrap();
    for session in [ONE, TWO] {
        fs::write(folder.join(session), "k").unwrap();
    }
    records.redo().unwrap();
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (READABLE.into(), GONE.into()));
    assert_eq!(seen(dir.path()), names(&[ONE]));
    records.commit(&anyones("k"), &names(&[ONE]), false).unwrap();
    assert_eq!(code(records.commit(&anyones("k"), &names(&[LATE]), false)), COMMITTED);
    // It is unknown whether the record's rows are the same as these.
    records.prepare(&mine("k"), LATE).unwrap();
    assert_eq!(code(records.commit(&mine("k"), &names(&[LATE]), false)), NOT_YOURS);
    assert_eq!(last_line(dir.path(), LATE), OPEN);
}

#[test]
fn a_session_whose_id_was_used_before_is_committed_by_its_id() {
    let again = format!("{ONE}.1");
    let dir = sink(&[ONE, &again]);
    let (records, of) = (records(dir.path()), mine("k"));
    records.prepare(&of, &again).unwrap();
    for _ in 0..2 {
        records.commit(&of, &names(&[ONE]), false).unwrap();
    }
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), &again)), (OPEN.into(), READABLE.into()));
    assert_eq!(seen_by_list(dir.path()), [again]);
}

/// Return the sessions that readers see, with a journal and without one.
fn seen(dir: &Path) -> Vec<String> {
    let store: Arc<dyn Store> = Arc::new(FolderStore::open(dir).unwrap());
    let listed = seen_by_list(dir);
    for session in [ONE, TWO, LATE] {
        let is_listed = listed.iter().any(|listed| listed == session);
        assert_eq!(closed_session(&*store, session).unwrap().is_some(), is_listed, "{session}");
    }
    assert_eq!(followed(&Journal::new(store).unwrap()), listed);
    listed
}

fn followed(journal: &Journal) -> Vec<String> {
    let followed = journal.follow(0, 10).unwrap();
    let mut ids: Vec<_> = followed.sessions.into_iter().map(|session| session.id).collect();
    ids.sort();
    ids
}

#[test]
fn readers_see_all_sessions_of_a_transaction_together_whichever_process_dies_between_two_of_them() {
    let dir = sink(&[ONE, TWO, LATE]);
    let closes = AtomicUsize::new(0);
    let dying = TransactionLog::new(
        dir.path(),
        Faults::new(move |step, _| {
            let dies = step == Step::Append && closes.fetch_add(1, Ordering::SeqCst) > 0;
            if dies { Err(io::Error::other("dead")) } else { Ok(()) }
        }),
    );
    for session in [ONE, TWO] {
        dying.prepare(&mine("k"), session).unwrap();
    }
    let journal = Journal::new(Arc::new(FolderStore::open(dir.path()).unwrap())).unwrap();
    assert!(dying.commit(&mine("k"), &names(&[ONE, TWO]), false).is_err());
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (READABLE.into(), OPEN.into()));
    // A session without a transaction does not wait for the others, however often it is read.
    let mut log = OpenOptions::new().append(true).open(dir.path().join(LATE).join(LOG)).unwrap();
    log.write_all(READABLE.as_bytes()).and_then(|()| log.write_all(b"\n")).unwrap();
    for _ in 0..2 {
        assert_eq!((followed(&journal), seen(dir.path())), (names(&[LATE]), names(&[LATE])));
    }
    records(dir.path()).redo().unwrap();
    assert_eq!((followed(&journal), seen(dir.path())), (names(&[ONE, TWO, LATE]), names(&[ONE, TWO, LATE])));
    // Later removal of the record, or of a session, does not affect readers either.
    fs::remove_dir_all(dir.path().join(TWO)).unwrap();
    assert_eq!(seen_by_list(dir.path()), names(&[ONE, LATE]));
    fs::remove_dir_all(records(dir.path()).name_folder("k")).unwrap();
    assert_eq!(seen_by_list(dir.path()), names(&[ONE, LATE]));
}

#[test]
fn a_last_line_that_could_not_be_made_durable_is_written_again_by_the_next_order() {
    let dir = sink(&[ONE]);
    let broken = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&broken);
    let faults = Faults::new(move |step, path| {
        let hit = step == Step::Sync && path.ends_with(LOG) && now.load(Ordering::SeqCst) > 0;
        if hit { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    });
    let records = TransactionLog::new(dir.path(), faults);
    records.prepare(&mine("k"), ONE).unwrap();
    broken.store(1, Ordering::SeqCst);
    assert!(records.commit(&mine("k"), &names(&[ONE]), false).is_err());
    assert_eq!(last_line(dir.path(), ONE), OPEN);
    broken.store(0, Ordering::SeqCst);
    records.commit(&mine("k"), &names(&[ONE]), false).unwrap();
    assert_eq!(last_line(dir.path(), ONE), READABLE);
}

#[test]
fn a_damaged_record_is_its_transaction_s_trouble_alone_and_is_named() {
    let dir = sink(&[ONE, TWO]);
    let records = records(dir.path());
    records.prepare(&mine("k"), ONE).unwrap();
    records.commit(&mine("k"), &names(&[ONE]), false).unwrap();
    fs::write(records.folder(&mine("k")).join(RECORD), "{\"transaction\":").unwrap();
    // A server was killed after it had written another record, so the next server has to finish
    // that commit.
    records.prepare(&mine("l"), TWO).unwrap();
    let record = Record::new(&mine("l"), names(&[TWO]));
    assert!(records.write_record(&records.folder(&mine("l")), &record).unwrap());
    records.redo().unwrap();
    assert_eq!(last_line(dir.path(), TWO), READABLE);
    // A reader of all sessions must get an error rather than miss rows.
    let error = closed_sessions(&FolderStore::open(dir.path()).unwrap()).unwrap_err().to_string();
    assert!(error.contains("committed.json is damaged: ") && error.contains("remove it"), "{error}");
    let refused = code(records.commit(&mine("k"), &names(&[ONE]), false));
    assert_eq!(refused, Some(ErrorCode::InternalError));
}

fn seen_by_list(dir: &Path) -> Vec<String> {
    let found = closed_sessions(&FolderStore::open(dir).unwrap()).unwrap();
    let mut ids: Vec<_> = found.into_iter().map(|session| session.id).collect();
    ids.sort();
    ids
}

const QUERY: &str = "01234567-89ab-cdef-0123-456789abcdef";

fn has_record(dir: &Path, key: &str) -> bool {
    owners(&records(dir).name_folder(key)).unwrap().iter().any(|folder| read_record(folder).unwrap().is_some())
}

#[test]
fn records_of_micro_batches_that_cannot_run_again_go_and_no_others() {
    let dir = sink(&[ONE, TWO]);
    let records = records(dir.path());
    let batch = |number: u64| format!("spark/{QUERY}/{number}");
    let other = "spark/11111111-89ab-cdef-0123-456789abcdef/0";
    for key in [batch(0).as_str(), &batch(7), &batch(8), other, "job", "spark/daily/1", "spark/daily/2000"] {
        commit(&records, &anyones(key));
    }
    records.prepare(&anyones(&batch(107)), ONE).unwrap();
    records.commit(&anyones(&batch(107)), &names(&[ONE]), false).unwrap();
    // A marker appears next to a record: its session has to be closed first.
    fs::write(records.name_folder(&batch(0)).join(TWO), "").unwrap();
    // An owner's commit must not remove another's record.
    commit(&records, &mine(&batch(9)));
    commit(&records, &mine(&batch(10)));
    records.prune(SystemTime::now()).unwrap();
    for kept in [batch(0).as_str(), &batch(8), &batch(107), other, "job", "spark/daily/1", "spark/daily/2000"] {
        assert!(has_record(dir.path(), kept), "{kept}");
    }
    assert!(!records.name_folder(&batch(7)).exists());
    assert!(has_record(dir.path(), &batch(9)));
    commit(&records, &mine(&batch(109)));
    records.redo().unwrap();
    assert!(!records.name_folder(&batch(0)).exists() && !records.name_folder(&batch(9)).exists());
    assert!(has_record(dir.path(), &batch(10)));
    assert_eq!((last_line(dir.path(), ONE), last_line(dir.path(), TWO)), (READABLE.into(), GONE.into()));
}

#[test]
fn records_of_jobs_that_cannot_run_again_go_when_they_are_old_and_no_others() {
    let dir = sink(&[ONE]);
    let records = records(dir.path());
    let (job, unsettled) = (format!("spark/{}", "ab".repeat(16)), format!("spark/{}", "cd".repeat(16)));
    let batch = format!("spark/{QUERY}/0");
    for key in [job.as_str(), &unsettled, &batch, "nightly"] {
        commit(&records, &mine(key));
    }
    fs::write(records.folder(&mine(&unsettled)).join(ONE), "").unwrap();
    records.prune(SystemTime::now() + JOB_RETENTION / 2).unwrap();
    assert!(has_record(dir.path(), &job));
    records.prune(SystemTime::now() + JOB_RETENTION * 2).unwrap();
    assert!(!records.name_folder(&job).exists());
    for kept in [unsettled.as_str(), &batch, "nightly"] {
        assert!(has_record(dir.path(), kept), "{kept}");
    }
}

#[test]
fn a_server_that_runs_for_long_removes_records_too() {
    let dir = sink(&[]);
    let records = records(dir.path());
    let (old, new) = (format!("spark/{QUERY}/1"), format!("spark/{QUERY}/500"));
    commit(&records, &mine(&old));
    records.commits.store(PRUNE_INTERVAL - 2, Ordering::Relaxed);
    commit(&records, &mine(&new));
    assert!(has_record(dir.path(), &old));
    records.commit(&mine(&new), &names(&[PAST]), false).unwrap();
    assert!(has_record(dir.path(), &new) && !has_record(dir.path(), &old));
}

#[test]
fn a_server_that_dies_while_it_removes_a_record_has_it_whole_or_not_at_all() {
    for last in 0..3 {
        let dir = sink(&[]);
        let old = format!("spark/{QUERY}/1");
        commit(&records(dir.path()), &mine(&old));
        commit(&records(dir.path()), &mine(&format!("spark/{QUERY}/500")));
        let taken = AtomicUsize::new(0);
        let dying = TransactionLog::new(
            dir.path(),
            Faults::new(move |_, _| {
                if taken.fetch_add(1, Ordering::SeqCst) >= last { Err(io::Error::other("dead")) } else { Ok(()) }
            }),
        );
        assert_eq!(dying.prune(SystemTime::now()).is_ok(), last == 2, "step {last}");
        // The folder must never exist without its record, because the transaction could be
        // committed again.
        assert_eq!(records(dir.path()).folder(&mine(&old)).exists(), last == 0, "step {last}");
        assert_eq!(has_record(dir.path(), &old), last == 0, "step {last}");
        records(dir.path()).redo().unwrap();
        assert_eq!(fs::read_dir(dir.path().join(TRANSACTIONS)).unwrap().count(), 1, "step {last}");
    }
}

#[test]
fn a_server_that_dies_at_any_step_has_committed_all_or_nothing() {
    let all = steps_of(usize::MAX, &|_| {});
    assert!(all > 15, "{all}");
    for last in 0..all {
        let committed = std::cell::Cell::new(None);
        steps_of(last, &|dir| {
            let standing = (last_line(dir, ONE), last_line(dir, TWO), last_line(dir, LATE));
            let before = committed.replace(Some(standing.0 == READABLE));
            match (standing.0.as_str(), standing.1.as_str(), standing.2.as_str()) {
                (OPEN, OPEN, OPEN) => assert!(before.is_none(), "step {last}: a commit is gone"),
                (READABLE, READABLE, GONE) => {}
                other => panic!("step {last}: {other:?}"),
            }
        });
        assert!(committed.get() == Some(true), "step {last}: the commit that was said again did nothing");
    }
}

/// Prepare and commit on a disk that is dead after `last` steps, start again, then commit again.
/// Check the sink with `look` after each. Return the number of steps.
fn steps_of(last: usize, look: &dyn Fn(&Path)) -> usize {
    let dir = sink(&[ONE, TWO, LATE]);
    let taken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&taken);
    let dying = TransactionLog::new(
        dir.path(),
        Faults::new(move |step, path| {
            let taken = count.fetch_add(1, Ordering::SeqCst);
            if taken == last && step == Step::Append {
                // A dying disk leaves half a line.
                let mut log = OpenOptions::new().append(true).open(path)?;
                log.write_all(b"{\"clo")?;
            }
            if taken >= last { Err(io::Error::other("dead")) } else { Ok(()) }
        }),
    );
    let prepared = [ONE, TWO, LATE].map(|session| dying.prepare(&mine("k"), session).is_ok());
    if prepared == [true; 3] {
        let _ = dying.commit(&mine("k"), &names(&[ONE, TWO]), false);
    }
    let before = seen(dir.path());
    assert!(before.is_empty() || before == names(&[ONE, TWO]), "step {last}: {before:?}");
    let alive = records(dir.path());
    alive.redo().unwrap();
    if prepared != [true; 3] {
        for session in [ONE, TWO, LATE] {
            alive.prepare(&mine("k"), session).unwrap();
        }
    }
    // An uncommitted session may end with half a line only if the record exists.
    look(dir.path());
    alive.commit(&mine("k"), &names(&[ONE, TWO]), false).unwrap();
    look(dir.path());
    assert_eq!(seen(dir.path()), names(&[ONE, TWO]), "step {last}");
    taken.load(Ordering::SeqCst)
}
