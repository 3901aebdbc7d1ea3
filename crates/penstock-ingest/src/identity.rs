//! The identity of a document and its owner (section 7.1), as in its root entity, its receipt and its rows.

use penstock_pipestream::pipe_doc::{doc_id_of_key, is_uuid};
use penstock_pipestream::{OwnershipContext, PipeDoc, Pseudonyms};
use serde::{Deserialize, Serialize};

use crate::{Result, Value};

/// The identity that the sender states for a document.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The document's ID; if absent, it is derived from the receipt's key.
    doc_id: Option<String>,
    pub(crate) owner: Option<OwnershipContext>,
}

/// An owner in the form of receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwnerNote {
    owner_id: Option<String>,
    group_id: Option<String>,
    scopes: Vec<String>,
}

impl From<&OwnershipContext> for OwnerNote {
    fn from(owner: &OwnershipContext) -> Self {
        Self { owner_id: owner.owner_id.clone(), group_id: owner.group_id.clone(), scopes: owner.scopes.clone() }
    }
}

impl Identity {
    /// Create the identity of a document. Without an ID, the document gets one derived from its
    /// name and its bytes.
    ///
    /// # Errors
    ///
    /// [`Value`] if the ID is not a UUID, or if the owner cannot be sent.
    pub fn new(doc_id: Option<String>, owner: Option<OwnershipContext>) -> Result<Self> {
        if let Some(doc_id) = doc_id.as_deref().filter(|doc_id| !is_uuid(doc_id)) {
            return Err(Value::DocId(doc_id.to_owned()).into());
        }
        let owner = owner.filter(|owner| !owner.is_empty());
        let identity = Self { doc_id, owner };
        let checked = identity.pipe_doc("00000000000000000000000000000000").check();
        checked.map_err(Value::PipeDoc)?;
        Ok(identity)
    }

    /// Return the identifier of the document whose receipt has this key.
    pub(crate) fn doc_id(&self, key: &str) -> String {
        let derived = || doc_id_of_key(key).unwrap_or_default();
        self.doc_id.clone().unwrap_or_else(derived)
    }

    /// Return the document's message without the entity's ID.
    pub(crate) fn pipe_doc(&self, key: &str) -> PipeDoc {
        PipeDoc { doc_id: self.doc_id(key), entity_id: 0, ownership: self.owner.clone() }
    }
}

/// Return a document's message as the receiver sees it.
pub(crate) fn disclosed_pipe_doc(doc: PipeDoc, pseudonyms: Option<&Pseudonyms>) -> PipeDoc {
    pseudonyms.map(|pseudonyms| pseudonyms.pipe_doc(&doc)).unwrap_or(doc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    const UUID: &str = "00000000-0000-8000-8000-000000000001";

    fn owner(owner_id: &str) -> OwnershipContext {
        OwnershipContext { owner_id: Some(owner_id.to_owned()), group_id: None, scopes: vec![] }
    }

    #[test]
    fn only_a_uuid_identifies_a_document() {
        for wrong in ["", "1", "00000000-0000-8000-8000-00000000000A", "00000000000080008000000000000001"] {
            let error = Identity::new(Some(wrong.to_owned()), None).unwrap_err();
            assert!(matches!(&error, Error::Value(Value::DocId(found)) if found == wrong), "{error}");
        }
        assert_eq!(Identity::new(Some(UUID.to_owned()), None).unwrap().doc_id("any key"), UUID);
    }

    #[test]
    fn without_an_id_it_follows_from_the_receipts_key() {
        let identity = Identity::new(None, None).unwrap();
        let key = "0123456789abcdef0123456789abcdef";
        assert_eq!(Some(identity.doc_id(key)), doc_id_of_key(key));
        assert_ne!(identity.doc_id(key), identity.doc_id("f123456789abcdef0123456789abcdef"));
    }

    #[test]
    fn an_owner_who_says_nothing_is_none_and_one_that_cannot_be_sent_is_refused() {
        let nobody = OwnershipContext { owner_id: None, group_id: None, scopes: vec![] };
        assert_eq!(Identity::new(None, Some(nobody)).unwrap().owner, None);
        assert_eq!(Identity::new(None, Some(owner("me"))).unwrap().owner, Some(owner("me")));
        assert!(Identity::new(None, Some(owner(&"x".repeat(256)))).is_ok());
        let error = Identity::new(None, Some(owner(&"x".repeat(257)))).unwrap_err();
        assert!(matches!(&error, Error::Value(Value::PipeDoc(_))), "{error}");
        assert!(error.to_string().contains("ownership.owner_id has 257 bytes"), "{error}");
    }
}
