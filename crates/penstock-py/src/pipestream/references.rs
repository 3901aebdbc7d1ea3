//! References into object stores, for Python: their messages, and a server's options for them.

use std::collections::BTreeMap;

use bytes::Bytes;
use penstock_pipestream::messages::{EncryptionMetadata, FileStorageReference};
use penstock_pipestream::reference::{KeyProviders, Location, Reference, split_key_id};
use penstock_pipestream_sink::ReferenceSettings;
use pyo3::prelude::*;

use crate::error::IntoPyErr;

/// The attributes of `penstock.pipestream.FileStorageReference`.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct ReferenceFields {
    provider: Option<String>,
    bucket: Option<String>,
    key: Option<String>,
    region: Option<String>,
    attrs: BTreeMap<String, String>,
    encryption: Option<EncryptionFields>,
}

/// The attributes of `penstock.pipestream.EncryptionMetadata`.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) struct EncryptionFields {
    algorithm: Option<String>,
    key_provider: Option<String>,
    key_id: Option<String>,
    wrapped_key: Option<Bytes>,
    iv: Option<Bytes>,
    context: BTreeMap<String, String>,
}

impl From<EncryptionFields> for EncryptionMetadata {
    fn from(fields: EncryptionFields) -> Self {
        let EncryptionFields { algorithm, key_provider, key_id, wrapped_key, iv, context } = fields;
        Self { algorithm, key_provider, key_id, wrapped_key, iv, context }
    }
}

impl From<EncryptionMetadata> for EncryptionFields {
    fn from(message: EncryptionMetadata) -> Self {
        let EncryptionMetadata { algorithm, key_provider, key_id, wrapped_key, iv, context } = message;
        Self { algorithm, key_provider, key_id, wrapped_key, iv, context }
    }
}

impl From<ReferenceFields> for FileStorageReference {
    fn from(fields: ReferenceFields) -> Self {
        let ReferenceFields { provider, bucket, key, region, attrs, encryption } = fields;
        Self { provider, bucket, key, region, attrs, encryption: encryption.map(Into::into) }
    }
}

impl From<FileStorageReference> for ReferenceFields {
    fn from(message: FileStorageReference) -> Self {
        let FileStorageReference { provider, bucket, key, region, attrs, encryption } = message;
        Self { provider, bucket, key, region, attrs, encryption: encryption.map(Into::into) }
    }
}

/// The attributes of `penstock.pipestream.References`.
#[derive(FromPyObject)]
pub(crate) struct ReferenceOptions {
    fetch_from: Vec<String>,
    approved_key_providers: Option<Vec<String>>,
    storage: BTreeMap<String, String>,
}

impl From<&ReferenceOptions> for ReferenceSettings {
    fn from(options: &ReferenceOptions) -> Self {
        let ReferenceOptions { fetch_from, approved_key_providers, storage } = options;
        Self {
            fetch_from: fetch_from.clone(),
            approved_key_providers: approved_key_providers.clone(),
            storage: storage.clone(),
        }
    }
}

/// Return the bytes of a FileStorageReference, the payload of its entity.
#[pyfunction]
pub(crate) fn encode_reference(message: ReferenceFields) -> PyResult<Bytes> {
    Reference::new(message.into()).and_then(|reference| reference.encode()).map_err(IntoPyErr::into_py_err)
}

/// Decode `data` as a FileStorageReference.
#[pyfunction]
pub(crate) fn decode_reference(data: Bytes) -> PyResult<ReferenceFields> {
    let reference = Reference::decode(data).map_err(IntoPyErr::into_py_err)?;
    Ok(reference.message().clone().into())
}

/// Reject a reference whose encryption section 10.9 does not allow, with these approved providers.
#[pyfunction]
pub(crate) fn check_reference(message: ReferenceFields, approved: Vec<String>) -> PyResult<()> {
    let checked = KeyProviders::parse(approved)
        .and_then(|approved| Reference::new(message.into()).and_then(|reference| reference.check_keys(&approved)));
    checked.map_err(IntoPyErr::into_py_err)
}

/// Return the reference to the object at a URL.
#[pyfunction]
pub(crate) fn reference_of_url(url: &str) -> PyResult<ReferenceFields> {
    Location::parse(url).map(|location| location.to_message().into()).map_err(IntoPyErr::into_py_err)
}

/// Return the URL of the referenced object.
#[pyfunction]
pub(crate) fn reference_url(message: ReferenceFields) -> PyResult<String> {
    let location = Reference::new(message.into()).and_then(|reference| reference.location());
    location.map(|location| location.to_string()).map_err(IntoPyErr::into_py_err)
}

/// Return a key ID without its version, and the version.
#[pyfunction]
pub(crate) fn split_key(key_id: &str) -> (&str, Option<&str>) {
    split_key_id(key_id)
}
