//! The driver: one task for each connection, which owns the session and stream 0. All other tasks send it commands.
//!
//! It collects its input, lets the session process it, then looks once at events and transmits: events first, so that a
//! sink is informed of an entity before anything else is. While the peer does not read stream 0, the driver does no
//! work that would produce more of it.

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
mod journaling;
mod layer2;
mod names;
mod opening;
mod road;
mod sealing;
mod streams;
mod survival;

use std::collections::{HashMap, VecDeque};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use penstock_pipestream::messages::CompletionPolicy;
use penstock_pipestream::{Agreement, Counters, EntityKey, ErrorCode, Reason, Session, SessionId};
use quinn::{Connection, ConnectionError, RecvStream, SendStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use self::accept::accept;
use self::announcing::{Announced, Waiting};
use self::batches::Batches;
use self::control::{Control, ControlRead};
pub(crate) use self::durable::Durable;
use self::layer2::Layer2;
use self::names::Named;
pub(crate) use self::names::Names;
pub(crate) use self::opening::Opening;
pub(crate) use self::road::{Returns, Road};
use self::sealing::Sealing;
use self::streams::Streams;
use crate::clock::now;
use crate::command::{CheckpointAnswer, Inbox, Reply, Urgent};
use crate::link::Link;
use crate::options::SessionOptions;
use crate::pump::Pump;
use crate::shared::Shared;

/// Maximum number of commands that are handled before events and transmits are looked at.
const BATCH: usize = 128;

/// The owner of one session.
pub(crate) struct Driver {
    session: Session,
    link: Arc<Link>,
    inbox: Inbox,
    control: Control,
    streams: Streams,
    /// Entities of ours without a terminal status, and the senders that stop their streams.
    outgoing: HashMap<EntityKey, oneshot::Sender<ErrorCode>>,
    /// Entities that have just been announced.
    announcing: Vec<Announced>,
    /// Announced entities whose streams wait for their announcement to be written, with the position at which it is.
    announced: VecDeque<(u64, Vec<Announced>)>,
    /// Small entities that are being sent.
    pump: Pump,
    waiting: Waiting,
    checkpoints: HashMap<u64, Reply<CheckpointAnswer>>,
    layer2: Layer2,
    /// Keys with which headers are sealed.
    sealing: Sealing,
    /// Maximum number of bytes of headers that may wait.
    held_limit: usize,
    /// Where its records are on disk.
    durable: Option<Durable>,
    /// Whether the next process continues the session.
    leaving: bool,
    /// A close waits until our root scope is released.
    closing_root: bool,
    /// Whether our root scope was released.
    root_released: bool,
    batches: Batches,
    /// The policy of roots that have none of their own.
    policy: Option<CompletionPolicy>,
    /// A client's name for the session, where it offers layer 2.
    name: Option<SessionId>,
    /// The names of a server's sessions, and this one's.
    names: Arc<Names>,
    named: Option<Named>,
    agreement: Option<Agreement>,
    /// The session has got its ID.
    opening: bool,
    /// Whether the sink is open, or a handle takes the entities: entities may be admitted.
    open: bool,
    /// Whether the session could not begin, and the peer must not be sent anything else.
    mute: bool,
    sink: Option<Opening>,
    /// Recovery when the connection is lost.
    road: Road,
    /// The tasks that take the peer's streams.
    accepting: JoinSet<()>,
    /// Set if the client continues a session that another driver has.
    returns: Option<SessionId>,
    /// The server does not listen any more.
    gone: Option<Reason>,
    /// Time by which the peer's capabilities must have arrived, and its SESSION at layer 2.
    agree_by: Option<Instant>,
    agree_within: Duration,
    /// Duration of silence after which the session ends, if nothing is open; and when the silence began.
    quiet_timeout: Option<Duration>,
    heard: Instant,
    /// Whether the server is shutting down: the session closes as soon as nothing is open.
    retiring: bool,
    /// The session's counters as they were last shown.
    published: Counters,
    /// CONNECTION_CLOSE, once the session has asked for it.
    closing: Option<Reason>,
    /// The session's last word.
    end: Option<Reason>,
    /// Fires when the sink has written the session's last line.
    sink_done: Option<oneshot::Receiver<()>>,
}

/// Ends the session for the tasks that wait, if the driver itself panics.
struct Unwinding(Arc<Shared>);

impl Drop for Unwinding {
    fn drop(&mut self) {
        let message = "the session's task has ended".to_owned();
        self.0.close(Reason { code: ErrorCode::InternalError, message });
    }
}

/// Wait for the end of a connection.
fn loss_of(connection: &Connection) -> Pin<Box<dyn Future<Output = ConnectionError> + Send>> {
    let connection = connection.clone();
    Box::pin(async move { connection.closed().await })
}

impl Driver {
    /// Create a driver for a connection. A client has opened stream 0; a server is informed of it by a command.
    pub(crate) fn new(
        session: Session,
        link: Arc<Link>,
        inbox: Inbox,
        control: Option<(SendStream, RecvStream)>,
        options: SessionOptions,
        sink: Option<Opening>,
        road: Road,
    ) -> Self {
        let agree_within = options.handshake_timeout;
        let accepting = accept(&link);
        Self {
            session,
            link,
            inbox,
            control: Control::new(control),
            streams: Streams::default(),
            outgoing: HashMap::new(),
            announcing: Vec::new(),
            announced: VecDeque::new(),
            pump: Pump::default(),
            waiting: Waiting::default(),
            checkpoints: HashMap::new(),
            layer2: Layer2::default(),
            sealing: Sealing::new(options.header_keys),
            held_limit: options.session.max_held_bytes,
            durable: None,
            leaving: false,
            closing_root: false,
            root_released: false,
            policy: options.policy,
            name: options.session.layer2.and_then(|layer2| layer2.session),
            names: Arc::default(),
            named: None,
            agreement: None,
            opening: false,
            open: false,
            mute: false,
            sink,
            road,
            accepting,
            returns: None,
            gone: None,
            batches: Batches::default(),
            agree_by: Instant::now().checked_add(agree_within),
            agree_within,
            quiet_timeout: options.quiet_timeout,
            heard: Instant::now(),
            retiring: false,
            published: Counters::default(),
            closing: None,
            end: None,
            sink_done: None,
        }
    }

    /// Register the session's name: no two sessions of a server have the same one.
    pub(crate) fn name_in(&mut self, names: Arc<Names>) {
        self.names = names;
    }

    /// Run until the session is over.
    pub(crate) async fn run(mut self) {
        let _unwinding = Unwinding(Arc::clone(&self.link.shared));
        let mut lost = loss_of(&self.link.connection);
        let mut timer = pin!(sleep_until(Instant::now().into()));
        let mut commands = Vec::with_capacity(BATCH);
        let (mut attached, mut had_room) = (true, true);
        self.flush().await;
        while self.end.is_none() && !self.leaving {
            if let Some(session) = self.returns.take() {
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
            let room = self.control.has_room(self.session.queued_control());
            if had_room && !room {
                self.link.shared.counters.control_full.fetch_add(1, Ordering::Relaxed);
            }
            had_room = room;
            let pumps = self.control.is_flushed() && !self.pump.is_empty();
            tokio::select! {
                Some(urgent) = self.inbox.urgent.recv() => self.handle_urgent(urgent),
                error = &mut lost, if attached => {
                    self.handle_lost(&error);
                    attached = false;
                }
                met = self.road.next() => {
                    attached = self.handle_met(met);
                    lost = loss_of(&self.link.connection);
                }
                count = self.inbox.ordered.recv_many(&mut commands, BATCH), if room => {
                    debug_assert!(count > 0, "the driver's own link keeps the channel open");
                    commands.drain(..).for_each(|command| self.handle_command(command));
                }
                event = self.control.next(room) => self.handle_control(event),
                stopped = self.pump.run(&self.link), if pumps => self.handle_stopped(stopped),
                () = &mut timer, if deadline.is_some() => self.handle_timeout(),
            }
            if let Some(reason) = self.gone.take() {
                attached &= !self.handle_gone(reason);
            }
            if self.retiring {
                self.retiring = !self.session.close_when_idle(now());
            }
            self.flush().await;
        }
        if self.leaving && self.end.is_none() {
            return self.leave().await;
        }
        self.finish().await;
    }

    /// Return the time at which the driver must act even if nothing arrives.
    fn deadline(&self) -> Option<Instant> {
        let quiet = self.quiet_timeout.map(|timeout| self.heard + timeout);
        [self.session.poll_timeout(), self.agree_by, quiet].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self) {
        let now = now();
        if self.agree_by.is_some_and(|by| now.instant >= by) {
            self.agree_by = None;
            self.link.shared.counters.capabilities_late.fetch_add(1, Ordering::Relaxed);
            let missing = if self.agreement.is_some() { "SESSION" } else { "CAPABILITIES" };
            let message = format!("no {missing} within {} s", self.agree_within.as_secs_f64());
            if self.link.shared.resumed {
                // The next process may succeed.
                self.leaving = true;
                return;
            }
            self.session.abort(now, Reason { code: ErrorCode::IdleTimeout, message });
        }
        if self.quiet_timeout.is_some_and(|timeout| self.heard.elapsed() >= timeout) {
            // Where something is open, the driver waits for its end for the same time again.
            self.heard = now.instant;
            if self.session.close_when_idle(now) {
                self.link.shared.counters.idle.fetch_add(1, Ordering::Relaxed);
                tracing::info!(peer = %self.link.shared.peer, "a session in which nothing happens was closed");
            }
        }
        self.session.handle_timeout(now);
    }

    fn handle_urgent(&mut self, first: Urgent) {
        let now = now();
        self.heard = now.instant;
        let mut next = Some(first);
        while let Some(urgent) = next {
            match urgent {
                Urgent::Complete(attempts) => {
                    for attempt in attempts {
                        if self.layer2.is_present(attempt) {
                            self.session.complete(now, attempt.key);
                        }
                    }
                }
                Urgent::Fail { attempt, reason } => {
                    if self.layer2.is_present(attempt) {
                        self.session.fail(now, attempt.key, reason);
                    }
                }
                Urgent::Skip { attempt, reason } => {
                    // An entity that has ended cannot be skipped.
                    if self.layer2.is_present(attempt) {
                        let _ = self.session.skip(now, attempt.key, reason);
                    }
                }
                Urgent::Yield { attempt, point, reply, resumed } => {
                    self.wait_for_owner(attempt, &point, reply, resumed);
                }
                Urgent::StoppingPoint { key, validation, reply } => self.stopping_point(key, *validation, reply),
                Urgent::NoteState { attempt, state_checksum, reply } => {
                    if self.layer2.is_present(attempt) {
                        self.session.note_state(attempt.key, state_checksum);
                    }
                    // The consumer that has continued may be gone.
                    let _ = reply.send(());
                }
                Urgent::SetAside { attempt, details } => {
                    let reason = Reason { code: ErrorCode::NoError, message: details.reason.clone() };
                    self.issue(attempt, reason, *details);
                }
                Urgent::Defer { attempt, claim, reply } => self.defer(attempt, claim, reply),
                Urgent::NoClaim { attempt, reason } => {
                    if self.layer2.is_present(attempt) {
                        self.session.refuse_claim(now, attempt.key, reason);
                    }
                }
                Urgent::AnswerClaim { request, answer, redeemed } => self.answered_claim(request, answer, redeemed),
                Urgent::GiveUp { key, reason } => {
                    self.session.fail(now, key, reason);
                    // Where it has no children, or has ended already, there is nothing to end.
                    let _ = self.session.end_children(now, key);
                }
                Urgent::Close => {
                    self.forsake(now);
                    self.close(now);
                }
                Urgent::CloseWhenIdle if self.durable.is_some() => self.leaving = true,
                Urgent::CloseWhenIdle => self.retiring = true,
                Urgent::Gone(reason) => self.gone = Some(reason),
                Urgent::Leave(_) if self.durable.is_some() => self.leaving = true,
                Urgent::Leave(None) => self.session.close(now),
                Urgent::Leave(Some(reason)) | Urgent::Abort(reason) => self.session.abort(now, reason),
            }
            next = self.inbox.urgent.try_recv().ok();
        }
    }

    /// The peer has stopped streams of ours.
    fn handle_stopped(&mut self, stopped: Vec<(EntityKey, Reason)>) {
        for (key, reason) in stopped {
            self.not_sent(key, reason, true);
        }
    }

    fn handle_control(&mut self, event: ControlRead) {
        let now = now();
        // The session's events contain what the peer did wrong, and the session closes by itself.
        match event {
            ControlRead::Bytes(pieces) => {
                self.heard = now.instant;
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
