use std::fmt;

use crate::error::{ReferenceError, Result};
use crate::messages::FileStorageReference;
use crate::sizes::MAX_OBJECT_KEY;

const MAX_BUCKET: usize = 255;
const AZURE_HOST: &str = "dfs.core.windows.net";

/// The provider of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Amazon S3 and compatible stores: "s3".
    S3,
    /// Google Cloud Storage: "gcs".
    Gcs,
    /// Azure Blob Storage: "azure".
    Azure,
    /// A file on the machine that fetches: "file". It has no bucket; its key is the path without
    /// the first slash.
    Files,
}

impl Provider {
    /// Return the name in `FileStorageReference.provider`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gcs",
            Self::Azure => "azure",
            Self::Files => "file",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::S3, Self::Gcs, Self::Azure, Self::Files].into_iter().find(|each| each.name() == name)
    }
}

/// The location of an object, or a prefix of objects. A key is used unchanged, without escapes, and
/// has no empty segment, `.` or `..`, so an object whose location begins with a prefix is really
/// below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The provider.
    pub provider: Provider,
    /// The bucket; for Azure the container, or `CONTAINER@ACCOUNT`; empty for files.
    pub bucket: String,
    /// The key; for files the path without the first slash. Empty for a prefix that is a whole bucket.
    pub key: String,
}

impl Location {
    pub(super) fn of(message: &FileStorageReference) -> Result<Self> {
        let name = message.provider.as_deref().unwrap_or_default();
        let Some(provider) = Provider::of(name) else {
            return Err(ReferenceError::Provider(cut(name).to_owned()).into());
        };
        let mut bucket = message.bucket.clone().unwrap_or_default();
        if let (Provider::Azure, Some(account)) = (provider, message.attrs.get("account")) {
            check_bucket(account)?;
            check_bucket(&bucket)?;
            bucket = format!("{bucket}@{account}");
        }
        let location = Self { provider, bucket, key: message.key.clone().unwrap_or_default() };
        location.check()?;
        if location.key.is_empty() { Err(ReferenceError::Missing { field: "key" }.into()) } else { Ok(location) }
    }

    /// Parse the URL of an object, or of a prefix, which may end with a slash and may be a whole bucket.
    ///
    /// ```text
    ///  s3://BUCKET/KEY  gs://BUCKET/KEY  az://CONTAINER/KEY  abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY
    ///  file:///PATH
    /// ```
    pub fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| ReferenceError::Url(cut(url).to_owned()))?;
        let provider = match scheme {
            "s3" | "s3a" => Provider::S3,
            "gs" | "gcs" => Provider::Gcs,
            "abfs" | "abfss" | "az" => Provider::Azure,
            "file" => Provider::Files,
            _ => return Err(ReferenceError::Scheme(cut(url).to_owned()).into()),
        };
        let (authority, key) = rest.split_once('/').unwrap_or((rest, ""));
        let bucket = match (provider, authority.split_once('@')) {
            (Provider::Azure, Some((container, host))) => {
                format!("{container}@{}", host.split('.').next().unwrap_or_default())
            }
            (Provider::S3 | Provider::Gcs | Provider::Azure | Provider::Files, _) => authority.to_owned(),
        };
        let location = Self { provider, bucket, key: key.strip_suffix('/').unwrap_or(key).to_owned() };
        location.check().map(|()| location)
    }

    fn check(&self) -> Result<()> {
        match (self.provider, self.bucket.split_once('@')) {
            (Provider::Files, _) if self.bucket.is_empty() => {}
            (Provider::Files, _) => return Err(ReferenceError::FileHost.into()),
            (Provider::Azure, Some((container, account))) => {
                check_bucket(container)?;
                check_bucket(account)?;
            }
            (Provider::S3 | Provider::Gcs | Provider::Azure, _) => check_bucket(&self.bucket)?,
        }
        if self.key.is_empty() { Ok(()) } else { check_key(&self.key) }
    }

    /// Return whether this location is `prefix` or below it, segment by segment, so that
    /// `s3://b/in` is not a prefix of `s3://b/inner`.
    pub fn is_below(&self, prefix: &Self) -> bool {
        let same = (self.provider, &self.bucket) == (prefix.provider, &prefix.bucket);
        let rest = self.key.strip_prefix(prefix.key.as_str());
        same && rest.is_some_and(|rest| prefix.key.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }

    /// Return the URL of the bucket alone.
    pub fn bucket_url(&self) -> String {
        match (self.provider, self.bucket.split_once('@')) {
            (Provider::S3, _) => format!("s3://{}", self.bucket),
            (Provider::Gcs, _) => format!("gs://{}", self.bucket),
            (Provider::Azure, Some((container, account))) => format!("abfss://{container}@{account}.{AZURE_HOST}"),
            (Provider::Azure, None) => format!("az://{}", self.bucket),
            (Provider::Files, _) => "file://".to_owned(),
        }
    }

    /// Return a reference's message that names this location.
    pub fn to_message(&self) -> FileStorageReference {
        let (bucket, account) = self.bucket.split_once('@').unwrap_or((&self.bucket, ""));
        let mut message = FileStorageReference {
            provider: Some(self.provider.name().to_owned()),
            bucket: (!bucket.is_empty()).then(|| bucket.to_owned()),
            key: Some(self.key.clone()),
            ..FileStorageReference::default()
        };
        if !account.is_empty() {
            message.attrs.insert("account".to_owned(), account.to_owned());
        }
        message
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bucket_url(), self.key)
    }
}

/// Reject a bucket with characters that could change the host, because its name becomes part of a host name.
fn check_bucket(bucket: &str) -> Result<()> {
    let plain = |character: char| character.is_ascii_alphanumeric() || "._-$".contains(character);
    let dots = bucket.starts_with('.') || bucket.ends_with('.') || bucket.contains("..");
    if bucket.is_empty() || bucket.len() > MAX_BUCKET || dots || !bucket.chars().all(plain) {
        return Err(ReferenceError::Bucket(cut(bucket).to_owned()).into());
    }
    Ok(())
}

fn check_key(key: &str) -> Result<()> {
    let shown = || cut(key).to_owned();
    if key.len() > MAX_OBJECT_KEY {
        return Err(ReferenceError::KeyLength { key: shown() }.into());
    }
    if key.chars().any(char::is_control) {
        return Err(ReferenceError::KeyControl { key: shown() }.into());
    }
    if key.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(ReferenceError::KeySegment { key: shown() }.into());
    }
    Ok(())
}

/// Cut a peer's text to a length suitable for messages.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}
