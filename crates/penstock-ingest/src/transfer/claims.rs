//! Parts that an earlier session has deferred: whether their work was done in the meantime, and how
//! they are sent again.

use bytes::Bytes;
use penstock_pipestream_net::Status;

use super::Transfer;
use crate::Result;
use crate::previous::{DeferredPart, PreviousPart};

/// The state of the work that a claim check represents.
enum ClaimWork {
    /// The work was not done, as far as the session can tell.
    Open,
    /// A worker has done the work, and the sink stores the result next to the payload, which has
    /// this name.
    Stored(String),
    /// A worker has done the work, and has decided itself what to do with the part.
    Elsewhere,
}

/// Return the label of a part that is sent under a claim check.
pub(super) fn claim_label(label: &Bytes, claim: u64) -> Bytes {
    if label.is_empty() { Bytes::new() } else { [label.as_ref(), &claim.to_be_bytes()].concat().into() }
}

impl Transfer<'_> {
    /// Keep a deferred part where it is if its work was done in the meantime; otherwise return it,
    /// to be sent.
    pub(super) fn keep_if_done(&mut self, index: usize, deferred: DeferredPart) -> Result<Option<DeferredPart>> {
        match self.claim_work(index, &deferred)? {
            ClaimWork::Open => Ok(Some(deferred)),
            ClaimWork::Stored(file) => {
                let stored = PreviousPart { file: Some(file), reason: None, ..deferred.stored };
                self.ledger.keep(index, stored);
                Ok(None)
            }
            ClaimWork::Elsewhere => {
                self.ledger.keep_deferred(index, deferred.stored);
                self.has_deferred = true;
                Ok(None)
            }
        }
    }

    /// Return the state of a claim check's work, which a worker of a task queue may have done
    /// without a session.
    fn claim_work(&self, index: usize, deferred: &DeferredPart) -> Result<ClaimWork> {
        if self.session.agreement().is_ok_and(|agreement| agreement.layer < 2)
            || self.is_announced(&claim_label(&self.label(index), deferred.claim))?
        {
            return Ok(ClaimWork::Open);
        }
        let Ok(check) = self.wait(self.session.claim(deferred.claim))? else { return Ok(ClaimWork::Open) };
        Ok(match (check.status, check.file) {
            (Status::Complete, Some(file)) => ClaimWork::Stored(file),
            (Status::Complete, None) => ClaimWork::Elsewhere,
            (_, _) => ClaimWork::Open,
        })
    }

    /// Return whether an earlier process has announced an entity with this label in the session.
    fn is_announced(&self, label: &Bytes) -> Result<bool> {
        if label.is_empty() || !self.session.resumed().unwrap_or(false) {
            return Ok(false);
        }
        // Ignore an error: a session that has ended reports it at the next send.
        Ok(self.wait(self.session.knows(label.clone()))?.unwrap_or(false))
    }

    /// Redeem the claim check of a part that an earlier session has deferred, and return it. If it
    /// is no longer valid, the part is sent again like any other. A part that an earlier process
    /// has announced in this session is sent under the claim check only if that process redeemed
    /// it, because a claim check can be redeemed only once.
    pub(super) fn redeem(&mut self, index: usize, deferred: &DeferredPart) -> Result<Option<u64>> {
        let DeferredPart { claim, session, .. } = *deferred;
        if self.session.agreement().is_ok_and(|agreement| agreement.layer < 2) {
            return Ok(None);
        }
        let label = self.label(index);
        if self.is_announced(&claim_label(&label, claim))? {
            self.ledger.redeem(index, claim);
            return Ok(Some(claim));
        }
        if self.is_announced(&label)? {
            return Ok(None);
        }
        match self.wait(self.session.redeem(claim, session))? {
            Ok(_) => {
                self.ledger.redeem(index, claim);
                Ok(Some(claim))
            }
            Err(error) => {
                tracing::info!(
                    target: "penstock.documents",
                    document = self.ledger.document,
                    claim = format!("{claim:016x}"),
                    %error,
                    "a claim check is no longer valid: its part is sent again"
                );
                Ok(None)
            }
        }
    }
}
