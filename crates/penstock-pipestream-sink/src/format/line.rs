//! A line of a list, as readers parse it.

use std::borrow::Cow;
use std::fmt;

use penstock_pipestream::{EntityKey, OwnershipContext};
use penstock_pipestream_net::port::PADDING;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::format::{ABORT, COMMIT};

/// A parsed line of `entities.jsonl`.
#[derive(Debug, Deserialize)]
pub struct Line<'a> {
    /// The scope's ID.
    pub scope: u32,
    /// The number of earlier uses of the scope's ID.
    #[serde(default)]
    pub scope_use: u32,
    /// The entity's ID.
    pub entity: u32,
    /// The number of earlier uses of the entity's ID.
    #[serde(default)]
    pub entity_use: u32,
    /// The ID of the entity's parent; `None` for a root.
    pub parent: Option<u32>,
    /// The entity's layer; `None` if no header arrived.
    pub layer: Option<u32>,
    /// The entity's content type; `None` if no header arrived.
    #[serde(borrow)]
    pub content_type: Option<Text<'a>>,
    /// The payload's size in bytes, if the payload was verified.
    pub bytes: Option<u64>,
    /// The payload's SHA-256, if the payload was verified.
    #[serde(borrow)]
    pub sha256: Option<Text<'a>>,
    /// The entity's metadata, from its sender.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// The entity's terminal status.
    #[serde(borrow)]
    pub status: Cow<'a, str>,
    /// The reason why the entity is not COMPLETE.
    #[serde(borrow)]
    pub reason: Option<Text<'a>>,
    /// The payload's name, relative to the sink.
    #[serde(borrow)]
    pub file: Option<Text<'a>>,
    /// The number of attempts, if more than one.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// The claim check under which the entity was deferred.
    #[serde(borrow, default)]
    pub claim: Option<Text<'a>>,
    /// The hash that identifies the owner of the session's transaction.
    #[serde(borrow, default)]
    pub(crate) transaction_owner: Option<Text<'a>>,
    /// The ID of the entity's document, if its header names one.
    #[serde(borrow, default)]
    pub doc_id: Option<Text<'a>>,
    /// The document's owner.
    #[serde(default)]
    pub owner: Option<LineOwner>,
}

/// The owner of an entity's document.
#[derive(Debug, Deserialize)]
pub struct LineOwner {
    owner_id: Option<String>,
    group_id: Option<String>,
    scopes: Vec<String>,
}

impl From<&LineOwner> for OwnershipContext {
    fn from(owner: &LineOwner) -> Self {
        Self { owner_id: owner.owner_id.clone(), group_id: owner.group_id.clone(), scopes: owner.scopes.clone() }
    }
}

/// A text that borrows from the line, unless it has escapes.
#[derive(Debug, Deserialize)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl AsRef<str> for Text<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Metadata in the order of the line.
#[derive(Debug, Default)]
pub struct Metadata<'a>(Vec<(Text<'a>, Text<'a>)>);

impl Metadata<'_> {
    /// Return the keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// Return a key's value.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == key).map(|(_, value)| value)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Metadata<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = Metadata<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Metadata(pairs))
            }
        }

        deserializer.deserialize_map(Pairs)
    }
}

impl<'a> Line<'a> {
    /// Parse a line, with or without its newline.
    pub fn parse(bytes: &'a [u8]) -> std::result::Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Return the entity's key; `None` if no scope can have such an ID.
    pub(crate) fn key(&self) -> Option<EntityKey> {
        let scope = u16::try_from(self.scope).ok()?;
        Some(EntityKey { scope, scope_use: self.scope_use, entity: self.entity, entity_use: self.entity_use })
    }

    /// Return whether the line is a row: neither the commit or abort of a transaction nor padding.
    pub fn is_row(&self) -> bool {
        let is_order = self.content_type.as_ref().is_some_and(|kind| matches!(kind.as_ref(), COMMIT | ABORT));
        !is_order && self.metadata.get(PADDING).is_none()
    }

    /// Return the entity's name in receipts: its file, or `SESSION/SCOPE/ENTITY` if it has none.
    pub fn name(&self, session: &str) -> String {
        match &self.file {
            Some(file) => file.as_ref().to_owned(),
            None => format!("{session}/{}/{}", self.scope, self.entity),
        }
    }
}
