//! The outcomes of the rows that were sent, as far as they are known.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use penstock_io::sync::lock;
use penstock_pipestream_net::{EntityKey, ErrorCode, Reason, Resolution, ScopeKey, SentEntity, SessionHandle, Status};
use tokio::sync::Notify;

use super::columns::RowNames;

/// The most failures that are kept with their details; all of them are counted.
const MAX_FAILURES: usize = 10;

/// Totals of the outcomes of rows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct RowTotals {
    /// The number of rows that are COMPLETE.
    pub rows: u64,
    /// The total size in bytes of rows that are COMPLETE.
    pub bytes: u64,
    /// The number of documents whose scope digests have matched.
    pub scopes: u64,
    /// The number of rows and documents that are not COMPLETE.
    pub failed: u64,
    /// The number of rows that are not COMPLETE, but left to the decision of their document's
    /// policy.
    pub left_out: u64,
}

/// A row, or a document of rows, that is not COMPLETE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowFailure {
    /// The document's name, if the row has one.
    pub document: Option<String>,
    /// The row's path as JSON, if it has one.
    pub path: Option<String>,
    /// The registry's code.
    pub code: ErrorCode,
    /// The reason.
    pub message: String,
}
/// The account of a session's rows, shared by the sending thread and the task that receives
/// outcomes.
pub(super) struct Account {
    state: Mutex<State>,
    changed: Notify,
}

impl Account {
    /// Create an empty account. If `tolerant`, a policy decides which rows may be skipped, and only
    /// documents fail.
    pub(super) fn new(tolerant: bool) -> Self {
        let state = State { tolerant, ..State::default() };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }
}

#[derive(Default)]
struct State {
    totals: RowTotals,
    tolerant: bool,
    /// Rows and bytes that were handed over but have not ended.
    open: (usize, u64),
    waiting: HashMap<EntityKey, OpenRow>,
    /// Outcomes that arrived before the result of their announcement.
    early: HashMap<EntityKey, Resolution>,
    failures: Vec<RowFailure>,
    /// Scopes of documents that have ended, whose digests can be received.
    scopes: Vec<ScopeKey>,
    /// The reason why the session has ended.
    closed: Option<Reason>,
}

/// A row, or the root of a document's rows, in flight.
#[derive(Clone)]
pub(super) struct OpenRow {
    pub(super) names: Arc<RowNames>,
    pub(super) row: usize,
    pub(super) bytes: u64,
    /// Whether it is the root of a document's rows.
    pub(super) root: bool,
    /// The scope of its children, once it is known.
    pub(super) scope: Option<ScopeKey>,
}

impl Account {
    /// Count rows that are about to be sent.
    pub(super) fn open(&self, rows: usize, bytes: u64) {
        let mut state = self.state();
        state.open = (state.open.0.saturating_add(rows), state.open.1.saturating_add(bytes));
    }

    /// Record the result of an announcement.
    pub(super) fn record_announcement(&self, mut row: OpenRow, result: penstock_pipestream_net::Result<SentEntity>) {
        let mut state = self.state();
        match result {
            Ok(ticket) => {
                row.scope = ticket.child_scope;
                match state.early.remove(&ticket.key) {
                    Some(resolution) => state.settle(&row, resolution),
                    None => drop(state.waiting.insert(ticket.key, row)),
                }
            }
            // The row is not at fault; `wait_below` returns the end of the session.
            Err(penstock_pipestream_net::Error::Closed(_)) => {}
            Err(error) => {
                let code = error.code().unwrap_or(ErrorCode::InternalError);
                let reason = Reason { code, message: error.to_string() };
                state.settle(
                    &row,
                    Resolution { status: Status::Failed, reason: Some(reason), attempts: 1, claim: None },
                );
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Record outcomes, some of which may arrive before the results of their announcements.
    pub(super) fn settle(&self, outcomes: Vec<(EntityKey, Resolution)>) {
        let mut state = self.state();
        for (key, resolution) in outcomes {
            match state.waiting.remove(&key) {
                Some(row) => state.settle(&row, resolution),
                None => drop(state.early.insert(key, resolution)),
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Receive the digests of documents that have ended: a scope is released before its parent ends, and only if the
    /// digests of both ends are equal.
    pub(super) async fn take_digests(&self, session: &SessionHandle) {
        let scopes = std::mem::take(&mut self.state().scopes);
        for scope in scopes {
            // Without a digest the session has ended, which is reported elsewhere.
            let released = session.wait_released(scope).await.is_ok();
            self.state().totals.scopes += u64::from(released);
        }
    }

    /// Close the account: no more outcomes will arrive.
    pub(super) fn close(&self, reason: Reason) {
        self.state().closed = Some(reason);
        self.changed.notify_waiters();
    }

    /// Wait until at most `rows` rows and `bytes` bytes are open. The error is the reason why the
    /// session ended.
    pub(super) async fn wait_below(&self, rows: usize, bytes: u64) -> Result<(), Reason> {
        loop {
            let changed = self.changed.notified();
            {
                let state = self.state();
                if state.open.0 <= rows && state.open.1 <= bytes {
                    return Ok(());
                }
                if let Some(reason) = &state.closed {
                    return Err(reason.clone());
                }
            }
            changed.await;
        }
    }

    pub(super) fn totals(&self) -> RowTotals {
        self.state().totals
    }

    pub(super) fn failures(&self) -> Vec<RowFailure> {
        self.state().failures.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl State {
    fn settle(&mut self, row: &OpenRow, resolution: Resolution) {
        self.open = (self.open.0.saturating_sub(1), self.open.1.saturating_sub(row.bytes));
        if resolution.status == Status::Complete {
            self.totals.rows += u64::from(!row.root);
            self.totals.bytes += row.bytes;
            self.scopes.extend(row.scope);
            return;
        }
        if self.tolerant && !row.root {
            self.totals.left_out += 1;
            return;
        }
        self.totals.failed += 1;
        if self.failures.len() < MAX_FAILURES {
            let reason = resolution.reason.unwrap_or(Reason { code: ErrorCode::InternalError, message: String::new() });
            self.failures.push(RowFailure {
                document: row.names.document(row.row).map(str::to_owned),
                path: if row.root { None } else { row.names.path(row.row) },
                code: reason.code,
                message: reason.message,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, RecordBatch, StringArray};
    use penstock_io::runtime::{WaitError, wait};

    use super::*;
    use crate::rows::columns::EntityColumns;
    use crate::testing::{block, failed, key, resolution, ticket};

    fn row(root: bool) -> OpenRow {
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["text"]));
        let batch = RecordBatch::try_from_iter([("content", Arc::clone(&texts)), ("document", texts)]).unwrap();
        let names = Arc::clone(EntityColumns::new(&batch).unwrap().names());
        OpenRow { names, row: 0, bytes: 4, root, scope: None }
    }

    #[test]
    fn an_outcome_may_come_before_the_answer_to_its_announcement() {
        let account = Account::new(false);
        account.open(2, 8);
        account.settle(vec![(key(0, 1), resolution(Status::Complete))]);
        assert_eq!(account.totals(), RowTotals::default());
        account.record_announcement(row(false), Ok(ticket(0, 1, None)));
        account.record_announcement(row(false), Ok(ticket(0, 2, None)));
        account.settle(vec![(key(0, 2), resolution(Status::Complete))]);
        assert_eq!(account.totals(), RowTotals { rows: 2, bytes: 8, ..RowTotals::default() });
        block(account.wait_below(0, 0)).unwrap();
    }

    #[test]
    fn all_failures_are_counted_and_the_first_ten_are_reported() {
        let account = Account::new(false);
        for entity in 1..=11 {
            account.record_announcement(row(entity == 1), Ok(ticket(0, entity, None)));
            account.settle(vec![(key(0, entity), failed(ErrorCode::EntityInvalid, "no"))]);
        }
        let failures = account.failures();
        assert_eq!((account.totals().failed, failures.len()), (11, 10));
        let expected = RowFailure {
            document: Some("text".to_owned()),
            path: None,
            code: ErrorCode::EntityInvalid,
            message: "no".to_owned(),
        };
        assert_eq!(failures[0], expected);
    }

    #[test]
    fn under_a_policy_rows_are_left_out_and_documents_fail() {
        let account = Account::new(true);
        account.record_announcement(row(false), Ok(ticket(2, 1, None)));
        account.record_announcement(row(true), Ok(ticket(0, 1, Some(2))));
        account.settle(vec![(key(2, 1), resolution(Status::Failed)), (key(0, 1), resolution(Status::Failed))]);
        assert_eq!(account.totals(), RowTotals { failed: 1, left_out: 1, ..RowTotals::default() });
    }

    #[test]
    fn who_waits_for_room_hears_of_the_sessions_end() {
        let account = Account::new(false);
        account.open(1, 4);
        let deadline = std::time::Instant::now() + std::time::Duration::from_millis(20);
        let waited = wait(account.wait_below(0, 0), Some(deadline), &mut || Ok(()));
        assert!(matches!(waited, Err(WaitError::Deadline)));
        block(account.wait_below(1, 4)).unwrap();
        account.record_announcement(row(false), Err(penstock_io::Error::Deadline("late".to_owned()).into()));
        assert_eq!((account.totals().failed, account.failures()[0].code), (1, ErrorCode::InternalError));
        account.open(1, 4);
        let reason = Reason { code: ErrorCode::IdleTimeout, message: "gone".to_owned() };
        account.close(reason.clone());
        assert_eq!(block(account.wait_below(0, 0)), Err(reason));
    }
}
