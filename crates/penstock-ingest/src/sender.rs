//! Documents on their way into a session, driven from Rust: no part crosses into Python.
//!
//! [`sending`] announces and hands over, [`Settling`] takes the outcomes as they come, [`outcome`] closes the account.

#[path = "partition.rs"]
mod apart;
mod digests;
mod identity;
mod labels;
mod ledger;
#[path = "payload.rs"]
mod made;
#[path = "privacy.rs"]
mod manner;
mod outcome;
mod policy;
mod previous;
#[path = "part_rows.rs"]
mod rows;
#[path = "transfer/mod.rs"]
mod sending;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use penstock_documents::{Limits, Payload};
use penstock_io::DriverError as _;
use penstock_io::runtime::{self, WaitError};
use penstock_pipestream_net::{EntityKey, Resolution, ScopeKey, SessionHandle, Status};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use self::apart::{ContainerFields, Selected};
use self::identity::{Identity, IdentityFields};
use self::labels::Labels;
use self::ledger::{Ledger, Wanted};
use self::manner::{Manner, MannerFields};
use self::policy::DocumentPolicy;
use self::previous::Previous;
use self::sending::{Sending, Stopped};
use crate::documents::{Dehydrator, Interrupts, LimitFields, PythonWorkspace, SourceArgument};
use crate::error::IntoPyErr;
use crate::pipestream::session::Session;
use crate::pipestream::waiting::Timeout;

pub(crate) use apart::divide;
pub(crate) use outcome::{DocumentOutcome, part_schema};

/// The longest name of a document; it stands in the header of each of its parts.
const MAX_NAME: usize = 64 << 10;

/// Sends documents into one session.
#[pyclass(frozen, name = "DocumentSender", module = "penstock._core")]
pub(crate) struct DocumentSender {
    session: SessionHandle,
    limits: Limits,
    keep_whole: bool,
    in_flight: usize,
    wanted: Wanted,
    manner: Manner,
    policy: Option<DocumentPolicy>,
    /// What the server is called.
    authority: Option<String>,
    /// Where another process may go on with the session.
    labels: Option<Labels>,
    /// Documents whose outcomes may not all be there, oldest first.
    pending: Mutex<VecDeque<Arc<Sent>>>,
    /// At layer 0 the parts of all documents share scope 0, so two that are sent at once could fill its window with
    /// parents that wait for each other's end. They go one after the other.
    turn: Option<Mutex<()>>,
    /// Nothing more is to be sent.
    stop: Arc<AtomicBool>,
}

#[pymethods]
impl DocumentSender {
    #[new]
    #[pyo3(signature = (session, dehydrate, limits, in_flight, text, max_content, manner, policy = None, authority = None))]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of Python's")]
    fn new(
        session: &Session,
        dehydrate: bool,
        limits: LimitFields,
        in_flight: usize,
        text: bool,
        max_content: u64,
        manner: MannerFields,
        policy: Option<&Bound<'_, PyAny>>,
        authority: Option<String>,
    ) -> PyResult<Self> {
        let labels = session.on_disk.then(Labels::default);
        let session = session.handle.clone();
        let agreement = session.agreement().map_err(IntoPyErr::into_py_err)?;
        let policy = policy.map(DocumentPolicy::new).transpose()?;
        if policy.is_some() && agreement.layer < 2 {
            let problem = format!("a policy needs layer 2, and layer {} was agreed on", agreement.layer);
            return Err(penstock_pipestream_net::Error::misuse(problem).into_py_err());
        }
        let mut limits = Limits::try_from(limits)?;
        let flat = agreement.layer == 0;
        let manner = Manner::try_from(manner)?;
        if manner.pads() && flat {
            return Err(PyValueError::new_err("pad_children needs layer 1: at layer 0 no scope says what is in it"));
        }
        if manner.pads() && policy.as_ref().is_some_and(|policy| !policy.is_strict()) {
            return Err(PyValueError::new_err(
                "pad_children goes with the policy strict only: padding counts as COMPLETE",
            ));
        }
        if manner.refers() && dehydrate {
            return Err(PyValueError::new_err("by_reference is for whole documents: dehydrate=False"));
        }
        let keep_whole = !dehydrate || flat;
        limits.max_depth = match (dehydrate, flat) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => limits.max_depth.min(agreement.max_scope_depth.into()),
        };
        // The receiver's rule of decision 11; more children would fail their container there.
        limits.children_per_mib = limits.children_per_mib.min(1000);
        let turn = flat.then(Mutex::default);
        let (pending, stop) = (Mutex::default(), Arc::default());
        let wanted = Wanted { text, max_content };
        let in_flight = in_flight.max(1);
        Ok(Self {
            session,
            limits,
            keep_whole,
            in_flight,
            wanted,
            manner,
            policy,
            authority,
            labels,
            pending,
            turn,
            stop,
        })
    }

    /// Takes a document apart and sends it. Returns when every part was announced and handed over. What the receipt
    /// `previous` has already stays where it is.
    #[pyo3(signature = (name, source, previous = None, identity = None))]
    fn send(
        &self,
        py: Python<'_>,
        name: String,
        source: SourceArgument,
        previous: Option<&str>,
        identity: Option<IdentityFields>,
    ) -> PyResult<SentDocument> {
        let identity = identity.unwrap_or_default().try_into()?;
        let note = self.manner.note(&name);
        let previous = parse(previous)?.sent_like(note.as_ref());
        let file = if let SourceArgument::Path(path) = &source { Some(PathBuf::from(path)) } else { None };
        self.begin(py, &name, |interrupts| {
            let dehydrator = self.dehydrator(&name, source.open(interrupts), interrupts);
            let session = self.session.id().map_err(IntoPyErr::into_py_err)?;
            let ledger = Ledger::new(name.clone(), session, self.wanted, self.policy.clone());
            let ledger = self.named(ledger, identity).with_manner(self.manner.clone());
            let sending = Sending::new(&self.session, interrupts, ledger, self.keep_whole, file);
            Ok(sending.with_previous(previous).with_labels(self.labels.as_ref()).run(dehydrator))
        })
    }

    /// Sends some children of a container that lies in the document, below an entity that stands for the container.
    #[pyo3(signature = (name, source, some, previous = None, identity = None))]
    fn send_some(
        &self,
        py: Python<'_>,
        name: String,
        source: SourceArgument,
        some: Selected,
        previous: Option<&str>,
        identity: Option<IdentityFields>,
    ) -> PyResult<SentDocument> {
        let identity = identity.unwrap_or_default().try_into()?;
        let previous = parse(previous)?;
        self.begin(py, &name, |interrupts| {
            let dehydrator = some.select(self.dehydrator(&name, source.open_in_place(interrupts), interrupts));
            let session = self.session.id().map_err(IntoPyErr::into_py_err)?;
            let ledger = Ledger::new(name.clone(), session, self.wanted, self.policy.clone())
                .with_some(some.sha256, some.each());
            let ledger = self.named(ledger, identity);
            let sending = Sending::new(&self.session, interrupts, ledger, self.keep_whole, None);
            let sending = sending.with_previous(previous).with_base(some.depth, some.children());
            Ok(sending.run(dehydrator))
        })
    }

    /// Sends the containers of a document whose innermost one has its children elsewhere: `children` of them, and
    /// `incomplete` that are not COMPLETE.
    #[pyo3(signature = (name, chain, children, incomplete, previous = None, identity = None))]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of Python's")]
    fn send_containers(
        &self,
        py: Python<'_>,
        name: String,
        chain: Vec<ContainerFields>,
        children: u64,
        incomplete: u64,
        previous: Option<&str>,
        identity: Option<IdentityFields>,
    ) -> PyResult<SentDocument> {
        let identity = identity.unwrap_or_default().try_into()?;
        let previous = parse(previous)?;
        self.begin(py, &name, |interrupts| {
            let session = self.session.id().map_err(IntoPyErr::into_py_err)?;
            let ledger = Ledger::new(name.clone(), session, self.wanted, self.policy.clone());
            let ledger = self.named(ledger, identity);
            let sending = Sending::new(&self.session, interrupts, ledger, self.keep_whole, None);
            let chain = chain.into_iter().map(Into::into).collect();
            Ok(sending.with_previous(previous).run_hollow(chain, children, incomplete))
        })
    }

    /// Ends what other threads are sending; they raise.
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// An earlier receipt.
fn parse(previous: Option<&str>) -> PyResult<Previous> {
    let parsed = previous.map(Previous::new).transpose();
    Ok(parsed.map_err(|error| PyValueError::new_err(format!("the previous receipt: {error}")))?.unwrap_or_default())
}

impl DocumentSender {
    /// Sends what `send` sends, once there is room for another document.
    fn begin(
        &self,
        py: Python<'_>,
        name: &str,
        send: impl FnOnce(&Interrupts) -> PyResult<Result<Ledger, Stopped>> + Send,
    ) -> PyResult<SentDocument> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(PyValueError::new_err(format!("a document's name has 1 to {MAX_NAME} octets")));
        }
        if let Some(reason) = self.session.is_closed().map_err(IntoPyErr::into_py_err)? {
            return Err(penstock_pipestream_net::Error::Closed(reason).into_py_err());
        }
        let interrupts = Interrupts::stopped_by(Arc::clone(&self.stop));
        let sent = py.detach(|| -> PyResult<Arc<Sent>> {
            self.make_room(&interrupts)?;
            let _turn = self.turn.as_ref().map(lock);
            let stopped =
                |_| penstock_pipestream_net::Error::deadline("the document was interrupted".into()).into_py_err();
            let ledger = send(&interrupts)?.map_err(stopped)?;
            let settling = Settling { session: self.session.clone(), ledger, next: 0, heard_before: Vec::new() };
            let sent = Arc::new(Sent(Mutex::new(State::Settling(Box::new(settling)))));
            lock(&self.pending).push_back(Arc::clone(&sent));
            Ok(sent)
        });
        interrupts.result()?;
        sent.map(SentDocument)
    }

    /// An account of this document, at this sender's server.
    fn named(&self, ledger: Ledger, identity: Identity) -> Ledger {
        ledger.with_identity(identity, self.authority.clone())
    }

    fn dehydrator(&self, name: &str, source: Payload, interrupts: &Interrupts) -> Dehydrator {
        let own_name = name.rsplit('/').next().unwrap_or_default();
        let workspace = PythonWorkspace::new(interrupts.clone());
        Dehydrator::new(own_name, source, workspace, self.limits.clone())
    }

    /// Waits for the oldest documents until one more may be on its way.
    fn make_room(&self, interrupts: &Interrupts) -> PyResult<()> {
        loop {
            let oldest = {
                let mut pending = lock(&self.pending);
                pending.retain(|sent| !sent.is_done());
                if pending.len() < self.in_flight {
                    return Ok(());
                }
                pending.front().cloned()
            };
            if let Some(oldest) = oldest {
                oldest.wait(None, interrupts)?;
            }
        }
    }
}

/// A document whose parts have all been announced.
#[pyclass(frozen, name = "SentDocument", module = "penstock._core")]
pub(crate) struct SentDocument(Arc<Sent>);

#[pymethods]
impl SentDocument {
    /// Waits until every part has ended; `None` when the time is over.
    fn wait(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<Py<DocumentOutcome>>> {
        let interrupts = Interrupts::default();
        let waited = py.detach(|| self.0.wait(timeout.deadline(), &interrupts));
        interrupts.result()?;
        waited
    }
}

struct Sent(Mutex<State>);

enum State {
    Settling(Box<Settling>),
    Done(Py<DocumentOutcome>),
    /// The account could not be closed, and the error was raised.
    Broken,
}

impl Sent {
    fn is_done(&self) -> bool {
        // Somebody is waiting for it: not yet.
        self.0.try_lock().is_ok_and(|state| !matches!(*state, State::Settling(_)))
    }

    fn wait(&self, deadline: Option<Instant>, interrupts: &Interrupts) -> PyResult<Option<Py<DocumentOutcome>>> {
        let mut state = lock(&self.0);
        if let State::Settling(settling) = &mut *state {
            match runtime::wait(settling.settle(), deadline, &mut || interrupts.check()) {
                Ok(()) => {}
                Err(WaitError::Deadline) => return Ok(None),
                Err(WaitError::Runtime(error)) => return Err(error.into_py_err()),
                // What stopped it is raised by whoever owns the interrupts.
                Err(WaitError::Interrupted) => return Ok(None),
            }
        }
        let done = match std::mem::replace(&mut *state, State::Broken) {
            State::Settling(settling) => {
                let outcome = outcome::outcome(settling.ledger)?;
                Python::attach(|py| Py::new(py, outcome))?
            }
            State::Done(outcome) => outcome,
            State::Broken => {
                let error = penstock_pipestream_net::Error::misuse("the document's account could not be closed".into());
                return Err(error.into_py_err());
            }
        };
        let given = Python::attach(|py| done.clone_ref(py));
        *state = State::Done(done);
        Ok(Some(given))
    }
}

/// Takes the outcomes of a document's parts, one after the other. It may be stopped and gone on with at any time.
struct Settling {
    session: SessionHandle,
    ledger: Ledger,
    next: usize,
    /// Containers whose digests an earlier process of the session has heard.
    heard_before: Vec<usize>,
}

impl Settling {
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
                self.hear_digest(scope).await;
            }
            self.next += 1;
        }
        digests::recall(&mut self.ledger, &std::mem::take(&mut self.heard_before));
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

    async fn resolution(&self, key: EntityKey) -> Resolution {
        self.session.wait_resolved(key).await.unwrap_or_else(|error| Resolution {
            status: Status::Failed,
            attempts: 1,
            claim: None,
            reason: Some(penstock_pipestream_net::Reason {
                code: error.code().unwrap_or(penstock_pipestream_net::ErrorCode::InternalError),
                message: error.to_string(),
            }),
        })
    }

    /// There is none if the session ended before the scope was released.
    async fn hear_digest(&mut self, scope: ScopeKey) {
        match self.session.wait_released(scope).await {
            Ok(released) => {
                if let Some(record) = self.ledger.records.get_mut(self.next) {
                    record.digest = Some(released.digest);
                }
            }
            Err(penstock_pipestream_net::Error::Closed(_)) => {}
            Err(_) => self.heard_before.push(self.next),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
