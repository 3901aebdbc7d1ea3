//! The sender of documents, and a document that it has sent.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use penstock_ingest::{Document, DocumentOptions, ElsewhereChildren, Error, PreviousReceipt, RowContent};
use pyo3::prelude::*;

use super::fields::{IdentityFields, PrivacyFields, document_policy};
use super::outcome::DocumentOutcome;
use super::partition::{ContainerFields, SelectionFields};
use crate::documents::{Interrupts, LimitFields, PythonWorkspace, SourceArgument};
use crate::error::IntoPyErr;
use crate::pipestream::session::Session;
use crate::pipestream::waiting::Timeout;

/// Sends documents into one session.
#[pyclass(frozen, name = "DocumentSender", module = "penstock._core")]
pub(crate) struct DocumentSender {
    sender: penstock_ingest::DocumentSender,
    /// The flag that ends all sending.
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
        manner: PrivacyFields,
        policy: Option<&Bound<'_, PyAny>>,
        authority: Option<String>,
    ) -> PyResult<Self> {
        let options = DocumentOptions {
            dehydrate,
            in_flight,
            row_content: RowContent { text, max_content },
            policy: policy.map(document_policy).transpose()?,
            limits: limits.try_into()?,
            privacy: manner.try_into()?,
            authority,
            labels: session.on_disk,
        };
        let sender = penstock_ingest::DocumentSender::new(session.handle.clone(), options);
        Ok(Self { sender: sender.map_err(IntoPyErr::into_py_err)?, stop: Arc::default() })
    }

    /// Take a document apart and send it. Returns when every part was announced and handed over. Parts in the receipt
    /// `previous` are not sent again.
    #[pyo3(signature = (name, source, previous = None, identity = None))]
    fn send(
        &self,
        py: Python<'_>,
        name: String,
        source: SourceArgument,
        previous: Option<&str>,
        identity: Option<IdentityFields>,
    ) -> PyResult<SentDocument> {
        let document = document(name, previous, identity)?;
        let file = if let SourceArgument::Path(path) = &source { Some(PathBuf::from(path)) } else { None };
        self.run(py, |interrupts| {
            let workspace = PythonWorkspace::new(interrupts.clone());
            self.sender.send(document, || source.open(interrupts), file, workspace, interrupts)
        })
    }

    /// Send some children of a container in the document, below an entity that stands for the container.
    #[pyo3(signature = (name, source, some, previous = None, identity = None))]
    fn send_some(
        &self,
        py: Python<'_>,
        name: String,
        source: SourceArgument,
        some: SelectionFields,
        previous: Option<&str>,
        identity: Option<IdentityFields>,
    ) -> PyResult<SentDocument> {
        let document = document(name, previous, identity)?;
        self.run(py, |interrupts| {
            let workspace = PythonWorkspace::new(interrupts.clone());
            let open = || source.open_in_place(interrupts);
            self.sender.send_children(document, open, &some.into(), workspace, interrupts)
        })
    }

    /// Send the containers of a document whose innermost one has its children elsewhere: `children` of them, of which
    /// `incomplete` are not COMPLETE.
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
        let document = document(name, previous, identity)?;
        let chain = chain.into_iter().map(Into::into).collect();
        let elsewhere = ElsewhereChildren { children, incomplete };
        self.run(py, |interrupts| self.sender.send_containers(document, chain, elsewhere, interrupts))
    }

    /// Interrupt what other threads are sending; they raise.
    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl DocumentSender {
    /// Send without the interpreter's lock. If a Python exception was raised meanwhile, raise it
    /// instead of the error that it caused.
    fn run(
        &self,
        py: Python<'_>,
        send: impl FnOnce(&Interrupts) -> Result<penstock_ingest::SentDocument, Error> + Send,
    ) -> PyResult<SentDocument> {
        let interrupts = Interrupts::stopped_by(Arc::clone(&self.stop));
        let sent = py.detach(|| send(&interrupts));
        interrupts.result()?;
        sent.map(SentDocument).map_err(IntoPyErr::into_py_err)
    }
}

fn document(name: String, previous: Option<&str>, identity: Option<IdentityFields>) -> PyResult<Document> {
    let identity = identity.unwrap_or_default().try_into()?;
    let previous = previous.map(PreviousReceipt::new).transpose().map_err(IntoPyErr::into_py_err)?;
    Ok(Document { name, identity, previous: previous.unwrap_or_default() })
}

/// A document whose parts have all been announced.
#[pyclass(frozen, name = "SentDocument", module = "penstock._core")]
pub(crate) struct SentDocument(penstock_ingest::SentDocument);

#[pymethods]
impl SentDocument {
    /// Wait until every part has ended; `None` after the timeout.
    fn wait(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Option<DocumentOutcome>> {
        let interrupts = Interrupts::default();
        let waited = py.detach(|| self.0.wait(timeout.deadline(), &interrupts));
        interrupts.result()?;
        Ok(waited.map_err(IntoPyErr::into_py_err)?.map(DocumentOutcome::new))
    }
}
