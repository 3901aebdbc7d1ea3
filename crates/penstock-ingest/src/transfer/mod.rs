//! The transfer of one document, whose parts are sent as they are produced: the dehydrator produces
//! the parts, the session sends them, and the ledger records the outcome of each.
//!
//! ```text
//!   Enter  the container is announced, dehydrated; its key is known before its children are drafted
//!   Leaf   drafted, and announced with the next leaves in one call to the IO thread; a failed leaf by itself
//!   Leave  the container's children are ended
//! ```
//!
//! At layer 0 a document has one level: containers inside it are kept whole (decision 12).
//!
//! Parts that an earlier session has stored are not sent again. An unchanged container is announced
//! only once a part below it turns out to have changed; the children before that part stay where
//! they are.

mod announce;
mod claims;

use std::io;
use std::path::PathBuf;

use penstock_documents::{Dehydrator, Event, Failure, FailureKind, Part, Payload as PartBytes, Workspace};
use penstock_io::runtime::{self, WaitError};
use penstock_pipestream_net::{EntityDraft, EntityKey, ErrorCode, Payload, Reason, SessionHandle};

use crate::interrupts::Interrupts;
use crate::labels::{DocumentLabels, Labels};
use crate::ledger::Ledger;
use crate::partition::ElsewhereChildren;
use crate::payload::{IN_MEMORY, io_failure, payload, unchanged};
use crate::policy::DocumentPolicy;
use crate::previous::PreviousReceipt;
use crate::{Error, Result};

/// The error for a document that [`Interrupts`] ended; the caller knows why.
const INTERRUPTED: Error = Error::Interrupted("the document was interrupted");

/// A document that is being sent.
pub(crate) struct Transfer<'a> {
    session: &'a SessionHandle,
    interrupts: &'a dyn Interrupts,
    ledger: Ledger,
    /// Whether containers at the depth limit are sent in one piece instead of failing.
    keep_whole: bool,
    /// The document's file, if it has one: a document that is sent in one piece need not be copied.
    file: Option<PathBuf>,
    stack: Vec<OpenContainer>,
    batch: Vec<(EntityDraft, Payload)>,
    batch_parts: Vec<usize>,
    batch_bytes: u64,
    /// The reason why the session has ended; further parts are then recorded without being sent.
    session_end: Option<String>,
    previous: PreviousReceipt,
    /// The source of labels in the session, and the labels of this document once its bytes are known.
    labels: Option<&'a Labels>,
    document_labels: Option<DocumentLabels>,
    /// Whether a part stays DEFERRED in an earlier session.
    has_deferred: bool,
    /// The depth of the container of which some children are sent; 0 is the document itself. Containers above it are
    /// not sent here.
    base: u32,
    /// The range of these children, for the header of the entity that stands for the container.
    children: Option<String>,
    /// Number of bytes that the dehydrator had inflated before the first of these children.
    inflated_before: u64,
}

/// A container that is being sent.
struct OpenContainer {
    index: usize,
    key: Option<EntityKey>,
    /// The reason why no further children can be sent.
    refused: Option<String>,
    /// The number of children that were announced as failed, whose headers the receiver does not
    /// have.
    headless: u64,
    /// The number of announced children, and the bytes of the last one.
    announced: u64,
    last: u64,
    /// Present while the container may stay where an earlier session has stored it; its own bytes, if any, wait here.
    held: Option<Payload>,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(
        session: &'a SessionHandle,
        interrupts: &'a dyn Interrupts,
        ledger: Ledger,
        keep_whole: bool,
        file: Option<PathBuf>,
    ) -> Self {
        Self {
            session,
            interrupts,
            ledger,
            keep_whole,
            file,
            stack: Vec::new(),
            batch: Vec::new(),
            batch_parts: Vec::new(),
            batch_bytes: 0,
            session_end: None,
            previous: PreviousReceipt::default(),
            labels: None,
            document_labels: None,
            has_deferred: false,
            base: 0,
            children: None,
            inflated_before: 0,
        }
    }

    /// Do not send the unchanged parts of an earlier receipt again.
    pub(crate) fn with_previous(mut self, previous: PreviousReceipt) -> Self {
        self.ledger.previous_uri.clone_from(&previous.uri);
        self.previous = previous;
        self
    }

    /// Label each entity.
    pub(crate) fn with_labels(mut self, labels: Option<&'a Labels>) -> Self {
        self.labels = labels;
        self
    }

    /// Send only `children` of the container at the depth `base`, below an entity that stands for it.
    pub(crate) fn with_base(mut self, base: u32, children: String) -> Self {
        (self.base, self.children) = (base, Some(children));
        self
    }

    /// Send the whole document.
    pub(crate) fn run<W: Workspace>(mut self, mut dehydrator: Dehydrator<W>) -> Result<Ledger> {
        let sent = self.drive(&mut dehydrator);
        if sent.is_err() {
            self.abandon();
        }
        sent.map(|()| self.ledger)
    }

    fn drive<W: Workspace>(&mut self, dehydrator: &mut Dehydrator<W>) -> Result<()> {
        while let Some(event) = dehydrator.next_event() {
            if self.interrupts.pending() {
                return Err(INTERRUPTED);
            }
            match event {
                Event::Enter(part, _) if part.depth < self.base => {}
                Event::Enter(part, payload) => {
                    self.inflated_before =
                        if part.depth == self.base { dehydrator.inflated() } else { self.inflated_before };
                    self.enter(part, payload)?;
                }
                Event::Leaf(part, _) if self.children.is_some() && part.depth <= self.base => {
                    let found = part.failure.map_or(part.media_type, |failure| failure.reason);
                    self.ledger.missing = Some(format!("the container has changed: {found}"));
                }
                Event::Leaf(part, payload) => self.leaf(part, payload)?,
                Event::Leave { .. } => self.leave()?,
            }
        }
        self.ledger.inflated = dehydrator.inflated().saturating_sub(self.inflated_before);
        self.flush()
    }

    /// Send nested containers whose innermost one has its children elsewhere.
    pub(crate) fn run_hollow(mut self, chain: Vec<Part>, elsewhere: ElsewhereChildren) -> Result<Ledger> {
        let sent = self.drive_hollow(chain, elsewhere);
        if sent.is_err() {
            self.abandon();
        }
        sent.map(|()| self.ledger)
    }

    fn drive_hollow(&mut self, chain: Vec<Part>, elsewhere: ElsewhereChildren) -> Result<()> {
        let ElsewhereChildren { children, incomplete } = elsewhere;
        for part in chain {
            self.enter(part, None)?;
        }
        self.ledger.count_elsewhere(children, incomplete);
        if incomplete > 0 {
            // The receiver cannot know this, because the failed children are in other sessions.
            self.announce_held()?;
            let fails = self.ledger.policy.as_ref().is_none_or(|policy| policy.fails(children, incomplete));
            if let Some(key) = self.stack.last().and_then(|open| open.key).filter(|_| fails) {
                let message = format!("{incomplete} of {children} parts are not COMPLETE");
                let reason = Reason { code: ErrorCode::EntityInvalid, message };
                if let Err(error) = self.wait(self.session.fail(key, reason))? {
                    self.session_end.get_or_insert_with(|| error.to_string());
                }
            }
        }
        while !self.stack.is_empty() {
            self.leave()?;
        }
        self.flush()
    }

    fn enter(&mut self, mut part: Part, mut bytes: Option<PartBytes>) -> Result<()> {
        let text = part.text.take();
        let hollow = bytes.is_none();
        let index = self.add(&part, hollow);
        let row_kept = self.keep_row_content(index, &part, text, bytes.as_mut());
        let payload = row_kept.and_then(|()| match bytes {
            Some(bytes) => payload(&part, bytes),
            None => Ok(Payload::empty()),
        });
        let payload = match payload {
            Ok(payload) => payload,
            Err(error) => {
                self.announce_failed(index, &io_failure(&error))?;
                self.stack.push(self.open(index));
                return Ok(());
            }
        };
        // The entity that stands for a container in this session is announced before the first
        // child that is sent below it.
        let is_base = self.children.is_some() && part.depth == self.base;
        let stored = if self.is_comparable(index) { self.previous.take(&part, hollow) } else { None };
        if is_base || stored.is_some() {
            if let Some(stored) = stored {
                self.ledger.keep(index, stored);
            }
            self.stack.push(OpenContainer { key: None, refused: None, held: Some(payload), ..self.open(index) });
            return Ok(());
        }
        let deferred = if self.is_comparable(index) { self.previous.take_deferred(&part) } else { None };
        self.announce_held()?;
        self.enqueue(index, true, payload, deferred)?;
        self.flush()?;
        self.stack.push(self.open(index));
        Ok(())
    }

    /// Return whether a part can be compared with an earlier session. The document itself can be
    /// compared only if the identity in its header is unchanged.
    fn is_comparable(&self, index: usize) -> bool {
        index > 0 || self.children.is_some() || self.previous.matches_document(&self.ledger.pipe_doc())
    }

    /// Add a part to the ledger. The first one is the document itself, after which its labels are known.
    fn add(&mut self, part: &Part, hollow: bool) -> usize {
        let index = self.ledger.add(part, self.parent(), hollow);
        if self.document_labels.is_none() {
            self.document_labels = self.labels.map(|labels| labels.document(&self.ledger));
        }
        index
    }

    /// Return an open container. If it could not be announced, its children have no parent, and are
    /// recorded without being sent.
    fn open(&self, index: usize) -> OpenContainer {
        let key = self.ledger.records.get(index).and_then(|record| record.key);
        let refused = key.is_none().then(|| "its container could not be sent".to_owned());
        OpenContainer { index, key, refused, headless: 0, announced: 0, last: 0, held: None }
    }

    /// Announce the open containers that are held back, because a part below them has changed.
    fn announce_held(&mut self) -> Result<()> {
        if self.stack.iter().all(|open| open.held.is_none()) {
            return Ok(());
        }
        let mut below = std::mem::take(&mut self.stack).into_iter();
        while let Some(mut open) = below.next() {
            if let Some(payload) = open.held.take() {
                self.ledger.renew(open.index);
                let sent = match self.enqueue(open.index, true, payload, None) {
                    Ok(()) => self.flush(),
                    Err(error) => Err(error),
                };
                open = self.open(open.index);
                if sent.is_err() {
                    self.stack.push(open);
                    self.stack.extend(below);
                    return sent;
                }
            }
            self.stack.push(open);
        }
        Ok(())
    }

    fn leaf(&mut self, mut part: Part, mut bytes: Option<PartBytes>) -> Result<()> {
        let whole = |failure: &Failure| self.keep_whole && failure.kind == FailureKind::TooDeep && bytes.is_some();
        let failure = part.failure.take().filter(|failure| !whole(failure));
        let text = part.text.take();
        let index = self.add(&part, false);
        let row_kept = self.keep_row_content(index, &part, text, bytes.as_mut().filter(|_| failure.is_none()));
        let comparable = self.is_comparable(index);
        if failure.is_none()
            && row_kept.is_ok()
            && comparable
            && let Some(stored) = self.previous.take(&part, false)
        {
            self.ledger.keep(index, stored);
            return Ok(());
        }
        let deferred = if comparable { self.previous.take_deferred(&part) } else { None };
        let deferred = match deferred {
            Some(deferred) => match self.keep_if_done(index, deferred)? {
                Some(deferred) => Some(deferred),
                None => return Ok(()),
            },
            None => None,
        };
        self.announce_held()?;
        let sendable = match (failure, bytes) {
            (Some(failure), _) => Err(failure),
            (None, None) => Err(Failure::new(FailureKind::Io, "its bytes are missing")),
            (None, Some(bytes)) => {
                let payload_result =
                    row_kept.and_then(|()| self.whole_payload(&part).unwrap_or_else(|| payload(&part, bytes)));
                payload_result.map_err(|error| io_failure(&error))
            }
        };
        match sendable {
            Ok(payload) => self.enqueue(index, false, payload, deferred),
            Err(failure) => self.announce_failed(index, &failure),
        }
    }

    fn leave(&mut self) -> Result<()> {
        self.flush()?;
        self.pad()?;
        let Some(OpenContainer { key: Some(key), headless, index, .. }) = self.stack.pop() else { return Ok(()) };
        if self.session_end.is_some() {
            return Ok(());
        }
        if let Some(message) = self.container_failure(index, headless) {
            let reason = Reason { code: ErrorCode::EntityInvalid, message };
            if let Err(error) = self.wait(self.session.fail(key, reason))? {
                self.session_end.get_or_insert_with(|| error.to_string());
                return Ok(());
            }
        }
        match self.wait(self.session.end_children(key))? {
            Ok(()) => Ok(()),
            // An entity whose children never end would prevent the session from closing.
            Err(error) => self.fail(key, &error),
        }
    }

    /// Return why a container fails because of parts that the receiver does not count in this session, if it does.
    fn container_failure(&self, index: usize, headless: u64) -> Option<String> {
        if self.keep_whole && headless > 0 {
            // At layer 0 only a header states an entity's parent, so the receiver cannot know that STRICT fails this
            // container.
            return Some(format!("{headless} of its parts could not be sent"));
        }
        let (children, deferred) = if self.has_deferred { self.ledger.set_aside_before(index) } else { (0, 0) };
        // None of the parts that are sent has failed yet; the receiver counts those that do.
        let fails = |policy: &DocumentPolicy| policy.fails(children, deferred);
        let failed = deferred > 0 && self.ledger.policy.as_ref().is_none_or(fails);
        failed.then(|| format!("{deferred} of {children} parts are not COMPLETE"))
    }

    fn parent(&self) -> Option<usize> {
        self.stack.last().map(|open| open.index)
    }

    /// Keep the content for the part's row.
    fn keep_row_content(
        &mut self,
        index: usize,
        part: &Part,
        text: Option<String>,
        bytes: Option<&mut PartBytes>,
    ) -> io::Result<()> {
        text.map_or(Ok(()), |text| self.ledger.keep_text(index, part, &text))?;
        bytes.map_or(Ok(()), |bytes| self.ledger.keep_content(index, part, bytes))
    }

    /// Return the payload that is sent instead of a document's bytes as they were read: a reference, or the file
    /// itself.
    fn whole_payload(&self, part: &Part) -> Option<io::Result<Payload>> {
        let referred = self.ledger.privacy.reference(&self.ledger.document, part).filter(|_| part.depth == 0);
        referred.or_else(|| self.file_payload(part))
    }

    /// Return the payload of a document that is sent in one piece, directly from its file.
    fn file_payload(&self, part: &Part) -> Option<io::Result<Payload>> {
        let file =
            self.file.as_ref().filter(|_| part.depth == 0 && part.bytes.is_some_and(|bytes| bytes > IN_MEMORY))?;
        let payload = Payload::path(file).map_err(io::Error::other);
        Some(payload.and_then(|payload| unchanged(part, payload)))
    }

    fn wait<F: Future>(&self, future: F) -> Result<F::Output> {
        runtime::wait(future, None, &mut || self.interrupts.check()).map_err(|error| match error {
            WaitError::Runtime(error) => error.into(),
            WaitError::Deadline | WaitError::Interrupted => INTERRUPTED,
        })
    }

    /// End the open containers, so that the session can still be closed: every open container fails, without further
    /// children.
    fn abandon(&mut self) {
        while let Some(open) = self.stack.pop() {
            let Some(key) = open.key else { continue };
            let reason = Reason { code: ErrorCode::InternalError, message: "the sender was interrupted".to_owned() };
            let session = self.session;
            let ended = runtime::block_on(async move {
                session.fail(key, reason).await?;
                session.end_children(key).await
            });
            if let Err(error) = ended.map_err(penstock_pipestream_net::Error::from).flatten() {
                tracing::debug!(%error, "cannot end an interrupted document");
            }
        }
    }
}
