//! The format of a segment. All integers are little-endian. The length of every part is a multiple
//! of 8 bytes, and every part ends with the XXH3 hash of its other bytes.
//!
//! ```text
//! header  "PSPOOL2\n"  spool (16)  segment (8)  length of the schema (8)  schema: an Arrow IPC message  hash (8)
//! record  "RECD" (4)  rows (4)  length of origin (4)  length of batch (4)  first row (8)  hash of the head (8)
//!         origin  batch: an Arrow IPC message  hash (8)
//! end     "ENDC" (4)  0 (4)  length of origin (4)  0 (4)  first row (8)  hash of the head (8)  origin  hash (8)
//! footer  "FOOT" (4)  records (4)  { bytes (4)  rows (4) } × records  length of the footer (8)  hash (8)
//! ```
//!
//! `origin` says who sent the rows: connection (8), count of hashes (4), length of the sender's
//! name (4), unconfirmed (4), 0 (4), hashes (8 each), name, zeros up to a multiple of 8. There may
//! be more hashes than rows, because resent events have no row. `unconfirmed` is the number of the
//! connection's events, up to the last one of the record, that may be sent again. An `end` says
//! that no event of a connection will be sent again. The first row is the number of the record's
//! own first row in the segment: after a damaged record it tells which rows were lost. The hash of
//! a head has a seed per segment, which no sender knows. So no event can imitate a head, and after
//! damage the next record is found by its head. In a footer, the highest bit of a record's byte
//! count says that the record was lost. The footer is written when the segment is full; without
//! one, the segment is still being written, or its writer has died.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamEncoder;
use arrow_schema::ArrowError;
use penstock_io::DriverError as _;
use penstock_log::repair_bit;
use penstock_lumberjack_net::columns::Layout;
use penstock_wire::Reader;
use twox_hash::XxHash3_64;

use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"PSPOOL2\n";
/// The first format, which is read only to be converted.
const FIRST_MAGIC: &[u8; 8] = b"PSPOOL1\n";
const RECORD: &[u8; 4] = b"RECD";
const END: &[u8; 4] = b"ENDC";
const FOOTER: &[u8; 4] = b"FOOT";
/// The number of bytes of a record before its origin.
pub(super) const RECORD_HEAD: usize = 32;
/// The bit in a footer that marks a record's bytes as lost.
const LOST: u32 = 1 << 31;
/// The bytes of a footer's length and hash, at the end of a segment.
pub(super) const FOOTER_TAIL: u64 = 16;
const HASH: usize = 8;
/// The largest header.
pub(super) const MAX_HEADER: u64 = 64 << 10;
/// The largest record.
pub(super) const MAX_RECORD: usize = 1 << 30;

/// The ID of a spool, which never changes.
pub(super) type SpoolId = [u8; 16];

/// A record's entry in the index of its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) bytes: u32,
    pub(super) rows: u32,
    /// Whether the record was damaged, so that it cannot be read.
    pub(super) lost: bool,
}

impl Entry {
    /// Return the entry as two numbers, as the footer has it.
    pub(super) fn pair(self) -> (u32, u32) {
        (if self.lost { self.bytes | LOST } else { self.bytes }, self.rows)
    }

    pub(super) fn of_pair((bytes, rows): (u32, u32)) -> Self {
        Self { bytes: bytes & !LOST, rows, lost: bytes & LOST != 0 }
    }
}

/// The seed for the hashes of a segment's heads.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeadSeed(u64);

impl HeadSeed {
    pub(super) fn of(spool: &SpoolId, segment: u64) -> Self {
        Self(XxHash3_64::oneshot_with_seed(segment, spool))
    }

    fn hash(self, head: &[u8]) -> [u8; HASH] {
        XxHash3_64::oneshot_with_seed(self.0, head).to_le_bytes()
    }
}

/// The origin of a record's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) sender: Arc<str>,
    pub(super) connection: u64,
    /// The hashes of the record's events. Events that another connection brought before may have no
    /// row.
    pub(super) hashes: Vec<u64>,
    /// The number of the connection's events, up to the last of these, that may be sent again.
    pub(super) unconfirmed: u32,
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) entry: Entry,
    /// The number of its first row in the segment.
    pub(super) first: u64,
    pub(super) sent: Sent,
    /// Whether it says that the connection has ended and that none of its events will be sent
    /// again.
    pub(super) ended: bool,
    /// The place of the batch's IPC message in the record.
    pub(super) message: Range<usize>,
}

/// A segment's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) spool: SpoolId,
    pub(super) segment: u64,
    pub(super) schema: Vec<u8>,
    /// The number of its bytes.
    pub(super) length: u64,
}

/// Return the error for more bytes than a spool takes at a time.
pub(super) fn limit(what: &'static str, bytes: u64, limit: u64) -> Error {
    penstock_io::Error::Limit { what, bytes, limit }.into()
}

fn size(length: usize) -> u32 {
    // The length was checked against MAX_RECORD before.
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn seal(into: &mut Vec<u8>, start: usize) {
    let hash = XxHash3_64::oneshot(into.get(start..).unwrap_or_default());
    into.extend_from_slice(&hash.to_le_bytes());
}

fn is_whole(bytes: &[u8]) -> bool {
    bytes.split_last_chunk::<HASH>().is_some_and(|(rest, hash)| XxHash3_64::oneshot(rest).to_le_bytes() == *hash)
}

pub(super) fn u32_le(reader: &mut Reader<'_>) -> Option<u32> {
    Some(u32::from_le_bytes(reader.take(4).ok()?.try_into().ok()?))
}

pub(super) fn u64_le(reader: &mut Reader<'_>) -> Option<u64> {
    Some(u64::from_le_bytes(reader.take(8).ok()?.try_into().ok()?))
}

/// Return the error for a record whose batch does not decode.
pub(super) fn damaged(error: ArrowError) -> Error {
    Error::damaged("a record of the spool", error)
}

/// Return the error for a batch that does not encode. It is internal: all batches have the raw
/// layout, which always encodes.
fn unencodable(error: ArrowError) -> Error {
    Error::internal("a batch cannot be kept", error)
}

/// The encoder of records.
pub(super) struct Encoder {
    stream: StreamEncoder,
    schema: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Result<Self> {
        let layout = Layout::raw().schema();
        let mut stream = StreamEncoder::try_new(&layout).map_err(unencodable)?;
        let mut first = stream.encode(&RecordBatch::new_empty(layout)).map_err(unencodable)?;
        // The first call returns the schema's message and then the batch's, which is cut off here.
        let whole: Vec<u8> = first.drain(..).flat_map(|buffer| buffer.as_slice().to_vec()).collect();
        let schema = message_length(&whole).and_then(|length| whole.get(..length)).unwrap_or_default().to_vec();
        Ok(Self { stream, schema })
    }

    pub(super) fn header(&self, spool: &SpoolId, segment: u64) -> Vec<u8> {
        header_with(&self.schema, spool, segment)
    }

    /// Append a record whose first row is number `first` of the segment; append nothing on an error.
    pub(super) fn record(
        &mut self,
        batch: &RecordBatch,
        (seed, first): (HeadSeed, u64),
        sent: &Sent,
        into: &mut Vec<u8>,
    ) -> Result<Entry> {
        let start = into.len();
        let buffers = self.stream.encode(batch).map_err(unencodable)?;
        let body: usize = buffers.iter().map(Buffer::len).sum::<usize>().next_multiple_of(8);
        let bytes = RECORD_HEAD + origin_length(sent) + body + HASH;
        if bytes > MAX_RECORD {
            return Err(limit("a record", bytes as u64, MAX_RECORD as u64));
        }
        into.reserve(bytes);
        put_head(RECORD, [batch.num_rows(), body], (seed, first), sent, into);
        buffers.iter().for_each(|buffer| into.extend_from_slice(buffer.as_slice()));
        into.resize(start + bytes - HASH, 0);
        seal(into, start);
        Ok(Entry { bytes: size(bytes), rows: size(batch.num_rows()), lost: false })
    }
}

/// Return a header with the schema of a segment that was written earlier.
pub(super) fn header_with(schema: &[u8], spool: &SpoolId, segment: u64) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(spool);
    bytes.extend_from_slice(&segment.to_le_bytes());
    bytes.extend_from_slice(&(schema.len() as u64).to_le_bytes());
    bytes.extend_from_slice(schema);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    seal(&mut bytes, 0);
    bytes
}

/// Append a record of an encoded batch; the length of `message` is a multiple of 8 bytes.
pub(super) fn record_with(
    (message, rows): (&[u8], u32),
    place: (HeadSeed, u64),
    sent: &Sent,
    into: &mut Vec<u8>,
) -> Entry {
    let start = into.len();
    put_head(RECORD, [usize::try_from(rows).unwrap_or(usize::MAX), message.len()], place, sent, into);
    into.extend_from_slice(message);
    seal(into, start);
    Entry { bytes: size(into.len() - start), rows, lost: false }
}

fn origin_length(sent: &Sent) -> usize {
    (24 + sent.hashes.len() * 8 + sent.sender.len()).next_multiple_of(8)
}

fn put_head(kind: &[u8; 4], [rows, body]: [usize; 2], (seed, first): (HeadSeed, u64), sent: &Sent, into: &mut Vec<u8>) {
    let (start, origin) = (into.len(), origin_length(sent));
    into.extend_from_slice(kind);
    for length in [rows, origin, body] {
        into.extend_from_slice(&size(length).to_le_bytes());
    }
    into.extend_from_slice(&first.to_le_bytes());
    let hash = seed.hash(into.get(start..).unwrap_or_default());
    into.extend_from_slice(&hash);
    into.extend_from_slice(&sent.connection.to_le_bytes());
    for number in [size(sent.hashes.len()), size(sent.sender.len()), sent.unconfirmed, 0] {
        into.extend_from_slice(&number.to_le_bytes());
    }
    put_hashes(&sent.hashes, into);
    into.extend_from_slice(sent.sender.as_bytes());
    into.resize(start + RECORD_HEAD + origin, 0);
}

/// Append a record which says that no event of a connection will be sent again.
pub(super) fn end(place: (HeadSeed, u64), sent: &Sent, into: &mut Vec<u8>) -> Entry {
    let start = into.len();
    put_head(END, [0, 0], place, sent, into);
    seal(into, start);
    Entry { bytes: size(into.len() - start), rows: 0, lost: false }
}

/// Append all hashes into room that is reserved once; appending them one by one took longer than
/// hashing the record.
fn put_hashes(hashes: &[u64], into: &mut Vec<u8>) {
    let start = into.len();
    into.resize(start + hashes.len() * 8, 0);
    let (room, _) = into.get_mut(start..).unwrap_or_default().as_chunks_mut();
    room.iter_mut().zip(hashes).for_each(|(room, hash)| *room = hash.to_le_bytes());
}

pub(super) fn footer(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = FOOTER.to_vec();
    bytes.extend_from_slice(&size(entries.len()).to_le_bytes());
    for (length, rows) in entries.iter().map(|entry| entry.pair()) {
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&rows.to_le_bytes());
    }
    bytes.extend_from_slice(&(bytes.len() as u64 + FOOTER_TAIL).to_le_bytes());
    seal(&mut bytes, 0);
    bytes
}

/// Read the length of a footer from the last bytes of a segment.
pub(super) fn footer_length(tail: &[u8]) -> Option<u64> {
    u64_le(&mut Reader::new(tail.last_chunk::<16>()?))
}

/// Read a footer; `None` if the bytes are not a whole one.
pub(super) fn read_footer(bytes: &[u8]) -> Option<Vec<Entry>> {
    let mut reader = Reader::new(bytes);
    if reader.take(4).ok()? != FOOTER || !is_whole(bytes) {
        return None;
    }
    let count = usize::try_from(u32_le(&mut reader)?).ok()?;
    let entries = (0..count).map(|_| Some(Entry::of_pair((u32_le(&mut reader)?, u32_le(&mut reader)?))));
    entries.collect()
}

/// Read the header at the beginning of these bytes; `None` if there are too few bytes, or no
/// header.
pub(super) fn read_header(bytes: &[u8]) -> Option<Header> {
    read_header_of(MAGIC, bytes)
}

/// Read the header of a segment of the first format.
pub(super) fn read_first_header(bytes: &[u8]) -> Option<Header> {
    read_header_of(FIRST_MAGIC, bytes)
}

fn read_header_of(magic: &[u8; 8], bytes: &[u8]) -> Option<Header> {
    let mut reader = Reader::new(bytes);
    if reader.take(8).ok()? != magic {
        return None;
    }
    let spool = reader.take(16).ok()?.try_into().ok()?;
    let segment = u64_le(&mut reader)?;
    let length = usize::try_from(u64_le(&mut reader)?).ok()?;
    let schema = reader.take(length).ok()?.to_vec();
    let whole = 40_usize.checked_add(length)?.checked_next_multiple_of(8)?.checked_add(HASH)?;
    is_whole(bytes.get(..whole)?).then_some(Header { spool, segment, schema, length: whole as u64 })
}

/// Read the entry of a record from its first [`RECORD_HEAD`] bytes; `None` if they do not begin a
/// record.
pub(super) fn read_entry(head: &[u8]) -> Option<Entry> {
    let mut reader = Reader::new(head);
    let kind = reader.take(4).ok()?;
    if kind != RECORD && kind != END {
        return None;
    }
    let rows = u32_le(&mut reader)?;
    let (origin, body) = (u32_le(&mut reader)?, u32_le(&mut reader)?);
    let bytes = u64::from(origin) + u64::from(body) + (RECORD_HEAD + HASH) as u64;
    let fits = bytes <= MAX_RECORD as u64;
    Some(Entry { bytes: u32::try_from(bytes).ok().filter(|_| fits)?, rows, lost: false })
}

/// Read an intact head of a record; return the entry and the number of its first row.
pub(super) fn read_head(seed: HeadSeed, bytes: &[u8]) -> Option<(Entry, u64)> {
    let (head, hash) = bytes.first_chunk::<RECORD_HEAD>()?.split_last_chunk::<HASH>()?;
    let entry = read_entry(head)?;
    let first = u64::from_le_bytes(*head.last_chunk()?);
    (seed.hash(head) == *hash).then_some((entry, first))
}

/// As [`read_head`], for a head in which one bit has changed. Flipping any other bit does not make
/// the hash fit.
pub(super) fn repair_head(seed: HeadSeed, bytes: &[u8]) -> Option<(Entry, u64)> {
    repair_bit::<RECORD_HEAD, _>(bytes, |head| read_head(seed, head))
}

/// Return whether bytes begin like a footer, with at most one byte different.
pub(super) fn begins_as_footer(bytes: &[u8]) -> bool {
    bytes.iter().zip(FOOTER).filter(|(a, b)| a == b).count() + 1 >= FOOTER.len()
}

/// Return whether the hash fits these bytes, which are a whole record or a whole footer.
pub(super) fn verify(bytes: &[u8]) -> bool {
    is_whole(bytes)
}

/// Read the parts of a whole record.
pub(super) fn read_record(bytes: &[u8]) -> Option<Record> {
    let entry = read_entry(bytes)?;
    let mut reader = Reader::new(bytes.get(8..)?);
    let (origin, body) = (usize::try_from(u32_le(&mut reader)?).ok()?, usize::try_from(u32_le(&mut reader)?).ok()?);
    let start = RECORD_HEAD.checked_add(origin)?;
    let message = start..start.checked_add(body)?;
    let (first, _, connection) = (u64_le(&mut reader)?, u64_le(&mut reader)?, u64_le(&mut reader)?);
    let (count, name) = (usize::try_from(u32_le(&mut reader)?).ok()?, usize::try_from(u32_le(&mut reader)?).ok()?);
    let (unconfirmed, _) = (u32_le(&mut reader)?, u32_le(&mut reader)?);
    let hashes = reader.take(count.checked_mul(8)?).ok()?;
    let hashes = hashes.as_chunks::<8>().0.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
    let sender = std::str::from_utf8(reader.take(name).ok()?).ok()?.into();
    let sent = Sent { sender, connection, hashes, unconfirmed };
    Some(Record { entry, first, sent, ended: bytes.starts_with(END), message })
}

/// Return the length of the Arrow IPC message, without a body, at the beginning of these bytes.
fn message_length(bytes: &[u8]) -> Option<usize> {
    // The message is 0xFFFFFFFF, the length of the metadata, and the metadata.
    let mut reader = Reader::new(bytes.get(4..)?);
    usize::try_from(u32_le(&mut reader)?).ok()?.checked_add(8)
}

#[derive(Debug)]
/// The decoder of the batches in a segment's records.
pub(super) struct Decoder {
    stream: StreamDecoder,
}

impl Decoder {
    /// Make a decoder with the schema from the segment's header.
    pub(super) fn new(schema: &[u8]) -> Result<Self> {
        let mut stream = StreamDecoder::new().with_require_alignment(false);
        stream.decode(&mut Buffer::from(schema)).map_err(damaged)?;
        Ok(Self { stream })
    }

    /// Decode the batch of a record's message.
    pub(super) fn batch(&mut self, message: &Buffer) -> Result<RecordBatch> {
        let mut message = message.clone();
        let batch = self.stream.decode(&mut message).map_err(damaged)?;
        batch.ok_or_else(|| Error::damaged("a record of the spool", "it has no batch"))
    }
}
