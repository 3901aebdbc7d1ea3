//! The columns of rows that are to be entities.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::ByteArrayType;
use arrow_array::{
    Array, ArrayRef, BinaryArray, GenericByteArray, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray,
    MapArray, OffsetSizeTrait, RecordBatch, StringArray,
};
use bytes::Bytes;
use penstock_pipestream::PipeDoc;
use penstock_pipestream::pipe_doc::DOC;
use penstock_pipestream_net::EntityDraft;

use super::envelopes::Envelopes;

/// Metadata that the columns of the same meaning, and the transaction of whoever writes, take the place of: rows that
/// were read from a sink have it.
const OWN: [&str; 6] = [DOCUMENT, PATH, DOC, "penstock.transaction", TRANSACTION_OWNER, "penstock.transaction-token"];
/// What a session's first entities say of the transaction's owner.
pub(super) const TRANSACTION_OWNER: &str = "penstock.transaction-owner";
const DOCUMENT: &str = "penstock.document";
const PATH: &str = "penstock.path";
/// What a row without a type is.
const OCTETS: &str = "application/octet-stream";

/// A batch of rows. The octets of `content` are taken from Arrow's memory as they are.
pub(super) struct Columns {
    rows: usize,
    content: Content,
    names: Arc<Names>,
    types: Option<Texts>,
    metadata: Option<Metadata>,
    envelopes: Envelopes,
}

/// What a row is called. Kept as long as the row may fail.
pub(super) struct Names {
    documents: Option<Texts>,
    paths: Option<Paths>,
}

/// The octets of all rows, and where each has its own.
struct Content {
    octets: Bytes,
    places: Places,
}

enum Places {
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    Text(StringArray),
    LargeText(LargeStringArray),
}

/// Strings, with offsets of either width.
pub(super) enum Texts {
    Small(StringArray),
    Large(LargeStringArray),
}

enum Paths {
    Small(ListArray),
    Large(LargeListArray),
}

struct Metadata {
    maps: MapArray,
    keys: Texts,
    values: Texts,
}

impl Columns {
    /// Finds the columns of a batch. The error says what is wrong with which.
    pub(super) fn new(batch: &RecordBatch) -> Result<Self, String> {
        let column = |name: &str| batch.column_by_name(name);
        let content = column("content").ok_or("there is no column content")?;
        let names = Names {
            documents: column("document").map(|column| Texts::new("document", column)).transpose()?,
            paths: column("path").map(Paths::new).transpose()?,
        };
        Ok(Self {
            rows: batch.num_rows(),
            content: Content::new(content)?,
            names: Arc::new(names),
            types: column("type").map(|column| Texts::new("type", column)).transpose()?,
            metadata: column("metadata").map(Metadata::new).transpose()?,
            envelopes: Envelopes::new(batch)?,
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// The octets of all rows together.
    pub(super) fn octets(&self) -> &Bytes {
        &self.content.octets
    }

    /// The octets of one; `None` if the row is null.
    pub(super) fn content(&self, row: usize) -> Option<Bytes> {
        let place = self.content.place(row)?;
        // Arrow has checked its offsets.
        (place.start <= place.end && place.end <= self.content.octets.len()).then(|| self.content.octets.slice(place))
    }

    /// Which document a row is, and whose; an error where that cannot be sent.
    pub(super) fn document(&self, row: usize) -> Result<Option<PipeDoc>, String> {
        self.envelopes.get(row, self.names.document(row))
    }

    /// What the entity says of itself in its header, beside what all of them say.
    pub(super) fn draft(&self, row: usize, common: &BTreeMap<String, String>) -> EntityDraft {
        let mut metadata = common.clone();
        if let Some(column) = &self.metadata {
            column.add_to(&mut metadata, row);
        }
        if let Some(document) = self.names.document(row) {
            metadata.insert(DOCUMENT.to_owned(), document.to_owned());
        }
        if let Some(path) = self.names.path(row) {
            metadata.insert(PATH.to_owned(), path);
        }
        let content_type = self.types.as_ref().and_then(|types| types.get(row)).unwrap_or(OCTETS).to_owned();
        EntityDraft { content_type, metadata, ..EntityDraft::default() }
    }
}

/// What the root of a document's rows says of itself.
pub(super) fn document_draft(
    name: Option<&str>,
    document: Option<PipeDoc>,
    common: &BTreeMap<String, String>,
) -> EntityDraft {
    let mut metadata = common.clone();
    metadata.extend(name.map(|name| (DOCUMENT.to_owned(), name.to_owned())));
    EntityDraft { dehydrate: true, content_type: OCTETS.to_owned(), metadata, document, ..EntityDraft::default() }
}

/// The strings of a row's list; `None` where it is null.
pub(super) fn list_of(name: &str, column: &ArrayRef, row: usize) -> Result<Option<Vec<String>>, String> {
    let wrong = |_| format!("the column {name} must be an array of strings, not {}", column.data_type());
    Ok(Paths::new(column).map_err(wrong)?.segments_of(row))
}

impl Names {
    pub(super) fn document(&self, row: usize) -> Option<&str> {
        self.documents.as_ref()?.get(row)
    }

    /// The path as JSON, as receipts and sinks have it.
    pub(super) fn path(&self, row: usize) -> Option<String> {
        self.paths.as_ref()?.get(row)
    }
}

impl Content {
    fn new(column: &ArrayRef) -> Result<Self, String> {
        let places = if let Some(places) = column.as_binary_opt::<i32>() {
            Places::Binary(places.clone())
        } else if let Some(places) = column.as_binary_opt::<i64>() {
            Places::LargeBinary(places.clone())
        } else if let Some(places) = column.as_string_opt::<i32>() {
            Places::Text(places.clone())
        } else if let Some(places) = column.as_string_opt::<i64>() {
            Places::LargeText(places.clone())
        } else {
            return Err(format!("the column content must be binary or string, not {}", column.data_type()));
        };
        let octets = match &places {
            Places::Binary(places) => Bytes::from_owner(Owner(places.clone())),
            Places::LargeBinary(places) => Bytes::from_owner(Owner(places.clone())),
            Places::Text(places) => Bytes::from_owner(Owner(places.clone())),
            Places::LargeText(places) => Bytes::from_owner(Owner(places.clone())),
        };
        Ok(Self { octets, places })
    }

    fn place(&self, row: usize) -> Option<Range<usize>> {
        match &self.places {
            Places::Binary(places) => place(places, row),
            Places::LargeBinary(places) => place(places, row),
            Places::Text(places) => place(places, row),
            Places::LargeText(places) => place(places, row),
        }
    }
}

/// Where a row has its octets, if it is there and not null.
fn place<T: ByteArrayType>(places: &GenericByteArray<T>, row: usize) -> Option<Range<usize>> {
    if row < places.len() && places.is_valid(row) { range(places.value_offsets(), row) } else { None }
}

fn range<O: OffsetSizeTrait>(offsets: &[O], row: usize) -> Option<Range<usize>> {
    Some(offsets.get(row)?.to_usize()?..offsets.get(row.checked_add(1)?)?.to_usize()?)
}

/// The memory that Arrow holds, for `Bytes`.
struct Owner<T: ByteArrayType>(GenericByteArray<T>);

impl<T: ByteArrayType> AsRef<[u8]> for Owner<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.value_data()
    }
}

impl Texts {
    pub(super) fn new(name: &str, column: &ArrayRef) -> Result<Self, String> {
        let small = column.as_string_opt::<i32>().cloned().map(Self::Small);
        let texts = small.or_else(|| column.as_string_opt::<i64>().cloned().map(Self::Large));
        texts.ok_or_else(|| format!("the column {name} must be a string, not {}", column.data_type()))
    }

    pub(super) fn get(&self, row: usize) -> Option<&str> {
        match self {
            Self::Small(texts) => (row < texts.len() && texts.is_valid(row)).then(|| texts.value(row)),
            Self::Large(texts) => (row < texts.len() && texts.is_valid(row)).then(|| texts.value(row)),
        }
    }
}

impl Paths {
    fn new(column: &ArrayRef) -> Result<Self, String> {
        let small = column.as_list_opt::<i32>().cloned().map(Self::Small);
        let paths = small.or_else(|| column.as_list_opt::<i64>().cloned().map(Self::Large));
        let wrong = || format!("the column path must be an array of strings, not {}", column.data_type());
        let paths = paths.ok_or_else(wrong)?;
        Texts::new("path", paths.segments())?;
        Ok(paths)
    }

    fn segments(&self) -> &ArrayRef {
        match self {
            Self::Small(lists) => lists.values(),
            Self::Large(lists) => lists.values(),
        }
    }

    fn get(&self, row: usize) -> Option<String> {
        serde_json::to_string(&self.segments_of(row)?).ok()
    }

    fn segments_of(&self, row: usize) -> Option<Vec<String>> {
        let place = match self {
            Self::Small(lists) if row < lists.len() && lists.is_valid(row) => range(lists.value_offsets(), row),
            Self::Large(lists) if row < lists.len() && lists.is_valid(row) => range(lists.value_offsets(), row),
            Self::Small(_) | Self::Large(_) => None,
        }?;
        let texts = Texts::new("path", self.segments()).ok()?;
        Some(place.map(|index| texts.get(index).unwrap_or_default().to_owned()).collect())
    }
}

impl Metadata {
    fn new(column: &ArrayRef) -> Result<Self, String> {
        let wrong = || format!("the column metadata must be a map of strings, not {}", column.data_type());
        let maps = column.as_map_opt().cloned().ok_or_else(wrong)?;
        let (keys, values) = (Texts::new("metadata", maps.keys())?, Texts::new("metadata", maps.values())?);
        Ok(Self { maps, keys, values })
    }

    /// What the row says, but for what is said otherwise and for keys without a value.
    fn add_to(&self, metadata: &mut BTreeMap<String, String>, row: usize) {
        if row >= self.maps.len() || self.maps.is_null(row) {
            return;
        }
        for index in range(self.maps.value_offsets(), row).unwrap_or_default() {
            let (Some(key), Some(value)) = (self.keys.get(index), self.values.get(index)) else { continue };
            if !OWN.contains(&key) {
                metadata.insert(key.to_owned(), value.to_owned());
            }
        }
    }
}
