//! The caller: requests, retries, and the tokens of streams.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;
use penstock_io::DriverError as _;
use penstock_io::runtime::{Interrupted, PerProcess, WaitError, wait};
use penstock_io::tls::{ClientTls, nobody};
use penstock_vgi::http::{self as core, Answered, Asked, Headers, Response, StreamToken, UploadUrl};
use penstock_vgi::ipc::Output;
use penstock_vgi::{Answer, Batch, Failure, Limits, Log, Metadata, external};
use penstock_wire::{Backoff, ErrorKind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::redirect::Policy;
use reqwest::{Client, Method};

use crate::external::Fetcher;
use crate::{Check, Error, Result};

const CONNECT: Duration = Duration::from_secs(10);
/// Where servers of the specification are, unless they say otherwise.
const PREFIX: &str = "/vgi";
/// Bodies that are shorter are not worth compressing.
const WORTH: usize = 1 << 10;
/// How much of an answer an error shows.
const SHOWN: usize = 200;
/// The status of a request that is too large.
const TOO_LARGE: u16 = 413;
/// What stands in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-').remove(b'.').remove(b'~');

/// When a request is sent again.
#[derive(Debug, Clone)]
pub struct Retry {
    /// So many times more, at most.
    pub max_retries: u32,
    /// Before the first; each further one waits twice as long.
    pub backoff_base: Duration,
    /// What a wait has at most.
    pub backoff_max: Duration,
    /// The statuses after which it is sent again.
    pub status_codes: Vec<u16>,
    /// Whether it is sent again where the connection failed.
    pub connection_errors: bool,
    /// Whether the server may say how long to wait.
    pub retry_after: bool,
}

/// What a caller is made with.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// What stands before the methods' names; `None` is found out.
    pub prefix: Option<String>,
    /// The level of zstd for servers that take it, and whether answers may be compressed.
    pub compression_level: Option<i32>,
    /// When a request is sent again.
    pub retry: Option<Retry>,
    /// What an answer may have.
    pub limits: Limits,
    /// What every request has.
    pub headers: Headers,
}

/// What sends requests.
pub trait HttpSender: Send + Sync {
    /// Send one, below the base URL, and wait for its answer.
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

/// A caller. One call at a time; a stream is a value of its own.
pub struct HttpClient {
    sender: Box<dyn HttpSender>,
    options: ClientOptions,
    uploads: Option<Uploads>,
    state: Mutex<State>,
}

/// Whether a URL may be used that a server gives.
pub type Allowed = Box<dyn Fn(&str) -> Result<()> + Send + Sync>;

/// What puts requests elsewhere that are too large for a server.
pub struct Uploads {
    /// What puts them there.
    pub fetcher: Arc<Fetcher>,
    /// Which URLs may be used.
    pub allowed: Allowed,
    /// Requests of so many bytes are put elsewhere also where the server would take them.
    pub threshold: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    prefix: Option<String>,
    /// The server has said that it takes zstd.
    zstd: bool,
    /// What it has said of large requests.
    large: Large,
    timeout: Option<Duration>,
}

/// What a server says of large requests.
#[derive(Debug, Clone, Copy, Default)]
struct Large {
    /// How many bytes it takes.
    request: Option<u64>,
    /// It gives URLs to which they may be put.
    urls: bool,
    /// How many bytes it takes there.
    upload: Option<u64>,
}

impl Large {
    /// `None` where an answer says nothing of it: one of a proxy, for example.
    fn of(headers: &Headers) -> Option<Self> {
        let number = |name| headers.get(name).and_then(|text| text.trim().parse().ok());
        let request = number(core::MAX_REQUEST_BYTES);
        let urls = headers.get(core::UPLOAD_URLS).is_some_and(|value| value.trim() == "true");
        (urls || request.is_some()).then(|| Self { request, urls, upload: number(core::MAX_UPLOAD_BYTES) })
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").field("options", &self.options).finish_non_exhaustive()
    }
}

/// A stream: what came of it and was not asked for yet, and how it goes on.
#[derive(Debug)]
pub struct HttpStream {
    method: String,
    /// The header, of a stream that has one.
    pub header: Option<Batch>,
    answers: VecDeque<Answer>,
    token: Option<StreamToken>,
}

impl HttpStream {
    /// Return the messages in front of all else.
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

    /// Return why the stream never began.
    pub fn failure(&self) -> Option<&Failure> {
        match self.answers.front() {
            Some(Answer::Failed(failure)) => Some(failure),
            Some(Answer::Log(_) | Answer::Batch(_) | Answer::End) | None => None,
        }
    }

    /// The token that came with a batch which lay elsewhere: the package stores it there.
    pub fn found_token(&mut self, batch: &mut Batch) {
        let found = StreamToken::take(&mut batch.metadata);
        if self.token.is_none() {
            self.token = found;
        }
    }

    /// There is no more of it.
    pub fn forget(&mut self) {
        self.answers.clear();
        self.token = None;
    }
}

impl HttpClient {
    /// Make a caller of the server at a base URL.
    pub fn connect(base_url: &str, tls: Option<&ClientTls>, options: ClientOptions) -> Result<Self> {
        Ok(Self::new(Box::new(Wire::new(base_url, tls)?), options))
    }

    /// Make a caller whose requests go by somebody else's client.
    pub fn new(sender: Box<dyn HttpSender>, options: ClientOptions) -> Self {
        let state = State { prefix: options.prefix.clone(), ..State::default() };
        Self { sender, options, uploads: None, state: Mutex::new(state) }
    }

    /// Requests that are too large for the server are put where it says.
    #[must_use]
    pub fn with_uploads(self, uploads: Uploads) -> Self {
        Self { uploads: Some(uploads), ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the answer to one request may take, to its last byte and however often it is sent; `None` is for ever.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.state().timeout = timeout;
    }

    /// What stands before the methods' names. A server of the specification answers where it says that it is; any other
    /// one has nothing there.
    fn prefix(&self, check: Check<'_>) -> Result<String> {
        if let Some(prefix) = self.state().prefix.clone() {
            return Ok(prefix);
        }
        // A server that sends on from there has nothing there either.
        let answer = self.sent("OPTIONS", &format!("{PREFIX}/__capabilities__"), Vec::new(), true, check)?;
        let found = if answer.status < 300 { PREFIX } else { "" };
        self.state().prefix = Some(found.to_owned());
        Ok(found.to_owned())
    }

    /// What the server is capable of: the fields of its answer.
    pub fn capabilities(&self, check: Check<'_>) -> Result<Headers> {
        let prefix = self.prefix(check)?;
        let answer = self.sent("OPTIONS", &format!("{prefix}/__capabilities__"), Vec::new(), true, check)?;
        if answer.status < 300 && answer.headers.get("Cache-Control").is_some() {
            return Ok(answer.headers);
        }
        // Dialect 0.10 says it there.
        Ok(self.send("OPTIONS", &format!("{prefix}/health"), Vec::new(), true, check)?.headers)
    }

    /// Call a unary method.
    pub fn call(&self, method: &str, params: Batch, metadata: Metadata, check: Check<'_>) -> Result<Answered> {
        let body = core::request_body(method, params, metadata)?;
        self.post(method, "", body, true, Asked::Call, check)
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
        let Answered { header, answers, token } =
            self.post(method, "/init", body, true, if header { Asked::Header } else { Asked::Call }, check)?;
        Ok(HttpStream { method: method.to_owned(), header, answers, token })
    }

    /// Return the next answer of a stream: to an input, or of a producer without one. An input is sent once only:
    /// nobody knows whether a method has seen it.
    pub fn next(&self, stream: &mut HttpStream, input: Option<Batch>, check: Check<'_>) -> Result<Answer> {
        if input.is_some() {
            // Batches that came before any input answer none: the package begins a stream without columns of input so.
            stream.answers.retain(|answer| !matches!(answer, Answer::Batch(_)));
        }
        if let Some(answer) = stream.answers.pop_front() {
            return Ok(answer);
        }
        let Some(token) = stream.token.take() else { return Ok(Answer::End) };
        let (again, asked) = if input.is_none() { (true, Asked::Call) } else { (false, Asked::Input) };
        let batch = input.unwrap_or_else(tick);
        let body = core::exchange_body(batch, &token, false)?;
        let Answered { answers, token, .. } = self.post(&stream.method, "/exchange", body, again, asked, check)?;
        stream.answers = answers;
        stream.token = token;
        Ok(stream.answers.pop_front().unwrap_or(Answer::End))
    }

    /// Tells the server that nobody wants more of a stream. It may be gone: nobody waits for its word.
    pub fn cancel(&self, stream: &mut HttpStream, check: Check<'_>) -> Result<()> {
        stream.answers.clear();
        let Some(token) = stream.token.take() else { return Ok(()) };
        let body = core::exchange_body(tick(), &token, true)?;
        drop(self.post(&stream.method, "/exchange", body, false, Asked::Call, check));
        Ok(())
    }

    fn post(
        &self,
        method: &str,
        endpoint: &str,
        mut body: Output,
        again: bool,
        asked: Asked,
        check: Check<'_>,
    ) -> Result<Answered> {
        let path = format!("{}/{}{endpoint}", self.prefix(check)?, utf8_percent_encode(method, PLAIN));
        let pieces = body.take();
        let mut response = None;
        if !self.is_too_large(&pieces) {
            let sent = self.send("POST", &path, concat(&pieces), again, check)?;
            let refused = sent.status == TOO_LARGE && self.uploads.is_some() && self.state().large.urls;
            response = Some(sent).filter(|_| !refused);
        }
        let response = match response {
            Some(response) => response,
            None => match self.put_elsewhere(&pieces, check) {
                Ok(body) => self.send("POST", &path, body, again, check)?,
                Err(error) => return Ok(not_stored(&error)),
            },
        };
        let retried = self.options.retry.as_ref().filter(|_| again);
        if retried.is_some_and(|retry| retry.status_codes.contains(&response.status)) {
            return Ok(transient(&response));
        }
        Ok(core::read_answer(&response, asked, &self.options.limits)?)
    }

    /// Return whether a body is to be put elsewhere before the server has refused it.
    fn is_too_large(&self, pieces: &[Buffer]) -> bool {
        let Some(uploads) = &self.uploads else { return false };
        let large = self.state().large;
        let length: usize = pieces.iter().map(Buffer::len).sum();
        large.urls && [uploads.threshold, large.request].into_iter().flatten().any(|most| length as u64 > most)
    }

    /// Put a body where the server says, and gives the one that points there.
    fn put_elsewhere(&self, pieces: &[Buffer], check: Check<'_>) -> Result<Vec<u8>> {
        let wrong = Error::Location;
        let uploads = self.uploads.as_ref().ok_or_else(|| wrong("nothing is put elsewhere".to_owned()))?;
        let body = concat(pieces);
        if let Some(most) = self.state().large.upload.filter(|most| body.len() as u64 > *most) {
            let message = format!("the request has {} bytes, and the server takes {most}", body.len());
            return Err(Error::Size(message));
        }
        let answered = self.upload_urls(1, check)?;
        let url = answered.answers.into_iter().find_map(|answer| match answer {
            Answer::Batch(batch) => Some(core::read_upload_urls(&batch).map_err(Error::from)),
            Answer::Failed(failure) => Some(Err(wrong(failure.message))),
            Answer::Log(_) | Answer::End => None,
        });
        let url = url.transpose()?.and_then(|urls| urls.into_iter().next());
        let UploadUrl { upload, download, .. } = url.ok_or_else(|| wrong("the server gave no URL".to_owned()))?;
        (uploads.allowed)(&upload)?;
        (uploads.allowed)(&download)?;
        uploads.fetcher.put(&upload, body, core::ARROW, check)?;
        Ok(external::pointer_body(pieces, &download, &self.options.limits)?.concat())
    }

    /// Ask for URLs to which requests may be put; they are the columns of the batch that is the answer.
    pub fn upload_urls(&self, count: i64, check: Check<'_>) -> Result<Answered> {
        let path = format!("{}/{}/init", self.prefix(check)?, core::UPLOAD_URL);
        let response = self.send("POST", &path, core::upload_request(count)?.concat(), true, check)?;
        if response.status == 404 {
            let failure = Failure::new("NotSupported", "Server does not support upload URLs");
            return Ok(Answered { answers: VecDeque::from([Answer::Failed(failure)]), ..Answered::default() });
        }
        Ok(core::read_answer(&response, Asked::Call, &self.options.limits)?)
    }

    /// Send a request. A redirect is an error: the credentials and the body would go where nobody has asked for.
    fn send(&self, method: &str, path: &str, body: Vec<u8>, again: bool, check: Check<'_>) -> Result<Response> {
        let response = self.sent(method, path, body, again, check)?;
        match response.headers.get("Location") {
            Some(location) if (300..400).contains(&response.status) => {
                let shown: String = location.chars().take_while(|each| !"?#".contains(*each)).take(SHOWN).collect();
                let message = format!(
                    "{method} {path}: the server answers with a redirect (HTTP {}) to {shown:?}, which is not followed",
                    response.status
                );
                Err(Error::Location(message))
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
        let in_time = |pause: &Duration| deadline.is_none_or(|deadline| Instant::now() + *pause < deadline);
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
                state.large = Large::of(&response.headers).unwrap_or(state.large);
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

/// Return a request that could not be put elsewhere. The server has not seen it.
fn not_stored(error: &Error) -> Answered {
    let failure = Failure::new("ExternalUploadFailed", &error.to_string());
    Answered { answers: VecDeque::from([Answer::Failed(failure)]), ..Answered::default() }
}

/// Return a status that did not go away.
fn transient(response: &Response) -> Answered {
    let body = response.concat();
    let shown = String::from_utf8_lossy(body.get(..body.len().min(SHOWN)).unwrap_or_default()).into_owned();
    let mut failure = Failure::new("HttpTransientError", &shown);
    failure.extra = serde_json::json!({
        "status_code": response.status,
        "body_preview": shown,
        "retry_after": response.headers.get("Retry-After").and_then(|text| text.trim().parse::<f64>().ok()),
    })
    .to_string();
    Answered { answers: VecDeque::from([Answer::Failed(failure)]), ..Answered::default() }
}

fn tick() -> Batch {
    Batch::empty(&arrow_schema::SchemaRef::new(arrow_schema::Schema::empty()), Metadata::new())
}

impl Retry {
    /// Return how long to wait before the next try; `None`: there is none.
    fn pause(&self, sent: &Result<Response>, tried: u32, backoff: &mut Backoff) -> Option<Duration> {
        if tried >= self.max_retries {
            return None;
        }
        let asked = match sent {
            Ok(response) if self.status_codes.contains(&response.status) => {
                let seconds = response.headers.get("Retry-After").and_then(|text| text.trim().parse().ok());
                seconds.filter(|_| self.retry_after).map(Duration::from_secs)
            }
            Err(error) if error.kind() == ErrorKind::Io && self.connection_errors => None,
            Ok(_) | Err(_) => return None,
        };
        let wait = backoff.advance_by(fastrand::f64());
        Some(asked.map_or(wait, |asked| asked.min(self.backoff_max)))
    }
}

/// Wait for what the runtime does.
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

/// Sends over connections of its own, which it keeps.
struct Wire {
    client: PerProcess<Client>,
    base: String,
}

impl Wire {
    fn new(base_url: &str, tls: Option<&ClientTls>) -> Result<Self> {
        let url = reqwest::Url::parse(base_url).map_err(|error| Error::misuse(format!("{base_url}: {error}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Error::misuse(format!("{base_url} is neither http:// nor https://")));
        }
        let config = tls.map_or_else(nobody, |tls| tls.config(b"http/1.1"))?;
        let mut builder = Client::builder()
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .redirect(Policy::none())
            .tls_backend_preconfigured(config);
        let near = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if near {
            // What is on this machine is reached by no proxy.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| Error::io(base_url, error))?;
        Ok(Self { client: PerProcess::new(client), base: base_url.trim_end_matches('/').to_owned() })
    }

    fn failed(&self, error: reqwest::Error) -> Error {
        // The innermost reason is the one that says something.
        let mut inner: &dyn std::error::Error = &error;
        while let Some(source) = inner.source() {
            inner = source;
        }
        Error::io(self.base.as_str(), inner.to_string())
    }
}

/// No answer has more bytes.
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
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| Error::misuse(format!("{method:?} is no method of HTTP")))?;
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
                        return Err(Error::Size(format!("{}: an answer of more than 2 GiB", self.base)));
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
