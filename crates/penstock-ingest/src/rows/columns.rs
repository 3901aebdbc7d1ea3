//! The columns of rows that become entities.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Weak};

use arrow_array::cast::AsArray as _;
use arrow_array::types::ByteArrayType;
use arrow_array::{
    Array, ArrayRef, BinaryArray, GenericByteArray, LargeBinaryArray, LargeStringArray, MapArray, RecordBatch,
    StringArray,
};
use bytes::Bytes;
use penstock_pipestream::PipeDoc;
use penstock_pipestream::pipe_doc::DOC;
use penstock_pipestream_net::EntityDraft;

use super::envelopes::EnvelopeColumns;
use super::strings::{PathColumn, StringColumn, range};
use crate::{Result, Value};

/// Keys that are left out of a row's metadata, because other columns or the writer's transaction
/// set them. Rows that were read from a sink contain them.
const RESERVED: [&str; 6] =
    [DOCUMENT, PATH, DOC, "penstock.transaction", TRANSACTION_OWNER, "penstock.transaction-token"];
/// The key by which a session's first entities state the transaction's owner.
pub(super) const TRANSACTION_OWNER: &str = "penstock.transaction-owner";
const DOCUMENT: &str = "penstock.document";
const PATH: &str = "penstock.path";
/// The content type of a row without a type.
const DEFAULT_TYPE: &str = "application/octet-stream";

/// A batch of rows. The bytes of `content` are used in Arrow's memory, without copying.
pub(super) struct EntityColumns {
    rows: usize,
    content: ContentColumn,
    names: Arc<RowNames>,
    types: Option<StringColumn>,
    metadata: Option<MetadataColumn>,
    envelopes: EnvelopeColumns,
}

/// The names of rows, kept as long as the rows may fail.
pub(super) struct RowNames {
    documents: Option<StringColumn>,
    paths: Option<PathColumn>,
}

/// The bytes of all rows, and the range of each.
struct ContentColumn {
    bytes: Bytes,
    array: ContentArray,
    column: ArrayRef,
    /// A token that is dropped when no bytes are in use any more: `Bytes` with an owner cannot
    /// report that.
    in_use: Weak<()>,
}

enum ContentArray {
    Binary(BinaryArray),
    LargeBinary(LargeBinaryArray),
    Text(StringArray),
    LargeText(LargeStringArray),
}

struct MetadataColumn {
    maps: MapArray,
    keys: StringColumn,
    values: StringColumn,
}

impl EntityColumns {
    /// Find the columns of a batch. The error says which column is wrong, and why.
    pub(super) fn new(batch: &RecordBatch) -> Result<Self> {
        let column = |name: &str| batch.column_by_name(name);
        let content = column("content").ok_or(Value::MissingColumn("content"))?;
        let names = RowNames {
            documents: column("document").map(|column| StringColumn::new("document", column)).transpose()?,
            paths: column("path").map(PathColumn::new).transpose()?,
        };
        Ok(Self {
            rows: batch.num_rows(),
            content: ContentColumn::new(content)?,
            names: Arc::new(names),
            types: column("type").map(|column| StringColumn::new("type", column)).transpose()?,
            metadata: column("metadata").map(MetadataColumn::new).transpose()?,
            envelopes: EnvelopeColumns::new(batch)?,
        })
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn names(&self) -> &Arc<RowNames> {
        &self.names
    }

    /// Return the column of the bytes, and the token that is dropped when its bytes are no longer in use.
    pub(super) fn memory(&self) -> (&ArrayRef, &Weak<()>) {
        (&self.content.column, &self.content.in_use)
    }

    /// Return the bytes of one row; `None` if it is null.
    pub(super) fn content(&self, row: usize) -> Option<Bytes> {
        let range = self.content.byte_range(row)?;
        // Arrow has checked its offsets, so this condition always holds.
        (range.start <= range.end && range.end <= self.content.bytes.len()).then(|| self.content.bytes.slice(range))
    }

    /// Return the document and the owner of a row; an error if they cannot be sent.
    pub(super) fn document(&self, row: usize) -> Result<Option<PipeDoc>> {
        self.envelopes.get(row, self.names.document(row))
    }

    /// Return the draft of a row's entity, with the metadata that all entities share.
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
        let content_type = self.types.as_ref().and_then(|types| types.get(row)).unwrap_or(DEFAULT_TYPE).to_owned();
        EntityDraft { content_type, metadata, ..EntityDraft::default() }
    }
}

/// Return the draft for the root of a document's rows.
pub(super) fn document_draft(
    name: Option<&str>,
    document: Option<PipeDoc>,
    common: &BTreeMap<String, String>,
) -> EntityDraft {
    let mut metadata = common.clone();
    metadata.extend(name.map(|name| (DOCUMENT.to_owned(), name.to_owned())));
    EntityDraft { dehydrate: true, content_type: DEFAULT_TYPE.to_owned(), metadata, document, ..EntityDraft::default() }
}

impl RowNames {
    pub(super) fn document(&self, row: usize) -> Option<&str> {
        self.documents.as_ref()?.get(row)
    }

    /// Return the path as JSON, in the form of receipts and sinks.
    pub(super) fn path(&self, row: usize) -> Option<String> {
        self.paths.as_ref()?.get(row)
    }
}

impl ContentColumn {
    fn new(column: &ArrayRef) -> Result<Self> {
        let array = if let Some(array) = column.as_binary_opt::<i32>() {
            ContentArray::Binary(array.clone())
        } else if let Some(array) = column.as_binary_opt::<i64>() {
            ContentArray::LargeBinary(array.clone())
        } else if let Some(array) = column.as_string_opt::<i32>() {
            ContentArray::Text(array.clone())
        } else if let Some(array) = column.as_string_opt::<i64>() {
            ContentArray::LargeText(array.clone())
        } else {
            return Err(Value::column_type("content", "binary or string", column.data_type()).into());
        };
        let token = Arc::new(());
        let in_use = Arc::downgrade(&token);
        let bytes = match &array {
            ContentArray::Binary(array) => Bytes::from_owner(ArrayOwner { array: array.clone(), _token: token }),
            ContentArray::LargeBinary(array) => Bytes::from_owner(ArrayOwner { array: array.clone(), _token: token }),
            ContentArray::Text(array) => Bytes::from_owner(ArrayOwner { array: array.clone(), _token: token }),
            ContentArray::LargeText(array) => Bytes::from_owner(ArrayOwner { array: array.clone(), _token: token }),
        };
        Ok(Self { bytes, array, column: Arc::clone(column), in_use })
    }

    fn byte_range(&self, row: usize) -> Option<Range<usize>> {
        match &self.array {
            ContentArray::Binary(array) => byte_range(array, row),
            ContentArray::LargeBinary(array) => byte_range(array, row),
            ContentArray::Text(array) => byte_range(array, row),
            ContentArray::LargeText(array) => byte_range(array, row),
        }
    }
}

/// Return the range of a row's bytes, if the row exists and is not null.
fn byte_range<T: ByteArrayType>(array: &GenericByteArray<T>, row: usize) -> Option<Range<usize>> {
    if row < array.len() && array.is_valid(row) { range(array.value_offsets(), row) } else { None }
}

/// Arrow memory as an owner for `Bytes`. The token is dropped after the array: once it is gone, so
/// is the array.
struct ArrayOwner<T: ByteArrayType> {
    array: GenericByteArray<T>,
    _token: Arc<()>,
}

impl<T: ByteArrayType> AsRef<[u8]> for ArrayOwner<T> {
    fn as_ref(&self) -> &[u8] {
        self.array.value_data()
    }
}

impl MetadataColumn {
    fn new(column: &ArrayRef) -> Result<Self> {
        let wrong = || Value::column_type("metadata", "a map of strings", column.data_type());
        let maps = column.as_map_opt().cloned().ok_or_else(wrong)?;
        let (keys, values) =
            (StringColumn::new("metadata", maps.keys())?, StringColumn::new("metadata", maps.values())?);
        Ok(Self { maps, keys, values })
    }

    /// Add the row's metadata, except keys without a value and [`RESERVED`] keys.
    fn add_to(&self, metadata: &mut BTreeMap<String, String>, row: usize) {
        if row >= self.maps.len() || self.maps.is_null(row) {
            return;
        }
        for index in range(self.maps.value_offsets(), row).unwrap_or_default() {
            let (Some(key), Some(value)) = (self.keys.get(index), self.values.get(index)) else { continue };
            if !RESERVED.contains(&key) {
                metadata.insert(key.to_owned(), value.to_owned());
            }
        }
    }
}
