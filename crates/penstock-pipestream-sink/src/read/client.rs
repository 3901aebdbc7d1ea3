use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use penstock_io::DriverError as _;
use penstock_io::runtime::PerProcess;
use penstock_io::tls::ClientTls;
use penstock_pipestream_net::ClaimRow;
use penstock_pipestream_net::port::{HANDSHAKE_TIMEOUT, connect_service};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, ConnectionError, ReadError, RecvStream, VarInt};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::read::batch::{Batch, BatchLimits};
use crate::read::journal::JournalPage;
use crate::read::plan::{Plan, PlanLimits};
use crate::read::store::MAX_CONTENT;
use crate::read::wire::{
    ALPN, CODE_BROKEN, CODE_DONE, CODE_KEY, CODE_SLOW, ClaimsResponse, DONE, MAX_ITEMS, MAX_RESPONSE, PlanResponse,
    Request, RowsHead, Welcome,
};
use crate::{Error, Misuse, Result};

/// Maximum time to wait for the next chunk of a long response, or for the whole of a short one.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(90);
/// Number of bytes that a response's buffer reserves ahead of the data that has arrived.
const RESERVE: usize = 64 << 20;
/// The close code of a server that shares no ALPN protocol with the client: 0x100 plus alert 120
/// (RFC 7301).
const NO_PROTOCOL: u64 = 0x178;

/// A sink that is read through its server.
#[derive(Debug, Clone)]
pub struct RemoteSink(Arc<PerProcess<Inner>>);

#[derive(Debug)]
struct Inner {
    connection: Connection,
    address: SocketAddr,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.connection.close(VarInt::from_u32(CODE_DONE), b"");
    }
}

impl RemoteSink {
    /// Connect, and present the read key. `server_name` is the name for which the server's certificate must be valid,
    /// unless it is pinned.
    pub async fn connect(tls: &ClientTls, address: SocketAddr, server_name: &str, key: &str) -> Result<Self> {
        let crypto =
            QuicClientConfig::try_from(tls.config(ALPN)?).map_err(|error| Error::tls_from(error.to_string(), error))?;
        let (server_name, key) = (server_name.to_owned(), key.to_owned());
        // Connect on the IO thread, because the connection's task runs there.
        let connecting = penstock_io::runtime::spawn(async move {
            let connecting = connect_service(crypto, address, &server_name)?;
            let timed_out =
                |_| Error::deadline(format!("{address} did not respond within {} s", HANDSHAKE_TIMEOUT.as_secs()));
            let connected = timeout(HANDSHAKE_TIMEOUT, connecting).await.map_err(timed_out)?;
            let connection = connected.map_err(|error| lost(address, &error))?;
            let sink = Self(Arc::new(PerProcess::new(Inner { connection, address })));
            let Welcome { version: _ } = sink.call(&Request::Hello { key }).await?;
            Ok(sink)
        })?;
        connecting.await.unwrap_or_else(|error| Err(Error::task(error)))
    }

    /// Return at most `max` closed sessions from a position of the journal on; the server may
    /// return fewer than remain.
    pub async fn sessions(&self, after: u64, max: usize) -> Result<JournalPage> {
        self.call(&Request::Sessions { after, max }).await
    }

    /// Return all claim checks of the server, ordered by expiry.
    pub async fn claims(&self) -> Result<Vec<ClaimRow>> {
        let mut found: Vec<ClaimRow> = Vec::new();
        loop {
            let (expires, claim) = found.last().map_or((0, 0), |row| (row.check.expiry_micros, row.check.id));
            let ClaimsResponse { claims, more } =
                self.call(&Request::Claims { expires, claim, max: MAX_ITEMS }).await?;
            if claims.is_empty() {
                return Ok(found);
            }
            for item in claims {
                if (item.expires, item.claim) <= (expires, claim) {
                    return Err(self.wrong("its claim checks are not in order"));
                }
                found.push(item.try_into()?);
            }
            if !more {
                return Ok(found);
            }
        }
    }

    fn wrong(&self, problem: &str) -> Error {
        let address = self.0.get().map_or_else(|_| String::new(), |inner| inner.address.to_string());
        Error::io(format!("the sink at {address} sent an invalid response"), problem.to_owned())
    }

    /// Divide a session into pieces, from a position in its list on.
    pub async fn plan(&self, session: &str, start: u64, limits: PlanLimits) -> Result<Plan> {
        let PlanLimits { bytes, rows, pieces } = limits;
        let request = Request::Plan { session: session.to_owned(), start, bytes, rows, pieces: pieces.min(MAX_ITEMS) };
        let PlanResponse { pieces, next } = self.call(&request).await?;
        Ok(Plan { pieces: pieces.into_iter().map(Into::into).collect(), next })
    }

    /// Return a batch of rows from a range of a session's list.
    pub async fn batch(&self, session: &str, start: u64, end: u64, limits: BatchLimits) -> Result<Batch> {
        let BatchLimits { bytes, rows, content, max_content } = limits;
        let session = session.to_owned();
        let mut response =
            self.request(&Request::Rows { session, start, end, bytes, rows, content, max_content }).await?;
        let length = response.take(4).await?;
        let length = length.iter().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
        if length > MAX_RESPONSE {
            return Err(response.wrong("its head is too long"));
        }
        let head = response.take(length).await?;
        let head: RowsHead = response.parse(&head)?;
        let lines = usize::try_from(head.lines).unwrap_or(usize::MAX);
        let contents = head.sizes.iter().flatten().try_fold(0_u64, |sum, size| sum.checked_add(*size));
        let limit = MAX_CONTENT.saturating_add(bytes);
        let Some(contents) = contents.filter(|sum| *sum <= limit).and_then(|sum| usize::try_from(sum).ok()) else {
            return Err(response.wrong("it has more content than was requested"));
        };
        if lines > MAX_RESPONSE.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX)) {
            return Err(response.wrong("its lines are too long"));
        }
        if head.next.is_some_and(|next| next <= start) {
            return Err(response.wrong("its next position is not ahead"));
        }
        let lines = response.take(lines).await?;
        let content = response.take(contents).await?;
        Ok(Batch { lines, sizes: head.sizes, content, next: head.next })
    }

    async fn call<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        let mut response = self.request(request).await?;
        let bytes = response.rest().await?;
        response.parse(&bytes)
    }

    async fn request(&self, request: &Request) -> Result<Response> {
        let inner = self.0.get()?;
        let address = inner.address;
        let failed = |error: &ConnectionError| lost(address, error);
        let (mut send, stream) = inner.connection.open_bi().await.map_err(|error| failed(&error))?;
        let bytes = serde_json::to_vec(request).map_err(|error| Error::internal("a request to the sink", error))?;
        let written = send.write_all(&bytes).await;
        // Ignore a write error: it is the connection's, and reading the response reports its
        // reason.
        let mut response = Response { stream, address };
        if written.is_ok() {
            let _ = send.finish();
        }
        match response.take(1).await?.first() {
            Some(&DONE) => Ok(response),
            Some(_) | None => {
                let problem = String::from_utf8_lossy(&response.rest().await?).into_owned();
                Err(Error::io(format!("the sink at {address} refused the request"), problem))
            }
        }
    }
}

/// A response that is being received.
struct Response {
    stream: RecvStream,
    address: SocketAddr,
}

impl Response {
    /// Read exactly `length` bytes. Reserve limited memory at once, and more as bytes arrive.
    async fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, length.min(RESERVE))?;
        while bytes.len() < length {
            let chunk = timeout(RESPONSE_TIMEOUT, self.stream.read_chunk(length - bytes.len(), true)).await;
            let chunk = chunk.map_err(|_| self.timed_out())?.map_err(|error| self.failed(&error))?;
            let Some(chunk) = chunk else { return Err(self.wrong("it ends early")) };
            if bytes.capacity() - bytes.len() < chunk.bytes.len() {
                // Growth is cheap: the system moves large blocks by remapping their pages, not by
                // copying.
                let more = RESERVE.max(bytes.len() / 2).min(length - bytes.len());
                reserve(&mut bytes, more)?;
            }
            bytes.extend_from_slice(&chunk.bytes);
        }
        Ok(bytes)
    }

    /// Read the remaining bytes; return an error if there are more than a response may have.
    async fn rest(&mut self) -> Result<Vec<u8>> {
        let read =
            timeout(RESPONSE_TIMEOUT, self.stream.read_to_end(MAX_RESPONSE)).await.map_err(|_| self.timed_out())?;
        read.map_err(|error| match error {
            quinn::ReadToEndError::Read(error) => self.failed(&error),
            quinn::ReadToEndError::TooLong => self.wrong("it is too long"),
        })
    }

    fn parse<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T> {
        serde_json::from_slice(bytes).map_err(|error| self.wrong(&error.to_string()))
    }

    fn wrong(&self, problem: &str) -> Error {
        Error::io(format!("the sink at {} sent an invalid response", self.address), problem.to_owned())
    }

    fn timed_out(&self) -> Error {
        Error::deadline(format!("the sink at {} sent nothing for {} s", self.address, RESPONSE_TIMEOUT.as_secs()))
    }

    fn failed(&self, error: &ReadError) -> Error {
        let context = format!("reading the sink at {}", self.address);
        let code = |code: u32| VarInt::from_u32(code);
        match error {
            ReadError::ConnectionLost(error) => lost(self.address, error),
            ReadError::Reset(found) if *found == code(CODE_SLOW) => {
                Error::io(context, "this reader was too slow for the server")
            }
            ReadError::Reset(found) if *found == code(CODE_BROKEN) => {
                Error::io(context, "the server cannot read a payload; its log says why")
            }
            ReadError::Reset(_)
            | ReadError::ClosedStream
            | ReadError::IllegalOrderedRead
            | ReadError::ZeroRttRejected => Error::io(context, error.to_string()),
        }
    }
}

fn reserve(bytes: &mut Vec<u8>, more: usize) -> Result<()> {
    bytes.try_reserve_exact(more).map_err(|_| Error::memory(more))
}

/// Return the error for a connection that ended; it contains the peer's address.
fn lost(address: SocketAddr, error: &ConnectionError) -> Error {
    let context = format!("reading the sink at {address}");
    match error {
        ConnectionError::TimedOut => Error::deadline(format!("{address} did not answer")),
        ConnectionError::ApplicationClosed(close) => {
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            let wrong_key = close.error_code == VarInt::from_u32(CODE_KEY);
            let message = if reason.is_empty() { "the server has ended the connection".into() } else { reason };
            if wrong_key { Misuse::ReadKey { address, reason: message }.into() } else { Error::io(context, message) }
        }
        ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) == NO_PROTOCOL => {
            let why = "it was started without a read key";
            Error::tls_from(format!("the server at {address} does not serve its sink: {why}"), error.clone())
        }
        ConnectionError::ConnectionClosed(_) | ConnectionError::TransportError(_) => {
            Error::tls_from(format!("the connection with {address} failed: {error}"), error.clone())
        }
        ConnectionError::VersionMismatch
        | ConnectionError::Reset
        | ConnectionError::LocallyClosed
        | ConnectionError::CidsExhausted => Error::io(context, error.to_string()),
    }
}
