//! Requests to an object store. All of them block.

use std::sync::Arc;

use futures_util::stream::TryStreamExt as _;
use object_store::{Error as StoreError, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, PutResult};
use penstock_io::DriverError as _;
use penstock_io::runtime::block_on;
use penstock_io::storage::{ObjectPrefix, plain};

use crate::{Error, Result};

pub(super) fn failed(place: &ObjectPrefix, doing: &str, name: &str, error: &StoreError) -> Error {
    Error::io(format!("cannot {doing} {}/{name}", place.uri()), plain(error))
}

pub(super) fn get(place: &ObjectPrefix, name: &str) -> Result<Option<Vec<u8>>> {
    let (store, path) = (Arc::clone(place.store()), place.path(name));
    match block_on(async { store.get(&path).await?.bytes().await })? {
        Ok(bytes) => Ok(Some(bytes.into())),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(error) => Err(failed(place, "read", name, &error)),
    }
}

/// List the objects whose names sort after this one.
pub(super) fn list(place: &ObjectPrefix, behind: &str) -> Result<Vec<ObjectMeta>> {
    let (store, offset) = (Arc::clone(place.store()), place.path(behind));
    let listed: object_store::Result<Vec<_>> =
        block_on(async { store.list_with_offset(Some(&place.path("")), &offset).try_collect().await })?;
    listed.map_err(|error| failed(place, "list", "", &error))
}

pub(super) fn put(place: &ObjectPrefix, name: &str, bytes: Vec<u8>, mode: PutMode) -> Result<()> {
    send(place, name, bytes, mode)?.map(drop).map_err(|error| failed(place, "write", name, &error))
}

/// Create an object. Return `false` if one of that name exists.
pub(super) fn create(place: &ObjectPrefix, name: &str, bytes: Vec<u8>) -> Result<bool> {
    match send(place, name, bytes, PutMode::Create)? {
        Ok(_) => Ok(true),
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
        Err(error) => Err(failed(place, "write", name, &error)),
    }
}

fn send(place: &ObjectPrefix, name: &str, bytes: Vec<u8>, mode: PutMode) -> Result<object_store::Result<PutResult>> {
    let (store, path) = (Arc::clone(place.store()), place.path(name));
    let options = PutOptions { mode, ..PutOptions::default() };
    Ok(block_on(async { store.put_opts(&path, PutPayload::from(bytes), options).await })?)
}

/// Remove an object, if it exists.
pub(super) fn remove(place: &ObjectPrefix, name: &str) -> Result<()> {
    let (store, path) = (Arc::clone(place.store()), place.path(name));
    match block_on(async { store.delete(&path).await })? {
        Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
        Err(error) => Err(failed(place, "remove", name, &error)),
    }
}
