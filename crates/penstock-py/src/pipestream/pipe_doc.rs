//! The envelopes of documents and the URIs of the protocol, for Python (section 7.1 and the `pipestream` URI).

use bytes::Bytes;
use penstock_pipestream::{OwnershipContext, PipeDoc, PipestreamUri, pipe_doc};
use pyo3::prelude::*;

use crate::error::IntoPyErr;

/// The attributes of `penstock.pipestream.OwnershipContext`.
#[derive(Debug, FromPyObject, IntoPyObject)]
pub(crate) struct OwnerFields {
    owner_id: Option<String>,
    group_id: Option<String>,
    scopes: Vec<String>,
}

/// The attributes of `penstock.pipestream.PipeDoc`.
#[derive(Debug, FromPyObject, IntoPyObject)]
pub(crate) struct PipeDocFields {
    doc_id: String,
    entity_id: u32,
    ownership: Option<OwnerFields>,
}

impl From<OwnerFields> for OwnershipContext {
    fn from(fields: OwnerFields) -> Self {
        Self { owner_id: fields.owner_id, group_id: fields.group_id, scopes: fields.scopes }
    }
}

impl From<OwnershipContext> for OwnerFields {
    fn from(ownership: OwnershipContext) -> Self {
        Self { owner_id: ownership.owner_id, group_id: ownership.group_id, scopes: ownership.scopes }
    }
}

impl From<PipeDocFields> for PipeDoc {
    fn from(fields: PipeDocFields) -> Self {
        let ownership = fields.ownership.map(Into::into);
        Self { doc_id: fields.doc_id, entity_id: fields.entity_id, ownership }
    }
}

impl From<PipeDoc> for PipeDocFields {
    fn from(doc: PipeDoc) -> Self {
        Self { doc_id: doc.doc_id, entity_id: doc.entity_id, ownership: doc.ownership.map(Into::into) }
    }
}

/// Return the bytes of a PipeDoc.
#[pyfunction]
pub(crate) fn encode_pipe_doc(doc: PipeDocFields) -> PyResult<Bytes> {
    let doc = PipeDoc::from(doc);
    doc.check().map_err(IntoPyErr::into_py_err)?;
    Ok(doc.encode().into())
}

/// Decode `data` as a PipeDoc.
#[pyfunction]
pub(crate) fn decode_pipe_doc(data: Bytes) -> PyResult<PipeDocFields> {
    PipeDoc::decode(&data).map(Into::into).map_err(IntoPyErr::into_py_err)
}

/// Return the PipeDoc in an entity's metadata.
#[pyfunction]
pub(crate) fn pipe_doc_of_entry(entry: &str, entity_id: u32) -> PyResult<PipeDocFields> {
    PipeDoc::from_entry(entry, entity_id).map(Into::into).map_err(IntoPyErr::into_py_err)
}

/// Return the document ID for a receipt's key; `None` if the text is not a key.
#[pyfunction]
pub(crate) fn doc_id_of_key(key: &str) -> Option<String> {
    pipe_doc::doc_id_of_key(key)
}

/// The authority, session ID, scope path and entity ID of a URI.
pub(crate) type UriParts = (String, String, Vec<u32>, Option<u32>);

fn parts(uri: &PipestreamUri) -> UriParts {
    (uri.authority().to_string(), uri.session_id().to_owned(), uri.scope_path().to_vec(), uri.entity_id())
}

/// Parse a URI.
#[pyfunction]
pub(crate) fn parse_uri(text: &str) -> PyResult<UriParts> {
    text.parse::<PipestreamUri>().map(|uri| parts(&uri)).map_err(IntoPyErr::into_py_err)
}

/// Format a URI, and return its parts as they are parsed again.
#[pyfunction]
pub(crate) fn make_uri(
    authority: &str,
    session_id: &str,
    scope_path: Vec<u32>,
    entity_id: Option<u32>,
) -> PyResult<(String, UriParts)> {
    let made = PipestreamUri::new(authority, session_id, &scope_path, entity_id);
    made.map(|uri| (uri.to_string(), parts(&uri))).map_err(IntoPyErr::into_py_err)
}
