//! The records of the log of claim checks.
//!
//! ```text
//!  label   claim check 8 (0: any)   form 1   zeros 7
//!  body    form 1, then
//!            C   a change
//!            V   a change that voids a claim check; its label has the same content
//!            D   the end of the doubt 8   length 4   place   a change: the claim check as it was before the lost place
//!            L   claim check 8 (0: any that is not in the log)   the end of the doubt 8   place: its state is unknown
//!
//!  change  length 4   the change (core: claims/record.rs)   details, JSON
//! ```
//!
//! Integers are big-endian.

use penstock_log::{Format, Label, Record};
use penstock_pipestream::claims::ClaimRecord;
use penstock_pipestream_net::port::Details;
use penstock_wire::Reader;

use crate::claims::doubts::Loss;

/// The log of a folder.
pub(super) const FORMAT: Format =
    Format { kind: *b"claims 2", suffix: ".claims", what: "a log of claim checks", segment: 16 << 20 };
/// Length of the shortest record: a shorter hole has lost none.
pub(super) const SHORTEST: u64 = 32 + 14 + 8;

/// A change of a claim check; if it issues one, with the description of the entity.
pub(super) type Change = (ClaimRecord, Option<Details>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Change,
    Voided,
    Doubted,
    Lost,
}

impl Form {
    const ALL: [Self; 4] = [Self::Change, Self::Voided, Self::Doubted, Self::Lost];

    const fn letter(self) -> u8 {
        match self {
            Self::Change => b'C',
            Self::Voided => b'V',
            Self::Doubted => b'D',
            Self::Lost => b'L',
        }
    }

    fn of(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|form| form.letter() == letter)
    }
}

/// A record that was read.
#[derive(Debug)]
pub(super) enum Item {
    Change(Change),
    Doubted(Change, Loss),
    Lost(Option<u64>, Loss),
}

/// A record to be written.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: u64,
    pub(super) form: Form,
    body: Vec<u8>,
}

impl Entry {
    fn new(id: u64, form: Form, rest: &[&[u8]]) -> Self {
        let mut body = vec![form.letter()];
        rest.iter().for_each(|part| body.extend_from_slice(part));
        Self { id, form, body }
    }

    pub(super) fn change(record: &ClaimRecord, details: Option<&Details>) -> Self {
        let (id, form) = match record {
            ClaimRecord::Issued(claim) => (claim.id, Form::Change),
            ClaimRecord::Redeemed { id, .. } | ClaimRecord::Settled { id, .. } => (*id, Form::Change),
            ClaimRecord::Voided { id } => (*id, Form::Voided),
        };
        Self::new(id, form, &[&encode_change(record, details)])
    }

    /// Return the record of a claim check in doubt, with its last known state.
    pub(super) fn doubted(id: u64, record: &ClaimRecord, details: Option<&Details>, loss: &Loss) -> Self {
        let place = loss.place.as_bytes();
        let (until, length) = (loss.until.to_be_bytes(), length_of(place));
        Self::new(id, Form::Doubted, &[&until, &length, place, &encode_change(record, details)])
    }

    pub(super) fn lost(id: Option<u64>, loss: &Loss) -> Self {
        let id = id.unwrap_or(0);
        Self::new(id, Form::Lost, &[&id.to_be_bytes(), &loss.until.to_be_bytes(), loss.place.as_bytes()])
    }

    pub(super) fn length(&self) -> usize {
        self.body.len()
    }

    /// Return the change without the form.
    pub(super) fn bare(&self) -> &[u8] {
        self.body.get(1..).unwrap_or_default()
    }
}

impl Record for Entry {
    fn label(&self) -> Label {
        let mut label = [0; 16];
        let fields = self.id.to_be_bytes().into_iter().chain([self.form.letter()]);
        label.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        label
    }

    fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>) {
        parts.push(&self.body);
    }
}

/// Parse a label; return `None` if another version has written it.
pub(super) fn read_label(label: &Label) -> Option<(Option<u64>, Form)> {
    let mut reader = Reader::new(label);
    let id = reader.u64().ok()?;
    Some((some(id), Form::of(reader.u8().ok()?)?))
}

/// Parse a body; return `None` if another version has written it.
pub(super) fn read_body(body: &[u8]) -> Option<Item> {
    let mut reader = Reader::new(body);
    match Form::of(reader.u8().ok()?)? {
        Form::Change | Form::Voided => read_change(body.get(1..)?).map(Item::Change),
        Form::Doubted => {
            let until = reader.u64().ok()?;
            let length = usize::try_from(reader.u32().ok()?).ok()?;
            let place = str::from_utf8(reader.take(length).ok()?).ok()?.into();
            Some(Item::Doubted(read_change(reader.take(reader.remaining()).ok()?)?, Loss { until, place }))
        }
        Form::Lost => {
            let (id, until) = (reader.u64().ok()?, reader.u64().ok()?);
            let place = str::from_utf8(reader.take(reader.remaining()).ok()?).ok()?.into();
            Some(Item::Lost(some(id), Loss { until, place }))
        }
    }
}

/// Return the ID, or `None` for 0, which no claim check has.
fn some(id: u64) -> Option<u64> {
    Some(id).filter(|id| *id != 0)
}

fn length_of(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes()
}

fn encode_change(record: &ClaimRecord, details: Option<&Details>) -> Vec<u8> {
    let change = record.encode();
    // Every key is a string and writing to a Vec does not fail, so this does not fail.
    let details = details.and_then(|details| serde_json::to_vec(details).ok()).unwrap_or_default();
    [length_of(&change).as_slice(), &change, &details].concat()
}

/// Parse a change; return `None` if another version has written it.
pub(super) fn read_change(bytes: &[u8]) -> Option<Change> {
    let mut reader = Reader::new(bytes);
    let length = usize::try_from(reader.u32().ok()?).ok()?;
    let record = ClaimRecord::decode(reader.take(length).ok()?).ok()?;
    let details = reader.take(reader.remaining()).ok()?;
    let details = if details.is_empty() { None } else { Some(serde_json::from_slice(details).ok()?) };
    Some((record, details))
}
