//! The settlement of documents whose parts have all been announced: it receives their outcomes,
//! then concludes the ledger.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use penstock_io::DriverError as _;
use penstock_io::runtime::{self, WaitError};
use penstock_io::sync::lock;
use penstock_pipestream_net::{EntityKey, ErrorCode, Reason, Resolution, ScopeKey, SessionHandle, Status};

use crate::interrupts::Interrupts;
use crate::ledger::Ledger;
use crate::outcome::DocumentOutcome;
use crate::{Error, Result, digests};

/// A document whose parts have all been announced. Clones refer to the same document.
///
/// ```text
///   Settling ── every part has ended ──► Done
///      └─────── the ledger cannot be concluded ──► Broken
/// ```
#[derive(Clone)]
pub struct SentDocument(Arc<Mutex<State>>);

enum State {
    Settling(Box<Settlement>),
    Done(Arc<DocumentOutcome>),
    /// The ledger could not be concluded, and the error was returned once.
    Broken,
}

impl SentDocument {
    pub(crate) fn new(session: SessionHandle, ledger: Ledger) -> Self {
        let settlement = Settlement { session, ledger, next: 0, earlier_digests: Vec::new() };
        Self(Arc::new(Mutex::new(State::Settling(Box::new(settlement)))))
    }

    /// Return whether the document has ended; always `false` during a call of [`wait`](Self::wait).
    pub(crate) fn is_done(&self) -> bool {
        self.0.try_lock().is_ok_and(|state| !matches!(*state, State::Settling(_)))
    }

    /// Wait until every part has ended; return `None` after the deadline. If `interrupts` end the
    /// wait, the caller knows why, and another call resumes it.
    ///
    /// # Errors
    ///
    /// Errors of the runtime, [`Error::Interrupted`], and errors of the protocol if the ledger
    /// cannot be concluded.
    pub fn wait(&self, deadline: Option<Instant>, interrupts: &dyn Interrupts) -> Result<Option<Arc<DocumentOutcome>>> {
        let mut state = lock(&self.0);
        if let State::Settling(settlement) = &mut *state {
            match runtime::wait(settlement.settle(), deadline, &mut || interrupts.check()) {
                Ok(()) => {}
                Err(WaitError::Deadline) => return Ok(None),
                Err(WaitError::Interrupted) => return Err(Error::Interrupted("the wait was interrupted")),
                Err(WaitError::Runtime(error)) => return Err(error.into()),
            }
        }
        let outcome = match std::mem::replace(&mut *state, State::Broken) {
            State::Settling(settlement) => Arc::new(DocumentOutcome::new(settlement.ledger)?),
            State::Done(outcome) => outcome,
            State::Broken => {
                return Err(penstock_io::Error::internal("the document's ledger", "it could not be concluded").into());
            }
        };
        *state = State::Done(Arc::clone(&outcome));
        Ok(Some(outcome))
    }
}

impl fmt::Debug for SentDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentDocument").field("done", &self.is_done()).finish()
    }
}

/// The receiver of the outcomes of a document's parts, one after the other. It may be stopped and
/// resumed at any time.
struct Settlement {
    session: SessionHandle,
    ledger: Ledger,
    next: usize,
    /// Containers whose digests an earlier process of the session has received.
    earlier_digests: Vec<usize>,
}

impl Settlement {
    async fn settle(&mut self) {
        while let Some(record) = self.ledger.records.get(self.next) {
            let (key, scope, settled) = (record.key, record.scope, record.status != Status::Pending);
            if let Some(key) = key.filter(|_| !settled) {
                let resolution = self.resolution(key).await;
                self.ledger.settle(self.next, resolution);
            }
            self.settle_padding().await;
            // A scope is released before its parent ends.
            if let Some(scope) = scope {
                self.receive_digest(scope).await;
            }
            self.next += 1;
        }
        digests::recall(&mut self.ledger, &std::mem::take(&mut self.earlier_digests));
    }

    async fn settle_padding(&mut self) {
        let keys = |ledger: &Ledger, at: usize| -> Vec<(usize, EntityKey)> {
            let padding = ledger.records.get(at).map(|record| record.padding.iter().enumerate());
            let open = padding.into_iter().flatten().filter(|(_, padding)| padding.status == Status::Pending);
            open.map(|(index, padding)| (index, padding.key)).collect()
        };
        for (index, key) in keys(&self.ledger, self.next) {
            let status = self.resolution(key).await.status;
            let record = self.ledger.records.get_mut(self.next);
            if let Some(padding) = record.and_then(|record| record.padding.get_mut(index)) {
                padding.status = status;
            }
        }
    }

    /// Return the outcome of an entity; an entity unknown to the session has failed.
    async fn resolution(&self, key: EntityKey) -> Resolution {
        self.session.wait_resolved(key).await.unwrap_or_else(|error| Resolution {
            status: Status::Failed,
            attempts: 1,
            claim: None,
            reason: Some(Reason { code: error.code().unwrap_or(ErrorCode::InternalError), message: error.to_string() }),
        })
    }

    /// Receive the digest of a scope. There is none if the session ended before the scope was released.
    async fn receive_digest(&mut self, scope: ScopeKey) {
        match self.session.wait_released(scope).await {
            Ok(released) => {
                if let Some(record) = self.ledger.records.get_mut(self.next) {
                    record.digest = Some(released.digest);
                }
            }
            Err(penstock_pipestream_net::Error::Closed(_)) => {}
            Err(_) => self.earlier_digests.push(self.next),
        }
    }
}
