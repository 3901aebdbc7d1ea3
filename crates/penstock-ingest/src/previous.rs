//! The parts in an earlier receipt, so that unchanged parts need not be sent again.

use std::collections::HashMap;

use penstock_documents::Part;
use penstock_io::hex;
use penstock_pipestream::{PipeDoc, SessionId};
use serde::Deserialize;

use crate::identity::OwnerNote;
use crate::privacy::PrivacyNote;
use crate::{Error, Result};

/// A part that an earlier session has stored.
#[derive(Debug)]
pub(crate) struct PreviousPart {
    pub(crate) session: String,
    /// The IDs of its scope and of its entity.
    pub(crate) ids: (u16, u32),
    pub(crate) file: Option<String>,
    pub(crate) attempts: u32,
    /// The claim check under which it was deferred before.
    pub(crate) claim: Option<u64>,
    /// Why it is not COMPLETE, if it is DEFERRED.
    pub(crate) reason: Option<String>,
}

/// A part that an earlier session has deferred, and the claim check under which it may be sent again.
#[derive(Debug)]
pub(crate) struct DeferredPart {
    pub(crate) claim: u64,
    pub(crate) session: SessionId,
    /// The stored part, which is kept if its work was done without a session.
    pub(crate) stored: PreviousPart,
}

/// The parts of an earlier receipt that are COMPLETE or DEFERRED, by their paths.
///
/// [`PreviousReceipt::default`] has no parts, so everything is sent.
#[derive(Debug, Default)]
pub struct PreviousReceipt {
    parts: HashMap<Vec<String>, Vec<Entry>>,
    privacy: Option<PrivacyNote>,
    doc_id: Option<String>,
    owner: Option<OwnerNote>,
    /// The URI of the document's root entity.
    pub(crate) uri: Option<String>,
}

/// The outcome of a part in an earlier session.
#[derive(Debug)]
enum PreviousOutcome {
    Complete(PreviousPart),
    Deferred(DeferredPart),
}

/// A part of the earlier receipt, with the fields that identify it.
#[derive(Debug)]
struct Entry {
    sha256: String,
    bytes: u64,
    /// The part's MIME type; absent for the document itself, whose receipt does not state it.
    media_type: Option<String>,
    outcome: PreviousOutcome,
}

#[derive(Deserialize)]
struct Receipt {
    privacy: Option<PrivacyNote>,
    status: String,
    sha256: Option<String>,
    bytes: Option<u64>,
    session: String,
    root: Option<(u16, u32)>,
    file: Option<String>,
    #[serde(default)]
    claim: Option<String>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    doc_id: Option<String>,
    #[serde(default)]
    owner: Option<OwnerNote>,
    #[serde(default)]
    uri: Option<String>,
    parts: Vec<ReceiptPart>,
}

#[derive(Deserialize)]
struct ReceiptPart {
    path: Vec<String>,
    r#type: String,
    sha256: Option<String>,
    bytes: Option<u64>,
    status: String,
    attempts: u32,
    session: String,
    scope: Option<u16>,
    entity: Option<u32>,
    file: Option<String>,
    #[serde(default)]
    claim: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

impl ReceiptPart {
    /// Return the outcome that a later session can use; `None` for a failed part.
    fn previous_outcome(&mut self) -> Option<PreviousOutcome> {
        let (scope, entity) = (self.scope?, self.entity?);
        let claim = self.claim.as_deref().and_then(|claim| u64::from_str_radix(claim, 16).ok());
        let id = u128::from_str_radix(&self.session, 16).map(|id| SessionId::new(id.to_be_bytes()));
        let stored = PreviousPart {
            session: std::mem::take(&mut self.session),
            ids: (scope, entity),
            file: self.file.take(),
            attempts: self.attempts,
            claim,
            reason: self.reason.take(),
        };
        match self.status.as_str() {
            "COMPLETE" => Some(PreviousOutcome::Complete(stored)),
            "DEFERRED" => Some(PreviousOutcome::Deferred(DeferredPart { claim: claim?, session: id.ok()?, stored })),
            _ => None,
        }
    }
}

impl PreviousReceipt {
    /// Parse a receipt.
    ///
    /// # Errors
    ///
    /// [`Error::PreviousReceipt`] if the text is not a receipt.
    pub fn new(receipt: &str) -> Result<Self> {
        let receipt: Receipt = serde_json::from_str(receipt).map_err(Error::PreviousReceipt)?;
        let (privacy, doc_id, owner, uri) = (receipt.privacy, receipt.doc_id, receipt.owner, receipt.uri);
        let root = ReceiptPart {
            path: Vec::new(),
            r#type: String::new(),
            sha256: receipt.sha256,
            bytes: receipt.bytes,
            status: receipt.status,
            attempts: 1,
            session: receipt.session,
            scope: receipt.root.map(|(scope, _)| scope),
            entity: receipt.root.map(|(_, entity)| entity),
            file: receipt.file,
            claim: receipt.claim,
            reason: receipt.reason,
        };
        let mut entries: HashMap<Vec<String>, Vec<Entry>> = HashMap::new();
        for (index, mut part) in std::iter::once(root).chain(receipt.parts).enumerate() {
            let Some(outcome) = part.previous_outcome() else { continue };
            if let (Some(sha256), Some(bytes)) = (part.sha256, part.bytes) {
                let media_type = (index > 0).then_some(part.r#type);
                entries.entry(part.path).or_default().push(Entry { sha256, bytes, media_type, outcome });
            }
        }
        Ok(Self { parts: entries, privacy, doc_id, owner, uri })
    }

    /// Discard the receipt unless its parts were sent with the same privacy as now, for example under the same
    /// pseudonyms.
    pub(crate) fn with_privacy(self, note: Option<&PrivacyNote>) -> Self {
        if self.privacy.as_ref() == note { self } else { Self::default() }
    }

    /// Return whether the document's identifier and owner are unchanged; otherwise its stored root
    /// entity differs from the one to be sent. A receipt of an earlier version states neither, so
    /// it never matches.
    pub(crate) fn matches_document(&self, doc: &PipeDoc) -> bool {
        self.doc_id.as_ref() == Some(&doc.doc_id) && self.owner == doc.ownership.as_ref().map(OwnerNote::from)
    }

    /// Take the stored part that equals `part`, so that it is used only once. A `hollow` part is a
    /// container without bytes of its own, so it matches only a stored part without a file.
    pub(crate) fn take(&mut self, part: &Part, hollow: bool) -> Option<PreviousPart> {
        let complete = |outcome: &PreviousOutcome| match outcome {
            PreviousOutcome::Complete(stored) => stored.file.is_none() == hollow,
            PreviousOutcome::Deferred(_) => false,
        };
        match self.take_if(part, complete)? {
            PreviousOutcome::Complete(stored) => Some(stored),
            PreviousOutcome::Deferred(_) => None,
        }
    }

    /// Take the deferred part that equals `part`, so that its claim check is used only once.
    pub(crate) fn take_deferred(&mut self, part: &Part) -> Option<DeferredPart> {
        match self.take_if(part, |outcome| matches!(outcome, PreviousOutcome::Deferred(_)))? {
            PreviousOutcome::Deferred(deferred) => Some(deferred),
            PreviousOutcome::Complete(_) => None,
        }
    }

    fn take_if(&mut self, part: &Part, wanted: impl Fn(&PreviousOutcome) -> bool) -> Option<PreviousOutcome> {
        let entries = self.parts.get_mut(&part.path)?;
        let (sha256, bytes) = (hex::encode(part.sha256.as_ref()?), part.bytes?);
        let same = |entry: &Entry| {
            let of_type = entry.media_type.as_ref().is_none_or(|media_type| *media_type == part.media_type);
            entry.sha256 == sha256 && entry.bytes == bytes && of_type && wanted(&entry.outcome)
        };
        let at = entries.iter().position(same)?;
        Some(entries.remove(at).outcome)
    }
}

#[cfg(test)]
mod tests {
    use penstock_pipestream_net::{Resolution, Status};

    use super::*;
    use crate::outcome::DocumentOutcome;
    use crate::privacy::{Privacy, PrivacyOptions};
    use crate::testing::{SESSION, announced_zip, failed, part, resolution};

    /// Return the receipt of a zip with two texts, the second of which ended with this resolution.
    fn earlier(second: Resolution) -> PreviousReceipt {
        let mut ledger = announced_zip();
        ledger.settle(0, resolution(Status::Complete));
        ledger.settle(1, resolution(Status::Complete));
        ledger.settle(2, second);
        PreviousReceipt::new(&DocumentOutcome::new(ledger).unwrap().receipt(true).unwrap()).unwrap()
    }

    fn x() -> Part {
        part(&["x.txt"], "text/plain", b"x.txt")
    }

    #[test]
    fn a_part_that_is_the_same_stays_for_one_part_alone() {
        let mut receipt = earlier(resolution(Status::Complete));
        let stored = receipt.take(&x(), false).unwrap();
        assert_eq!((stored.session.as_str(), stored.ids, stored.attempts), (SESSION, (2, 1), 1));
        assert_eq!(stored.file.unwrap(), format!("{SESSION}/2/1"));
        assert!(receipt.take(&x(), false).is_none(), "another part of the same path is sent");
        let zip = part(&[], "application/zip", b"the zip");
        assert!(receipt.take(&zip, false).is_none(), "the sink does not have the bytes of a container");
        assert!(receipt.take(&zip, true).is_some());
    }

    #[test]
    fn a_part_that_has_changed_is_sent_again() {
        let mut receipt = earlier(resolution(Status::Complete));
        for changed in [
            part(&["x.txt"], "text/plain", b"x.TXT"),
            part(&["x.txt"], "text/html", b"x.txt"),
            part(&["z.txt"], "text/plain", b"x.txt"),
            Part { sha256: None, ..x() },
            Part { bytes: Some(6), ..x() },
        ] {
            assert!(receipt.take(&changed, false).is_none(), "{changed:?}");
        }
        assert!(receipt.take(&x(), false).is_some());
    }

    #[test]
    fn a_part_that_failed_is_sent_again_and_one_that_was_set_aside_is_redeemed() {
        let y = part(&["y.txt"], "text/plain", b"y.txt");
        let mut receipt = earlier(failed(penstock_pipestream_net::ErrorCode::EntityInvalid, "no"));
        assert!(receipt.take(&y, false).is_none() && receipt.take_deferred(&y).is_none());
        let mut receipt = earlier(Resolution { claim: Some(0xA), ..resolution(Status::Deferred) });
        assert!(receipt.take(&y, false).is_none());
        let deferred = receipt.take_deferred(&y).unwrap();
        assert_eq!((deferred.claim, deferred.session), (0xA, SessionId::parse(SESSION).unwrap()));
        assert_eq!(deferred.stored.reason.as_deref(), Some("set aside by the receiver"));
        assert!(receipt.take_deferred(&y).is_none(), "a claim check is good once");
    }

    #[test]
    fn parts_that_went_out_with_another_privacy_are_all_sent() {
        let privacy = Privacy::new(PrivacyOptions { opaque_types: true, ..PrivacyOptions::default() }).unwrap();
        let mut receipt = earlier(resolution(Status::Complete)).with_privacy(privacy.note("in/a.zip").as_ref());
        assert!(receipt.take(&x(), false).is_none());
        let mut receipt = earlier(resolution(Status::Complete)).with_privacy(None);
        assert!(receipt.take(&x(), false).is_some());
    }

    #[test]
    fn a_document_is_the_same_under_the_same_identifier_and_owner() {
        let receipt = earlier(resolution(Status::Complete));
        let doc = announced_zip().pipe_doc();
        assert!(receipt.matches_document(&doc));
        assert!(!receipt.matches_document(&PipeDoc { doc_id: "another".to_owned(), ..doc.clone() }));
        let owner = penstock_pipestream::OwnershipContext { owner_id: Some("me".to_owned()), ..Default::default() };
        assert!(!receipt.matches_document(&PipeDoc { ownership: Some(owner), ..doc.clone() }));
        assert!(!PreviousReceipt::default().matches_document(&doc));
    }

    #[test]
    fn what_is_no_receipt_is_refused_with_its_place() {
        let error = PreviousReceipt::new("{").unwrap_err();
        assert!(matches!(error, Error::PreviousReceipt(_)));
        assert!(error.to_string().starts_with("the previous receipt: EOF while parsing"), "{error}");
    }
}
