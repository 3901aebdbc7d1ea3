//! A line of a list, as readers have it.

use std::borrow::Cow;
use std::fmt;

use penstock_pipestream::{EntityKey, OwnershipContext};
use penstock_pipestream_net::port::PADDING;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use crate::format::{ABORT, COMMIT};

/// A line of `entities.jsonl` in memory.
#[derive(Debug, Deserialize)]
pub struct Line<'a> {
    /// The scope's ID.
    pub scope: u32,
    /// How often the scope's ID was used before.
    #[serde(default)]
    pub scope_use: u32,
    /// The entity's ID.
    pub entity: u32,
    /// How often the entity's ID was used before.
    #[serde(default)]
    pub entity_use: u32,
    /// Its parent; none for a root.
    pub parent: Option<u32>,
    /// Its layer; none where no header arrived.
    pub layer: Option<u32>,
    /// Its content type; none where no header arrived.
    #[serde(borrow)]
    pub content_type: Option<Text<'a>>,
    /// The payload's bytes, where it was verified.
    pub bytes: Option<u64>,
    /// The payload's SHA-256, where it was verified.
    #[serde(borrow)]
    pub sha256: Option<Text<'a>>,
    /// The metadata of its sender.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Its terminal status.
    #[serde(borrow)]
    pub status: Cow<'a, str>,
    /// The reason for which it is not COMPLETE.
    #[serde(borrow)]
    pub reason: Option<Text<'a>>,
    /// Its payload's name below the sink.
    #[serde(borrow)]
    pub file: Option<Text<'a>>,
    /// Number of attempts, where there was more than one.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// The claim check under which it was deferred.
    #[serde(borrow, default)]
    pub claim: Option<Text<'a>>,
    /// Hash that identifies the owner of the session's transaction.
    #[serde(borrow, default)]
    pub(crate) transaction_owner: Option<Text<'a>>,
    /// The document that it is, where its header names one.
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

/// Metadata in the order of the list.
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
    /// Read a line, without its end.
    pub fn parse(bytes: &'a [u8]) -> std::result::Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Return the entity's key; `None` where no scope has such an ID.
    pub(crate) fn key(&self) -> Option<EntityKey> {
        let scope = u16::try_from(self.scope).ok()?;
        Some(EntityKey { scope, scope_use: self.scope_use, entity: self.entity, entity_use: self.entity_use })
    }

    /// Return whether it is a row: neither the end of a transaction nor padding.
    pub fn is_row(&self) -> bool {
        let is_order = self.content_type.as_ref().is_some_and(|kind| matches!(kind.as_ref(), COMMIT | ABORT));
        !is_order && self.metadata.get(PADDING).is_none()
    }

    /// Return its name in receipts: its file, otherwise its place.
    pub fn name(&self, session: &str) -> String {
        match &self.file {
            Some(file) => file.as_ref().to_owned(),
            None => format!("{session}/{}/{}", self.scope, self.entity),
        }
    }
}
