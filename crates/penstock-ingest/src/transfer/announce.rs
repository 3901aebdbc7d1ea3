//! The announcement of parts, and the consequences of a refusal for the container.

use bytes::Bytes;
use penstock_documents::Failure;
use penstock_pipestream_net::{EntityDraft, EntityKey, ErrorCode, Payload, Reason, SentEntity, Status};

use super::claims::claim_label;
use super::{OpenContainer, Transfer};
use crate::Result;
use crate::payload::{IN_MEMORY, error_code};
use crate::policy::DocumentPolicy;
use crate::previous::DeferredPart;
use crate::privacy::{Padding, Privacy};

/// Maximum numbers of parts, and of bytes in memory, that are announced together.
const MAX_BATCH: usize = 64;
const MAX_BATCH_BYTES: u64 = 4 << 20;

impl Transfer<'_> {
    /// Return why the next part cannot be sent, if it cannot.
    fn refusal(&self) -> Option<String> {
        self.session_end.clone().or_else(|| self.stack.last()?.refused.clone())
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
            content_type: self.ledger.privacy.content_type(media_type, index == 0).to_owned(),
            metadata,
            policy: self.ledger.policy.as_ref().filter(|_| dehydrate).map(DocumentPolicy::message),
            document: (index == 0).then(|| self.ledger.privacy.disclosed_pipe_doc(self.ledger.pipe_doc())),
            label: self.label(index),
            ..EntityDraft::default()
        }
    }

    /// Return the label by which an earlier process's announcement of a part is found; empty if the session is not on
    /// disk.
    pub(super) fn label(&self, index: usize) -> Bytes {
        self.document_labels.as_ref().map(|labels| labels.part(&self.ledger, index)).unwrap_or_default()
    }

    /// Queue a part for the next announcement. A deferred part redeems its claim check.
    pub(super) fn enqueue(
        &mut self,
        index: usize,
        dehydrate: bool,
        payload: Payload,
        deferred: Option<DeferredPart>,
    ) -> Result<()> {
        if let Some(reason) = self.refusal() {
            self.ledger.fail_unsent(index, &reason);
            return Ok(());
        }
        let mut draft = self.draft(index, dehydrate);
        if let Some(deferred) = deferred
            && let Some(claim) = self.redeem(index, &deferred)?
        {
            draft.metadata.insert("pipestream.claim".to_owned(), format!("{claim:016x}"));
            draft.label = claim_label(&draft.label, claim);
        }
        // A payload in a file uses no memory.
        self.batch_bytes += if payload.len() > IN_MEMORY { 0 } else { payload.len() };
        self.batch.push((draft, payload));
        self.batch_parts.push(index);
        if self.batch.len() < MAX_BATCH && self.batch_bytes < MAX_BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    /// Announce a part that cannot be delivered.
    pub(super) fn announce_failed(&mut self, index: usize, failure: &Failure) -> Result<()> {
        self.announce_held()?;
        self.ledger.set_reason(index, &failure.reason);
        self.flush()?;
        if let Some(reason) = self.refusal() {
            self.ledger.fail_unsent(index, &reason);
            return Ok(());
        }
        let reason =
            Reason { code: error_code(failure.kind), message: self.ledger.privacy.disclosed_reason(&failure.reason) };
        // The policy applies within containers, and the document itself is in none.
        let skips = index > 0 && self.ledger.policy.as_ref().is_some_and(DocumentPolicy::skips);
        let draft = self.draft(index, false);
        let announced = match skips {
            true => self.wait(self.session.announce_skipped(draft, reason))?,
            false => self.wait(self.session.announce_failed(draft, reason))?,
        };
        if let Some(open) = self.stack.last_mut() {
            open.headless += 1;
        }
        self.handle_announced(index, announced)
    }

    /// Announce the queued parts.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.batch_bytes = 0;
        let (batch, parts) = (std::mem::take(&mut self.batch), std::mem::take(&mut self.batch_parts));
        let results = self.wait(self.session.send_many(batch))?;
        for (index, result) in parts.into_iter().zip(results) {
            self.handle_announced(index, result)?;
        }
        Ok(())
    }

    /// Handle the result of an announcement. A refusal fails the part, its container, and the container's other parts.
    fn handle_announced(&mut self, index: usize, result: penstock_pipestream_net::Result<SentEntity>) -> Result<()> {
        let error = match result {
            Ok(ticket) => {
                self.ledger.announce(index, &ticket);
                let bytes = self.ledger.records.get(index).and_then(|record| record.bytes).unwrap_or(0);
                if let Some(open) = self.stack.last_mut() {
                    (open.announced, open.last) = (open.announced + 1, bytes);
                }
                return Ok(());
            }
            Err(error) => error,
        };
        let reason = error.to_string();
        self.ledger.fail_unsent(index, &reason);
        if let penstock_pipestream_net::Error::Closed(_) = error {
            self.session_end.get_or_insert(reason);
            return Ok(());
        }
        let Some(open) = self.stack.last_mut() else { return Ok(()) };
        open.refused.get_or_insert(reason);
        let key = open.key;
        key.map_or(Ok(()), |key| self.fail(key, &error))
    }

    /// Fail an entity of this sender because of an error of the session.
    pub(super) fn fail(&mut self, key: EntityKey, error: &penstock_pipestream_net::Error) -> Result<()> {
        let code = error.code().unwrap_or(ErrorCode::InternalError);
        let reason = Reason { code, message: error.to_string() };
        if let Err(error) = self.wait(self.session.fail(key, reason))? {
            self.session_end.get_or_insert_with(|| error.to_string());
        }
        Ok(())
    }

    /// Send padding entities, so that the number of children reveals less (section 10.6).
    pub(super) fn pad(&mut self) -> Result<()> {
        let Some(OpenContainer { index, key: Some(key), refused: None, announced, last, .. }) = self.stack.last()
        else {
            return Ok(());
        };
        let (index, key, bytes) = (*index, *key, *last);
        let original = self.ledger.records.get(index).and_then(|record| record.bytes);
        let count = self.ledger.privacy.padding(*announced, original);
        if count == 0 || self.session_end.is_some() {
            return Ok(());
        }
        let (document, _) = self.ledger.privacy.disclosed_path(&self.ledger.document, &[]);
        let draft = EntityDraft {
            parent: Some(key),
            content_type: "application/octet-stream".to_owned(),
            metadata: [("penstock.document".to_owned(), document), ("penstock.padding".to_owned(), "1".to_owned())]
                .into(),
            ..EntityDraft::default()
        };
        let label = |number| self.document_labels.as_ref().map(|labels| labels.padding(&self.ledger, index, number));
        let padding = (0..count)
            .map(|number| EntityDraft { label: label(number).unwrap_or_default(), ..draft.clone() })
            .map(|draft| (draft, Privacy::random_payload(bytes)))
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
}
