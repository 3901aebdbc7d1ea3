use std::ops::Range;

use penstock_lumberjack::{Client, Data, Json, Limits, Pair, Result};

/// Events to send, consecutive in one buffer.
#[derive(Debug, Default)]
pub struct Chunk {
    bytes: Vec<u8>,
    strings: Vec<(Range<usize>, Range<usize>)>,
    events: Vec<Entry>,
}

#[derive(Debug, Clone)]
enum Entry {
    /// The range of its bytes.
    Json(Range<usize>),
    /// The range of its pairs.
    Map(Range<usize>),
}

impl Chunk {
    /// Return the number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Return whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Return the total size of all events, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Append an event of JSON, unchanged.
    pub fn push_json(&mut self, payload: &[u8]) {
        self.push_json_with(|bytes| bytes.extend_from_slice(payload));
    }

    /// Append an event of JSON that `write` appends to the buffer.
    pub(super) fn push_json_with(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.events.push(Entry::Json(start..self.bytes.len()));
    }

    /// Append an event of pairs.
    pub fn push_map<'p>(&mut self, pairs: impl IntoIterator<Item = (&'p [u8], &'p [u8])>) {
        let start = self.strings.len();
        for (key, value) in pairs {
            let pair = (self.push(key), self.push(value));
            self.strings.push(pair);
        }
        self.events.push(Entry::Map(start..self.strings.len()));
    }

    fn push(&mut self, text: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(text);
        start..self.bytes.len()
    }

    fn at(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// Reject an event that receivers do not accept.
    pub(super) fn check(&self, limits: &Limits) -> Result<()> {
        self.events.iter().try_for_each(|event| match event {
            Entry::Json(range) => Json::check(self.at(range), limits),
            Entry::Map(range) => Data::check(self.pairs(range), limits),
        })
    }

    fn pairs(&self, range: &Range<usize>) -> impl ExactSizeIterator<Item = Pair<'_>> + Clone {
        let pairs = self.strings.get(range.clone()).unwrap_or_default();
        pairs.iter().map(|(key, value)| (self.at(key), self.at(value)))
    }

    /// Pass events from an index on to a client while it wants more; return where it stopped.
    pub(super) fn push_into(&self, from: usize, client: &mut Client) -> Result<usize> {
        let mut index = from;
        for event in self.events.get(from..).unwrap_or_default() {
            if !client.wants_events() {
                break;
            }
            match event {
                Entry::Json(range) => client.send_json(self.at(range))?,
                Entry::Map(range) => client.send_data(self.pairs(range))?,
            }
            index += 1;
        }
        Ok(index)
    }
}
