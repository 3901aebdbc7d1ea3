//! External batches, which are stored behind URLs (section 12): the bytes to store, the pointer
//! sent in their place, and the decoding of fetched bytes. Storing and fetching are the caller's
//! task.
//!
//! ```text
//!  log*, data ── pack ─▶ Parcel ── (stored) ─▶ URL ── pointer ─▶ a batch without rows ─▶ … the peer
//!  pointer ── Pointer::of ─▶ URL ── (fetched) ─▶ Fetched ── Pointer::open ─▶ log*, data
//! ```

use std::sync::Arc;
use std::time::Duration;

use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;
use penstock_wire::hex;
use sha2::{Digest, Sha256};

use crate::classify::Class;
use crate::error::{Error, Misuse, Result, Violation};
use crate::failure::{Failure, Log};
use crate::http::{compress, inflate};
use crate::ipc::{self, Batch, Item, Output};
use crate::limits::Limits;
use crate::metadata::{Metadata, key};

/// A cycle in its stored form: the log messages and the batch as one IPC stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parcel {
    /// The bytes to store.
    pub bytes: Vec<u8>,
    /// The coding of the bytes: `zstd` or none.
    pub coding: Option<&'static str>,
    /// The SHA-256 of the stream before compression, in hex.
    pub sha256: String,
}

impl Parcel {
    /// Pack a cycle, and compress it with zstd if there is a level.
    pub fn pack(schema: &SchemaRef, cycle: &[Batch], level: Option<i32>) -> Result<Self> {
        let mut out = Output::new();
        ipc::stream(schema, cycle, &mut out)?;
        let pieces = out.take();
        let sha256 = digest(pieces.iter());
        let slices: Vec<&[u8]> = pieces.iter().map(Buffer::as_slice).collect();
        // A stream that hardly shrinks is stored uncompressed.
        Ok(match level.map(|level| compress(&slices, level)).transpose()?.flatten() {
            Some(bytes) => Self { bytes, coding: Some("zstd"), sha256 },
            None => Self { bytes: slices.concat(), coding: None, sha256 },
        })
    }
}

fn digest<'a>(pieces: impl Iterator<Item = &'a Buffer>) -> String {
    let mut hash = Sha256::new();
    pieces.for_each(|piece| hash.update(piece.as_slice()));
    hex::encode(hash.finalize())
}

/// Return the batch to send in place of a stored one.
pub fn pointer(schema: &SchemaRef, url: &str, sha256: Option<&str>) -> Batch {
    Batch::empty(schema, point(Metadata::new(), url, sha256))
}

/// Add the location of the stored batch to a batch's metadata.
pub fn point(mut metadata: Metadata, url: &str, sha256: Option<&str>) -> Metadata {
    metadata.set(key::LOCATION, url.as_bytes());
    if let Some(sha256) = sha256 {
        metadata.set(key::LOCATION_SHA256, sha256.as_bytes());
    }
    metadata
}

/// A received pointer.
#[derive(Debug, Clone)]
pub struct Pointer {
    /// The URL of the batch.
    pub url: String,
    sha256: Option<String>,
    schema: SchemaRef,
    metadata: Metadata,
}

/// Fetched bytes.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether they are compressed with zstd.
    pub zstd: bool,
    /// How long fetching took.
    pub took: Duration,
}

/// The decoded content of a stored batch.
#[derive(Debug)]
pub struct StoredBatch {
    /// The log messages before the batch.
    pub logs: Vec<Log>,
    /// The batch, or the error stored in its place.
    pub batch: Result<Batch, Failure>,
}

impl Pointer {
    /// Return the pointer that a batch represents, or `None` for any other batch.
    pub fn of(batch: &Batch) -> Option<Result<Self>> {
        if batch.class() != Class::External {
            return None;
        }
        let mut metadata = batch.metadata.clone();
        let text = |value: Option<Vec<u8>>| value.and_then(|bytes| String::from_utf8(bytes).ok());
        let url = text(metadata.remove(key::LOCATION));
        let had_sum = metadata.contains(key::LOCATION_SHA256);
        let sha256 = text(metadata.remove(key::LOCATION_SHA256));
        Some(match url {
            Some(url) if sha256.is_some() == had_sum => {
                Ok(Self { url, sha256, schema: Arc::clone(&batch.schema), metadata })
            }
            _ => Err(Violation::Location.into()),
        })
    }

    /// Decode fetched bytes, inflated to at most `most` bytes. The batch keeps the pointer's
    /// metadata.
    pub fn open(&self, fetched: Fetched, limits: &Limits, most: u64) -> Result<StoredBatch> {
        let Fetched { bytes, zstd, took } = fetched;
        let bytes = if zstd { inflate(&bytes, most)? } else { bytes };
        if bytes.len() as u64 > most {
            return Err(Error::External { limit: most });
        }
        let bytes = Buffer::from_vec(bytes);
        if let Some(expected) = &self.sha256 {
            let actual = digest(std::iter::once(&bytes));
            if !actual.eq_ignore_ascii_case(expected) {
                return Err(Violation::Digest { actual, expected: expected.clone() }.into());
            }
        }
        let mut logs = Vec::new();
        let mut data = None;
        let mut ended = false;
        for item in ipc::read_streams(&bytes, limits)? {
            match item {
                Item::Schema(_) if ended => {
                    return Err(Violation::ExternalStreams.into());
                }
                Item::Schema(_) => {}
                Item::End => ended = true,
                Item::Batch(batch) => match self.classify(&batch)? {
                    Class::Log(log) => logs.push(log),
                    Class::Error(failure) => return Ok(StoredBatch { logs, batch: Err(failure) }),
                    Class::Data | Class::State | Class::External | Class::Shared => {
                        if data.replace(batch).is_some() {
                            return Err(Violation::ExternalBatches.into());
                        }
                    }
                },
            }
        }
        let batch = data.ok_or(Violation::NoExternalBatch)?;
        Ok(StoredBatch { logs, batch: Ok(self.merge(batch, took)) })
    }

    /// Classify the batch behind the pointer. It must not be a pointer itself, and must have the
    /// pointer's schema.
    fn classify(&self, batch: &Batch) -> Result<Class> {
        if batch.metadata.contains(key::LOCATION) || batch.metadata.contains(key::SHM_OFFSET) {
            return Err(Violation::RedirectLoop.into());
        }
        if !same(&batch.schema, &self.schema) {
            return Err(Violation::ExternalSchema.into());
        }
        Ok(batch.class())
    }

    /// Return the batch with the metadata of both, its own first, and with its origin.
    fn merge(&self, mut batch: Batch, took: Duration) -> Batch {
        for (name, value) in self.metadata.iter() {
            if !batch.metadata.contains(name) {
                batch.metadata.push(name, value);
            }
        }
        batch.metadata.set(key::LOCATION_FETCH_MS, format!("{:.1}", took.as_secs_f64() * 1_000.0));
        batch.metadata.set(key::LOCATION_SOURCE, self.url.as_bytes());
        // The decoder used the schema of the fetched stream; the pointer has the schema that the
        // peer's stream declares.
        batch.schema = Arc::clone(&self.schema);
        batch
    }
}

/// Compare names, types and nullability; a store may lose the other properties.
fn same(one: &SchemaRef, other: &SchemaRef) -> bool {
    one.fields().len() == other.fields().len()
        && one.fields().iter().zip(other.fields()).all(|(one, other)| {
            one.name() == other.name()
                && one.data_type().equals_datatype(other.data_type())
                && one.is_nullable() == other.is_nullable()
        })
}

/// Return a pointer to the URL where a request's body was stored. It calls the same method, and has
/// no values itself.
pub fn pointer_body(body: &[Buffer], url: &str, limits: &Limits) -> Result<Output> {
    let bytes: Buffer = match body {
        [whole] => whole.clone(),
        pieces => pieces.iter().map(Buffer::as_slice).collect::<Vec<_>>().concat().into(),
    };
    let first = ipc::read_streams(&bytes, limits)?.into_iter().find_map(|item| match item {
        Item::Batch(batch) => Some(batch),
        Item::Schema(_) | Item::End => None,
    });
    let batch = first.ok_or(Misuse::NoBatch)?;
    let sha256 = digest(std::iter::once(&bytes));
    let mut out = Output::new();
    let pointer = Batch::empty(&batch.schema, point(batch.metadata, url, Some(&sha256)));
    ipc::stream(&pointer.schema, [&pointer], &mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Float64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;
    use crate::ErrorKind;

    const MOST: u64 = 1 << 20;

    fn schema(name: &str) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new(name, DataType::Float64, false)]))
    }

    fn data() -> Batch {
        let column: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.5]));
        let batch = RecordBatch::try_new(schema("value"), vec![column]).unwrap();
        Batch::from(batch).with_metadata([("mine", "x")].into_iter().collect())
    }

    fn log() -> Batch {
        Batch::empty(&schema("value"), Log::new("INFO", "hello", None).metadata("", ""))
    }

    fn of(batch: &Batch) -> Pointer {
        Pointer::of(batch).unwrap().unwrap()
    }

    fn fetched(bytes: Vec<u8>, zstd: bool) -> Fetched {
        Fetched { bytes, zstd, took: Duration::from_micros(42_300) }
    }

    fn refused(pointer: &Batch, parcel: Parcel) -> Error {
        let fetched = fetched(parcel.bytes, parcel.coding.is_some());
        of(pointer).open(fetched, &Limits::default(), MOST).map(|_| ()).unwrap_err()
    }

    #[test]
    fn a_cycle_comes_back_with_its_messages_and_where_it_was() {
        for level in [None, Some(3)] {
            let parcel = Parcel::pack(&schema("value"), &[log(), data()], level).unwrap();
            assert_eq!(parcel.coding.is_some(), level.is_some());
            let mut sent = pointer(&schema("value"), "https://x/y", Some(&parcel.sha256));
            assert_eq!(sent.class(), Class::External);
            sent.metadata.push(key::STREAM_STATE, "token");
            let opened = of(&sent).open(fetched(parcel.bytes, level.is_some()), &Limits::default(), MOST).unwrap();
            assert_eq!(opened.logs, [Log::new("INFO", "hello", None)]);
            let batch = opened.batch.unwrap();
            assert_eq!((batch.rows, batch.metadata.text(b"mine")), (2, Some("x")));
            assert_eq!(batch.metadata.text(key::STREAM_STATE), Some("token"));
            assert_eq!(batch.metadata.text(key::LOCATION_FETCH_MS), Some("42.3"));
            assert_eq!(batch.metadata.text(key::LOCATION_SOURCE), Some("https://x/y"));
            assert!(!batch.metadata.contains(key::LOCATION) && !batch.metadata.contains(key::LOCATION_SHA256));
        }
    }

    #[test]
    fn an_error_behind_a_pointer_is_the_error() {
        let failure = Failure::new("ValueError", "boom");
        let batch = Batch::empty(&schema("value"), failure.metadata("", ""));
        let parcel = Parcel::pack(&schema("value"), &[log(), batch], None).unwrap();
        let sent = pointer(&schema("value"), "https://x/y", None);
        let opened = of(&sent).open(fetched(parcel.bytes, false), &Limits::default(), MOST).unwrap();
        assert_eq!((opened.logs.len(), opened.batch.unwrap_err().error_type.as_str()), (1, "ValueError"));
    }

    #[test]
    fn what_no_batch_may_be_is_refused() {
        let value = schema("value");
        let sent = pointer(&value, "https://x/y", None);
        let loops = [pointer(&value, "https://x/y", None)];
        let error = refused(&sent, Parcel::pack(&value, &loops, None).unwrap());
        assert_eq!(error, Violation::RedirectLoop.into());
        for (cycle, violation) in
            [(vec![log()], Violation::NoExternalBatch), (vec![data(), data()], Violation::ExternalBatches)]
        {
            let error = refused(&sent, Parcel::pack(&value, &cycle, None).unwrap());
            assert_eq!(error, violation.into());
        }
        let error = refused(&pointer(&schema("other"), "https://x/y", None), parcel());
        assert_eq!(error, Violation::ExternalSchema.into());
        let wrong = pointer(&value, "https://x/y", Some(&"0".repeat(64)));
        let error = refused(&wrong, parcel());
        assert!(matches!(error, Error::Violation(Violation::Digest { .. })), "{error}");
        let twice = Parcel { bytes: [parcel().bytes, parcel().bytes].concat(), ..parcel() };
        assert_eq!(refused(&sent, twice), Violation::ExternalStreams.into());
    }

    fn parcel() -> Parcel {
        Parcel::pack(&schema("value"), &[data()], None).unwrap()
    }

    #[test]
    fn a_bomb_and_what_is_torn_cost_no_more_than_their_limit() {
        let sent = pointer(&schema("value"), "https://x/y", None);
        let zeros = vec![0_u8; 4 << 20];
        let bytes = compress(&[&zeros], 19).unwrap().unwrap();
        let bomb = Parcel { bytes, coding: Some("zstd"), sha256: String::new() };
        assert!(bomb.bytes.len() < 1_000);
        assert_eq!(refused(&sent, bomb).kind(), ErrorKind::Limit);
        let mut torn = parcel();
        torn.bytes.truncate(torn.bytes.len() - 8);
        assert_eq!(refused(&sent, torn).kind(), ErrorKind::Malformed);
        let small = of(&sent).open(fetched(parcel().bytes, false), &Limits::default(), 100);
        assert_eq!(small.map(|_| ()).unwrap_err().kind(), ErrorKind::Limit);
    }

    #[test]
    fn only_a_pointer_is_one() {
        assert!(Pointer::of(&data()).is_none() && Pointer::of(&log()).is_none());
        let mut bytes = pointer(&schema("value"), "x", None);
        bytes.metadata.set(key::LOCATION, [0xFF]);
        assert_eq!(Pointer::of(&bytes).unwrap().unwrap_err(), Violation::Location.into());
    }

    #[test]
    fn a_body_becomes_a_pointer_that_calls_the_same() {
        let mut out = Output::new();
        crate::request::write("scale", data(), Metadata::new(), &mut out).unwrap();
        let body = out.take();
        let pointed = pointer_body(&body, "https://x/y", &Limits::default()).unwrap().concat();
        let items = ipc::read_streams(&pointed.into(), &Limits::default()).unwrap();
        let Some(Item::Batch(batch)) = items.get(1) else { panic!("{items:?}") };
        assert_eq!((batch.rows, batch.metadata.text(key::METHOD)), (0, Some("scale")));
        let whole = body.iter().map(Buffer::as_slice).collect::<Vec<_>>().concat();
        let opened = of(batch).open(fetched(whole, false), &Limits::default(), MOST).unwrap();
        assert_eq!(opened.batch.unwrap().rows, 2);
    }
}
