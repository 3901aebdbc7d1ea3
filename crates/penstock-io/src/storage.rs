//! Object stores by their URIs.
//!
//! ```text
//! s3://BUCKET/PREFIX   s3a://...                            Amazon S3 and compatible stores (`endpoint`)
//! gs://BUCKET/PREFIX   gcs://...                            Google Cloud Storage
//! abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX     Azure, also abfs:// and az://CONTAINER/PREFIX
//! ```
//!
//! Everything after the bucket or container is the key as it stands; nothing in it is escaped.
//! Credentials come from the environment, as for each provider's own tools, unless an option sets
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use crate::{Misuse, Result};

/// How often, and for how long, a request that fails temporarily (5xx, a lost connection) is retried.
const RETRIES: usize = 6;
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);
/// The timeout of one request, which carries at most a part of 8 MiB.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of a store by their names, which the documentation lists.
pub type StorageOptions = BTreeMap<String, String>;

/// A prefix in an object store.
#[derive(Clone)]
pub struct ObjectPrefix {
    store: Arc<dyn ObjectStore>,
    /// The same store as a signer of URLs, if it can sign.
    signer: Option<Arc<dyn Signer>>,
    prefix: Path,
    uri: Arc<str>,
}

impl fmt::Debug for ObjectPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectPrefix").field(&self.uri).finish()
    }
}

/// Return whether this is a URI, not the name of a file. [`ObjectPrefix::open`] checks its scheme.
pub fn is_uri(text: &str) -> bool {
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|each| each.is_ascii_alphanumeric() || "+-.".contains(each))
}

/// The provider of a store.
enum Kind {
    Amazon,
    Google,
    Azure,
}

impl Kind {
    fn of(uri: &str) -> Option<Self> {
        match uri.split_once("://")?.0 {
            "s3" | "s3a" => Some(Self::Amazon),
            "gs" | "gcs" => Some(Self::Google),
            "abfs" | "abfss" | "az" => Some(Self::Azure),
            _ => None,
        }
    }
}

impl ObjectPrefix {
    /// Open the store that a URI names. No request is sent yet.
    pub fn open(uri: &str, options: &StorageOptions) -> Result<Self> {
        let named = || uri.to_owned();
        let kind = Kind::of(uri).ok_or_else(|| Misuse::Scheme { uri: named() })?;
        let rest = uri.split_once("://").map_or("", |(_, rest)| rest);
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(Misuse::NoBucket { uri: named() }.into());
        }
        let prefix = Path::parse(key.trim_end_matches('/'))
            .map_err(|error| Misuse::Prefix { uri: named(), reason: error.to_string() })?;
        // The store's HTTP client needs rustls's process-wide provider; this is the provider that
        // all TLS here uses. An error means that one is already installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = match kind {
            Kind::Amazon => amazon(bucket, options),
            Kind::Google => google(bucket, options),
            Kind::Azure => azure(bucket, options),
        };
        let (store, signer) = store.map_err(|problem| match problem {
            Problem::Option(option) => Misuse::StorageOption { uri: named(), option },
            Problem::Store(error) => Misuse::Storage { uri: named(), reason: plain(&error) },
        })?;
        Ok(Self { store, signer: Some(signer), prefix, uri: uri.trim_end_matches('/').into() })
    }

    /// Return the prefix, if a sink is one; `None` for a folder.
    ///
    /// # Errors
    ///
    /// Misuse for options of a store if the sink is a folder, and the errors of
    /// [`open`](Self::open).
    pub fn of_sink(sink: Option<&FilePath>, options: &StorageOptions) -> Result<Option<Self>> {
        let uri = sink.and_then(FilePath::to_str).filter(|sink| is_uri(sink));
        if uri.is_none() && !options.is_empty() {
            return Err(Misuse::FolderOptions.into());
        }
        uri.map(|uri| Self::open(uri, options)).transpose()
    }

    /// Return a prefix of an existing store, for example one in memory. It signs no URLs.
    pub fn of(store: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        Self { store, signer: None, prefix: Path::from(prefix), uri: format!("memory://{prefix}").into() }
    }

    /// Return the store.
    pub fn store(&self) -> &Arc<dyn ObjectStore> {
        &self.store
    }

    /// Return the signer of URLs.
    ///
    /// # Errors
    ///
    /// Misuse if the store signs no URLs.
    pub fn signer(&self) -> Result<&Arc<dyn Signer>> {
        self.signer.as_ref().ok_or_else(|| Misuse::NoSigner { uri: self.uri.to_string() }.into())
    }

    /// Return the URI that was given, without slashes at its end.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Return the path of a name below the prefix. The name must contain no characters that need
    /// escaping.
    pub fn path(&self, name: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(Path::from(name).parts()))
    }
}

enum Problem {
    Option(String),
    Store(object_store::Error),
}

impl From<object_store::Error> for Problem {
    fn from(error: object_store::Error) -> Self {
        Self::Store(error)
    }
}

type Opened = std::result::Result<(Arc<dyn ObjectStore>, Arc<dyn Signer>), Problem>;

fn amazon(bucket: &str, options: &StorageOptions) -> Opened {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    for (name, value) in options {
        builder = match name.as_str() {
            "endpoint" => builder.with_endpoint(value),
            "region" => builder.with_region(value),
            "access_key_id" => builder.with_access_key_id(value),
            "secret_access_key" => builder.with_secret_access_key(value),
            "session_token" => builder.with_token(value),
            "anonymous" => builder.with_skip_signature(value == "true"),
            other => return Err(Problem::Option(other.to_owned())),
        };
    }
    let plain = is_plain(builder.get_config_value(&AmazonS3ConfigKey::Endpoint));
    Ok(both(builder.with_retry(retries()).with_client_options(client(plain)).build()?))
}

fn google(bucket: &str, options: &StorageOptions) -> Opened {
    let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket);
    for (name, value) in options {
        builder = match name.as_str() {
            "endpoint" => builder.with_base_url(value),
            "anonymous" => builder.with_skip_signature(value == "true"),
            other => return Err(Problem::Option(other.to_owned())),
        };
    }
    let plain = is_plain(builder.get_config_value(&GoogleConfigKey::BaseUrl));
    Ok(both(builder.with_retry(retries()).with_client_options(client(plain)).build()?))
}

fn azure(authority: &str, options: &StorageOptions) -> Opened {
    // Either CONTAINER@ACCOUNT.dfs.core.windows.net, or the container alone, with the account from the environment or
    // an option.
    let (container, host) = authority.split_once('@').unwrap_or((authority, ""));
    let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(container);
    if let Some(account) = host.split('.').next().filter(|account| !account.is_empty()) {
        builder = builder.with_account(account);
    }
    for (name, value) in options {
        builder = match name.as_str() {
            "endpoint" => builder.with_endpoint(value.clone()),
            "account_name" => builder.with_account(value),
            "account_key" => builder.with_access_key(value),
            "anonymous" => builder.with_skip_signature(value == "true"),
            other => return Err(Problem::Option(other.to_owned())),
        };
    }
    let plain = is_plain(builder.get_config_value(&AzureConfigKey::Endpoint));
    Ok(both(builder.with_retry(retries()).with_client_options(client(plain)).build()?))
}

/// Return a store in its two roles, as a store and as a signer.
fn both<S: ObjectStore + Signer>(store: S) -> (Arc<dyn ObjectStore>, Arc<dyn Signer>) {
    let store = Arc::new(store);
    let objects: Arc<dyn ObjectStore> = Arc::<S>::clone(&store);
    (objects, store)
}

/// Return whether the endpoint's URL is plain HTTP.
fn is_plain(endpoint: Option<String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() }
}

fn client(plain: bool) -> ClientOptions {
    ClientOptions::new().with_allow_http(plain).with_timeout(REQUEST_TIMEOUT).with_connect_timeout(CONNECT_TIMEOUT)
}

/// The maximum number of characters of a store's error in a message.
const MAX_REASON: usize = 400;

/// Return a store's error as one line of limited length.
pub fn plain(error: &object_store::Error) -> String {
    let text = error.to_string();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_REASON).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn options(pairs: &[(&str, &str)]) -> StorageOptions {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_key_is_taken_as_it_stands() {
        let endpoint = options(&[("endpoint", "http://127.0.0.1:1"), ("region", "nowhere")]);
        let place = ObjectPrefix::open("s3://bucket/a b/c%20d/", &endpoint).unwrap();
        assert_eq!((place.prefix.as_ref(), place.uri()), ("a b/c%20d", "s3://bucket/a b/c%20d"));
        assert_eq!(place.path("f00/0/1.2").as_ref(), "a b/c%20d/f00/0/1.2");
        let place = ObjectPrefix::open("s3://bucket", &endpoint).unwrap();
        assert_eq!(place.path(".open/f00").as_ref(), ".open/f00");
    }

    #[test]
    fn a_sink_is_a_folder_or_a_uri_and_only_a_uri_has_options_of_a_store() {
        let endpoint = options(&[("endpoint", "http://127.0.0.1:1"), ("region", "nowhere")]);
        let of = |sink, options| ObjectPrefix::of_sink(sink, options).map(|prefix| prefix.map(|prefix| prefix.uri));
        let none = StorageOptions::new();
        let (folder, uri) = (Some("a/folder".as_ref()), Some("s3://bucket/x".as_ref()));
        assert_eq!(of(uri, &endpoint).unwrap().as_deref(), Some("s3://bucket/x"));
        for sink in [folder, None] {
            assert_eq!(of(sink, &none).unwrap(), None);
            assert!(matches!(of(sink, &endpoint), Err(Error::Misuse(Misuse::FolderOptions))));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let option = |uri: &str, option: &str| Misuse::StorageOption { uri: uri.to_owned(), option: option.to_owned() };
        for (uri, given, expected) in [
            ("hdfs://host/sink", vec![], Misuse::Scheme { uri: "hdfs://host/sink".to_owned() }),
            ("s3://", vec![], Misuse::NoBucket { uri: "s3://".to_owned() }),
            ("s3://bucket/x", vec![("endpiont", "x")], option("s3://bucket/x", "endpiont")),
            ("gs://bucket/x", vec![("region", "x")], option("gs://bucket/x", "region")),
        ] {
            let error = ObjectPrefix::open(uri, &options(&given)).unwrap_err();
            assert!(matches!(&error, Error::Misuse(misuse) if *misuse == expected), "{error:?}");
        }
        let error = ObjectPrefix::open("s3://bucket/../x", &options(&[])).unwrap_err();
        assert!(matches!(&error, Error::Misuse(Misuse::Prefix { reason, .. }) if reason.contains("..")), "{error:?}");
    }

    #[test]
    fn every_scheme_opens_without_asking_the_store() {
        let key = options(&[("account_key", "a2V5")]);
        for uri in
            ["abfss://container@account.dfs.core.windows.net/sink", "abfs://container@account.dfs.core.windows.net"]
        {
            assert!(is_uri(uri));
            ObjectPrefix::open(uri, &key).unwrap();
        }
        ObjectPrefix::open("gs://bucket/sink", &options(&[("anonymous", "true")])).unwrap();
        assert!(is_uri("hdfs://host/sink") && !is_uri("/tmp/sink") && !is_uri("C:\\sink") && !is_uri("a b://c"));
    }
}
