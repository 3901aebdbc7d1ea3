use std::collections::VecDeque;
use std::fs::File;
use std::future::pending;
use std::io::{self, Write as _};

use bytes::Bytes;
use penstock_pipestream::{self as core, ErrorCode, Reason};
use penstock_pipestream_net::port::{Attempt, Body, IncomingEntity, Parts, Spool, StreamBody, StreamEnd, TempFile};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::folder::disk::Step;
use crate::folder::session::FolderSession;
use crate::folder::stored::StoredPayload;
use crate::references::{Check, referring};

/// Size above which the worker that writes a file also makes it durable, so that no batch waits for
/// it.
const SYNC_ALONE: u64 = 1 << 20;
const READ_SIZE: usize = 128 << 10;

/// Start to store an entity. Runs on the IO thread; hashing and writing happen elsewhere.
pub(super) fn start(session: FolderSession, entity: IncomingEntity) {
    let referring = referring(entity.header());
    let Some(Parts { attempt, dehydrated, body, check, permit }) = entity.into_parts() else { return };
    let job = Job { session, attempt, dehydrated, check: Some(Check::Payload(check)), written: 0, target: None };
    if let Some(allowed) = referring {
        drop(tokio::spawn(async move {
            let _permit = permit;
            job.store_reference(body, allowed).await;
        }));
        return;
    }
    match body {
        Body::Whole(bytes) => drop(spawn_blocking(move || {
            let _permit = permit;
            job.store_whole(&bytes);
        })),
        Body::Spooled(spool) => drop(spawn_blocking(move || {
            let _permit = permit;
            job.store_spooled(&spool);
        })),
        Body::Stream(stream) => drop(tokio::spawn(async move {
            let _permit = permit;
            job.store_stream(*stream).await;
        })),
    }
}

/// The reason why a payload was not stored.
pub(super) enum Failure {
    /// The payload does not match its header, or the object that it refers to cannot be accepted.
    Invalid(core::Error),
    /// The disk failed.
    Disk(io::Error),
}

impl From<core::Error> for Failure {
    fn from(error: core::Error) -> Self {
        Self::Invalid(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

impl Failure {
    fn reason(self) -> Reason {
        match self {
            Self::Invalid(error) => Reason { code: error.code(), message: error.message() },
            Self::Disk(error) => {
                Reason { code: ErrorCode::InternalError, message: format!("the sink cannot store it: {error}") }
            }
        }
    }
}

impl FolderSession {
    /// Report a failure to the session, whose FAILED event adds the line.
    pub(super) fn fail(&self, attempt: Attempt, failure: Failure) {
        self.count(&failure);
        self.control.fail(attempt, failure.reason());
    }

    /// Count a failure of the disk.
    fn count(&self, failure: &Failure) {
        if let Failure::Disk(error) = failure {
            self.guard.shared.counters.failed(error);
        }
    }
}

/// The transfer of an entity's payload to its temporary file. Dropping it removes the file.
pub(super) struct Job {
    pub(super) session: FolderSession,
    pub(super) attempt: Attempt,
    dehydrated: bool,
    pub(super) check: Option<Check>,
    written: u64,
    target: Option<(File, TempFile)>,
}

impl Job {
    fn store_whole(mut self, bytes: &Bytes) {
        let stored = self.write([bytes.clone()].into()).and_then(|()| self.finish());
        self.conclude(stored);
    }

    /// Verify a payload that was assembled from chunks in a spool.
    fn store_spooled(mut self, spool: &Spool) {
        let checked = self.check_spooled(spool).and_then(|()| self.verify()).and_then(|sha256| {
            spool.file().sync_data()?;
            Ok(StoredPayload { temp: spool.take_temp(), bytes: self.written, sha256, synced: true, reference: None })
        });
        self.conclude(checked);
    }

    fn check_spooled(&mut self, spool: &Spool) -> Result<(), Failure> {
        loop {
            let piece = spool.read(READ_SIZE, self.written)?;
            if piece.is_empty() {
                return Ok(());
            }
            self.update(&piece)?;
        }
    }

    /// Read the stream while a worker hashes and writes the bytes before.
    async fn store_stream(self, mut stream: StreamBody) {
        let (session, attempt) = (self.session.clone(), self.attempt);
        let mut idle = Some(self);
        let mut worker: Option<JoinHandle<Result<Self, Failure>>> = None;
        let mut next = None;
        loop {
            tokio::select! {
                biased;
                done = finished(&mut worker) => match done {
                    Ok(job) => idle = Some(job),
                    Err(failure) => {
                        session.count(&failure);
                        let reason = failure.reason();
                        stream.stop(reason.code);
                        session.control.fail(attempt, reason);
                        return;
                    }
                },
                read = stream.next(), if next.is_none() => next = Some(read),
            }
            let (Some(mut job), Some(read)) = (idle.take_if(|_| next.is_some()), next.take_if(|_| worker.is_none()))
            else {
                continue;
            };
            match read {
                Ok(Some(pieces)) => worker = Some(spawn_blocking(move || job.write(pieces).map(|()| job))),
                Ok(None) => {
                    drop(spawn_blocking(move || {
                        let stored = job.finish();
                        job.conclude(stored);
                    }));
                    return;
                }
                Err(StreamEnd::Reset(code)) => {
                    session.control.stream_reset(stream.name(), attempt, code).await;
                    return;
                }
                Err(StreamEnd::Stopped(_) | StreamEnd::Lost) => return,
            }
        }
    }

    fn update(&mut self, piece: &Bytes) -> Result<(), Failure> {
        if let Some(check) = &mut self.check {
            check.update(piece)?;
        }
        self.written = self.written.saturating_add(piece.len() as u64);
        Ok(())
    }

    pub(super) fn write(&mut self, pieces: VecDeque<Bytes>) -> Result<(), Failure> {
        for piece in pieces {
            self.update(&piece)?;
            if !piece.is_empty() {
                let session = &self.session;
                let (file, temp) = match &mut self.target {
                    Some(target) => target,
                    None => self.target.insert(session.create(self.attempt)?),
                };
                session.guard.shared.faults.check(Step::Write, temp.path())?;
                file.write_all(&piece)?;
            }
        }
        Ok(())
    }

    pub(super) fn verify(&mut self) -> Result<[u8; 32], Failure> {
        let check = self.check.take().ok_or_else(|| core::Error::from(core::Misuse::VerifiedTwice))?;
        Ok(check.finish()?)
    }

    pub(super) fn finish(&mut self) -> Result<StoredPayload, Failure> {
        let sha256 = self.verify()?;
        // A leaf without bytes gets an empty file; a container without bytes gets none.
        if self.target.is_none() && !self.dehydrated {
            self.target = Some(self.session.create(self.attempt)?);
        }
        let mut synced = true;
        let temp = match self.target.take() {
            None => None,
            Some((file, temp)) => {
                synced = self.written > SYNC_ALONE;
                if synced {
                    file.sync_data()?;
                }
                Some(temp)
            }
        };
        Ok(StoredPayload { temp, bytes: self.written, sha256, synced, reference: None })
    }

    fn conclude(self, stored: Result<StoredPayload, Failure>) {
        match stored {
            Ok(stored) => self.session.stored(self.attempt, stored),
            Err(failure) => self.session.fail(self.attempt, failure),
        }
    }
}

/// Wait for the worker and take the job back from it; without a worker, wait forever.
async fn finished(worker: &mut Option<JoinHandle<Result<Job, Failure>>>) -> Result<Job, Failure> {
    let done = match worker {
        Some(worker) => worker.await,
        None => pending().await,
    };
    *worker = None;
    done.unwrap_or_else(|error| Err(Failure::Disk(io::Error::other(error))))
}
