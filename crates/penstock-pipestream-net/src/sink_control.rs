//! The notifications of a sink to its session, which become commands for the driver.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use penstock_pipestream::{Attempt, Reason};

use crate::claim_checks::Details;
use crate::command::{Command, Commands, Urgent};
use crate::counters::Counters;
use crate::port::SessionControl;

/// A session's driver, as its sink sees it.
#[derive(Debug)]
pub(crate) struct DriverControl {
    commands: Commands,
    counters: Arc<Counters>,
}

impl DriverControl {
    pub(crate) fn shared(commands: Commands, counters: Arc<Counters>) -> Arc<dyn SessionControl> {
        Arc::new(Self { commands, counters })
    }
}

impl SessionControl for DriverControl {
    fn complete(&self, attempts: Vec<Attempt>) {
        self.commands.send_urgent(Urgent::Complete(attempts));
    }

    fn fail(&self, attempt: Attempt, reason: Reason) {
        self.commands.send_urgent(Urgent::Fail { attempt, reason });
    }

    fn set_aside(&self, attempt: Attempt, details: Details) {
        self.commands.send_urgent(Urgent::SetAside { attempt, details: Box::new(details) });
    }

    fn abort(&self, reason: Reason) {
        self.commands.send_urgent(Urgent::Abort(reason));
    }

    fn count(&self, bytes: u64) {
        self.counters.arrived(1, bytes);
    }

    fn stream_reset(&self, stream: u64, attempt: Attempt, code: u64) -> BoxFuture<'_, ()> {
        self.commands.send(Command::StreamReset { stream, attempt, code }).map(drop).boxed()
    }
}
