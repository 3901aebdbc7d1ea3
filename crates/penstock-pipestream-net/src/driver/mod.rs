//! The driver: one task for each connection, which owns the session and stream 0. All other tasks
//! send it commands.
//!
//! It handles a batch of input, then the session's events, then its transmits. Events come first so
//! that the sink learns of an entity before its task and the peer do. While the peer does not read
//! stream 0, the driver does no work that would produce more bytes for it.

mod accept;
mod announcing;
mod attempts;
mod batches;
mod claims;
mod commands;
mod control;
mod dispatch;
mod durable;
mod end;
mod headers;
mod idle_limits;
mod journaling;
mod layer2;
mod names;
mod opening;
mod reconnect;
mod sealing;
mod stage;
mod streams;
mod survival;

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use penstock_pipestream::messages::CompletionPolicy;
use penstock_pipestream::{Counters, EntityKey, ErrorCode, Reason, Session, SessionId};
use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use self::accept::accept;
use self::announcing::SendQueue;
use self::batches::Batches;
use self::control::{Control, ControlRead};
pub(crate) use self::durable::Durable;
use self::idle_limits::IdleLimits;
use self::layer2::Layer2;
pub(crate) use self::names::Names;
use self::names::SessionName;
pub(crate) use self::opening::SinkOpening;
use self::opening::SinkState;
pub(crate) use self::reconnect::{Reconnect, ResumableSessions};
use self::sealing::Sealing;
use self::stage::{Life, Root, Stage};
use self::streams::Streams;
use crate::clock::now;
use crate::command::{CheckpointAnswer, Inbox, Reply, Urgent};
use crate::link::Link;
use crate::options::SessionOptions;
use crate::shared::Shared;

/// Maximum number of commands handled before the session is polled for events and transmits.
const BATCH: usize = 128;

/// The owner of one session.
pub(crate) struct Driver {
    session: Session,
    link: Arc<Link>,
    inbox: Inbox,
    control: Control,
    streams: Streams,
    sending: SendQueue,
    checkpoints: HashMap<u64, Reply<CheckpointAnswer>>,
    layer2: Layer2,
    sealing: Sealing,
    /// The session's journal, if its records are on disk.
    durable: Option<Durable>,
    batches: Batches,
    /// The policy of dehydrated roots that have none of their own.
    policy: Option<CompletionPolicy>,
    naming: SessionName,
    stage: Stage,
    sink_state: SinkState,
    root: Root,
    life: Life,
    silence: IdleLimits,
    /// Recovery when the connection is lost.
    reconnect: Reconnect,
    /// The tasks that accept the peer's streams.
    accepting: JoinSet<()>,
    /// At a server: the other session that the client wants to resume.
    resume_target: Option<SessionId>,
    /// The session's counters when they were last published.
    published: Counters,
    /// The reason of the CONNECTION_CLOSE that the session has requested.
    closing: Option<Reason>,
}

/// Guard that closes the session for all waiting tasks if the driver panics.
struct PanicGuard(Arc<Shared>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        let message = "the session's task has ended".to_owned();
        self.0.close(Reason { code: ErrorCode::InternalError, message });
    }
}

/// Return a future that resolves when the connection is lost.
fn loss_of(connection: &Connection) -> Pin<Box<dyn Future<Output = ConnectionError> + Send>> {
    let connection = connection.clone();
    Box::pin(async move { connection.closed().await })
}

impl Driver {
    /// Create a driver for a connection. A client passes stream 0; a server's driver receives it in
    /// a command.
    pub(crate) fn new(
        session: Session,
        link: Arc<Link>,
        inbox: Inbox,
        control: Option<(SendStream, RecvStream)>,
        options: SessionOptions,
        sink: Option<SinkOpening>,
        reconnect: Reconnect,
    ) -> Self {
        let accepting = accept(&link);
        let within = options.handshake_timeout;
        Self {
            session,
            link,
            inbox,
            control: Control::new(control),
            streams: Streams::default(),
            sending: SendQueue::default(),
            checkpoints: HashMap::new(),
            layer2: Layer2::default(),
            sealing: Sealing::new(options.header_keys, options.session.max_held_bytes),
            durable: None,
            batches: Batches::default(),
            policy: options.policy,
            naming: SessionName::new(options.session.layer2.and_then(|layer2| layer2.session)),
            stage: Stage::Negotiating { within, until: Instant::now().checked_add(within) },
            sink_state: sink.into(),
            root: Root::Open,
            life: Life::Running,
            silence: IdleLimits::new(options.quiet_timeout),
            reconnect,
            accepting,
            resume_target: None,
            published: Counters::default(),
            closing: None,
        }
    }

    /// Set the names among which the session registers its own: no two sessions of a server have
    /// the same one.
    pub(crate) fn name_in(&mut self, names: Arc<Names>) {
        self.naming.names = names;
    }

    /// Run until the session is over.
    pub(crate) async fn run(mut self) {
        let _unwinding = PanicGuard(Arc::clone(&self.link.shared));
        let mut lost = loss_of(&self.link.connection);
        let mut timer = pin!(sleep_until(Instant::now().into()));
        let mut commands = Vec::with_capacity(BATCH);
        let (mut attached, mut could_write) = (true, true);
        self.flush().await;
        let reason = loop {
            match &self.life {
                Life::Running | Life::Retiring => {}
                Life::Leaving => return self.leave().await,
                Life::Ended(reason) => break reason.clone(),
            }
            if let Some(session) = self.resume_target.take() {
                let Some(driver) = self.hand_over_to(session) else { return };
                self = driver;
                self.flush().await;
                continue;
            }
            let deadline = self.deadline();
            if let Some(deadline) = deadline
                && timer.deadline() != deadline.into()
            {
                timer.as_mut().reset(deadline.into());
            }
            let can_write = self.control.has_room(self.session.queued_control());
            if could_write && !can_write {
                self.link.shared.counters.control_full.fetch_add(1, Ordering::Relaxed);
            }
            could_write = can_write;
            let can_pump = self.control.is_flushed() && !self.sending.pump.is_empty();
            let mut server_gone = None;
            tokio::select! {
                Some(urgent) = self.inbox.urgent.recv() => server_gone = self.handle_urgent(urgent),
                error = &mut lost, if attached => {
                    self.handle_lost(&error);
                    attached = false;
                }
                outcome = self.reconnect.next() => {
                    attached = self.handle_reconnect(outcome);
                    lost = loss_of(&self.link.connection);
                }
                count = self.inbox.ordered.recv_many(&mut commands, BATCH), if can_write => {
                    debug_assert!(count > 0, "the driver's own link keeps the channel open");
                    commands.drain(..).for_each(|command| self.handle_command(command));
                }
                event = self.control.next(can_write) => self.handle_control(event),
                stopped = self.sending.pump.run(&self.link), if can_pump => self.handle_stopped(stopped),
                () = &mut timer, if deadline.is_some() => self.handle_timeout(),
            }
            if let Some(reason) = server_gone {
                attached &= !self.handle_server_gone(reason);
            }
            if matches!(self.life, Life::Retiring) && self.session.close_when_idle(now()) {
                self.life = Life::Running;
            }
            self.flush().await;
        };
        self.finish(reason).await;
    }

    /// Return the time at which the driver must act even if nothing arrives.
    fn deadline(&self) -> Option<Instant> {
        [self.session.poll_timeout(), self.stage.due(), self.silence.ends()].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self) {
        let now = now();
        if let Some(within) = self.stage.take_overdue(now.instant) {
            self.link.shared.counters.capabilities_late.fetch_add(1, Ordering::Relaxed);
            let missing = if self.session.agreement().is_some() { "SESSION" } else { "CAPABILITIES" };
            let message = format!("no {missing} within {} s", within.as_secs_f64());
            if self.link.shared.origin.is_resumed() {
                // The next process may succeed.
                self.life = Life::Leaving;
                return;
            }
            self.session.abort(now, Reason { code: ErrorCode::IdleTimeout, message });
        }
        // If something is still open, the limit starts over.
        if self.silence.is_over(now.instant) && self.session.close_when_idle(now) {
            self.link.shared.counters.idle.fetch_add(1, Ordering::Relaxed);
            tracing::info!(peer = %self.link.shared.peer, "closed an idle session");
        }
        self.session.handle_timeout(now);
    }

    /// Handle all pending urgent commands. Return the reason if the server no longer listens.
    fn handle_urgent(&mut self, first: Urgent) -> Option<Reason> {
        let now = now();
        self.silence.broken(now.instant);
        let (mut next, mut server_gone) = (Some(first), None);
        while let Some(urgent) = next {
            match urgent {
                Urgent::Complete(attempts) => {
                    for attempt in attempts {
                        if self.session.is_current(attempt) {
                            self.session.complete(now, attempt.key);
                        }
                    }
                }
                Urgent::Fail { attempt, reason } => {
                    if self.session.is_current(attempt) {
                        self.session.fail(now, attempt.key, reason);
                    }
                }
                Urgent::Skip { attempt, reason } => {
                    // An entity that has ended cannot be skipped.
                    if self.session.is_current(attempt) {
                        let _ = self.session.skip(now, attempt.key, reason);
                    }
                }
                Urgent::Yield { attempt, point, reply, resumed } => {
                    self.wait_for_owner(attempt, &point, reply, resumed);
                }
                Urgent::StoppingPoint { key, validation, reply } => self.stopping_point(key, *validation, reply),
                Urgent::NoteState { attempt, state_checksum, reply } => {
                    if self.session.is_current(attempt) {
                        self.session.note_state(attempt.key, state_checksum);
                    }
                    // The consumer may have stopped waiting.
                    let _ = reply.send(());
                }
                Urgent::SetAside { attempt, details } => {
                    let reason = Reason { code: ErrorCode::NoError, message: details.reason.clone() };
                    self.issue(attempt, reason, *details);
                }
                Urgent::Defer { attempt, claim, reply } => self.defer(attempt, claim, reply),
                Urgent::NoClaim { attempt, reason } => {
                    if self.session.is_current(attempt) {
                        self.session.refuse_claim(now, attempt.key, reason);
                    }
                }
                Urgent::AnswerClaim { request, answer, redeemed } => self.answered_claim(request, answer, redeemed),
                Urgent::GiveUp { key, reason } => {
                    self.session.fail(now, key, reason);
                    // This fails where the entity has no children or has already ended: nothing is
                    // left to end.
                    let _ = self.session.end_children(now, key);
                }
                Urgent::Close => {
                    self.fail_unclaimed(now);
                    self.close(now);
                }
                Urgent::CloseWhenIdle | Urgent::Leave(_) if self.durable.is_some() => self.life = Life::Leaving,
                Urgent::CloseWhenIdle => self.life = Life::Retiring,
                Urgent::ServerGone(reason) => server_gone = Some(reason),
                Urgent::Leave(None) => self.session.close(now),
                Urgent::Leave(Some(reason)) | Urgent::Abort(reason) => self.session.abort(now, reason),
            }
            next = self.inbox.urgent.try_recv().ok();
        }
        server_gone
    }

    /// Handle streams of ours that the peer has stopped.
    fn handle_stopped(&mut self, stopped: Vec<(EntityKey, Reason)>) {
        for (key, reason) in stopped {
            self.handle_not_sent(key, reason, true);
        }
    }

    fn handle_control(&mut self, event: ControlRead) {
        let now = now();
        // On a violation the session closes itself and reports it as an event, so errors are
        // dropped.
        match event {
            ControlRead::Bytes(pieces) => {
                self.silence.broken(now.instant);
                for piece in pieces {
                    if self.session.handle_control(now, piece).is_err() {
                        break;
                    }
                }
            }
            ControlRead::Ended { reset } => drop(self.session.handle_control_end(now, reset)),
            ControlRead::Written => {}
        }
    }
}
