//! The transfer of one entity's payload into the store.
//!
//! ```text
//!  in memory ────────────► verified ► put
//!  a stream, up to PART ─► spool ► verified ► put
//!  a longer stream ──────► spool of PART ► upload of a part ─┐ … the whole is verified, then the upload is
//!             ▲ the next part arrives meanwhile ─────────────┘ completed, which makes the payload visible
//! ```
//!
//! A spool stays in memory up to 1 MiB and is a temporary file beyond that. Streams share the
//! window of their connection, so no stream may wait for memory before it is read.

use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload, path::Path};
use penstock_io::storage::plain;
use penstock_pipestream::{self as core, ErrorCode, Reason, reference::MAX_MESSAGE};
use penstock_pipestream_net::port::{Attempt, Body, IncomingEntity, Parts, Spool, StreamBody, StreamEnd};
use tempfile::SpooledTempFile;
use tokio::task::{JoinSet, spawn_blocking};

use crate::format::encode::PayloadProperties;
use crate::format::names::payload_names;
use crate::objects::handle::ObjectSession;
use crate::objects::session::Message;
use crate::references::{Check, Object, ReferenceFields, referring};

/// Size up to which a payload is put in one request, and size of the parts of larger ones. Every
/// store accepts it.
const PART: u64 = 8 << 20;
/// S3's maximum number of parts of an upload; a payload beyond 80 GB therefore has larger parts.
const MAX_PARTS: u64 = 10_000;
/// Maximum number of concurrent parts of one upload.
const CONCURRENT_PARTS: usize = 2;
/// Number of bytes that a payload's spool holds in memory before it becomes a temporary file.
const IN_MEMORY: usize = 1 << 20;

/// The reason why a payload is not in the store.
enum Failure {
    /// The payload does not match its header.
    Invalid(core::Error),
    /// The store or the disk failed.
    Store(String),
    /// The payload's stream ended early.
    Ended(StreamEnd),
}

impl From<core::Error> for Failure {
    fn from(error: core::Error) -> Self {
        Self::Invalid(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Store(error.to_string())
    }
}

impl From<object_store::Error> for Failure {
    fn from(error: object_store::Error) -> Self {
        Self::Store(plain(&error))
    }
}

/// Receive an entity: verify and store its payload, then notify the session.
pub(super) async fn receive(session: ObjectSession, entity: IncomingEntity) {
    let length = entity.header().payload_length;
    let referring = referring(entity.header());
    let Some(Parts { attempt, dehydrated, body, check, permit }) = entity.into_parts() else { return };
    let (scope, mut name) = payload_names(attempt.key);
    if attempt.voids() > 0 {
        // The object of an earlier attempt may be removed at any time.
        name = format!("{name}-{}", attempt.voids() + 1);
    }
    let file = format!("{}/{scope}/{name}", session.name);
    let path = session.shared.place.path(&file);
    let mut job = Job { session, attempt, path, length, check: Some(Check::Payload(check)), seen: 0 };
    let mut body = Source::from(body);
    let referred = match referring {
        Some(allowed) => job.refer(&mut body, allowed, &file).await.map(Some),
        None => Ok(None),
    };
    let stored = match referred {
        Ok(reference) => {
            let stored = job.store(&mut body, dehydrated).await;
            if !matches!(stored, Ok((_, true))) {
                job.remove_message(reference.as_deref(), &file).await;
            }
            let bytes = job.seen;
            stored.map(|(sha256, exists)| PayloadProperties { file: exists.then_some(file), bytes, sha256, reference })
        }
        Err(failure) => Err(failure),
    };
    job.conclude(stored, &mut body).await;
    drop(permit);
}

/// A source of a payload's bytes.
enum Source {
    Whole(Option<Bytes>),
    Spooled { spool: Arc<Spool>, offset: u64 },
    Stream(Box<StreamBody>),
    Object(Object),
}

impl From<Body> for Source {
    fn from(body: Body) -> Self {
        match body {
            Body::Whole(bytes) => Self::Whole(Some(bytes)),
            Body::Spooled(spool) => Self::Spooled { spool, offset: 0 },
            Body::Stream(stream) => Self::Stream(stream),
        }
    }
}

impl Source {
    /// Return the next bytes, at least one; return no pieces at the end.
    async fn next(&mut self) -> Result<Vec<Bytes>, Failure> {
        match self {
            Self::Whole(bytes) => Ok(bytes.take().filter(|bytes| !bytes.is_empty()).into_iter().collect()),
            Self::Spooled { spool, offset } => {
                let (from, at) = (Arc::clone(spool), *offset);
                let read = spawn_blocking(move || from.read(IN_MEMORY, at)).await.map_err(io::Error::other)?;
                let piece = read?;
                *offset = offset.saturating_add(piece.len() as u64);
                Ok(if piece.is_empty() { Vec::new() } else { vec![piece] })
            }
            Self::Stream(stream) => match stream.next().await {
                Ok(pieces) => Ok(pieces.unwrap_or_default().into()),
                Err(end) => Err(Failure::Ended(end)),
            },
            Self::Object(object) => Ok(object.next().await?.into_iter().collect()),
        }
    }
}

/// The transfer of one entity's payload.
struct Job {
    session: ObjectSession,
    attempt: Attempt,
    path: Path,
    /// The payload's length: that in its header, or that of the object to which it refers.
    length: u64,
    check: Option<Check>,
    seen: u64,
}

impl Job {
    /// Read and verify the message of an entity that refers to an object. Then set `body` to the
    /// message again, or to the object; in that case, store the message next to it. `allowed` is
    /// the result of the check of the header.
    async fn refer(
        &mut self,
        body: &mut Source,
        allowed: core::Result<()>,
        file: &str,
    ) -> Result<Arc<ReferenceFields>, Failure> {
        let too_long = || core::Error::from(core::LimitError::ReferencePayload);
        if self.length > MAX_MESSAGE as u64 {
            return Err(too_long().into());
        }
        let mut message = Vec::new();
        loop {
            let pieces = body.next().await?;
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                if let Some(check) = &mut self.check {
                    check.update(&piece)?;
                }
                message.extend_from_slice(&piece);
            }
        }
        self.verify()?;
        allowed?;
        let message = Bytes::from(message);
        let (referred, object) = self.session.shared.references.take(message.clone()).await?;
        match object {
            Some(object) => {
                if let Some((message_name, message)) = referred.message_file(file) {
                    let path = self.session.shared.place.path(&message_name);
                    self.store_of().put(&path, message.into()).await?;
                }
                (self.length, self.check) = (object.len(), Some(object.check()));
                *body = Source::Object(object);
            }
            None => {
                self.check = Some(Check::kept(&message));
                *body = Source::Whole(Some(message));
            }
        }
        Ok(Arc::new(referred))
    }

    /// Remove the message that lies next to `file`, because there is no such file.
    async fn remove_message(&self, reference: Option<&ReferenceFields>, file: &str) {
        let Some((message, _)) = reference.and_then(|referred| referred.message_file(file)) else { return };
        if let Err(error) = self.store_of().delete(&self.session.shared.place.path(&message)).await {
            tracing::warn!(
                file = message,
                error = plain(&error),
                "cannot remove the message of an object that is not stored"
            );
        }
    }

    /// Store the payload. Return its digest, and whether it has an object: a container without
    /// bytes has none.
    async fn store(&mut self, body: &mut Source, dehydrated: bool) -> Result<([u8; 32], bool), Failure> {
        let part = PART.max(self.length.div_ceil(MAX_PARTS));
        let mut spool = Part::new();
        if self.length > part {
            return Ok((self.store_large(body, spool, part).await?, true));
        }
        while self.fill(body, &mut spool, u64::MAX).await? {}
        let sha256 = self.verify()?;
        if self.seen == 0 && dehydrated {
            return Ok((sha256, false));
        }
        let _permit = self.session.shared.admit(spool.len()).await;
        self.store_of().put(&self.path, spool.take()?).await?;
        Ok((sha256, true))
    }

    async fn store_large(&mut self, body: &mut Source, mut spool: Part, size: u64) -> Result<[u8; 32], Failure> {
        let mut upload = self.store_of().put_multipart(&self.path).await?;
        let sent = self.send_parts(body, &mut spool, size, upload.as_mut()).await;
        let sent = match sent {
            Ok(sha256) => upload.complete().await.map(|_| sha256).map_err(Failure::from),
            Err(failure) => Err(failure),
        };
        if sent.is_err()
            && let Err(error) = upload.abort().await
        {
            tracing::warn!(path = %self.path, error = plain(&error), "cannot abort a failed upload: its parts remain in the store");
        }
        sent
    }

    async fn send_parts(
        &mut self,
        body: &mut Source,
        spool: &mut Part,
        size: u64,
        upload: &mut dyn MultipartUpload,
    ) -> Result<[u8; 32], Failure> {
        let mut sending = JoinSet::new();
        loop {
            let more = self.fill(body, spool, size).await?;
            if more && spool.len() as u64 != size {
                continue;
            }
            let sha256 = if more { None } else { Some(self.verify()?) };
            while sending.len() >= CONCURRENT_PARTS {
                joined(&mut sending).await?;
            }
            if spool.len() > 0 {
                let part = self.part(spool, upload).await?;
                sending.spawn(part);
            }
            if let Some(sha256) = sha256 {
                while !sending.is_empty() {
                    joined(&mut sending).await?;
                }
                return Ok(sha256);
            }
        }
    }

    /// Return the request that sends a part. It counts against the limit of concurrent requests
    /// until it is answered.
    async fn part(&self, spool: &mut Part, upload: &mut dyn MultipartUpload) -> Result<PartRequest, Failure> {
        let permit = self.session.shared.admit(spool.len()).await;
        let part = upload.put_part(spool.take()?);
        Ok(Box::pin(async move {
            let _permit = permit;
            part.await
        }))
    }

    /// Add the next bytes to the spool, up to `size` in total; keep the rest for the next part.
    /// Return false at the end.
    async fn fill(&mut self, body: &mut Source, spool: &mut Part, size: u64) -> Result<bool, Failure> {
        if spool.rest.is_empty() {
            spool.rest = body.next().await?;
            spool.rest.reverse();
            if spool.rest.is_empty() {
                return Ok(false);
            }
            for piece in spool.rest.iter().rev() {
                if let Some(check) = &mut self.check {
                    check.update(piece)?;
                }
                self.seen = self.seen.saturating_add(piece.len() as u64);
            }
        }
        while let Some(mut piece) = spool.rest.pop() {
            let room = size.saturating_sub(spool.len() as u64);
            let taken = piece.split_to(piece.len().min(usize::try_from(room).unwrap_or(usize::MAX)));
            spool.write(&taken)?;
            if !piece.is_empty() {
                spool.rest.push(piece);
                break;
            }
        }
        Ok(true)
    }

    fn verify(&mut self) -> Result<[u8; 32], Failure> {
        let check = self.check.take().ok_or_else(|| core::Error::from(core::Misuse::VerifiedTwice))?;
        Ok(check.finish()?)
    }

    fn store_of(&self) -> Arc<dyn object_store::ObjectStore> {
        Arc::clone(self.session.shared.place.store())
    }

    async fn conclude(self, stored: Result<PayloadProperties, Failure>, body: &mut Source) {
        let Self { session, attempt, .. } = self;
        let reason = match stored {
            Ok(stored) => {
                session.control.count(stored.bytes);
                session.send(Message::Stored { attempt, stored });
                return;
            }
            Err(Failure::Ended(StreamEnd::Reset(code))) => {
                if let Source::Stream(stream) = body {
                    session.control.stream_reset(stream.name(), attempt, code).await;
                }
                return;
            }
            Err(Failure::Ended(StreamEnd::Stopped(_) | StreamEnd::Lost)) => return,
            Err(Failure::Invalid(error)) => Reason { code: error.code(), message: error.message() },
            Err(Failure::Store(error)) => {
                session.shared.counters.failed(&io::Error::other(error.as_str()));
                Reason { code: ErrorCode::InternalError, message: format!("the sink cannot store it: {error}") }
            }
        };
        if let Source::Stream(stream) = body {
            stream.stop(reason.code);
        }
        // The sink writes the entity's line when the session reports FAILED.
        session.control.fail(attempt, reason);
    }
}

type PartRequest = BoxFuture<'static, object_store::Result<()>>;

async fn joined(sending: &mut JoinSet<object_store::Result<()>>) -> Result<(), Failure> {
    match sending.join_next().await {
        Some(Ok(sent)) => Ok(sent?),
        Some(Err(error)) => Err(io::Error::other(error).into()),
        None => Ok(()),
    }
}

/// The bytes of a payload that are collected into one request.
struct Part {
    spool: SpooledTempFile,
    length: usize,
    /// Pieces that did not fit, already counted in the checksum; the next one is the last element.
    rest: Vec<Bytes>,
}

impl Part {
    fn new() -> Self {
        Self { spool: SpooledTempFile::new(IN_MEMORY), length: 0, rest: Vec::new() }
    }

    fn len(&self) -> usize {
        self.length
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.spool.write_all(bytes)?;
        self.length = self.length.saturating_add(bytes.len());
        Ok(())
    }

    /// Return all bytes in memory, and empty the spool.
    fn take(&mut self) -> io::Result<PutPayload> {
        let mut spool = std::mem::replace(&mut self.spool, SpooledTempFile::new(IN_MEMORY));
        let mut bytes = Vec::with_capacity(std::mem::take(&mut self.length));
        spool.seek(SeekFrom::Start(0))?;
        spool.read_to_end(&mut bytes)?;
        Ok(bytes.into())
    }
}
