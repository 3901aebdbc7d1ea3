use std::borrow::Cow;
use std::fmt;

use penstock_io::DriverError as _;
use penstock_pipestream::OwnershipContext;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::super::sink::LOG;
use super::Store;
use crate::{Error, Result};

/// No line is longer: a header has 1 MiB at most, and an escape makes six bytes of one.
const MAX_LINE: usize = 8 << 20;
/// How much of a list is read at a time.
const WINDOW: u64 = 1 << 20;
/// The content types of entities that end a transaction.
const ORDERS: [&str; 2] = ["application/vnd.penstock.commit+json", "application/vnd.penstock.abort+json"];

/// The metadata of entities that only hide how many there are (section 10.6).
const PADDING: &str = "penstock.padding";

/// A line of `entities.jsonl`, as it is in memory.
#[derive(Debug, Deserialize)]
pub struct Line<'a> {
    /// The scope's ID.
    pub scope: u32,
    /// The entity's ID.
    pub entity: u32,
    /// Its parent; none for a root.
    pub parent: Option<u32>,
    /// Its layer; none where no header came.
    pub layer: Option<u32>,
    /// Its content type; none where no header came.
    #[serde(borrow)]
    pub content_type: Option<Text<'a>>,
    /// The payload's bytes, where it was verified.
    pub bytes: Option<u64>,
    /// The payload's SHA-256, where it was verified.
    #[serde(borrow)]
    pub sha256: Option<Text<'a>>,
    /// What the sender said of it.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// Its terminal status.
    #[serde(borrow)]
    pub status: Cow<'a, str>,
    /// Why it is not COMPLETE.
    #[serde(borrow)]
    pub reason: Option<Text<'a>>,
    /// Its payload's name below the sink.
    #[serde(borrow)]
    pub file: Option<Text<'a>>,
    /// How often it was sent, where that was more than once.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// The claim check under which it was set aside.
    #[serde(borrow, default)]
    pub claim: Option<Text<'a>>,
    /// Which document it is, where its header says so.
    #[serde(borrow, default)]
    pub doc_id: Option<Text<'a>>,
    /// And whose.
    #[serde(default)]
    pub owner: Option<LineOwner>,
}

/// Whose document an entity is.
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

/// A text that stays where it is, unless it has escapes.
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
    /// The keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
    }

    /// A key's value.
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

/// The last line of a list.
#[derive(Debug, Deserialize)]
struct Closed {
    closed: u64,
}

impl<'a> Line<'a> {
    /// Reads a line, without its end.
    pub fn parse(bytes: &'a [u8]) -> std::result::Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Whether it is a row: neither the end of a transaction, nor an entity that stands for nothing.
    pub fn is_row(&self) -> bool {
        let is_order = self.content_type.as_ref().is_some_and(|kind| ORDERS.contains(&kind.as_ref()));
        !is_order && self.metadata.get(PADDING).is_none()
    }

    /// What names it in receipts: its file, else its place.
    pub fn name(&self, session: &str) -> String {
        match &self.file {
            Some(file) => file.as_ref().to_owned(),
            None => format!("{session}/{}/{}", self.scope, self.entity),
        }
    }
}

/// Walks over the lines of a list, or of a range of it that begins and ends between lines.
pub(super) struct Lines<'a> {
    store: &'a dyn Store,
    session: &'a str,
    buffer: Vec<u8>,
    /// Where the next line starts, in the buffer.
    taken: usize,
    /// Where the next line starts, in the list.
    at: u64,
    /// Where the buffer ends, in the list.
    read_to: u64,
    end: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn new(store: &'a dyn Store, session: &'a str, start: u64, end: u64) -> Self {
        Self { store, session, buffer: Vec::new(), taken: 0, at: start, read_to: start, end }
    }

    /// The next line with its place in the list; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        let mut searched = self.taken;
        let length = loop {
            let rest = self.buffer.get(searched..).unwrap_or_default();
            if let Some(found) = rest.iter().position(|byte| *byte == b'\n') {
                break searched - self.taken + found;
            }
            searched = self.buffer.len();
            if self.read_to >= self.end {
                return if searched == self.taken { Ok(None) } else { Err(self.wrong("it ends within a line")) };
            }
            if searched - self.taken > MAX_LINE {
                return Err(self.wrong("a line is too long"));
            }
            self.fill(&mut searched)?;
        };
        let (start, offset) = (self.taken, self.at);
        self.taken += length + 1;
        self.at += length as u64 + 1;
        Ok(Some((offset, self.buffer.get(start..start + length).unwrap_or_default())))
    }

    fn fill(&mut self, searched: &mut usize) -> Result<()> {
        self.buffer.drain(..self.taken);
        *searched -= self.taken;
        self.taken = 0;
        let to = self.end.min(self.read_to.saturating_add(WINDOW));
        let read = self.store.read_list(self.session, self.read_to..to)?;
        if read.is_empty() {
            return Err(self.wrong("it is shorter than it was"));
        }
        self.read_to += read.len() as u64;
        if self.buffer.is_empty() {
            self.buffer = read;
        } else {
            self.buffer.extend_from_slice(&read);
        }
        Ok(())
    }

    fn wrong(&self, problem: impl fmt::Display) -> Error {
        wrong(self.session, problem)
    }
}

/// A line of a list that is read from its beginning, and that no sink has written so. Says which file it is in, and where, and
/// what can be done.
pub(super) fn damaged(session: &str, offset: u64, problem: impl fmt::Display) -> Error {
    Error::io(
        format!("{session}/{LOG} in the sink is damaged at byte {offset}"),
        format!(
            "{problem}. Put a copy that is whole into its place, or move {session} out of the sink: then the other sessions \
             can be read, and the rows of this one are missing"
        ),
    )
}

/// A list, or a range of it that was asked for, that is not as sinks write it.
pub(super) fn wrong(session: &str, problem: impl fmt::Display) -> Error {
    Error::io(format!("the list of session {session} cannot be read"), problem.to_string())
}

/// The code that a list of this length is closed with, and where that line starts.
pub(super) fn closed(store: &dyn Store, session: &str, length: u64) -> Result<Option<(u64, u64)>> {
    // The last line has one small number in it.
    let from = length.saturating_sub(64);
    let tail = store.read_list(session, from..length)?;
    let Some(tail) = tail.strip_suffix(b"\n") else { return Ok(None) };
    let start = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if start == 0 && from > 0 {
        return Ok(None);
    }
    let line = tail.get(start..).unwrap_or_default();
    let parsed = serde_json::from_slice::<Closed>(line).ok();
    Ok(parsed.map(|last| (last.closed, from + start as u64)))
}
