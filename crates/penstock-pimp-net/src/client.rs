//! Requests to a buffer, about one job.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use penstock_io::DriverError as _;
use penstock_io::runtime::PerProcess;
use penstock_io::tls::{ClientTls, plaintext};
use penstock_pimp::{Error as PimpError, JobId, Limits, StatusBody};
use penstock_wire::{Backoff, later};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderValue, IF_MATCH};
use reqwest::redirect::Policy;
use reqwest::{Method, Url};
use rustls::AlertDescription;

use crate::clock::now;
use crate::{Error, Misuse, Result, UrlFault};

const CONNECT: Duration = Duration::from_secs(10);
/// The timeout of one request, in addition to the time for which a poll is held open.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response. A job of the default limits is shorter, and polls ask for a part of one.
const LONGEST: usize = 64 << 20;
/// The first and the longest pause between retries.
const RETRY_PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// How to reach a buffer.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Which servers to trust over `https://`.
    pub tls: Option<ClientTls>,
    /// The hosts that may be contacted, `HOST` or `HOST:PORT`; `None` allows the URL's host, so the
    /// URL must come from the caller itself.
    pub allowed_hosts: Option<Vec<String>>,
    /// How long a failed request is retried. Default: 30 s.
    pub retry: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { tls: None, allowed_hosts: None, retry: REQUEST_TIMEOUT }
    }
}

/// Check that a URL, which may come from outside, may be requested (decision 7, section 13):
/// `https://`, or `http://` on loopback; an allowed host; no user name, password or fragment.
pub fn check_url(text: &str, allowed_hosts: Option<&[String]>) -> Result<Url> {
    let wrong = |fault| Error::from(Misuse::Url { url: shown(text), fault });
    let url = Url::parse(text).map_err(|error| wrong(UrlFault::Syntax { reason: error.to_string() }))?;
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong(UrlFault::NoHost))?;
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(host) => {}
        "http" => return Err(wrong(UrlFault::Plain)),
        _ => return Err(wrong(UrlFault::Scheme)),
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err(wrong(UrlFault::Parts));
    }
    if let Some(allowed) = allowed_hosts {
        let (host, port) = (without_dot(host), url.port_or_known_default());
        let mut is_allowed = false;
        for each in allowed {
            let (name, only) = allowed_host(each)?;
            is_allowed |= name == host && only.is_none_or(|only| Some(only) == port);
        }
        if !is_allowed {
            return Err(wrong(UrlFault::Host));
        }
    }
    Ok(url)
}

/// Parse an entry of `allowed_hosts` as URLs are parsed, so that equal hosts are spelled equally: names in lower case
/// and in Punycode, addresses in their short form. Without a port any port is allowed.
fn allowed_host(entry: &str) -> Result<(String, Option<u16>)> {
    let wrong = || Error::from(Misuse::AllowedHost { entry: shown(entry) });
    let name = entry.trim();
    // An IPv6 address may be given without brackets.
    let name = if name.parse::<Ipv6Addr>().is_ok() { format!("[{name}]") } else { name.to_owned() };
    if name.contains(['/', '\\', '?', '#', '@']) || name.contains(char::is_whitespace) {
        return Err(wrong());
    }
    let read = |scheme: &str| Url::parse(&format!("{scheme}://{name}/")).map_err(|_| wrong());
    let (secure, plain) = (read("https")?, read("http")?);
    let host = secure.host_str().map(without_dot).filter(|host| !host.is_empty()).ok_or_else(wrong)?;
    // Each URL leaves out the default port of its scheme.
    Ok((host.to_owned(), secure.port().or(plain.port())))
}

/// Return a host without a final dot, which names the same host.
fn without_dot(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

/// Return the part of an arbitrary URL that an error message may show.
fn shown(text: &str) -> String {
    let mut text: String = text.chars().take(200).filter(|each| !each.is_control()).collect();
    // A password must not be shown, wherever it comes from.
    if let (Some(at), Some(scheme)) = (text.rfind('@'), text.find("://")) {
        text.replace_range((scheme + 3).min(at)..=at, "");
    }
    text
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Return the job's URL, `BUFFER/pimp/{jobId}`, and its ID, from that URL or from the URL of the job's chunks, which is
/// a writeUrl.
fn job_of(mut url: Url) -> Result<(String, JobId)> {
    let wrong = || Error::from(Misuse::JobUrl { url: url.to_string() });
    if url.query().is_some() {
        return Err(wrong());
    }
    let path = url.path().trim_end_matches('/');
    let path = path.strip_suffix("/chunks").unwrap_or(path).to_owned();
    let last = path.rsplit('/').next().unwrap_or_default();
    let id = JobId::parse(last).ok_or_else(wrong)?;
    url.set_path(&path);
    Ok((url.to_string(), id))
}

/// A buffer's response.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
    etag: Option<String>,
}

/// The result of a PUT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOutcome {
    /// Whether the job is new.
    pub new: bool,
    /// The generation, as an `ETag`, if the buffer sent one.
    pub etag: Option<String>,
}

/// A client for one job at a buffer, for its writer, its readers, or its creator.
pub struct JobClient {
    http: PerProcess<reqwest::Client>,
    url: String,
    id: JobId,
    retry: Duration,
}

impl fmt::Debug for JobClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobClient").field("url", &self.url).finish_non_exhaustive()
    }
}

impl JobClient {
    /// Make a client from a job's URL. Reads the TLS files; no request is sent yet.
    pub fn new(url: &str, options: &ClientOptions) -> Result<Self> {
        let url = check_url(url, options.allowed_hosts.as_deref())?;
        let http = http_client(&url, options.tls.as_ref())?;
        let (url, id) = job_of(url)?;
        Ok(Self { http: PerProcess::new(http), url, id, retry: options.retry })
    }

    /// Return the job's URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Return the job's ID.
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// Create the job if it does not exist (decision 1).
    pub async fn create(&self, key: &str, ttl: Option<u64>, read_key: Option<&str>) -> Result<PutOutcome> {
        let mut body = serde_json::Map::new();
        if let Some(ttl) = ttl {
            body.insert("ttlMs".into(), ttl.into());
        }
        if let Some(read_key) = read_key {
            body.insert("readKey".into(), read_key.into());
        }
        Self::created(self.put(key, None, &serde_json::Value::Object(body)).await?.0)
    }

    /// Make `new_key` the writeKey; the holder of the old key can no longer write (decision 11).
    pub async fn take_over(&self, etag: &str, key: &str, new_key: &str) -> Result<PutOutcome> {
        let (answered, again) = self.put(key, Some(etag), &serde_json::json!({"writeKey": new_key})).await?;
        // The response to an earlier attempt may be lost, and then the new key is the writeKey already, because only
        // this client knows it.
        if again && matches!(answered.status, 401 | 412) {
            let (now, _) = self.put(new_key, None, &serde_json::json!({})).await?;
            if now.status == 200 {
                return Self::created(now);
            }
        }
        Self::created(answered)
    }

    async fn put(&self, key: &str, etag: Option<&str>, body: &serde_json::Value) -> Result<(Answered, bool)> {
        self.again(Method::PUT, "", Some(key), etag, body.to_string().into_bytes()).await
    }

    fn created(answered: Answered) -> Result<PutOutcome> {
        match answered.status {
            200 | 201 => Ok(PutOutcome { new: answered.status == 201, etag: answered.etag }),
            status => Err(PimpError::of_response("the job", status, &answered.body).into()),
        }
    }

    /// Return the job's status and its generation.
    pub async fn status(&self, key: Option<&str>) -> Result<(StatusBody, Option<String>)> {
        let (answered, _) = self.again(Method::GET, "/status", key, None, Vec::new()).await?;
        match answered.status {
            200 => Ok((StatusBody::decode(&answered.body)?, answered.etag)),
            status => Err(PimpError::of_response("the status", status, &answered.body).into()),
        }
    }

    /// Cancel the job for the consumer. Returns `false` for a job that has ended.
    pub async fn cancel(&self, key: &str) -> Result<bool> {
        let (answered, _) = self.again(Method::POST, "/cancel", Some(key), None, Vec::new()).await?;
        match answered.status {
            200 => {
                let said = serde_json::from_slice::<serde_json::Value>(&answered.body).unwrap_or_default();
                Ok(said.get("cancelled").and_then(serde_json::Value::as_bool).unwrap_or(true))
            }
            status => Err(PimpError::of_response("to cancel", status, &answered.body).into()),
        }
    }

    /// Delete the job at the buffer.
    pub async fn delete(&self, key: &str) -> Result<()> {
        let (answered, again) = self.again(Method::DELETE, "", Some(key), None, Vec::new()).await?;
        match answered.status {
            200 | 204 => Ok(()),
            // An earlier attempt has deleted the job, and its response was lost.
            404 if again => Ok(()),
            status => Err(PimpError::of_response("to delete", status, &answered.body).into()),
        }
    }

    /// Send a request until the response is not 429 or 5xx. Also return whether it was retried, because then an earlier
    /// attempt may have taken effect.
    async fn again(
        &self,
        method: Method,
        path: &str,
        key: Option<&str>,
        etag: Option<&str>,
        body: Vec<u8>,
    ) -> Result<(Answered, bool)> {
        let (until, url) = (later(Instant::now(), self.retry), self.at(path));
        let (mut backoff, mut again) = (Backoff::new(RETRY_PAUSES.0, RETRY_PAUSES.1), false);
        loop {
            let request =
                request(self.http.get()?, method.clone(), &url, key, etag, body.clone(), REQUEST_TIMEOUT)?.await;
            let failed = match request {
                Ok(answered) if answered.status != 429 && answered.status < 500 => return Ok((answered, again)),
                Ok(answered) => PimpError::of_response("it", answered.status, &answered.body).into(),
                Err(error @ Error::Local(penstock_io::Error::Io { .. })) => error,
                Err(error) => return Err(error),
            };
            let pause = backoff.advance();
            if Instant::now() + pause > until {
                return Err(failed);
            }
            tokio::time::sleep(pause).await;
            again = true;
        }
    }

    /// Return the response to a write (section 7).
    pub(super) fn write(
        &self,
        key: &str,
        body: Vec<u8>,
        timeout: Duration,
    ) -> Result<impl Future<Output = Result<Answered>> + Send + 'static + use<>> {
        request(
            self.http.get()?,
            Method::POST,
            &self.at("/chunks"),
            Some(key),
            None,
            body,
            timeout.min(REQUEST_TIMEOUT),
        )
    }

    /// Return the response to a poll (section 9).
    pub(super) fn poll(
        &self,
        query: &str,
        key: Option<&str>,
        wait: Duration,
    ) -> Result<impl Future<Output = Result<Answered>> + Send + 'static + use<>> {
        let timeout = wait.saturating_add(REQUEST_TIMEOUT);
        request(self.http.get()?, Method::GET, &self.at(query), key, None, Vec::new(), timeout)
    }

    /// Write chunks (index, value) as they are, for a caller that knows their indices. With `done`
    /// the last chunk is the final one, and has an error if `failure` is given.
    ///
    /// Return whether the consumer has cancelled the job.
    pub async fn write_chunks(
        &self,
        key: &str,
        chunks: &[(u32, String)],
        done: bool,
        failure: Option<&str>,
    ) -> Result<bool> {
        let mut body = b"{\"chunks\":[".to_vec();
        for (place, (index, value)) in chunks.iter().enumerate() {
            if place > 0 {
                body.push(b',');
            }
            let last = done && place + 1 == chunks.len();
            let envelope = penstock_pimp::Envelope {
                job_id: self.id,
                index: *index,
                value: value.as_str().into(),
                done: last,
                error: failure.filter(|_| last).map(Into::into),
                created_at: now().unix_millis(),
                sha256: None,
            };
            envelope.encode(&mut body)?;
        }
        body.extend_from_slice(b"]}");
        let most = Limits::default().body();
        most.check(body.len() as u64).map_err(PimpError::from)?;
        let (answered, _) = self.again(Method::POST, "/chunks", Some(key), None, body).await?;
        match answered.status {
            200 | 201 => Ok(penstock_pimp::Answer::decode(&answered.body).cancelled),
            status => Err(PimpError::of_response("chunks", status, &answered.body).into()),
        }
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

/// Send a request and return its response, reading no more bytes than allowed.
fn request(
    client: &reqwest::Client,
    method: Method,
    url: &str,
    key: Option<&str>,
    etag: Option<&str>,
    body: Vec<u8>,
    timeout: Duration,
) -> Result<impl Future<Output = Result<Answered>> + Send + 'static + use<>> {
    let url = url.to_owned();
    let mut request = client.request(method, &url).timeout(timeout);
    if let Some(key) = key {
        let mut value = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| Misuse::Key)?;
        value.set_sensitive(true);
        request = request.header(AUTHORIZATION, value);
    }
    if let Some(etag) = etag {
        let value = HeaderValue::from_str(etag).map_err(|_| Misuse::Etag)?;
        request = request.header(IF_MATCH, value);
    }
    if !body.is_empty() {
        request = request.header(CONTENT_TYPE, "application/json").body(body);
    }
    Ok(async move {
        let mut response = request.send().await.map_err(|error| failed(&url, error))?;
        let etag = response.headers().get(ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        let status = response.status().as_u16();
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| failed(&url, error))? {
            if body.len() + piece.len() > LONGEST {
                return Err(PimpError::AnswerLength { url, limit: LONGEST }.into());
            }
            body.extend_from_slice(&piece);
        }
        Ok(Answered { status, body, etag })
    })
}

/// Ask a sender for a job (section 6); `body` is a trigger request. Fails if the response is not 202.
pub async fn trigger(url: &str, options: &ClientOptions, token: Option<&str>, body: Vec<u8>) -> Result<()> {
    let url = check_url(url, options.allowed_hosts.as_deref())?;
    let client = http_client(&url, options.tls.as_ref())?;
    let answered = request(&client, Method::POST, url.as_str(), token, None, body, REQUEST_TIMEOUT)?.await?;
    match answered.status {
        202 => Ok(()),
        status => Err(PimpError::of_response("the trigger", status, &answered.body).into()),
    }
}

/// Return a client for a URL that was checked. It follows no redirects, because a key would be sent to an unchecked
/// host.
fn http_client(url: &Url, tls: Option<&ClientTls>) -> Result<reqwest::Client> {
    let secure = url.scheme() == "https";
    if !secure && tls.is_some() {
        return Err(Misuse::PlainUrl.into());
    }
    let config = match tls {
        Some(tls) => tls.config(b"http/1.1")?,
        None if secure => return Err(Misuse::NoTrust { url: url.to_string() }.into()),
        None => plaintext()?,
    };
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .redirect(Policy::none())
        .tls_backend_preconfigured(config);
    if url.host_str().is_some_and(is_loopback) {
        // Hosts on this machine are reached without a proxy.
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| Error::io(url.to_string(), error))
}

fn failed(url: &str, error: reqwest::Error) -> Error {
    // The innermost error is the specific one.
    let mut inner: &dyn std::error::Error = &error;
    let mut mistrust = false;
    loop {
        mistrust |= is_mistrust(inner);
        let Some(source) = inner.source() else { break };
        inner = source;
    }
    // The query of a poll does not help people.
    let url = url.split('?').next().unwrap_or_default();
    let message = inner.to_string();
    if mistrust { Error::tls_from(format!("{url}: {message}"), error) } else { Error::io(url.to_owned(), message) }
}

/// Return whether the error is one of trust. Waiting does not change it, so the request is not retried.
fn is_mistrust(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(inside) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        return is_mistrust(inside);
    }
    matches!(
        error.downcast_ref::<rustls::Error>(),
        // rustls reports a certificate with another fingerprint than the pinned one as a general error.
        Some(
            rustls::Error::General(_)
                | rustls::Error::InvalidCertificate(_)
                | rustls::Error::AlertReceived(
                    AlertDescription::BadCertificate
                        | AlertDescription::UnsupportedCertificate
                        | AlertDescription::CertificateRevoked
                        | AlertDescription::CertificateExpired
                        | AlertDescription::CertificateUnknown
                        | AlertDescription::CertificateRequired
                        | AlertDescription::UnknownCA
                        | AlertDescription::AccessDenied
                )
        )
    )
}
