use std::future::ready;
use std::sync::Mutex;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use penstock_io::sync::lock;
use penstock_pipestream::Reason;
use penstock_pipestream_net::port::{Attempt, Details, SessionControl};

/// The notifications of a sink to a session without a driver.
#[derive(Debug, Default)]
pub(crate) struct RecordingControl(pub(super) Mutex<Vec<String>>);

impl RecordingControl {
    fn note(&self, what: String) {
        lock(&self.0).push(what);
    }
}

impl SessionControl for RecordingControl {
    fn complete(&self, attempts: Vec<Attempt>) {
        self.note(format!("Complete({attempts:?})"));
    }

    fn fail(&self, attempt: Attempt, reason: Reason) {
        self.note(format!("Fail {{ attempt: {attempt:?}, reason: {reason:?} }}"));
    }

    fn set_aside(&self, attempt: Attempt, details: Details) {
        self.note(format!("SetAside {{ attempt: {attempt:?}, details: {details:?} }}"));
    }

    fn abort(&self, reason: Reason) {
        self.note(format!("Abort({reason:?})"));
    }

    fn count(&self, _bytes: u64) {}

    fn stream_reset(&self, stream: u64, attempt: Attempt, code: u64) -> BoxFuture<'_, ()> {
        self.note(format!("StreamReset {{ stream: {stream}, attempt: {attempt:?}, code: {code} }}"));
        ready(()).boxed()
    }
}
