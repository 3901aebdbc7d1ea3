//! Parts that an earlier session has set aside: whether their work was done meanwhile, and how they come again.

use bytes::Bytes;
use penstock_pipestream_net::Status;

use super::super::previous::Deferred;
use super::{Sending, Stopped};

/// How the work stands that a claim check is for.
pub(super) enum Done {
    /// It was not done, as far as anybody knows.
    No,
    /// A worker has done it, and the sink keeps that beside the payload, which has this name.
    Stored(String),
    /// A worker has done it; what was made of the part is its own affair.
    Elsewhere,
}

/// The label of a part that comes under a claim check.
pub(super) fn claimed(label: &Bytes, claim: u64) -> Bytes {
    if label.is_empty() { Bytes::new() } else { [label.as_ref(), &claim.to_be_bytes()].concat().into() }
}

impl Sending<'_> {
    /// Whether the work that a claim check stands for was done without a session: by a worker of a task queue.
    pub(super) fn done(&self, index: usize, deferred: &Deferred) -> Result<Done, Stopped> {
        if self.session.agreement().is_ok_and(|agreement| agreement.layer < 2)
            || self.before(&claimed(&self.label(index), deferred.claim))?
        {
            return Ok(Done::No);
        }
        let Ok(check) = self.wait(self.session.claim(deferred.claim))? else { return Ok(Done::No) };
        Ok(match (check.status, check.file) {
            (Status::Complete, Some(file)) => Done::Stored(file),
            (Status::Complete, None) => Done::Elsewhere,
            (_, _) => Done::No,
        })
    }

    /// Whether an earlier process has announced something with this label in the session.
    fn before(&self, label: &Bytes) -> Result<bool, Stopped> {
        if label.is_empty() || !self.session.resumed().unwrap_or(false) {
            return Ok(false);
        }
        // A session that is over says so once something is sent in it.
        Ok(self.wait(self.session.knows(label.clone()))?.unwrap_or(false))
    }

    /// Takes over what an earlier session has set aside; gives the claim check. One that is not good any more does no
    /// harm: the part is sent anew like any other. So is a part that an earlier process has announced in this session:
    /// under the claim check if that had been redeemed, which happens once.
    pub(super) fn redeem(&mut self, index: usize) -> Result<Option<u64>, Stopped> {
        let Some(Deferred { claim, session, .. }) = self.deferred.take() else { return Ok(None) };
        if self.session.agreement().is_ok_and(|agreement| agreement.layer < 2) {
            return Ok(None);
        }
        let label = self.label(index);
        if self.before(&claimed(&label, claim))? {
            self.ledger.redeemed(index, claim);
            return Ok(Some(claim));
        }
        if self.before(&label)? {
            return Ok(None);
        }
        match self.wait(self.session.redeem(claim, session))? {
            Ok(_) => {
                self.ledger.redeemed(index, claim);
                Ok(Some(claim))
            }
            Err(error) => {
                tracing::info!(
                    target: "penstock.documents",
                    document = self.ledger.document,
                    claim = format!("{claim:016x}"),
                    %error,
                    "a claim check is not good any more: its part is sent anew"
                );
                Ok(None)
            }
        }
    }
}
