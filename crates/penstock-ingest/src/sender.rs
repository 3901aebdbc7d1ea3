//! The sender of documents into a session: [`Transfer`] announces parts and hands them over,
//! [`SentDocument`] receives the outcomes and concludes the ledger.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::sync::Mutex;

use penstock_documents::{Dehydrator, Limits, Payload, Workspace};
use penstock_io::sync::lock;
use penstock_pipestream_net::{Misuse, SessionHandle};

use crate::identity::Identity;
use crate::interrupts::Interrupts;
use crate::labels::Labels;
use crate::ledger::{Ledger, RowContent};
use crate::limits::{MAX_NAME, within_receiver};
use crate::partition::{ChildSelection, ContainerPart, ElsewhereChildren};
use crate::policy::DocumentPolicy;
use crate::previous::PreviousReceipt;
use crate::privacy::Privacy;
use crate::settlement::SentDocument;
use crate::transfer::Transfer;
use crate::{Result, Value};

/// Options for sending documents.
#[derive(Debug, Clone)]
pub struct DocumentOptions {
    /// Take documents apart; otherwise each is sent in one piece.
    pub dehydrate: bool,
    /// The limits for one document.
    pub limits: Limits,
    /// Maximum number of documents in flight; 0 counts as 1.
    pub in_flight: usize,
    /// The content of rows in addition to the record of a part.
    pub row_content: RowContent,
    /// How much the receiver learns.
    pub privacy: Privacy,
    /// The policy for parts that fail, and so for their containers; requires layer 2.
    pub policy: Option<DocumentPolicy>,
    /// The server's name in URIs.
    pub authority: Option<String>,
    /// Label each entity, so that another process can resume the session.
    pub labels: bool,
}

/// A document to send, with its identity and its earlier receipt.
#[derive(Debug)]
pub struct Document {
    /// Its name in headers and in the receipt.
    pub name: String,
    /// Its identifier and its owner.
    pub identity: Identity,
    /// Parts that an earlier session has stored, which are not sent again.
    pub previous: PreviousReceipt,
}

/// A sender of documents into one session.
pub struct DocumentSender {
    session: SessionHandle,
    limits: Limits,
    keep_whole: bool,
    in_flight: usize,
    row_content: RowContent,
    privacy: Privacy,
    policy: Option<DocumentPolicy>,
    authority: Option<String>,
    labels: Option<Labels>,
    /// Documents whose outcomes may not all have arrived, oldest first.
    pending: Mutex<VecDeque<SentDocument>>,
    /// At layer 0 the parts of all documents share scope 0. Two documents sent at the same time could fill its window
    /// with parents that wait for each other, so they are sent one after the other.
    turn: Option<Mutex<()>>,
}

impl DocumentSender {
    /// Create a sender of documents for a session whose layer is agreed.
    ///
    /// # Errors
    ///
    /// Errors of the session, and [`Value`] if options contradict each other or the layer does not
    /// support them.
    pub fn new(session: SessionHandle, options: DocumentOptions) -> Result<Self> {
        let agreement = session.agreement()?;
        let DocumentOptions { dehydrate, limits, in_flight, row_content, privacy, policy, authority, labels } = options;
        if policy.is_some() && agreement.layer < 2 {
            return Err(penstock_pipestream_net::Error::from(Misuse::PolicyLayer { layer: agreement.layer }).into());
        }
        let flat = agreement.layer == 0;
        check_privacy(&privacy, policy.as_ref(), flat, dehydrate)?;
        let mut limits = within_receiver(limits);
        limits.max_depth = match (dehydrate, flat) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => limits.max_depth.min(agreement.max_scope_depth.into()),
        };
        Ok(Self {
            session,
            limits,
            keep_whole: !dehydrate || flat,
            in_flight: in_flight.max(1),
            row_content,
            privacy,
            policy,
            authority,
            labels: labels.then(Labels::default),
            pending: Mutex::default(),
            turn: flat.then(Mutex::default),
        })
    }

    /// Take a document apart and send it. Return when every part was announced and handed over.
    ///
    /// `open` opens the document, once there is room for it. `file` is the document's file, if it has one; then a
    /// document that is sent in one piece need not be copied.
    ///
    /// # Errors
    ///
    /// [`Value`] for a name that is too long or empty, errors of the session, and
    /// [`Error::Interrupted`](crate::Error::Interrupted).
    pub fn send<W: Workspace>(
        &self,
        document: Document,
        open: impl FnOnce() -> Payload,
        file: Option<PathBuf>,
        workspace: W,
        interrupts: &dyn Interrupts,
    ) -> Result<SentDocument> {
        let Document { name, identity, previous } = document;
        self.begin(&name, interrupts, || {
            let previous = previous.with_privacy(self.privacy.note(&name).as_ref());
            let dehydrator = self.dehydrator(&name, open(), workspace);
            let ledger = self.ledger(&name, identity)?.with_privacy(self.privacy.clone());
            let transfer = Transfer::new(&self.session, interrupts, ledger, self.keep_whole, file);
            transfer.with_previous(previous).with_labels(self.labels.as_ref()).run(dehydrator)
        })
    }

    /// Send some children of a container in the document, below an entity that stands for the container.
    ///
    /// # Errors
    ///
    /// The errors of [`send`](Self::send).
    pub fn send_children<W: Workspace>(
        &self,
        document: Document,
        open: impl FnOnce() -> Payload,
        selection: &ChildSelection,
        workspace: W,
        interrupts: &dyn Interrupts,
    ) -> Result<SentDocument> {
        let Document { name, identity, previous } = document;
        self.begin(&name, interrupts, || {
            let dehydrator = selection.select(self.dehydrator(&name, open(), workspace));
            let ledger = self.ledger(&name, identity)?.with_selection(selection.sha256, selection.each());
            let transfer = Transfer::new(&self.session, interrupts, ledger, self.keep_whole, None);
            transfer.with_previous(previous).with_base(selection.depth, selection.range()).run(dehydrator)
        })
    }

    /// Send the containers of a document whose innermost one has its children elsewhere.
    ///
    /// # Errors
    ///
    /// The errors of [`send`](Self::send).
    pub fn send_containers(
        &self,
        document: Document,
        chain: Vec<ContainerPart>,
        elsewhere: ElsewhereChildren,
        interrupts: &dyn Interrupts,
    ) -> Result<SentDocument> {
        let Document { name, identity, previous } = document;
        self.begin(&name, interrupts, || {
            let ledger = self.ledger(&name, identity)?;
            let transfer = Transfer::new(&self.session, interrupts, ledger, self.keep_whole, None);
            let chain = chain.into_iter().map(Into::into).collect();
            transfer.with_previous(previous).run_hollow(chain, elsewhere)
        })
    }

    /// Run a transfer, once there is room for another document.
    fn begin(
        &self,
        name: &str,
        interrupts: &dyn Interrupts,
        transfer: impl FnOnce() -> Result<Ledger>,
    ) -> Result<SentDocument> {
        if name.is_empty() || name.len() > MAX_NAME {
            return Err(Value::NameLength.into());
        }
        if let Some(reason) = self.session.is_closed()? {
            return Err(penstock_pipestream_net::Error::Closed(reason).into());
        }
        self.make_room(interrupts)?;
        let _turn = self.turn.as_ref().map(lock);
        let sent = SentDocument::new(self.session.clone(), transfer()?);
        lock(&self.pending).push_back(sent.clone());
        Ok(sent)
    }

    /// Make the ledger of a document for this sender's server.
    fn ledger(&self, name: &str, identity: Identity) -> Result<Ledger> {
        let ledger = Ledger::new(name.to_owned(), self.session.id()?, self.row_content, self.policy.clone());
        Ok(ledger.with_identity(identity, self.authority.clone()))
    }

    fn dehydrator<W: Workspace>(&self, name: &str, source: Payload, workspace: W) -> Dehydrator<W> {
        let own_name = name.rsplit('/').next().unwrap_or_default();
        Dehydrator::new(own_name, source, workspace, self.limits.clone())
    }

    /// Wait for the oldest documents until there is room for one more.
    fn make_room(&self, interrupts: &dyn Interrupts) -> Result<()> {
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

impl fmt::Debug for DocumentSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DocumentSender").field("session", &self.session).finish_non_exhaustive()
    }
}

/// Reject privacy options that the layer does not support, or that contradict other options.
fn check_privacy(privacy: &Privacy, policy: Option<&DocumentPolicy>, flat: bool, dehydrate: bool) -> Result<()> {
    let problem = if privacy.pads() && flat {
        Value::PaddingLayer
    } else if privacy.pads() && policy.is_some_and(|policy| !policy.is_strict()) {
        Value::PaddingPolicy
    } else if privacy.refers() && dehydrate {
        Value::ReferenceParts
    } else {
        return Ok(());
    };
    Err(problem.into())
}
