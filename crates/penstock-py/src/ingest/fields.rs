//! The options of documents to send, from the attributes of the Python dataclasses.

use bytes::Bytes;
use penstock_ingest::{DocumentPolicy, Identity, Privacy, PrivacyOptions};
use penstock_pipestream::messages::CompletionPolicy;
use pyo3::prelude::*;

use crate::error::IntoPyErr;
use crate::pipestream::fields::PolicyFields;
use crate::pipestream::pipe_doc::OwnerFields;

/// The identity of a document, from Python.
#[derive(Debug, Default, FromPyObject)]
pub(crate) struct IdentityFields {
    doc_id: Option<String>,
    owner: Option<OwnerFields>,
}

impl TryFrom<IdentityFields> for Identity {
    type Error = PyErr;

    fn try_from(fields: IdentityFields) -> PyResult<Self> {
        Self::new(fields.doc_id, fields.owner.map(Into::into)).map_err(IntoPyErr::into_py_err)
    }
}

/// The privacy options, from Python.
#[derive(FromPyObject)]
pub(crate) struct PrivacyFields {
    pad_children: u64,
    opaque_types: bool,
    pseudonym_key: Option<Bytes>,
    by_reference: Option<String>,
}

impl TryFrom<PrivacyFields> for Privacy {
    type Error = PyErr;

    fn try_from(fields: PrivacyFields) -> PyResult<Self> {
        let PrivacyFields { pad_children, opaque_types, pseudonym_key, by_reference } = fields;
        let options = PrivacyOptions { pad_children, opaque_types, pseudonym_key, by_reference };
        Self::new(options).map_err(IntoPyErr::into_py_err)
    }
}

/// Read a `penstock.pipestream.CompletionPolicy`, whose text goes into receipts.
pub(super) fn document_policy(policy: &Bound<'_, PyAny>) -> PyResult<DocumentPolicy> {
    let text = policy.str()?.extract()?;
    let message = CompletionPolicy::from(policy.extract::<PolicyFields>()?);
    DocumentPolicy::new(message, text).map_err(IntoPyErr::into_py_err)
}
