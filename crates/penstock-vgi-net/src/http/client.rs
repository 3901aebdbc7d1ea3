//! The client: requests, retries and the tokens of streams.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use penstock_io::DriverError as _;
use penstock_io::runtime::{Interrupted, PerProcess, WaitError, wait};
use penstock_io::sync::lock;
use penstock_io::tls::{ClientTls, plaintext};
use penstock_vgi::http::{self as core, Headers, RequestKind, Response, ResponseContent, StreamToken, UploadUrl};
use penstock_vgi::ipc::Output;
use penstock_vgi::{Answer, Batch, Failure, Limits, Log, Metadata, external};
use penstock_wire::{Backoff, ErrorKind, later};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::redirect::Policy;
use reqwest::{Client, Method};

use super::capabilities::Capabilities;
use crate::external::External;
use crate::faults::{LocationFault, SizeLimit};
use crate::{Check, Error, Misuse, Result};

const CONNECT: Duration = Duration::from_secs(10);
/// The default prefix of servers that follow the specification.
const PREFIX: &str = "/vgi";
/// The size below which a body is not worth compressing.
const WORTH: usize = 1 << 10;
/// How many bytes of a response an error message shows.
const SHOWN: usize = 200;
/// The status of a request that is too large.
const TOO_LARGE: u16 = 413;
/// The characters that a path may contain unescaped.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.').remove(b'~');

/// The rules for retrying requests.
#[derive(Debug, Clone)]
pub struct Retry {
    /// The most retries.
    pub max_retries: u32,
    /// The pause before the first retry; each further pause is twice as long.
    pub backoff_base: Duration,
    /// The longest pause.
    pub backoff_max: Duration,
    /// The statuses that are retried.
    pub status_codes: Vec<u16>,
    /// Whether failures of the connection are retried.
    pub connection_errors: bool,
    /// Whether Retry-After is followed.
    pub retry_after: bool,
}

/// The options of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// The prefix of the paths; `None` means that it is discovered.
    pub prefix: Option<String>,
    /// The zstd level for servers that accept it. `None` also disables compressed responses.
    pub compression_level: Option<i32>,
    /// The rules for retrying requests.
    pub retry: Option<Retry>,
    /// The limits of a response.
    pub limits: Limits,
    /// The headers of every request.
    pub headers: Headers,
}

/// A sender of HTTP requests.
pub trait HttpSender: Send + Sync {
    /// Send a request to a path below the base URL, and wait for its response.
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &Headers,
        body: Vec<u8>,
        deadline: Option<Instant>,
        check: Check<'_>,
    ) -> Result<Response>;
}

/// A client, which makes one call at a time. A stream is a separate value.
pub struct HttpClient {
    sender: Box<dyn HttpSender>,
    options: ClientOptions,
    /// The policy about requests that are too large for the server.
    uploads: Option<Arc<External>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    prefix: Option<String>,
    /// Whether the server has announced zstd.
    zstd: bool,
    /// The server's announcement about large requests.
    announced: Capabilities,
    timeout: Option<Duration>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A stream: the answers that were received but not read yet, and the token with which it
/// continues.
#[derive(Debug)]
pub struct HttpStream {
    method: String,
    /// The header, if the stream has one.
    pub header: Option<Batch>,
    answers: VecDeque<Answer>,
    token: Option<StreamToken>,
}

impl HttpStream {
    /// Take the log messages that precede everything else.
    pub fn take_logs(&mut self) -> Vec<Log> {
        let mut logs = Vec::new();
        while let Some(answer) = self.answers.pop_front() {
            match answer {
                Answer::Log(log) => logs.push(log),
                answer @ (Answer::Batch(_) | Answer::End | Answer::Failed(_)) => {
                    self.answers.push_front(answer);
                    break;
                }
            }
        }
        logs
    }

    /// Return the failure if the stream did not begin.
    pub fn failure(&self) -> Option<&Failure> {
        match self.answers.front() {
            Some(Answer::Failed(failure)) => Some(failure),
            Some(Answer::Log(_) | Answer::Batch(_) | Answer::End) | None => None,
        }
    }

    /// Take the token out of a fetched batch, where the reference package stores it.
    pub fn found_token(&mut self, batch: &mut Batch) {
        let found = StreamToken::take(&mut batch.metadata);
        if self.token.is_none() {
            self.token = found;
        }
    }

    /// Discard the rest of the stream.
    pub fn forget(&mut self) {
        self.answers.clear();
        self.token = None;
    }
}

impl HttpClient {
    /// Make a client of the server at a base URL.
    pub fn connect(base_url: &str, tls: Option<&ClientTls>, options: ClientOptions) -> Result<Self> {
        Ok(Self::new(Box::new(Wire::new(base_url, tls)?), options))
    }

    /// Make a client that sends its requests through another HTTP client.
    pub fn new(sender: Box<dyn HttpSender>, options: ClientOptions) -> Self {
        let state = State { prefix: options.prefix.clone(), ..State::default() };
        Self { sender, options, uploads: None, state: Mutex::new(state) }
    }

    /// Upload requests that are too large for the server, to URLs that the policy allows.
    #[must_use]
    pub fn with_uploads(self, uploads: Arc<External>) -> Self {
        Self { uploads: Some(uploads), ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Set how long the response to one request may take, up to its last byte and including
    /// retries; `None` means no limit.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.state().timeout = timeout;
    }

    /// Return the prefix of the paths. A server that follows the specification answers at its
    /// default prefix; any other server has none.
    fn prefix(&self, check: Check<'_>) -> Result<String> {
        if let Some(prefix) = self.state().prefix.clone() {
            return Ok(prefix);
        }
        // A server that redirects from this path has no prefix either.
        let answer = self.sent("OPTIONS", &format!("{PREFIX}/__capabilities__"), Vec::new(), true, check)?;
        let found = if answer.status < 300 { PREFIX } else { "" };
        self.state().prefix = Some(found.to_owned());
        Ok(found.to_owned())
    }

    /// Return the server's capabilities.
    pub fn capabilities(&self, check: Check<'_>) -> Result<Capabilities> {
        let prefix = self.prefix(check)?;
        let answer = self.sent("OPTIONS", &format!("{prefix}/__capabilities__"), Vec::new(), true, check)?;
        if answer.status < 300 && answer.headers.get("Cache-Control").is_some() {
            return Ok(Capabilities::of(&answer.headers));
        }
        // Dialect 0.10 announces its capabilities at this path.
        let answer = self.send("OPTIONS", &format!("{prefix}/health"), Vec::new(), true, check)?;
        Ok(Capabilities::of(&answer.headers))
    }

    /// Call a unary method.
    pub fn call(&self, method: &str, params: Batch, metadata: Metadata, check: Check<'_>) -> Result<ResponseContent> {
        let body = core::request_body(method, params, metadata)?;
        self.post(method, "", body, true, RequestKind::Call, check)
    }

    /// Open a stream.
    pub fn open(
        &self,
        method: &str,
        params: Batch,
        metadata: Metadata,
        header: bool,
        check: Check<'_>,
    ) -> Result<HttpStream> {
        let body = core::request_body(method, params, metadata)?;
        let ResponseContent { header, answers, token } = self.post(
            method,
            "/init",
            body,
            true,
            if header { RequestKind::Header } else { RequestKind::Call },
            check,
        )?;
        Ok(HttpStream { method: method.to_owned(), header, answers, token })
    }

    /// Return the next answer of a stream: to an input, or, for a producer, without one. Send an
    /// input only once, because this end cannot tell whether a method has received it.
    pub fn next(&self, stream: &mut HttpStream, input: Option<Batch>, check: Check<'_>) -> Result<Answer> {
        if input.is_some() {
            // Batches that came before any input are not answers; the reference package begins
            // streams without input columns that way.
            stream.answers.retain(|answer| !matches!(answer, Answer::Batch(_)));
        }
        if let Some(answer) = stream.answers.pop_front() {
            return Ok(answer);
        }
        let Some(token) = stream.token.take() else { return Ok(Answer::End) };
        let (again, kind) = if input.is_none() { (true, RequestKind::Call) } else { (false, RequestKind::Input) };
        let batch = input.unwrap_or_else(tick);
        let body = core::exchange_body(batch, &token, false)?;
        let ResponseContent { answers, token, .. } =
            self.post(&stream.method, "/exchange", body, again, kind, check)?;
        stream.answers = answers;
        stream.token = token;
        Ok(stream.answers.pop_front().unwrap_or(Answer::End))
    }

    /// Tell the server that the stream is cancelled. Ignore failures, because the server may have
    /// ended.
    pub fn cancel(&self, stream: &mut HttpStream, check: Check<'_>) -> Result<()> {
        stream.answers.clear();
        let Some(token) = stream.token.take() else { return Ok(()) };
        let body = core::exchange_body(tick(), &token, true)?;
        drop(self.post(&stream.method, "/exchange", body, false, RequestKind::Call, check));
        Ok(())
    }

    fn post(
        &self,
        method: &str,
        endpoint: &str,
        mut body: Output,
        again: bool,
        kind: RequestKind,
        check: Check<'_>,
    ) -> Result<ResponseContent> {
        let path = format!("{}/{}{endpoint}", self.prefix(check)?, utf8_percent_encode(method, PLAIN));
        let pieces = body.take();
        let mut response = None;
        if !self.is_too_large(&pieces) {
            let sent = self.send("POST", &path, concat(&pieces), again, check)?;
            let refused = sent.status == TOO_LARGE && self.uploads.is_some() && self.state().announced.upload_urls;
            response = Some(sent).filter(|_| !refused);
        }
        let response = match response {
            Some(response) => response,
            None => match self.put_elsewhere(&pieces, check) {
                Ok(body) => self.send("POST", &path, body, again, check)?,
                Err(error) if error.ends_wait() => return Err(error),
                Err(error) => return Ok(not_stored(&error)),
            },
        };
        let retried = self.options.retry.as_ref().filter(|_| again);
        if retried.is_some_and(|retry| retry.status_codes.contains(&response.status)) {
            return Ok(transient(&response));
        }
        Ok(core::read_answer(&response, kind, &self.options.limits)?)
    }

    /// Return whether to upload a body at once, instead of after the server's refusal.
    fn is_too_large(&self, pieces: &[Buffer]) -> bool {
        let Some(uploads) = &self.uploads else { return false };
        let announced = self.state().announced;
        let length: usize = pieces.iter().map(Buffer::len).sum();
        announced.upload_urls
            && [uploads.threshold(), announced.max_request_bytes].into_iter().flatten().any(|most| length as u64 > most)
    }

    /// Upload a body to a URL that the server issues, and return the body that points to it.
    fn put_elsewhere(&self, pieces: &[Buffer], check: Check<'_>) -> Result<Vec<u8>> {
        let wrong = Error::Location;
        let uploads = self.uploads.as_ref().ok_or_else(|| wrong(LocationFault::NoUploads))?;
        let body = concat(pieces);
        if let Some(limit) = self.state().announced.max_upload_bytes.filter(|limit| body.len() as u64 > *limit) {
            return Err(Error::Size(SizeLimit::Upload { bytes: body.len(), limit }));
        }
        let answered = self.upload_urls(1, check)?;
        let url = answered.answers.into_iter().find_map(|answer| match answer {
            Answer::Batch(batch) => Some(core::read_upload_urls(&batch).map_err(Error::from)),
            Answer::Failed(failure) => Some(Err(wrong(LocationFault::Refused(failure.message)))),
            Answer::Log(_) | Answer::End => None,
        });
        let url = url.transpose()?.and_then(|urls| urls.into_iter().next());
        let UploadUrl { upload, download, .. } = url.ok_or_else(|| wrong(LocationFault::NoUploadUrl))?;
        uploads.validate(&upload)?;
        uploads.validate(&download)?;
        uploads.resolver().fetcher.put(&upload, body, core::ARROW, check)?;
        Ok(external::pointer_body(pieces, &download, &self.options.limits)?.concat())
    }

    /// Request URLs for uploads, which are columns of the batch in the response.
    pub fn upload_urls(&self, count: i64, check: Check<'_>) -> Result<ResponseContent> {
        let path = format!("{}/{}/init", self.prefix(check)?, core::UPLOAD_URL);
        let response = self.send("POST", &path, core::upload_request(count)?.concat(), true, check)?;
        if response.status == 404 {
            let failure = Failure::new("NotSupported", "Server does not support upload URLs");
            return Ok(ResponseContent {
                answers: VecDeque::from([Answer::Failed(failure)]),
                ..ResponseContent::default()
            });
        }
        Ok(core::read_answer(&response, RequestKind::Call, &self.options.limits)?)
    }

    /// Send a request. Treat a redirect as an error, because credentials and body would go to a
    /// host that the caller did not choose.
    fn send(&self, method: &str, path: &str, body: Vec<u8>, again: bool, check: Check<'_>) -> Result<Response> {
        let response = self.sent(method, path, body, again, check)?;
        match response.headers.get("Location") {
            Some(location) if (300..400).contains(&response.status) => {
                let shown: String = location.chars().take_while(|each| !"?#".contains(*each)).take(SHOWN).collect();
                let (request, status) = (format!("{method} {path}"), response.status);
                Err(Error::Location(LocationFault::CallRedirect { request, status, to: shown }))
            }
            Some(_) | None => Ok(response),
        }
    }

    fn sent(&self, method: &str, path: &str, body: Vec<u8>, again: bool, check: Check<'_>) -> Result<Response> {
        let (timeout, zstd) = {
            let state = self.state();
            (state.timeout, state.zstd)
        };
        let mut headers = self.options.headers.clone();
        let mut body = body;
        if method == "POST" {
            headers.push("Content-Type", core::ARROW);
            if let Some(level) = self.options.compression_level {
                headers.push("Accept-Encoding", "zstd");
                if zstd
                    && body.len() >= WORTH
                    && let Some(smaller) = core::compress(&[&body], level)?
                {
                    body = smaller;
                    headers.push("Content-Encoding", "zstd");
                }
            }
        }
        let retry = self.options.retry.as_ref().filter(|_| again);
        let mut tried = 0;
        let mut backoff = retry.map(|retry| Backoff::new(retry.backoff_base, retry.backoff_max));
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let in_time = |pause: &Duration| deadline.is_none_or(|deadline| later(Instant::now(), *pause) < deadline);
        loop {
            let bytes = if retry.is_some() { body.clone() } else { std::mem::take(&mut body) };
            let sent = self.sender.send(method, path, &headers, bytes, deadline, check);
            let Some(pause) = retry
                .zip(backoff.as_mut())
                .and_then(|(retry, backoff)| retry.pause(&sent, tried, backoff))
                .filter(in_time)
            else {
                let response = sent?;
                let mut state = self.state();
                state.zstd |= response.headers.get("Accept-Encoding").is_some_and(|codings| codings.contains("zstd"));
                state.announced = Capabilities::announced(&response.headers).unwrap_or(state.announced);
                drop(state);
                return Ok(response);
            };
            tried += 1;
            let pausing = async {
                tokio::time::sleep(pause).await;
                Ok(())
            };
            waited(pausing, None, check)?;
        }
    }
}

/// Return a body in one piece.
fn concat(pieces: &[Buffer]) -> Vec<u8> {
    pieces.iter().map(Buffer::as_slice).collect::<Vec<_>>().concat()
}

/// Return the failure for a request that could not be uploaded, and so did not reach the server.
fn not_stored(error: &Error) -> ResponseContent {
    let failure = Failure::new("ExternalUploadFailed", &error.to_string());
    ResponseContent { answers: VecDeque::from([Answer::Failed(failure)]), ..ResponseContent::default() }
}

/// Return the failure for a status that persisted over all retries.
fn transient(response: &Response) -> ResponseContent {
    let body = response.concat();
    let shown = String::from_utf8_lossy(body.get(..body.len().min(SHOWN)).unwrap_or_default()).into_owned();
    let mut failure = Failure::new("HttpTransientError", &shown);
    failure.extra = serde_json::json!({
        "status_code": response.status,
        "body_preview": shown,
        "retry_after": response.headers.get("Retry-After").and_then(|text| text.trim().parse::<f64>().ok()),
    })
    .to_string();
    ResponseContent { answers: VecDeque::from([Answer::Failed(failure)]), ..ResponseContent::default() }
}

fn tick() -> Batch {
    Batch::empty(&arrow_schema::SchemaRef::new(arrow_schema::Schema::empty()), Metadata::new())
}

impl Retry {
    /// Return the pause before the next attempt, or `None` if there is none.
    fn pause(&self, sent: &Result<Response>, tried: u32, backoff: &mut Backoff) -> Option<Duration> {
        if tried >= self.max_retries {
            return None;
        }
        let requested = match sent {
            Ok(response) if self.status_codes.contains(&response.status) => {
                let seconds = response.headers.get("Retry-After").and_then(|text| text.trim().parse().ok());
                seconds.filter(|_| self.retry_after).map(Duration::from_secs)
            }
            Err(error) if error.kind() == ErrorKind::Io && self.connection_errors => None,
            Ok(_) | Err(_) => return None,
        };
        let wait = backoff.advance_by(fastrand::f64());
        Some(requested.map_or(wait, |requested| requested.min(self.backoff_max)))
    }
}

/// Wait for a future of the runtime.
fn waited<T>(future: impl Future<Output = Result<T>>, deadline: Option<Instant>, check: Check<'_>) -> Result<T> {
    let mut ask = || check().map_err(|_| Interrupted);
    wait(future, deadline, &mut ask).unwrap_or_else(|error| {
        Err(match error {
            WaitError::Deadline => Error::deadline("the server has not answered within the time-out".to_owned()),
            WaitError::Interrupted => Error::Interrupted,
            WaitError::Runtime(error) => error.into(),
        })
    })
}

/// A sender over its own connections, which stay open.
struct Wire {
    client: PerProcess<Client>,
    base: String,
}

impl Wire {
    fn new(base_url: &str, tls: Option<&ClientTls>) -> Result<Self> {
        let url = reqwest::Url::parse(base_url)
            .map_err(|error| Misuse::Url { url: base_url.to_owned(), reason: error.to_string() })?;
        match (url.scheme(), tls) {
            ("https", _) | ("http", None) => {}
            ("http", Some(_)) => return Err(Misuse::PlainUrl.into()),
            _ => return Err(Misuse::Scheme { url: base_url.to_owned() }.into()),
        }
        let config = tls.map_or_else(plaintext, |tls| tls.config(b"http/1.1"))?;
        let mut builder = Client::builder()
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .redirect(Policy::none())
            .tls_backend_preconfigured(config);
        let near = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if near {
            // Hosts on this machine are reached without a proxy.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| Error::io(base_url, error))?;
        Ok(Self { client: PerProcess::new(client), base: base_url.trim_end_matches('/').to_owned() })
    }

    fn failed(&self, error: reqwest::Error) -> Error {
        // The innermost error is the specific one.
        let mut inner: &dyn std::error::Error = &error;
        while let Some(source) = inner.source() {
            inner = source;
        }
        Error::io(self.base.as_str(), inner.to_string())
    }
}

/// The most bytes of a response.
const LONGEST: u64 = 2 << 30;

impl HttpSender for Wire {
    fn send(
        &self,
        method: &str,
        path: &str,
        headers: &Headers,
        body: Vec<u8>,
        deadline: Option<Instant>,
        check: Check<'_>,
    ) -> Result<Response> {
        let client = self.client.get()?;
        let method =
            Method::from_bytes(method.as_bytes()).map_err(|_| Misuse::HttpMethod { method: method.to_owned() })?;
        let mut request = client.request(method, format!("{}{path}", self.base)).body(body);
        for (name, value) in headers.iter() {
            request = request.header(name, value);
        }
        waited(
            async {
                let mut answer = request.send().await.map_err(|error| self.failed(error))?;
                let text =
                    |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
                let headers = answer.headers().iter().map(|(name, value)| (name.as_str(), text(value))).collect();
                let status = answer.status().as_u16();
                let stated = answer.content_length().unwrap_or(0).min(LONGEST);
                let mut bytes = Vec::with_capacity(usize::try_from(stated.min(64 << 20)).unwrap_or(0));
                while let Some(chunk) = answer.chunk().await.map_err(|error| self.failed(error))? {
                    bytes.extend_from_slice(&chunk);
                    if bytes.len() as u64 > LONGEST {
                        return Err(Error::Size(SizeLimit::Response { url: self.base.clone() }));
                    }
                }
                Ok(Response { status, headers, body: vec![bytes.into()] })
            },
            deadline,
            check,
        )
    }
}

#[cfg(test)]
mod tests;
