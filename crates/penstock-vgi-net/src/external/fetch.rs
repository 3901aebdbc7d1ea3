//! Fetching objects that a peer's pointers refer to, within limits on memory and time.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::runtime::{Interrupted, PerProcess, WaitError, wait};
use penstock_io::sync::lock;
use penstock_io::tls::public;
use penstock_vgi::external::Fetched;
use penstock_vgi::http::inflate;
use reqwest::header::{ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, RANGE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};

use super::guard::{Guard, Refused};
use super::options::FetchOptions;
use super::response::{body, ok, sent, shown, too_long};
use super::{chunks, file};
use crate::faults::LocationFault;
use crate::{Check, Error, Result};

const CONNECT: Duration = Duration::from_secs(10);

/// A client for objects. Its connections stay open until it is closed.
pub struct Fetcher {
    options: FetchOptions,
    client: Mutex<Option<PerProcess<Client>>>,
}

impl fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetcher").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The result of a probe of an object.
#[derive(Default)]
struct ObjectProbe {
    length: Option<u64>,
    ranges: bool,
    coding: Option<String>,
}

impl Fetcher {
    /// Make a fetcher; it does not connect yet.
    pub const fn new(options: FetchOptions) -> Self {
        Self { options, client: Mutex::new(None) }
    }

    /// Return its options.
    pub const fn options(&self) -> &FetchOptions {
        &self.options
    }

    /// Close its connections; the next fetch opens new ones.
    pub fn close(&self) {
        drop(lock(&self.client).take());
    }

    /// Fetch the object at a URL.
    pub fn fetch(&self, url: &str, check: Check<'_>) -> Result<Fetched> {
        let begun = Instant::now();
        let url = self.admitted(url)?;
        let (bytes, coding) = if url.scheme() == "file" {
            let coding = url.path().ends_with(".zst").then(|| "zstd".to_owned());
            (file::read(self.options.root.as_deref(), &url, self.options.max_bytes)?, coding)
        } else {
            let client = self.client()?;
            self.waited(self.get(&client, &url), check)?
        };
        let zstd = match coding.as_deref().map(str::trim) {
            None | Some("" | "identity") => false,
            Some("zstd") => true,
            Some(other) => {
                let (url, coding) = (shown(&url), other.to_owned());
                return Err(Error::Location(LocationFault::Coding { url, coding }));
            }
        };
        Ok(Fetched { bytes, zstd, took: begun.elapsed() })
    }

    /// Fetch the object at a URL, inflated.
    pub fn fetch_inflated(&self, url: &str, check: Check<'_>) -> Result<Vec<u8>> {
        let fetched = self.fetch(url, check)?;
        if fetched.zstd { Ok(inflate(&fetched.bytes, self.options.max_bytes)?) } else { Ok(fetched.bytes) }
    }

    /// Upload bytes to a URL that was issued for the upload.
    pub fn put(&self, url: &str, bytes: Vec<u8>, content_type: &str, check: Check<'_>) -> Result<()> {
        let url = self.admitted(url)?;
        if url.scheme() == "file" {
            return file::write(self.options.root.as_deref(), &url, &bytes);
        }
        let mut request = self.client()?.put(url.clone()).header(CONTENT_TYPE, content_type).body(bytes);
        if url.query_pairs().any(|(name, _)| name == "sig") {
            // A URL signed by Azure has this field, and Azure's store requires the blob type.
            request = request.header("x-ms-blob-type", "BlockBlob");
        }
        let sent = async { ok(&url, sent(&url, request).await?).map(drop) };
        self.waited(sent, check)
    }

    /// Check that a URL may be requested.
    fn admitted(&self, url: &str) -> Result<Url> {
        let refused = Error::Location;
        let parsed = Url::parse(url).map_err(|error| refused(LocationFault::NoUrl { reason: error.to_string() }))?;
        if !matches!(parsed.scheme(), "https" | "http" | "file") {
            return Err(refused(LocationFault::Scheme { scheme: parsed.scheme().to_owned() }));
        }
        if !self.options.allow_private
            && let Err(Refused { host, address }) = Refused::check(parsed.host_str().unwrap_or_default())
        {
            return Err(refused(LocationFault::Private { host, address }));
        }
        Ok(parsed)
    }

    fn client(&self) -> Result<Client> {
        let mut kept = lock(&self.client);
        if let Some(Ok(client)) = kept.as_ref().map(PerProcess::get) {
            return Ok(client.clone());
        }
        let config = public().map_err(|error| Error::io("cannot make an HTTP client for fetches", error))?;
        let mut builder = Client::builder()
            .tls_backend_preconfigured(config)
            .connect_timeout(CONNECT)
            // A redirect could lead to an address that was not checked.
            .redirect(Policy::none());
        if !self.options.allow_private {
            // A proxy would resolve names itself, past the guard.
            builder = builder.no_proxy().dns_resolver(Guard);
        }
        let client = builder.build().map_err(|error| Error::io("cannot make an HTTP client for fetches", error))?;
        *kept = Some(PerProcess::new(client.clone()));
        Ok(client)
    }

    fn waited<T>(&self, future: impl Future<Output = Result<T>>, check: Check<'_>) -> Result<T> {
        let mut ask = || check().map_err(|_| Interrupted);
        let seconds = self.options.timeout.as_secs_f64();
        wait(future, Instant::now().checked_add(self.options.timeout), &mut ask).unwrap_or_else(|error| {
            Err(match error {
                WaitError::Deadline => Error::deadline(format!("a fetch took longer than {seconds} seconds")),
                WaitError::Interrupted => Error::Interrupted,
                WaitError::Runtime(error) => error.into(),
            })
        })
    }

    /// Probe the object, and fetch it whole or in parts.
    async fn get(&self, client: &Client, url: &Url) -> Result<(Vec<u8>, Option<String>)> {
        let probed = probe(client, url).await?;
        self.fits(url, probed.length)?;
        if let Some(length) = probed.length.filter(|length| probed.ranges && *length >= self.options.parallel_threshold)
        {
            let bytes = chunks::fetch(client, url, length, &self.options).await?;
            return Ok((bytes, probed.coding));
        }
        let response = ok(url, sent(url, client.get(url.clone())).await?)?;
        self.fits(url, length(response.headers()))?;
        let coding = coding(response.headers()).or(probed.coding);
        let bytes = body(url, response, self.options.max_bytes).await?;
        Ok((bytes, coding))
    }

    fn fits(&self, url: &Url, length: Option<u64>) -> Result<()> {
        match length {
            Some(length) if length > self.options.max_bytes => Err(too_long(url, self.options.max_bytes)),
            Some(_) | None => Ok(()),
        }
    }
}

/// Find out the length and the coding: by HEAD, or, for URLs signed for GET, by a GET of one byte.
async fn probe(client: &Client, url: &Url) -> Result<ObjectProbe> {
    let names: Vec<String> = url.query_pairs().map(|(name, _)| name.into_owned()).collect();
    let signed =
        ["X-Amz-Signature", "X-Goog-Signature", "sig"].iter().any(|name| names.iter().any(|each| each == name));
    let request = if signed { client.get(url.clone()).header(RANGE, "bytes=0-0") } else { client.head(url.clone()) };
    let response = sent(url, request).await?;
    // A server that does not support this request may still answer a GET; an empty object has no
    // first byte to request.
    if matches!(response.status().as_u16(), 403 | 405 | 416 | 501) {
        return Ok(ObjectProbe::default());
    }
    let response = ok(url, response)?;
    let headers = response.headers();
    let coding = coding(headers);
    if !signed {
        let ranges = headers.get(ACCEPT_RANGES).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"bytes"));
        return Ok(ObjectProbe { length: length(headers), ranges, coding });
    }
    // A server without ranges sends the whole object; the probe does not read it, and it is
    // requested again.
    let part = response.status() == StatusCode::PARTIAL_CONTENT;
    let total = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
    let total = total.and_then(|text| text.rsplit_once('/')?.1.trim().parse().ok());
    Ok(ObjectProbe { length: total.filter(|_| part), ranges: part, coding })
}

/// Read the length from the header, because the response to HEAD has no body.
fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn coding(headers: &HeaderMap) -> Option<String> {
    headers.get(CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase())
}
