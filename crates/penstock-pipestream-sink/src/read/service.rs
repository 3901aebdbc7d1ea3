use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use penstock_io::tls::ClientCertificates;
use penstock_io::{IDLE_TIMEOUT, ReadKey};
use penstock_pipestream_net::port::{ClaimChecks, PortService};
use quinn::{Connection, RecvStream, SendStream, VarInt};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::read::batch::{BatchLimits, BatchSelection, select};
use crate::read::journal::Journal;
use crate::read::plan::{PlanLimits, plan};
use crate::read::session::ClosedSession;
use crate::read::store::{PayloadRange, Store};
use crate::read::tasks::blocking;
use crate::read::wire::{
    ALPN, CODE_BROKEN, CODE_KEY, CODE_SLOW, ClaimsResponse, DONE, MAX_BYTES, MAX_CLAIMS, MAX_ITEMS, MAX_REQUEST,
    MAX_ROWS, PlanResponse, REFUSED, Request, RowsHead, Welcome,
};
use crate::{Error, Result};

/// Maximum time for a request to arrive, and for the first request to start after the handshake.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests of all readers that are answered concurrently; further ones wait.
const MAX_REQUESTS: usize = 64;
/// Number of payload bytes that are read at a time for a request. A request holds up to twice as
/// many, because one piece is sent while the next is read.
const PIECE: u64 = 1 << 20;

/// The reason for refusing a request; the reader receives its message.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    /// The session does not exist, or readers may not read it.
    #[error("there is no closed session {0:?}")]
    UnknownSession(String),
    /// A reader with the right key sent another HELLO, with a wrong key.
    #[error("this request was answered before")]
    Answered,
    /// The length of the rows' head does not fit into its 4 bytes.
    #[error("too many rows")]
    RowCount,
    /// A failure of the server.
    #[error(transparent)]
    Local(#[from] Error),
}

type Answered<T> = std::result::Result<T, Refusal>;

/// Access of readers to a sink over its server's port.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The key that readers present.
    pub key: ReadKey,
    /// The sink's store.
    pub store: Arc<dyn Store>,
    /// How long a reader may take for 1 MiB of an answer before it is cut off. Default: 60 s.
    pub write_timeout: Duration,
    /// Whether readers, too, must have a certificate in addition to the key if the port's clients
    /// must have one. Default: they must.
    pub certificates: ClientCertificates,
}

impl ReadOptions {
    /// Return options with the default values.
    pub fn new(key: ReadKey, store: Arc<dyn Store>) -> Self {
        Self { key, store, write_timeout: Duration::from_secs(60), certificates: ClientCertificates::Required }
    }

    /// Return the service that answers readers, including requests about the checks in `claims`.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub fn service(self, claims: Arc<dyn ClaimChecks>) -> Result<Arc<dyn PortService>> {
        let Self { key, store, write_timeout, certificates } = self;
        let journal = Journal::new(store)?;
        Ok(Arc::new(Service {
            key,
            journal,
            claims,
            request_slots: Semaphore::new(MAX_REQUESTS),
            write_timeout,
            certificates,
        }))
    }
}

/// The service that answers the readers of a sink.
#[derive(Debug)]
struct Service {
    key: ReadKey,
    journal: Journal,
    claims: Arc<dyn ClaimChecks>,
    request_slots: Semaphore,
    /// How long a reader may take for [`PIECE`] bytes.
    write_timeout: Duration,
    certificates: ClientCertificates,
}

impl PortService for Service {
    fn alpn(&self) -> &'static [u8] {
        ALPN
    }

    fn certificates(&self) -> ClientCertificates {
        self.certificates
    }

    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()> {
        async move { self.serve_requests(&connection).await }.boxed()
    }
}

impl Service {
    /// Answer requests as long as the connection lives.
    async fn serve_requests(self: &Arc<Self>, connection: &Connection) {
        let peer = connection.remote_address();
        let authenticated = Arc::new(AtomicBool::new(false));
        let first = timeout(REQUEST_TIMEOUT, connection.accept_bi()).await;
        let Ok(Ok((send, receive))) = first else {
            connection.close(VarInt::from_u32(CODE_KEY), b"no read key was received");
            return;
        };
        self.answer(connection, &authenticated, send, receive).await;
        if !authenticated.load(Ordering::Acquire) {
            tracing::warn!(%peer, "refused a reader without the read key");
            return;
        }
        tracing::info!(%peer, "a reader has connected to the sink");
        loop {
            let (send, receive) = match timeout(IDLE_TIMEOUT, connection.accept_bi()).await {
                Ok(Ok(request)) => request,
                Ok(Err(_)) => return,
                // An answer may take longer than the idle timeout.
                Err(_) if Arc::strong_count(&authenticated) > 1 => continue,
                Err(_) => return connection.close(VarInt::from_u32(0), b"no request for 15 minutes"),
            };
            let (service, connection, authenticated) =
                (Arc::clone(self), connection.clone(), Arc::clone(&authenticated));
            tokio::spawn(async move { service.answer(&connection, &authenticated, send, receive).await });
        }
    }

    async fn answer(
        self: &Arc<Self>,
        connection: &Connection,
        authenticated: &AtomicBool,
        mut send: SendStream,
        mut receive: RecvStream,
    ) {
        let request = match timeout(REQUEST_TIMEOUT, receive.read_to_end(MAX_REQUEST)).await {
            Ok(Ok(bytes)) => serde_json::from_slice::<Request>(&bytes).map_err(|error| format!("no request: {error}")),
            Ok(Err(quinn::ReadToEndError::TooLong)) => Err(format!("a request has at most {MAX_REQUEST} bytes")),
            Ok(Err(quinn::ReadToEndError::Read(_))) => return,
            Err(_) => Err("the request took too long".to_owned()),
        };
        let known = authenticated.load(Ordering::Acquire);
        match request {
            Ok(Request::Hello { key }) if self.key.matches(&key) => {
                authenticated.store(true, Ordering::Release);
                reply(send, json(&Welcome { version: 1 }), self.write_timeout).await;
            }
            // A reader without the key learns nothing, not even what was wrong with the request.
            Ok(_) | Err(_) if !known => {
                connection.close(VarInt::from_u32(CODE_KEY), b"the read key is wrong");
            }
            Ok(Request::Rows { session, start, end, bytes, rows, content, max_content }) => {
                let limits =
                    BatchLimits { bytes: bytes.min(MAX_BYTES), rows: rows.min(MAX_ROWS), content, max_content };
                let Ok(_slot) = self.request_slots.acquire().await else { return };
                if let Err(error) = self.rows(&mut send, session, start, end, limits).await {
                    refuse(send, &error.to_string(), self.write_timeout).await;
                }
            }
            Ok(request) => {
                let Ok(_slot) = self.request_slots.acquire().await else { return };
                match self.execute(request).await {
                    Ok(answer) => reply(send, answer, self.write_timeout).await,
                    Err(error) => refuse(send, &error.to_string(), self.write_timeout).await,
                }
            }
            Err(problem) => refuse(send, &problem, self.write_timeout).await,
        }
    }

    async fn execute(self: &Arc<Self>, request: Request) -> Answered<Vec<u8>> {
        let service = Arc::clone(self);
        blocking(move || match request {
            Request::Sessions { after, max } => Ok(json(&service.journal.follow(after, max.min(MAX_ITEMS))?)),
            Request::Claims { expires, claim, max } => Ok(json(&service.claims((expires, claim), max)?)),
            Request::Plan { session, start, bytes, rows, pieces } => {
                let limits = PlanLimits { bytes, rows, pieces: pieces.clamp(1, MAX_ITEMS) };
                let session = service.closed_session(&session)?;
                let planned = plan(&**service.journal.store(), &session, start, limits)?;
                let pieces = planned.pieces.into_iter().map(Into::into).collect();
                Ok(json(&PlanResponse { pieces, next: planned.next }))
            }
            Request::Hello { .. } | Request::Rows { .. } => Err(Refusal::Answered),
        })
        .await
    }

    fn claims(&self, after: (u64, u64), max: usize) -> Result<ClaimsResponse> {
        let max = max.clamp(1, MAX_ITEMS);
        let mut rows = Arc::clone(&self.claims).page(after, max.saturating_add(1))?;
        let mut room = MAX_CLAIMS;
        let fitting = rows.iter().take(max).take_while(|row| {
            let fits = room > 0;
            room = room.saturating_sub(row.weight());
            fits
        });
        let count = fitting.count();
        let more = count < rows.len();
        rows.truncate(count);
        Ok(ClaimsResponse { claims: rows.into_iter().map(Into::into).collect(), more })
    }

    /// Return a session of the journal; readers see nothing else in the sink.
    fn closed_session(&self, session: &str) -> Answered<Arc<ClosedSession>> {
        if let Some(found) = self.journal.session(session) {
            return Ok(found);
        }
        // A server that was restarted has not read the journal yet.
        self.journal.follow(0, 0)?;
        self.journal.session(session).ok_or_else(|| Refusal::UnknownSession(session.to_owned()))
    }

    /// Send rows. Return an error only if nothing was sent yet.
    async fn rows(
        self: &Arc<Self>,
        send: &mut SendStream,
        session: String,
        start: u64,
        end: u64,
        limits: BatchLimits,
    ) -> Answered<()> {
        let service = Arc::clone(self);
        let (head, mut rest, first) = blocking(move || {
            service.closed_session(&session)?;
            let selected = select(&**service.journal.store(), &session, start, end, limits)?;
            let BatchSelection { lines, sizes, ranges, next } = selected;
            let head = json(&RowsHead { lines: lines.len() as u64, sizes, next });
            let length = u32::try_from(head.len()).map_err(|_| Refusal::RowCount)?;
            let bytes = [&[DONE], length.to_be_bytes().as_slice(), &head, &lines].concat();
            let mut rest = groups(ranges).into_iter();
            let first = rest.next().map_or(Ok(Vec::new()), |ranges| read(&**service.journal.store(), &ranges))?;
            Ok::<_, Refusal>((bytes, rest, first))
        })
        .await?;
        let mut next = Some(first);
        let mut sent = write(send, head.into(), self.write_timeout).await;
        while let (true, Some(bytes)) = (sent, next.take()) {
            let reading = rest.next().map(|ranges| self.read_ahead(ranges));
            sent = write(send, bytes.into(), self.write_timeout).await;
            next = match reading {
                None => None,
                Some(reading) => match reading.await {
                    Ok(Ok(bytes)) => Some(bytes),
                    Ok(Err(error)) => {
                        tracing::error!(%error, "cannot read a payload: the response to a reader is incomplete");
                        sent = false;
                        let _ = send.reset(VarInt::from_u32(CODE_BROKEN));
                        None
                    }
                    Err(_) => None,
                },
            };
        }
        if sent {
            let _ = send.finish();
        }
        Ok(())
    }

    fn read_ahead(self: &Arc<Self>, ranges: Vec<PayloadRange>) -> JoinHandle<Result<Vec<u8>>> {
        let service = Arc::clone(self);
        spawn_blocking(move || read(&**service.journal.store(), &ranges))
    }
}

fn read(store: &dyn Store, ranges: &[PayloadRange]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    store.read_payloads(ranges, &mut bytes)?;
    Ok(bytes)
}

/// Divide the wanted payloads into groups of at most [`PIECE`] bytes.
fn groups(ranges: Vec<PayloadRange>) -> Vec<Vec<PayloadRange>> {
    let mut groups: Vec<Vec<PayloadRange>> = Vec::new();
    let mut room = 0;
    for PayloadRange { file, mut offset, length } in ranges {
        let end = offset + length;
        loop {
            if room == 0 {
                groups.push(Vec::new());
                room = PIECE;
            }
            let taken = room.min(end - offset);
            if let Some(group) = groups.last_mut() {
                group.push(PayloadRange { file: file.clone(), offset, length: taken });
            }
            offset += taken;
            room -= taken;
            if offset == end {
                break;
            }
        }
    }
    groups
}

fn json(answer: &impl Serialize) -> Vec<u8> {
    // Every key is a string and writing to a Vec does not fail, so this does not fail.
    serde_json::to_vec(answer).unwrap_or_default()
}

/// Send bytes; return false if the reader is gone or takes too long.
async fn write(send: &mut SendStream, bytes: Bytes, write_timeout: Duration) -> bool {
    let mut bytes = bytes;
    while !bytes.is_empty() {
        let piece = bytes.split_to(bytes.len().min(PIECE as usize));
        match timeout(write_timeout, send.write_chunk(piece)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return false,
            Err(_) => {
                let _ = send.reset(VarInt::from_u32(CODE_SLOW));
                return false;
            }
        }
    }
    true
}

async fn reply(mut send: SendStream, answer: Vec<u8>, write_timeout: Duration) {
    let answer = [&[DONE], answer.as_slice()].concat();
    if write(&mut send, answer.into(), write_timeout).await {
        let _ = send.finish();
    }
}

async fn refuse(mut send: SendStream, problem: &str, write_timeout: Duration) {
    if write(&mut send, [&[REFUSED], problem.as_bytes()].concat().into(), write_timeout).await {
        let _ = send.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_payloads_are_divided_and_small_ones_put_together() {
        let part = |length| PayloadRange { file: "ab/0/1".into(), offset: 0, length };
        let divided = groups(vec![part(PIECE / 2), part(0), part(2 * PIECE), part(10)]);
        let lengths: Vec<Vec<_>> =
            divided.iter().map(|group| group.iter().map(|part| (part.offset, part.length)).collect()).collect();
        let half = PIECE / 2;
        assert_eq!(
            lengths,
            [vec![(0, half), (0, 0), (0, half)], vec![(half, PIECE)], vec![(half + PIECE, half), (0, 10)]]
        );
    }
}
