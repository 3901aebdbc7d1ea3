//! The records of the log, and their parts.
//!
//! ```text
//! label  session ID (16)
//! body   session ID (16)  form (1)  labels (4)  number (4), in n, w and m  parts
//!
//! form   n  a session begins: earlier records of that ID no longer count
//!        w  the parts replace all before them, except those of labels
//!        m  more parts
//!        N, W, M  the same without a number, as the previous version wrote it
//!        G  the session is removed: none of its records counts
//!        H  no session: segments below this number (8) do not count, even if a crash restores them
//!
//! part   (records.rs)  its kind (1) and its content
//!        B  the session's name, the digest of its client's certificate
//!        F  the name of its folder in the sink, at a server; the last one counts
//!        R  a record of the core (core: session/journal.rs); the first is a snapshot
//!        L  an entity of ours with a label has ended, JSON
//!        D  a scope of ours was released, JSON
//!        E  the session's end, and the core's last record
//! ```
//!
//! Integers are big-endian. `labels` is the number of labels that have ended, including those in
//! the record: so a `w` shows whether one was lost. `number` is 0 in an `n`, and one more in each
//! later record of the session: so an `m` shows whether a record before it was lost. The ID appears
//! twice, so that one of the two identifies the owner of a broken record.

use std::io;

use penstock_io::records;
use penstock_log::{Format, Label, Record};
use penstock_pipestream::SessionId;

use crate::port::Owner;

/// Suffix of a segment's file name, after its number.
pub(super) const SUFFIX: &str = ".log.session";
/// The format of the log of a server's folder.
pub(super) const SERVER: Format =
    Format { kind: *b"server 3", suffix: SUFFIX, what: "the journal of a server's sessions", segment: 16 << 20 };
/// The format of the log of a client's folder.
pub(super) const CLIENT: Format =
    Format { kind: *b"client 3", suffix: SUFFIX, what: "the journal of a client's session", ..SERVER };
/// The former kind of both logs. It does not show which end wrote a segment, so both ends accept
/// it.
pub(super) const EARLIER_KIND: [u8; 8] = *b"session2";
/// Maximum length of a part: a snapshot has the state of up to a million entities.
pub(super) const MAX_PART: usize = 1 << 30;
/// Length of the shortest body: the fields before the number and the parts.
pub(super) const SHORTEST: usize = 21;
/// Bytes before the parts of a record with a number.
const HEAD: usize = SHORTEST + 4;

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Begin,
    Folder,
    Core,
    Label,
    Released,
    End,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Begin, Self::Folder, Self::Core, Self::Label, Self::Released, Self::End];

    const fn letter(self) -> u8 {
        match self {
            Self::Begin => b'B',
            Self::Folder => b'F',
            Self::Core => b'R',
            Self::Label => b'L',
            Self::Released => b'D',
            Self::End => b'E',
        }
    }
}

/// Append a part to `parts`.
pub(super) fn put(kind: Kind, body: &[u8], parts: &mut Vec<u8>) {
    records::append(&[&[kind.letter()], body].concat(), parts);
}

/// Return the kind, the body and the whole length of the first part; `None` if it is not whole.
pub(super) fn first_part(parts: &[u8]) -> Option<(Kind, &[u8], usize)> {
    let (part, rest) = records::first(parts, MAX_PART)?;
    let (kind, body) = read_part(part)?;
    Some((kind, body, parts.len() - rest.len()))
}

/// Decode a part.
pub(super) fn read_part(part: &[u8]) -> Option<(Kind, &[u8])> {
    let (letter, body) = part.split_first()?;
    Some((Kind::ALL.into_iter().find(|kind| kind.letter() == *letter)?, body))
}

/// The effect of a record on those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    New,
    Whole,
    More,
    Gone,
    Horizon,
}

impl Form {
    const ALL: [Self; 5] = [Self::New, Self::Whole, Self::More, Self::Gone, Self::Horizon];

    const fn letter(self) -> u8 {
        match self {
            Self::New => b'n',
            Self::Whole => b'w',
            Self::More => b'm',
            Self::Gone => b'G',
            Self::Horizon => b'H',
        }
    }

    /// Return the form of a letter, and whether its records have a number.
    fn of(letter: u8) -> Option<(Self, bool)> {
        let of = |letter: u8| Self::ALL.into_iter().find(|form| form.letter() == letter);
        match letter {
            b'N' | b'W' | b'M' => of(letter.to_ascii_lowercase()).map(|form| (form, false)),
            letter => of(letter).map(|form| (form, form.has_number())),
        }
    }

    pub(super) const fn has_number(self) -> bool {
        match self {
            Self::New | Self::Whole | Self::More => true,
            Self::Gone | Self::Horizon => false,
        }
    }
}

/// A record that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct View<'a> {
    pub(super) session: SessionId,
    pub(super) form: Form,
    pub(super) labels: u32,
    /// The record's number in its session.
    pub(super) number: Option<u32>,
    /// Number of bytes before the parts.
    pub(super) head: usize,
    pub(super) parts: &'a [u8],
}

/// Decode a body; return `None` if another version has written it.
pub(super) fn read_body(body: &[u8]) -> Option<View<'_>> {
    let (session, rest) = body.split_first_chunk()?;
    let (letter, rest) = rest.split_first()?;
    let (labels, rest) = rest.split_first_chunk()?;
    let (form, has_number) = Form::of(*letter)?;
    let (number, parts) = match has_number {
        true => rest.split_first_chunk().map(|(number, parts)| (Some(u32::from_be_bytes(*number)), parts))?,
        false => (None, rest),
    };
    let (session, labels) = (SessionId::new(*session), u32::from_be_bytes(*labels));
    Some(View { session, form, labels, number, head: body.len() - parts.len(), parts })
}

/// A record to be written.
#[derive(Debug)]
pub(super) struct Entry {
    head: [u8; HEAD],
    pub(super) session: SessionId,
    pub(super) form: Form,
    labels: u32,
    number: u32,
    parts: Vec<u8>,
}

impl Entry {
    /// Create a record. It gets its number when it is appended.
    pub(super) fn new(session: SessionId, form: Form, labels: u32, parts: Vec<u8>) -> Self {
        let mut head = [0; HEAD];
        let fields = session.bytes().iter().copied().chain([form.letter()]).chain(labels.to_be_bytes());
        head.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        Self { head, session, form, labels, number: 0, parts }
    }

    pub(super) fn set_number(&mut self, number: u32) {
        self.number = number;
        self.head.iter_mut().skip(SHORTEST).zip(number.to_be_bytes()).for_each(|(to, from)| *to = from);
    }

    /// Return the bytes before the parts.
    fn head(&self) -> &[u8] {
        let length = if self.form.has_number() { HEAD } else { SHORTEST };
        self.head.get(..length).unwrap_or_default()
    }

    /// Create the record that removes a session.
    pub(super) fn gone(session: SessionId) -> Self {
        Self::new(session, Form::Gone, 0, Vec::new())
    }

    /// Create the record by which segments below this number do not count.
    pub(super) fn horizon(number: u64) -> Self {
        Self::new(SessionId::new([0; 16]), Form::Horizon, 0, number.to_be_bytes().to_vec())
    }

    pub(super) fn view(&self) -> View<'_> {
        let Self { session, form, labels, number, parts, .. } = self;
        let number = form.has_number().then_some(*number);
        View { session: *session, form: *form, labels: *labels, number, head: self.head().len(), parts }
    }

    pub(super) fn length(&self) -> usize {
        self.head().len() + self.parts.len()
    }
}

impl Record for Entry {
    fn label(&self) -> Label {
        *self.session.bytes()
    }

    fn body<'a>(&'a self, parts: &mut Vec<&'a [u8]>) {
        parts.extend([self.head(), self.parts.as_slice()]);
    }
}

impl Owner {
    pub(super) fn encode(&self) -> Vec<u8> {
        let certificate = self.certificate.as_ref().map_or(&[][..], |digest| digest.as_slice());
        [self.session.bytes().as_slice(), certificate].concat()
    }

    pub(super) fn decode(body: &[u8]) -> Option<Self> {
        let (session, certificate) = body.split_first_chunk()?;
        let certificate = if certificate.is_empty() { None } else { Some(certificate.try_into().ok()?) };
        Some(Self { session: SessionId::new(*session), certificate })
    }
}

/// The decoded parts of a session, except those of labels.
#[derive(Debug)]
pub(super) struct StoredSession {
    pub(super) owner: Owner,
    /// The session's folder in the sink; `None` if the server ended before it had one, or its
    /// version stored no names.
    pub(super) sink_folder: Option<String>,
    pub(super) core: Vec<Vec<u8>>,
    pub(super) released: Vec<Vec<u8>>,
    /// The code that the session has ended with.
    pub(super) end: Option<u64>,
}

impl StoredSession {
    /// Decode the parts of a session, oldest first.
    pub(super) fn read(parts: &[u8]) -> io::Result<Self> {
        let (mut owner, mut sink_folder, mut end, mut core, mut released) = (None, None, None, Vec::new(), Vec::new());
        let mut take = |kind, body: &[u8]| {
            match kind {
                Kind::Begin => owner = Some(Owner::decode(body)?),
                Kind::Folder => sink_folder = Some(String::from_utf8(body.to_vec()).ok()?),
                Kind::Core => core.push(body.to_vec()),
                Kind::Label => {}
                Kind::Released => released.push(body.to_vec()),
                Kind::End => end = Some(u64::from_be_bytes(body.first_chunk().copied()?)),
            }
            Some(())
        };
        let mut rest = parts;
        while !rest.is_empty() {
            let read = first_part(rest).and_then(|(kind, body, length)| take(kind, body).map(|()| length));
            let length = read.ok_or_else(|| records::damaged("what is stored of it means nothing".to_owned()))?;
            rest = rest.get(length..).unwrap_or_default();
        }
        let owner = owner.ok_or_else(|| records::damaged("it does not say whose session it is".to_owned()))?;
        Ok(Self { owner, sink_folder, core, released, end })
    }
}
