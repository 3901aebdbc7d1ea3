//! IPC streams with custom metadata, and state tokens, as bytes.

use std::sync::Arc;

use penstock_vgi::ipc::{Decoder, Item, Output, read_schema as parse_schema, stream, write_schema};
use penstock_vgi::{Batch, Dialect, ErrorKind, Identity, Limits, Signer, Token};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pyo3_arrow::PySchema;

use super::batches::{BatchWithMetadata, PyBatch, annotated, metadata, schema as read_schema};
use super::errors::{IntoVgiErr, vgi_error};

/// Return a complete IPC stream.
#[pyfunction]
pub(crate) fn vgi_encode<'py>(
    py: Python<'py>,
    schema: &Bound<'py, PyAny>,
    batches: Vec<(PyBatch, Option<Bound<'py, PyDict>>)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let schema = read_schema(schema)?;
    let batches = batches.into_iter().map(|(batch, pairs)| {
        let metadata = metadata(pairs.as_ref())?;
        Ok(Batch { schema: Arc::clone(&schema), ..batch.0.with_metadata(metadata) })
    });
    let batches = batches.collect::<PyResult<Vec<_>>>()?;
    let mut out = Output::new();
    py.detach(|| stream(&schema, &batches, &mut out)).map_err(IntoVgiErr::into_vgi_err)?;
    Ok(PyBytes::new(py, &out.concat()))
}

/// Decode the first IPC stream in some bytes: return its schema and its batches.
#[pyfunction]
#[pyo3(signature = (data, max_message=None))]
pub(crate) fn vgi_decode(
    py: Python<'_>,
    data: &[u8],
    max_message: Option<u64>,
) -> PyResult<(Py<PyAny>, Vec<BatchWithMetadata>)> {
    let mut limits = Limits::default();
    limits.body = max_message.unwrap_or(limits.body);
    let mut decoder = Decoder::new(limits);
    let mut items = Vec::new();
    py.detach(|| decoder.push(data, &mut items)).map_err(IntoVgiErr::into_vgi_err)?;
    let mut schema = None;
    let mut batches = Vec::new();
    for item in items {
        match item {
            Item::Schema(read) => schema = Some(read),
            Item::Batch(batch) => batches.push(annotated(py, &batch)?),
            Item::End => break,
        }
    }
    let missing = || vgi_error("the bytes end before an IPC stream does".to_owned(), ErrorKind::Malformed);
    let schema = schema.ok_or_else(missing)?;
    Ok((PySchema::new(schema).into_pyarrow(py)?.unbind(), batches))
}

/// The time of creation, the state, the output schema, the input schema, and the stream's ID.
type TokenFields<'py> = (u64, Vec<u8>, Bound<'py, PyAny>, Bound<'py, PyAny>, String);

fn identity(given: Option<(String, String)>) -> Identity {
    given.map_or(Identity::Anonymous, |(domain, principal)| Identity::Principal { domain, principal })
}

fn signer(key: Vec<u8>, dialect: &str, ttl: u64) -> PyResult<Signer> {
    Ok(Signer::new(key, Dialect::parse(dialect).map_err(IntoVgiErr::into_vgi_err)?, ttl))
}

/// Return the bytes of a state token.
#[pyfunction]
#[pyo3(signature = (key, dialect, fields, identity))]
pub(crate) fn vgi_token_seal<'py>(
    py: Python<'py>,
    key: Vec<u8>,
    dialect: &str,
    fields: TokenFields<'py>,
    identity: Option<(String, String)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (created_at, state, output, input, stream_id) = fields;
    let bytes = |schema| write_schema(&read_schema(schema)?).map_err(IntoVgiErr::into_vgi_err);
    let token = Token { created_at, state, schema: bytes(&output)?, input_schema: bytes(&input)?, stream_id };
    Ok(PyBytes::new(py, &signer(key, dialect, 0)?.seal(&token, &self::identity(identity))))
}

/// Return the content of a state token, after verifying its signature.
#[pyfunction]
#[pyo3(signature = (token, key, dialect, identity, ttl, now))]
pub(crate) fn vgi_token_open<'py>(
    py: Python<'py>,
    token: &[u8],
    key: Vec<u8>,
    dialect: &str,
    identity: Option<(String, String)>,
    ttl: u64,
    now: u64,
) -> PyResult<TokenFields<'py>> {
    let refused = |why: penstock_vgi::Refused| vgi_error(why.message().to_owned(), ErrorKind::Violation);
    let token = signer(key, dialect, ttl)?.open(token, &self::identity(identity), now).map_err(refused)?;
    let schema = |bytes: &[u8]| {
        let schema = parse_schema(bytes, &Limits::default()).map_err(IntoVgiErr::into_vgi_err)?;
        PySchema::new(schema).into_pyarrow(py)
    };
    let (output, input) = (schema(&token.schema)?, schema(&token.input_schema)?);
    Ok((token.created_at, token.state, output, input, token.stream_id))
}
