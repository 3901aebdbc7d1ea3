//! Which document is sent, and whose it is (section 7.1): what its root entity, its receipt and its rows say.

use penstock_pipestream::pipe_doc::{doc_id_of_key, is_uuid};
use penstock_pipestream::{OwnershipContext, PipeDoc, PipestreamUri, Pseudonyms};
use serde::{Deserialize, Serialize};

use crate::record::Record;
use crate::{Error, Result};

/// What the sender says of a document.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// Without one it is made from the receipt's key.
    doc_id: Option<String>,
    pub(crate) owner: Option<OwnershipContext>,
}

/// An owner as receipts have it.
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
    /// Make the identity of a document; without an ID it has one that follows from its name and its bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] where the ID is no UUID, or the owner cannot be sent.
    pub fn new(doc_id: Option<String>, owner: Option<OwnershipContext>) -> Result<Self> {
        if let Some(doc_id) = doc_id.as_deref().filter(|doc_id| !is_uuid(doc_id)) {
            let message = format!("doc_id is a UUID in lower case, 8-4-4-4-12 hex digits, not {doc_id:?}");
            return Err(Error::Value(message));
        }
        let owner = owner.filter(|owner| !owner.is_empty());
        let identity = Self { doc_id, owner };
        let checked = identity.pipe_doc("00000000000000000000000000000000").check();
        checked.map_err(|error| Error::Value(error.message().to_owned()))?;
        Ok(identity)
    }

    /// Return the identifier of the document whose receipt has this key.
    pub(crate) fn doc_id(&self, key: &str) -> String {
        let made = || doc_id_of_key(key).unwrap_or_default();
        self.doc_id.clone().unwrap_or_else(made)
    }

    /// Return the document's message, but for the entity's ID.
    pub(crate) fn pipe_doc(&self, key: &str) -> PipeDoc {
        PipeDoc { doc_id: self.doc_id(key), entity_id: 0, ownership: self.owner.clone() }
    }
}

/// Return a document's message as the receiver sees it.
pub(crate) fn disclosed_pipe_doc(doc: PipeDoc, pseudonyms: Option<&Pseudonyms>) -> PipeDoc {
    pseudonyms.map(|pseudonyms| pseudonyms.pipe_doc(&doc)).unwrap_or(doc)
}

/// Return the URI of a document's root entity at the server of this name; none where the name is no authority.
pub(crate) fn uri(authority: &str, session: &str, root: &Record) -> Option<String> {
    let (scope, entity) = root.ids()?;
    let uri = PipestreamUri::new(authority, session, &[scope.into()], Some(entity)).ok()?;
    Some(uri.to_string())
}
