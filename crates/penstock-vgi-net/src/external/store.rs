//! Object stores for batches: an uploaded batch is fetched by a URL with a signature that expires.

use std::fmt;
use std::time::{Duration, Instant};

use object_store::signer::Method;
use object_store::{Attribute, Attributes, PutOptions, PutPayload};
use penstock_io::DriverError as _;
use penstock_io::runtime::{Interrupted, WaitError, wait};
use penstock_io::storage::{ObjectPrefix, StorageOptions, plain};

use crate::{Check, Error, Result};

/// The timeout for one batch, including retries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);

/// A bucket or a container.
pub struct ObjectStorage {
    place: ObjectPrefix,
    expiry: Duration,
}

impl fmt::Debug for ObjectStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectStorage").field(&self.place).finish()
    }
}

impl ObjectStorage {
    /// Open the store that a URI names, without a key. Its URLs are valid for `expiry`. Send no
    /// request yet.
    pub fn open(uri: &str, options: &StorageOptions, expiry: Duration) -> Result<Self> {
        let place = ObjectPrefix::open(uri, options)?;
        Ok(Self { place, expiry })
    }

    /// Upload an object, and return the URL for fetching it.
    pub fn upload(&self, name: &str, bytes: Vec<u8>, coding: Option<&str>, check: Check<'_>) -> Result<String> {
        let path = self.place.path(name);
        let mut attributes = Attributes::from_iter([(Attribute::ContentType, "application/octet-stream")]);
        if let Some(coding) = coding {
            attributes.insert(Attribute::ContentEncoding, coding.to_owned().into());
        }
        let options = PutOptions { attributes, ..PutOptions::default() };
        let put = async {
            let put = self.place.store().put_opts(&path, PutPayload::from(bytes), options).await;
            put.map_err(|error| self.failed(&error))?;
            self.signed(Method::GET, name).await
        };
        waited(put, check)
    }

    /// Return a URL for uploading an object, and one for fetching it.
    pub fn upload_url(&self, name: &str, check: Check<'_>) -> Result<(String, String)> {
        waited(async { Ok((self.signed(Method::PUT, name).await?, self.signed(Method::GET, name).await?)) }, check)
    }

    async fn signed(&self, method: Method, name: &str) -> Result<String> {
        let signer = self.place.signer()?;
        let signed = signer.signed_url(method, &self.place.path(name), self.expiry).await;
        signed.map(String::from).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &object_store::Error) -> Error {
        Error::io(self.place.uri(), plain(error))
    }
}

fn waited<T>(future: impl Future<Output = Result<T>>, check: Check<'_>) -> Result<T> {
    let mut ask = || check().map_err(|_| Interrupted);
    wait(future, Instant::now().checked_add(REQUEST_TIMEOUT), &mut ask).unwrap_or_else(|error| {
        Err(match error {
            WaitError::Deadline => Error::deadline("the object store has not answered for 300 seconds".to_owned()),
            WaitError::Interrupted => Error::Interrupted,
            WaitError::Runtime(error) => error.into(),
        })
    })
}
