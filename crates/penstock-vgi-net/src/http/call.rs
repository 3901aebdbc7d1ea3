//! A call at a server over HTTP: its caller is authenticated, then a method answers. The request
//! comes from our own server or from the application's web server.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use arrow_schema::SchemaRef;
use penstock_io::sync::lock;
use penstock_vgi::http::{Call, Headers, Kind, Pending, Request, RequestStart, Response, Service, UploadUrl};
use penstock_vgi::{Batch, Failure, Identity};

use super::now;
use super::queue::{Caller, Progress, Verdict, Waiting};
use crate::counters::Counters;
use crate::error::unknown_method;
use crate::external::External;
use crate::{Check, Misuse, Result};

/// The parts of a request by which the application authenticates its caller.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// The HTTP method.
    pub method: String,
    /// The decoded path.
    pub path: String,
    /// The query of the URL.
    pub query: String,
    /// The headers.
    pub headers: Headers,
    /// The caller's address.
    pub remote: String,
}

impl RequestHead {
    fn new(request: &Request, query: String, remote: String) -> Self {
        let Request { method, path, headers, .. } = request;
        Self { method: method.clone(), path: path.clone(), query, headers: headers.clone(), remote }
    }
}

/// The stage of a call.
///
/// ```text
///  Pending ── authenticated ─▶ Called ── reply, fail, finish ─▶ Done
///     └── unauthorized, error, admit ───────────────────────────▲
/// ```
enum Stage {
    /// The caller is not authenticated yet.
    Pending(Box<Pending>),
    /// A method must answer the call.
    Called(Box<Call>),
    /// The response until it is taken; `None` once our own server has the response or the call.
    Done(Option<Response>),
}

type VerdictSender = Box<dyn FnOnce(Verdict) + Send>;

/// The destination of a call's response.
///
/// ```text
///  Head, Whole ── admit, or a response ─▶ Informed          WebServer: stays
/// ```
enum Destination {
    /// The application's web server, which takes the response from the call, and passes the body
    /// later.
    WebServer,
    /// Our own server, which has only read the head.
    Head(VerdictSender),
    /// Our own server, which has read the body as well.
    Whole(VerdictSender),
    /// Our own server, which already has the verdict.
    Informed,
}

/// A request, from authentication to its response.
pub struct HttpCall {
    head: RequestHead,
    stage: Mutex<Stage>,
    destination: Mutex<Destination>,
    counters: Arc<Counters>,
    external: Option<Arc<External>>,
}

impl fmt::Debug for HttpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCall").field("head", &self.head).finish_non_exhaustive()
    }
}

impl HttpCall {
    /// Begin a request from the application's web server, with a decoded path. Pass its body to
    /// [`receive`](Self::receive).
    pub fn begin(
        service: &Arc<Service>,
        request: Request,
        query: String,
        remote: String,
        counters: Arc<Counters>,
        external: Option<Arc<External>>,
    ) -> Self {
        let head = RequestHead::new(&request, query, remote);
        let stage = match service.begin(request) {
            RequestStart::Done(response) => {
                counters.answered(&head.method, response.status);
                Stage::Done(Some(response))
            }
            RequestStart::Call(pending) => Stage::Pending(pending),
        };
        let (stage, destination) = (Mutex::new(stage), Mutex::new(Destination::WebServer));
        Self { head, stage, destination, counters, external }
    }

    /// Take a call from the queue of our own server. If it comes back with its body, also return
    /// the `caller` that was passed to [`admit`](Self::admit).
    pub fn take(waiting: Waiting, counters: Arc<Counters>, external: Option<Arc<External>>) -> (Self, Option<Caller>) {
        let head = RequestHead::new(waiting.pending.request(), waiting.query.clone(), waiting.remote.clone());
        let (pending, progress, verdict) = waiting.into_parts();
        let verdict = Box::new(verdict);
        let (destination, caller) = match progress {
            Progress::Head => (Destination::Head(verdict), None),
            Progress::Whole => (Destination::Whole(verdict), None),
            Progress::Admitted(caller) => (Destination::Whole(verdict), Some(caller)),
        };
        let (stage, destination) = (Mutex::new(Stage::Pending(pending)), Mutex::new(destination));
        (Self { head, stage, destination, counters, external }, caller)
    }

    /// Return the head of the request.
    pub const fn head(&self) -> &RequestHead {
        &self.head
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        lock(&self.stage)
    }

    /// Return whether the call was answered.
    pub fn is_done(&self) -> bool {
        match &*self.stage() {
            Stage::Pending(_) | Stage::Called(_) => false,
            Stage::Done(_) => true,
        }
    }

    /// Pass the response on to its destination.
    fn respond(&self, stage: &mut Stage, response: Response) {
        let mut destination = lock(&self.destination);
        match std::mem::replace(&mut *destination, Destination::Informed) {
            Destination::Head(verdict) | Destination::Whole(verdict) => {
                // The call and its body are dropped first, because sending the verdict frees the
                // memory that they use.
                *stage = Stage::Done(None);
                verdict(Verdict::Answered(response));
            }
            other @ (Destination::WebServer | Destination::Informed) => {
                *destination = other;
                *stage = Stage::Done(Some(response));
            }
        }
    }

    /// Take the request of a caller who is not authenticated yet; meanwhile the stage is
    /// [`Stage::Done`].
    fn take_pending(&self, otherwise: Misuse) -> Result<Box<Pending>> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Done(None)) {
            Stage::Pending(pending) => Ok(pending),
            other @ (Stage::Called(_) | Stage::Done(_)) => {
                *stage = other;
                Err(otherwise.into())
            }
        }
    }

    /// Answer a request without a method, and count an error as a refusal.
    fn refuse(&self, response: Response) {
        // The description is answered without a method, but is not refused.
        if response.status >= 400 {
            self.counters.refused();
        }
        self.respond(&mut self.stage(), response);
    }

    /// Admit a caller whose body was not read yet: our own server reads it, and queues the call
    /// again with the body and `caller`. Return `false` if the body is already present, or comes
    /// through [`receive`](Self::receive).
    pub fn admit(&self, caller: Caller) -> bool {
        let mut stage = self.stage();
        let mut destination = lock(&self.destination);
        let verdict = match std::mem::replace(&mut *destination, Destination::Informed) {
            Destination::Head(verdict) => verdict,
            other @ (Destination::WebServer | Destination::Whole(_) | Destination::Informed) => {
                *destination = other;
                return false;
            }
        };
        match std::mem::replace(&mut *stage, Stage::Done(None)) {
            Stage::Pending(pending) if !pending.wants_page() => {
                verdict(Verdict::Admitted(pending, caller));
                true
            }
            other @ (Stage::Pending(_) | Stage::Called(_) | Stage::Done(_)) => {
                *destination = Destination::Head(verdict);
                *stage = other;
                false
            }
        }
    }

    /// Take the body of a web server's request. Answer the call if the body is too large.
    pub fn receive(&self, body: Vec<u8>) -> Result<()> {
        match self.take_pending(Misuse::HasBody)?.receive(body) {
            Ok(pending) => *self.stage() = Stage::Pending(pending),
            Err(response) => self.refuse(response),
        }
        Ok(())
    }

    /// Run `look` on the request of a caller who is not authenticated yet; return `None`
    /// afterwards.
    pub fn pending<T>(&self, look: impl FnOnce(&Pending) -> T) -> Option<T> {
        match &*self.stage() {
            Stage::Pending(pending) => Some(look(pending)),
            Stage::Called(_) | Stage::Done(_) => None,
        }
    }

    /// Answer, without a method, a request whose caller is not authenticated.
    pub fn answer(&self, make: impl FnOnce(Box<Pending>) -> Response) -> Result<()> {
        self.refuse(make(self.take_pending(Misuse::Authenticated)?));
        Ok(())
    }

    /// Set the authenticated caller. Answer the request at once if it is invalid, or if its
    /// external values cannot be fetched.
    pub fn authenticated(&self, identity: Identity, check: Check<'_>) -> Result<()> {
        let mut pending = self.take_pending(Misuse::Authenticated)?;
        if let Some(external) = &self.external
            && let Some(pointer) = pending.pointer(&identity, now()).cloned()
        {
            match external.fetch(pointer, check) {
                Ok(Ok(batch)) => pending.resolved(batch),
                Ok(Err(failure)) => {
                    self.counters.refused();
                    self.respond(&mut self.stage(), pending.unresolved(&failure));
                    return Ok(());
                }
                Err(error) => {
                    self.respond(&mut self.stage(), pending.error(500, "the server was interrupted"));
                    return Err(error);
                }
            }
        }
        match pending.accept(identity, now()) {
            Ok(call) => {
                self.counters.call(call.request.bytes);
                *self.stage() = Stage::Called(call);
            }
            Err(response) => self.refuse(response),
        }
        Ok(())
    }

    /// Run `work` on the call that a method must answer.
    pub fn with<T>(&self, work: impl FnOnce(&mut Call) -> T) -> Result<T> {
        match &mut *self.stage() {
            Stage::Called(call) => Ok(work(call)),
            Stage::Pending(_) => Err(Misuse::NotAuthenticated.into()),
            Stage::Done(_) => Err(Misuse::Answered.into()),
        }
    }

    /// End the call with a response.
    fn end(&self, work: impl FnOnce(&mut Call) -> penstock_vgi::Result<Response>) -> Result<()> {
        let mut stage = self.stage();
        match &mut *stage {
            Stage::Called(call) => {
                let response = work(call)?;
                self.respond(&mut stage, response);
                Ok(())
            }
            Stage::Pending(_) => Err(Misuse::NotAuthenticated.into()),
            Stage::Done(_) => Err(Misuse::Answered.into()),
        }
    }

    /// Return the batch, or a pointer to it and the log messages before it.
    fn store(&self, batch: Batch) -> Result<Batch> {
        let Some(external) = self.external.as_ref().filter(|external| external.stores(&batch)) else {
            return Ok(batch);
        };
        let logs = self.with(|call| call.waiting_logs(&batch.schema))?;
        let pointer = external.store(logs, batch)?;
        self.with(|call| {
            call.forget_logs();
            pointer
        })
    }

    /// Return the name of the method that is called.
    pub fn method_name(&self) -> Result<String> {
        self.with(|call| call.method().map(|method| method.name.clone()))?.ok_or_else(unknown_method)
    }

    /// Return the schema of the answer of a unary call.
    pub fn result(&self) -> Result<SchemaRef> {
        let result = self.with(|call| {
            let method = call.method().filter(|_| call.kind == Kind::Unary);
            method.map(|method| Arc::clone(&method.result))
        })?;
        result.ok_or_else(|| Misuse::NotUnary.into())
    }

    /// Answer a unary call.
    pub fn reply(&self, batch: Batch) -> Result<()> {
        let batch = self.store(batch)?;
        self.end(|call| call.reply(&batch))
    }

    /// Answer with URLs for uploads.
    pub fn reply_urls(&self, urls: &[UploadUrl]) -> Result<()> {
        self.end(|call| call.reply_urls(urls))
    }

    /// Answer with an error. `params` means that the client's input is at fault, not the method.
    pub fn fail(&self, params: bool, failure: &Failure) -> Result<()> {
        self.counters.failure();
        self.end(|call| call.fail(params, failure))
    }

    /// Open the answer of a stream. A `producer` may emit any number of batches, an exchange only
    /// one.
    pub fn open(&self, output: &SchemaRef, input: &SchemaRef, header: Option<Batch>, producer: bool) -> Result<()> {
        let header = header.map(|header| self.store(header)).transpose()?;
        Ok(self.with(|call| call.open(output, input, header.as_ref(), producer))??)
    }

    /// Add the next batch to the answer. [`finish`](Self::finish) stores an exchange's batch, with
    /// its token.
    pub fn emit(&self, mut batch: Batch) -> Result<()> {
        if self.with(|call| call.produces())? {
            batch = self.store(batch)?;
        }
        Ok(self.with(|call| call.emit(batch))??)
    }

    /// End the answer; with a state the stream can continue.
    pub fn finish(&self, state: Option<Vec<u8>>) -> Result<()> {
        if let Some(state) = state {
            self.with(|call| call.seal(state, now()))??;
        }
        // The token is part of the answer to an input, so a client that fetches an external answer
        // finds the token there.
        if let Some(external) = &self.external {
            let stored = |call: &mut Call| call.pending().filter(|batch| external.stores(batch)).cloned();
            if let Some(batch) = self.with(stored)? {
                let pointer = self.store(batch)?;
                self.with(|call| call.replace_pending(pointer))?;
            }
        }
        self.end(Call::close)
    }

    /// Take the response, for the application's web server.
    pub fn response(&self) -> Result<Response> {
        let response = match &mut *self.stage() {
            Stage::Done(response) => response.take(),
            Stage::Pending(_) | Stage::Called(_) => {
                return Err(Misuse::NotAnswered.into());
            }
        };
        response.ok_or_else(|| Misuse::Sent.into())
    }
}

#[cfg(test)]
mod tests;
