//! Takes one document apart and sends its parts as they come.
//!
//! ```text
//!   Enter  the container is announced, dehydrated; its key is known before its children are drafted
//!   Leaf   drafted, and announced with the next ones in one crossing of threads; a failed one by itself
//!   Leave  no more children
//! ```
//!
//! At layer 0 a document has one level: containers inside it are kept whole (decision 12).
//!
//! What an earlier session has already is not sent again. A container that is the same as then is announced only once
//! something below it turns out not to be; the children before that stay where they are.

mod claims;

use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use penstock_documents::{Event, Failure, FailureKind, Part, Payload as Octets};
use penstock_io::runtime::{self, WaitError};
use penstock_pipestream_net::{EntityDraft, EntityKey, ErrorCode, Payload, Reason, SentEntity, SessionHandle, Status};

use self::claims::{Done, claimed};
use super::labels::{DocumentLabels, Labels};
use super::ledger::Ledger;
use super::made::{IN_MEMORY, code, payload, unchanged, unkept};
use super::manner::{Manner, Padding};
use super::policy::DocumentPolicy;
use super::previous::{Deferred, Kept, Previous};
use crate::documents::{Dehydrator, Interrupts};

/// Drafts are announced together up to this many parts, or octets in memory.
const MAX_BATCH: usize = 64;
const MAX_BATCH_OCTETS: u64 = 4 << 20;

/// The document cannot go on: somebody pressed Ctrl-C, or Python raised. [`Interrupts`] has the error.
pub(super) struct Stopped;

/// A document on its way out.
pub(super) struct Sending<'a> {
    session: &'a SessionHandle,
    interrupts: &'a Interrupts,
    ledger: Ledger,
    /// Containers at the limit of depth are sent whole instead of failing.
    keep_whole: bool,
    /// The file that the document is, if it is one: a document that is sent whole need not be copied.
    file: Option<PathBuf>,
    stack: Vec<Open>,
    batch: Vec<(EntityDraft, Payload)>,
    batch_parts: Vec<usize>,
    batch_octets: u64,
    /// Why the session is over; the rest is accounted for without being sent.
    lost: Option<String>,
    previous: Previous,
    /// Where the documents of a session get their labels, and those of this one once its octets are known.
    labels: Option<&'a Labels>,
    names: Option<DocumentLabels>,
    /// Whether something stays DEFERRED in an earlier session.
    stays_deferred: bool,
    /// What the next part that is offered redeems.
    deferred: Option<Deferred>,
    /// How deep the container lies of which some children are sent; 0 is the document itself. What is above it is
    /// somebody else's.
    base: u32,
    /// Which of its children they are, for the header of what stands for it here.
    children: Option<String>,
    /// What the dehydrator had inflated before the first of them.
    inflated_before: u64,
}

/// A container that is being sent.
struct Open {
    index: usize,
    key: Option<EntityKey>,
    /// Why its further children cannot be sent.
    refused: Option<String>,
    /// Children that were announced as failed: the receiver has no header of theirs.
    headless: u64,
    /// Children that were announced, and the octets of the last one of them.
    announced: u64,
    last: u64,
    /// It is where an earlier session has put it, so far; its own octets, if it has some, wait here.
    kept: Option<Payload>,
}

impl<'a> Sending<'a> {
    pub(super) fn new(
        session: &'a SessionHandle,
        interrupts: &'a Interrupts,
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
            batch_octets: 0,
            lost: None,
            previous: Previous::default(),
            labels: None,
            names: None,
            stays_deferred: false,
            deferred: None,
            base: 0,
            children: None,
            inflated_before: 0,
        }
    }

    /// Leaves where it is what an earlier receipt has.
    pub(super) fn with_previous(mut self, previous: Previous) -> Self {
        self.ledger.kept_uri.clone_from(&previous.uri);
        self.previous = previous;
        self
    }

    /// Gives each entity a label.
    pub(super) fn with_labels(mut self, labels: Option<&'a Labels>) -> Self {
        self.labels = labels;
        self
    }

    /// Sends `children` of the container at the depth `base` only, below an entity that stands for it.
    pub(super) fn with_base(mut self, base: u32, children: String) -> Self {
        (self.base, self.children) = (base, Some(children));
        self
    }

    /// Sends all of it.
    pub(super) fn run(mut self, mut dehydrator: Dehydrator) -> Result<Ledger, Stopped> {
        match self.drive(&mut dehydrator) {
            Ok(()) => Ok(self.ledger),
            Err(Stopped) => {
                self.abandon();
                Err(Stopped)
            }
        }
    }

    fn drive(&mut self, dehydrator: &mut Dehydrator) -> Result<(), Stopped> {
        while let Some(event) = dehydrator.next_event() {
            if self.interrupts.pending() {
                return Err(Stopped);
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
                    self.ledger.missing = Some(format!("there is no container any more, but: {found}"));
                }
                Event::Leaf(part, payload) => self.leaf(part, payload)?,
                Event::Leave { .. } => self.leave()?,
            }
        }
        self.ledger.inflated = dehydrator.inflated().saturating_sub(self.inflated_before);
        self.flush()
    }

    /// Sends containers that lie in each other and whose innermost one has its children elsewhere: `children` of them,
    /// and `incomplete` that are not COMPLETE.
    pub(super) fn run_hollow(mut self, chain: Vec<Part>, children: u64, incomplete: u64) -> Result<Ledger, Stopped> {
        let sent = self.drive_hollow(chain, children, incomplete);
        if sent.is_err() {
            self.abandon();
        }
        sent.map(|()| self.ledger)
    }

    fn drive_hollow(&mut self, chain: Vec<Part>, children: u64, incomplete: u64) -> Result<(), Stopped> {
        for part in chain {
            self.enter(part, None)?;
        }
        self.ledger.count_elsewhere(children, incomplete);
        if incomplete > 0 {
            // The receiver cannot know: those that failed are in other sessions.
            self.announce_kept()?;
            let fails = self.ledger.policy.as_ref().is_none_or(|policy| policy.fails(children, incomplete));
            if let Some(key) = self.stack.last().and_then(|open| open.key).filter(|_| fails) {
                let message = format!("{incomplete} of {children} parts are not COMPLETE");
                let reason = Reason { code: ErrorCode::EntityInvalid, message };
                if let Err(error) = self.wait(self.session.fail(key, reason))? {
                    self.lost.get_or_insert_with(|| error.to_string());
                }
            }
        }
        while !self.stack.is_empty() {
            self.leave()?;
        }
        self.flush()
    }

    fn enter(&mut self, mut part: Part, mut octets: Option<Octets>) -> Result<(), Stopped> {
        let text = part.text.take();
        let hollow = octets.is_none();
        let index = self.add(&part, hollow);
        let kept = self.keep(index, &part, text, octets.as_mut());
        let payload = kept.and_then(|()| match octets {
            Some(octets) => payload(&part, octets),
            None => Ok(Payload::empty()),
        });
        let payload = match payload {
            Ok(payload) => payload,
            Err(error) => {
                self.announce_failed(index, &unkept(&error))?;
                self.stack.push(self.open(index));
                return Ok(());
            }
        };
        // What stands for a container in this session is announced with the first child that is sent below it.
        let stands_in = self.children.is_some() && part.depth == self.base;
        let place = if self.is_as_before(index) { self.previous.take(&part, hollow) } else { None };
        if stands_in || place.is_some() {
            if let Some(place) = place {
                self.ledger.keep(index, place);
            }
            self.stack.push(Open { key: None, refused: None, kept: Some(payload), ..self.open(index) });
            return Ok(());
        }
        let deferred = if self.is_as_before(index) { self.previous.take_deferred(&part) } else { None };
        self.announce_kept()?;
        self.deferred = deferred;
        self.offer(index, true, payload)?;
        self.flush()?;
        self.stack.push(self.open(index));
        Ok(())
    }

    /// Whether an earlier session may have a part as it is now: of the document itself the header says whose it is.
    fn is_as_before(&self, index: usize) -> bool {
        index > 0 || self.children.is_some() || self.previous.is_of(&self.ledger.pipe_doc())
    }

    /// Takes a part into the account. With the first one, the document itself, its labels are known.
    fn add(&mut self, part: &Part, hollow: bool) -> usize {
        let index = self.ledger.add(part, self.parent(), hollow);
        if self.names.is_none() {
            self.names = self.labels.map(|labels| labels.document(&self.ledger));
        }
        index
    }

    /// A container that was announced, or could not be. Without a parent to send them under, its children are accounted
    /// for unsent.
    fn open(&self, index: usize) -> Open {
        let key = self.ledger.records.get(index).and_then(|record| record.key);
        let refused = key.is_none().then(|| "the container that it lies in could not be sent".to_owned());
        Open { index, key, refused, headless: 0, announced: 0, last: 0, kept: None }
    }

    /// Announces the containers that are open and were to stay where they are: something below them is not the same.
    fn announce_kept(&mut self) -> Result<(), Stopped> {
        if self.stack.iter().all(|open| open.kept.is_none()) {
            return Ok(());
        }
        let mut below = std::mem::take(&mut self.stack).into_iter();
        while let Some(mut open) = below.next() {
            if let Some(payload) = open.kept.take() {
                self.ledger.renew(open.index);
                let sent = match self.offer(open.index, true, payload) {
                    Ok(()) => self.flush(),
                    Err(stopped) => Err(stopped),
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

    fn leaf(&mut self, mut part: Part, mut octets: Option<Octets>) -> Result<(), Stopped> {
        let whole = |failure: &Failure| self.keep_whole && failure.kind == FailureKind::TooDeep && octets.is_some();
        let failure = part.failure.take().filter(|failure| !whole(failure));
        let text = part.text.take();
        let index = self.add(&part, false);
        let kept = self.keep(index, &part, text, octets.as_mut().filter(|_| failure.is_none()));
        let as_before = self.is_as_before(index);
        if failure.is_none()
            && kept.is_ok()
            && as_before
            && let Some(place) = self.previous.take(&part, false)
        {
            self.ledger.keep(index, place);
            return Ok(());
        }
        let deferred = if as_before { self.previous.take_deferred(&part) } else { None };
        let deferred = match deferred {
            Some(deferred) => match self.done(index, &deferred)? {
                Done::Stored(file) => {
                    self.ledger.keep(index, Kept { file: Some(file), reason: None, ..deferred.kept });
                    return Ok(());
                }
                Done::Elsewhere => {
                    self.ledger.keep_deferred(index, deferred.kept);
                    self.stays_deferred = true;
                    return Ok(());
                }
                Done::No => Some(deferred),
            },
            None => None,
        };
        self.announce_kept()?;
        self.deferred = deferred;
        let made = match (failure, octets) {
            (Some(failure), _) => Err(failure),
            (None, None) => Err(Failure::new(FailureKind::Io, "its octets are not there")),
            (None, Some(octets)) => {
                let made = kept.and_then(|()| self.instead(&part).unwrap_or_else(|| payload(&part, octets)));
                made.map_err(|error| unkept(&error))
            }
        };
        match made {
            Ok(payload) => self.offer(index, false, payload),
            Err(failure) => self.announce_failed(index, &failure),
        }
    }

    fn leave(&mut self) -> Result<(), Stopped> {
        self.flush()?;
        self.pad()?;
        let Some(Open { key: Some(key), headless, index, .. }) = self.stack.pop() else { return Ok(()) };
        if self.lost.is_some() {
            return Ok(());
        }
        if let Some(message) = self.unseen(index, headless) {
            let reason = Reason { code: ErrorCode::EntityInvalid, message };
            if let Err(error) = self.wait(self.session.fail(key, reason))? {
                self.lost.get_or_insert_with(|| error.to_string());
                return Ok(());
            }
        }
        match self.wait(self.session.end_children(key))? {
            Ok(()) => Ok(()),
            // An entity whose children never end would keep the session from closing.
            Err(error) => self.fail(key, &error),
        }
    }

    /// Why a container fails for parts that the receiver does not count in this session, if it does.
    fn unseen(&self, index: usize, headless: u64) -> Option<String> {
        if self.keep_whole && headless > 0 {
            // At layer 0 only a header says whose child an entity is, so the receiver cannot know that STRICT fails this
            // one.
            return Some(format!("{headless} of its parts could not be sent"));
        }
        let (children, deferred) = if self.stays_deferred { self.ledger.set_aside_before(index) } else { (0, 0) };
        // Of those that are sent none has failed yet; what does is the receiver's to count.
        let fails = |policy: &DocumentPolicy| policy.fails(children, deferred);
        let failed = deferred > 0 && self.ledger.policy.as_ref().is_none_or(fails);
        failed.then(|| format!("{deferred} of {children} parts are not COMPLETE"))
    }

    /// Sends entities that stand for nothing, so that the number of children tells less (section 10.6).
    fn pad(&mut self) -> Result<(), Stopped> {
        let Some(Open { index, key: Some(key), refused: None, announced, last, .. }) = self.stack.last() else {
            return Ok(());
        };
        let (index, key, octets) = (*index, *key, *last);
        let original = self.ledger.records.get(index).and_then(|record| record.bytes);
        let count = self.ledger.manner.padding(*announced, original);
        if count == 0 || self.lost.is_some() {
            return Ok(());
        }
        let (document, _) = self.ledger.manner.named(&self.ledger.document, &[]);
        let draft = EntityDraft {
            parent: Some(key),
            content_type: "application/octet-stream".to_owned(),
            metadata: [("penstock.document".to_owned(), document), ("penstock.padding".to_owned(), "1".to_owned())]
                .into(),
            ..EntityDraft::default()
        };
        let label = |number| self.names.as_ref().map(|names| names.padding(&self.ledger, index, number));
        let padding = (0..count)
            .map(|number| EntityDraft { label: label(number).unwrap_or_default(), ..draft.clone() })
            .map(|draft| (draft, Manner::random(octets)))
            .collect();
        for result in self.wait(self.session.send_many(padding))? {
            match result {
                Ok(ticket) => {
                    let padding = Padding { key: ticket.key, status: Status::Pending };
                    if let Some(record) = self.ledger.records.get_mut(index) {
                        record.padding.push(padding);
                    }
                }
                Err(error) => self.fail(key, &error)?,
            }
        }
        Ok(())
    }

    fn parent(&self) -> Option<usize> {
        self.stack.last().map(|open| open.index)
    }

    /// Keeps what the part's row is to have.
    fn keep(&mut self, index: usize, part: &Part, text: Option<String>, octets: Option<&mut Octets>) -> io::Result<()> {
        text.map_or(Ok(()), |text| self.ledger.keep_text(index, part, &text))?;
        octets.map_or(Ok(()), |octets| self.ledger.keep_content(index, part, octets))
    }

    /// What is sent of a document instead of its octets as they were read: a reference, or the file itself.
    fn instead(&self, part: &Part) -> Option<io::Result<Payload>> {
        let referred = self.ledger.manner.reference(&self.ledger.document, part).filter(|_| part.depth == 0);
        referred.or_else(|| self.file_or(part))
    }

    /// The payload of a document that is sent whole, straight from its file.
    fn file_or(&self, part: &Part) -> Option<io::Result<Payload>> {
        let file =
            self.file.as_ref().filter(|_| part.depth == 0 && part.bytes.is_some_and(|bytes| bytes > IN_MEMORY))?;
        let payload = Payload::path(file).map_err(io::Error::other);
        Some(payload.and_then(|payload| unchanged(part, payload)))
    }

    /// Why the next part cannot be sent, if it cannot.
    fn refusal(&self) -> Option<String> {
        self.lost.clone().or_else(|| self.stack.last()?.refused.clone())
    }

    fn draft(&self, index: usize, dehydrate: bool) -> EntityDraft {
        let mut metadata = self.ledger.metadata(index, dehydrate);
        if index == 0 {
            metadata.extend(self.children.iter().map(|children| ("penstock.children".to_owned(), children.clone())));
        }
        let media_type = self.ledger.records.get(index).map_or("", |record| record.media_type.as_str());
        EntityDraft {
            parent: self.stack.last().and_then(|open| open.key),
            dehydrate,
            content_type: self.ledger.manner.content_type(media_type, index == 0).to_owned(),
            metadata,
            policy: self.ledger.policy.as_ref().filter(|_| dehydrate).map(DocumentPolicy::message),
            document: (index == 0).then(|| self.ledger.manner.enveloped(self.ledger.pipe_doc())),
            label: self.label(index),
            ..EntityDraft::default()
        }
    }

    /// By what an earlier process's announcement of a part is found; empty where the session is not on disk.
    fn label(&self, index: usize) -> Bytes {
        self.names.as_ref().map(|names| names.part(&self.ledger, index)).unwrap_or_default()
    }

    /// Puts a part among those that are announced next.
    fn offer(&mut self, index: usize, dehydrate: bool, payload: Payload) -> Result<(), Stopped> {
        if let Some(reason) = self.refusal() {
            self.deferred = None;
            self.ledger.unsent(index, &reason);
            return Ok(());
        }
        let mut draft = self.draft(index, dehydrate);
        if let Some(claim) = self.redeem(index)? {
            draft.metadata.insert("pipestream.claim".to_owned(), format!("{claim:016x}"));
            draft.label = claimed(&draft.label, claim);
        }
        // What is in a file costs no memory.
        self.batch_octets += if payload.len() > IN_MEMORY { 0 } else { payload.len() };
        self.batch.push((draft, payload));
        self.batch_parts.push(index);
        if self.batch.len() < MAX_BATCH && self.batch_octets < MAX_BATCH_OCTETS { Ok(()) } else { self.flush() }
    }

    /// Announces a part of which nothing can be delivered.
    fn announce_failed(&mut self, index: usize, failure: &Failure) -> Result<(), Stopped> {
        self.announce_kept()?;
        self.ledger.blame(index, &failure.reason);
        self.flush()?;
        if let Some(reason) = self.refusal() {
            self.ledger.unsent(index, &reason);
            return Ok(());
        }
        let reason = Reason { code: code(failure.kind), message: self.ledger.manner.told(&failure.reason) };
        // The policy is that of containers, and the document itself lies in none.
        let skips = index > 0 && self.ledger.policy.as_ref().is_some_and(DocumentPolicy::skips);
        let draft = self.draft(index, false);
        let announced = match skips {
            true => self.wait(self.session.announce_skipped(draft, reason))?,
            false => self.wait(self.session.announce_failed(draft, reason))?,
        };
        if let Some(open) = self.stack.last_mut() {
            open.headless += 1;
        }
        self.take(index, announced)
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch_octets = 0;
        let (batch, parts) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batch_parts));
        let results = self.wait(self.session.send_many(batch))?;
        for (index, result) in parts.into_iter().zip(results) {
            self.take(index, result)?;
        }
        Ok(())
    }

    /// Takes the answer to an announcement. A refusal fails the part, its container, and what else is in there.
    fn take(&mut self, index: usize, result: penstock_pipestream_net::Result<SentEntity>) -> Result<(), Stopped> {
        let error = match result {
            Ok(ticket) => {
                self.ledger.announced(index, &ticket);
                let octets = self.ledger.records.get(index).and_then(|record| record.bytes).unwrap_or(0);
                if let Some(open) = self.stack.last_mut() {
                    (open.announced, open.last) = (open.announced + 1, octets);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        let reason = error.to_string();
        self.ledger.unsent(index, &reason);
        if let penstock_pipestream_net::Error::Closed(_) = error {
            self.lost.get_or_insert(reason);
            return Ok(());
        }
        let Some(open) = self.stack.last_mut() else { return Ok(()) };
        open.refused.get_or_insert(reason);
        let key = open.key;
        key.map_or(Ok(()), |key| self.fail(key, &error))
    }

    fn fail(&mut self, key: EntityKey, error: &penstock_pipestream_net::Error) -> Result<(), Stopped> {
        let code = error.code().unwrap_or(ErrorCode::InternalError);
        let reason = Reason { code, message: error.to_string() };
        if let Err(error) = self.wait(self.session.fail(key, reason))? {
            self.lost.get_or_insert_with(|| error.to_string());
        }
        Ok(())
    }

    fn wait<F: Future>(&self, future: F) -> Result<F::Output, Stopped> {
        runtime::wait(future, None, &mut || self.interrupts.check()).map_err(|error| {
            if let WaitError::Runtime(error) = error {
                self.interrupts.keep(crate::error::IntoPyErr::into_py_err(error));
            }
            Stopped
        })
    }

    /// Ends what was begun, so that the session can still be closed: every open container fails, without more children.
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
                tracing::debug!(%error, "ending an interrupted document");
            }
        }
    }
}
