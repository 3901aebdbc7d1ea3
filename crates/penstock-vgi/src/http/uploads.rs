//! URLs to which a client uploads requests that are too large (section 10, "Upload URL
//! generation").

use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::{Result, Violation};
use crate::failure::Failure;
use crate::ipc::{Batch, Output};
use crate::metadata::{Metadata, REQUEST_VERSION, key};
use crate::request;

/// The method that issues the URLs.
pub const UPLOAD_URL: &str = "__upload_url__";
/// The most URLs that a client may request in one call.
const MOST: i64 = 100;

static ANSWER: LazyLock<SchemaRef> = LazyLock::new(|| {
    let expires = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("upload_url", DataType::Utf8, false),
        Field::new("download_url", DataType::Utf8, false),
        Field::new("expires_at", expires, false),
    ]))
});

/// The two URLs of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadUrl {
    /// The URL for uploading the object.
    pub upload: String,
    /// The URL for fetching the object.
    pub download: String,
    /// The time at which both expire, in microseconds since the Unix epoch.
    pub expires_at: i64,
}

/// Return the schema of an answer.
pub(super) fn schema() -> &'static SchemaRef {
    &ANSWER
}

/// Return the number of URLs that a request asks for, clamped to the allowed range.
pub(super) fn count(batch: &Batch) -> Result<usize, Failure> {
    if batch.metadata.get(key::METHOD) != Some(UPLOAD_URL.as_bytes()) {
        return Err(Failure::new("TypeError", "Method mismatch: expected '__upload_url__'"));
    }
    if batch.metadata.get(key::REQUEST_VERSION) != Some(REQUEST_VERSION) {
        return Err(Failure::new("VersionError", "Unsupported or missing 'vgi_rpc.request_version', expected '1'"));
    }
    let Some(column) = batch.column("count") else { return Ok(1) };
    let count = column.as_primitive_opt::<Int64Type>().filter(|column| column.len() == 1 && column.is_valid(0));
    let count = count.ok_or_else(|| Failure::new("TypeError", "__upload_url__() parameter 'count' is one int64"))?;
    Ok(usize::try_from(count.value(0).clamp(1, MOST)).unwrap_or(1))
}

/// Return the body of a request for URLs.
pub fn upload_request(count: i64) -> Result<Output> {
    let schema = Arc::new(Schema::new(vec![Field::new("count", DataType::Int64, false)]));
    let column: ArrayRef = Arc::new(Int64Array::from(vec![count]));
    let mut out = Output::new();
    request::write(UPLOAD_URL, Batch::new(schema, vec![column], 1), Metadata::new(), &mut out)?;
    Ok(out)
}

/// Return the answer, with one row per URL pair.
pub(super) fn answer(urls: &[UploadUrl]) -> Batch {
    let text =
        |pick: fn(&UploadUrl) -> &str| -> ArrayRef { Arc::new(StringArray::from_iter_values(urls.iter().map(pick))) };
    let expires = TimestampMicrosecondArray::from_iter_values(urls.iter().map(|each| each.expires_at));
    let columns = vec![
        text(|each| &each.upload),
        text(|each| &each.download),
        Arc::new(expires.with_timezone("UTC")) as ArrayRef,
    ];
    Batch::new(Arc::clone(schema()), columns, urls.len())
}

/// Read the URLs from an answer.
pub fn read_upload_urls(batch: &Batch) -> Result<Vec<UploadUrl>> {
    let text =
        |name| batch.column(name).and_then(|column| column.as_string_opt::<i32>()).ok_or(Violation::UploadColumns);
    let (upload, download) = (text("upload_url")?, text("download_url")?);
    let expires = batch.column("expires_at").and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    let expires = expires.ok_or(Violation::UploadColumns)?;
    let rows = upload.iter().zip(download).zip(expires);
    let rows = rows.map(|((upload, download), expires_at)| {
        Some(UploadUrl { upload: upload?.to_owned(), download: download?.to_owned(), expires_at: expires_at? })
    });
    rows.collect::<Option<Vec<_>>>().ok_or(Violation::UploadColumns.into())
}
