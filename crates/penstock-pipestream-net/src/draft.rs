//! An entity as its sender describes it, before it has an ID.

use std::collections::BTreeMap;

use bytes::Bytes;
use penstock_pipestream::messages::CompletionPolicy;
use penstock_pipestream::reference::check_no_data_key;
use penstock_pipestream::{EntityKey, MAX_HEADER_LENGTH, MAX_LABEL, PipeDoc, Reason};

use crate::payload::Payload;
use crate::{Misuse, Result};

/// Properties of an entity that its sender knows before it has an ID.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EntityDraft {
    /// The parent, an entity of ours that was announced as dehydrated; `None` for a root entity.
    pub parent: Option<EntityKey>,
    /// Whether the entity will have children.
    pub dehydrate: bool,
    /// The data layer (0 to 3, section 7).
    pub layer: u32,
    /// MIME type of the payload.
    pub content_type: String,
    /// The header's metadata; keys that begin with `pipestream.` belong to the protocol.
    pub metadata: BTreeMap<String, String>,
    /// The size in bytes of the chunks in which the payload is sent, each on its own stream
    /// (decision 15).
    pub chunk_size: Option<u64>,
    /// How failures of children are handled, and the entity itself then. Only for a dehydrated
    /// entity, at layer 2.
    pub policy: Option<CompletionPolicy>,
    /// The document that a root entity carries, with its owner (section 7.1). Its `entity_id` is
    /// set when the entity gets its ID.
    pub document: Option<PipeDoc>,
    /// The sender's label, of at most 1,024 bytes; empty for no label. In a session whose state is
    /// on disk, an entity is not announced again if its label was announced before, even by an
    /// earlier process.
    pub label: Bytes,
}

/// A metadata key of the protocol that a caller may set (decision 11).
const ORIGINAL_LENGTH: &str = "pipestream.original-length";
/// Metadata key of the claim check that an entity redeems, in 16 hex digits.
pub const CLAIM: &str = "pipestream.claim";
/// Maximum number of bytes that the protocol itself adds to a header.
const OWN_FIELDS: usize = 1_024;
/// Size of a metadata entry beyond its own bytes.
const ENTRY_OVERHEAD: usize = 20;

impl EntityDraft {
    /// Refuse a draft that the peer would refuse; for some the peer would close the connection
    /// (decision 14).
    pub(crate) fn check(&self, delivery: &Delivery) -> Result<()> {
        if let Some(key) =
            self.metadata.keys().find(|key| key.starts_with("pipestream.") && *key != ORIGINAL_LENGTH && *key != CLAIM)
        {
            return Err(Misuse::ReservedMetadata { key: key.clone() }.into());
        }
        check_no_data_key("metadata", &self.metadata).map_err(Misuse::MetadataDataKey)?;
        self.document.as_ref().map_or(Ok(()), PipeDoc::check)?;
        if let Some(value) = self.metadata.get(CLAIM).filter(|value| claim_id(value).is_none()) {
            return Err(Misuse::ClaimMetadata { key: CLAIM, value: value.clone() }.into());
        }
        if self.policy.is_some() && !self.dehydrate {
            return Err(Misuse::WholePolicy.into());
        }
        if self.label.len() > MAX_LABEL {
            return Err(Misuse::LabelLength { length: self.label.len() }.into());
        }
        if self.layer > 3 {
            return Err(Misuse::DataLayer { layer: self.layer }.into());
        }
        let metadata: usize = self.metadata.iter().map(|(key, value)| key.len() + value.len() + ENTRY_OVERHEAD).sum();
        let document = self.document.as_ref().map_or(0, |document| document.to_entry().len() + ENTRY_OVERHEAD);
        let length = metadata + document + self.content_type.len() + OWN_FIELDS;
        if length > usize::try_from(MAX_HEADER_LENGTH).unwrap_or(usize::MAX) {
            return Err(Misuse::HeaderLength { length }.into());
        }
        match (self.chunk_size, delivery) {
            (Some(0), _) => Err(Misuse::ChunkSize.into()),
            (Some(size), Delivery::Payload(payload)) if payload.len().div_ceil(size) > u64::from(u32::MAX) => {
                Err(Misuse::ChunkCount { size }.into())
            }
            (Some(_) | None, _) => Ok(()),
        }
    }
}

/// Return the ID of the claim check that a metadata value names.
pub(crate) fn claim_id(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    u64::from_str_radix(text, 16).ok().filter(|_| digits)
}

/// What follows the announcement of an entity.
#[derive(Debug)]
pub(crate) enum Delivery {
    /// A stream with the payload.
    Payload(Payload),
    /// A failure: the entity cannot be delivered.
    Failed(Reason),
    /// Nothing: the entity is skipped.
    Skipped(Reason),
}
