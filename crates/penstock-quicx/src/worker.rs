//! The state machine of workers.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use penstock_wire::{Backoff, FastMap};

use crate::error::{Misuse, Result, Violation};
use crate::pulse::{Beat, Pulse};
use crate::{Accepts, Decoder, Failed, Frame, Prefetch, Refused, TaskId, Types};

/// The first and the longest pause after WAIT before READY is sent again.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// An event of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkerEvent {
    /// A task, to be answered by [`Worker::done`] or [`Worker::failed`].
    Task {
        /// Its ID.
        id: TaskId,
        /// Its type.
        kind: String,
        /// Its payload.
        payload: Vec<u8>,
    },
    /// The daemon has answered this many heartbeats, and has read everything sent before the last of them.
    Alive(u64),
    /// The daemon has not answered three heartbeats: the connection has ended.
    Silent,
    /// The daemon does not support PREFETCH and SUBSCRIBE: it sends one task for each READY, of any type.
    OneByOne,
    /// The daemon has refused a frame, usually an outcome that came too late.
    Refused(Refused),
}

/// Whether the daemon supports PREFETCH and SUBSCRIBE, which are extensions.
#[derive(Debug)]
enum Extensions {
    /// Unknown until READY is answered: how many PREFETCH and SUBSCRIBE were sent and refused, and
    /// the first refusal.
    Asked { sent: u8, refused: u8, first: Option<Refused> },
    /// The daemon supports them, or ignores unknown frames and then answers READY.
    Known,
    /// The daemon has refused them.
    Refused,
}

/// A worker's end of a connection.
///
/// ```text
///            TASK                       DONE, FAILED: holds no more tasks
/// READY ─┬────────▶ holds tasks ─────┬─▶ the daemon pushes, or READY 50 ms later
///   ▲    │ WAIT                      └─▶ READY at once, if the daemon has refused PREFETCH
///   └────┘ 50 ms, then twice as long each time, at most 1 s
/// ```
#[derive(Debug)]
pub struct Worker {
    decoder: Decoder,
    out: Vec<u8>,
    events: VecDeque<WorkerEvent>,
    holds: FastMap<u32, ()>,
    extensions: Extensions,
    /// When READY is sent again, and the pause after the next WAIT.
    ready: Option<Instant>,
    back_off: Backoff,
    /// Whether to request no more tasks.
    resting: bool,
    pulse: Pulse,
    /// Heartbeats sent and answered.
    sent: u64,
    answered: u64,
    /// The refusal that counted as the answer to the last heartbeat, in case the daemon does not
    /// support HEARTBEAT.
    excused: Option<Refused>,
}

impl Worker {
    /// Make a worker for a connection on which nothing was sent yet. It sends heartbeats at this
    /// interval: they keep its tasks from timing out, and show whether the daemon is alive.
    pub fn new(now: Instant, heartbeat: Duration) -> Self {
        Self {
            decoder: Decoder::new(Accepts::ToClient),
            out: Vec::new(),
            events: VecDeque::new(),
            holds: FastMap::default(),
            extensions: Extensions::Asked { sent: 0, refused: 0, first: None },
            ready: None,
            back_off: Backoff::new(BACK_OFF.0, BACK_OFF.1),
            resting: false,
            pulse: Pulse::new(now, heartbeat),
            sent: 0,
            answered: 0,
            excused: None,
        }
    }

    /// Start to receive tasks of these types, or of all types, up to this many at once.
    ///
    /// Fails as a misuse if a type is invalid, or if `prefetch` is 0.
    pub fn begin(&mut self, types: &[&[u8]], prefetch: u16) -> Result<()> {
        if prefetch == 0 {
            return Err(Misuse::EmptyPrefetch.into());
        }
        let mut sent = 1;
        if !types.is_empty() {
            let mut bytes = Vec::new();
            Frame::Subscribe(Types::collect(types, &mut bytes)?).encode(&mut self.out)?;
            sent += 1;
        }
        self.extensions = Extensions::Asked { sent, refused: 0, first: None };
        Frame::Prefetch(Prefetch(prefetch)).encode(&mut self.out)?;
        Frame::Ready.encode(&mut self.out)
    }

    /// Request no more tasks: send no READY, and subscribe to a type that is never submitted. The
    /// outcomes of held tasks can still be reported.
    pub fn rest(&mut self) -> Result<()> {
        (self.resting, self.ready) = (true, None);
        match self.extensions {
            Extensions::Refused => Ok(()),
            Extensions::Asked { .. } | Extensions::Known => {
                let mut bytes = Vec::new();
                Frame::Subscribe(Types::collect(&[b"\0"], &mut bytes)?).encode(&mut self.out)
            }
        }
    }

    /// Return whether the worker holds this task.
    pub fn holds(&self, id: TaskId) -> bool {
        self.holds.contains_key(&id.0)
    }

    /// Report that a task is done. Fails as a misuse if it is not held.
    pub fn done(&mut self, now: Instant, id: TaskId) -> Result<()> {
        self.let_go(id)?;
        Frame::Done(id).encode(&mut self.out)?;
        self.go_on(now)
    }

    /// Report that a task has failed. The daemon keeps 64 KiB of the reason. Fails as a misuse if it is not held.
    pub fn failed(&mut self, now: Instant, id: TaskId, reason: &[u8]) -> Result<()> {
        self.let_go(id)?;
        let reason = reason.get(..crate::REASON).unwrap_or(reason);
        Frame::Failed(Failed { id, reason }).encode(&mut self.out)?;
        self.go_on(now)
    }

    fn let_go(&mut self, id: TaskId) -> Result<()> {
        let held = self.holds.remove(&id.0);
        held.ok_or_else(|| Misuse::NotHeld(id).into())
    }

    /// Once no task is held, expect the daemon to push the next one, or request it.
    fn go_on(&mut self, now: Instant) -> Result<()> {
        if !self.holds.is_empty() || self.resting {
            return Ok(());
        }
        match self.extensions {
            Extensions::Refused => Frame::Ready.encode(&mut self.out),
            Extensions::Asked { .. } | Extensions::Known => {
                self.ready = now.checked_add(self.back_off.interval());
                Ok(())
            }
        }
    }

    /// Request a task now, if the daemon pushes none and no task is held.
    pub fn ask(&mut self) -> Result<()> {
        match self.extensions {
            Extensions::Refused if self.holds.is_empty() && !self.resting => {
                self.ready = None;
                Frame::Ready.encode(&mut self.out)
            }
            Extensions::Asked { .. } | Extensions::Known | Extensions::Refused => Ok(()),
        }
    }

    /// Send a heartbeat; return its number, from 1. Its answer shows that the daemon has read everything sent before.
    pub fn heartbeat(&mut self) -> Result<u64> {
        Frame::Heartbeat.encode(&mut self.out)?;
        self.sent += 1;
        Ok(self.sent)
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.ready.into_iter().chain(self.pulse.due()).min()
    }

    /// Handle the passage of time.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<()> {
        if self.ready.take_if(|due| *due <= now).is_some() {
            Frame::Ready.encode(&mut self.out)?;
        }
        match self.pulse.beat(now, true) {
            Beat::None => {}
            Beat::Send => {
                self.heartbeat()?;
            }
            Beat::Silent => self.events.push_back(WorkerEvent::Silent),
        }
        Ok(())
    }

    /// Take the bytes to write.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out))
    }

    /// Return the next event.
    pub fn poll_event(&mut self) -> Option<WorkerEvent> {
        self.events.pop_front()
    }

    /// Handle received bytes. Fails, which ends the connection, if the daemon breaks a rule.
    pub fn handle_input(&mut self, now: Instant, bytes: &[u8]) -> Result<()> {
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new(Accepts::ToClient));
        let result = decoder.each_frame(bytes, |frame| self.handle_frame(now, frame));
        self.decoder = decoder;
        result
    }

    fn handle_frame(&mut self, now: Instant, frame: Frame<'_>) -> Result<()> {
        // Any input shows that the daemon is alive.
        self.pulse.answered();
        match frame {
            Frame::Task(task) => {
                self.ready_was_answered()?;
                self.ready = None;
                self.back_off.reset();
                self.holds.insert(task.id.0, ());
                let kind = String::from_utf8_lossy(task.submit.kind).into_owned();
                self.events.push_back(WorkerEvent::Task { id: task.id, kind, payload: task.submit.payload.to_vec() });
            }
            Frame::Wait => {
                self.ready_was_answered()?;
                if self.holds.is_empty() && !self.resting {
                    self.ready = now.checked_add(self.back_off.advance());
                }
            }
            Frame::Error(failure) => {
                let message = failure.message.get(..1_024).unwrap_or(failure.message);
                let refusal = Refused { code: failure.code, message: String::from_utf8_lossy(message).into_owned() };
                if self.answered < self.sent {
                    // A refusal does not name its frame. If this one is not for HEARTBEAT, a PONG follows.
                    self.alive();
                    self.excused = Some(refusal);
                } else {
                    self.refused(refusal);
                }
            }
            Frame::Heartbeat => Frame::Pong.encode(&mut self.out)?,
            Frame::Pong => match self.excused.take_if(|_| self.answered >= self.sent) {
                Some(refusal) => self.refused(refusal),
                None => self.alive(),
            },
            Frame::Submit(_)
            | Frame::SubmitOnce(_)
            | Frame::Ok(_)
            | Frame::Ready
            | Frame::Done(_)
            | Frame::Failed(_)
            | Frame::Stats
            | Frame::StatsResponse(_)
            | Frame::Observe(_)
            | Frame::Prefetch(_)
            | Frame::Subscribe(_)
            | Frame::DeadList
            | Frame::DeadTasks(_)
            | Frame::DeadRequeue(_)
            | Frame::DeadDrop(_)
            | Frame::DeadAfter(_)
            | Frame::Stop => return Err(Violation::ProducersFrame(frame.opcode()).into()),
        }
        Ok(())
    }

    fn alive(&mut self) {
        self.answered += 1;
        self.events.push_back(WorkerEvent::Alive(self.answered));
    }

    fn refused(&mut self, refusal: Refused) {
        match &mut self.extensions {
            Extensions::Asked { refused, first, .. } => {
                *refused = refused.saturating_add(1);
                first.get_or_insert(refusal);
            }
            Extensions::Known | Extensions::Refused => self.events.push_back(WorkerEvent::Refused(refusal)),
        }
    }

    /// Handle the first answer to READY. A daemon without the extensions has refused both PREFETCH
    /// and SUBSCRIBE by then. One that has refused only SUBSCRIBE would send tasks of other types,
    /// which is an error.
    fn ready_was_answered(&mut self) -> Result<()> {
        let Extensions::Asked { sent, refused, first } = &mut self.extensions else { return Ok(()) };
        match first.take() {
            None => self.extensions = Extensions::Known,
            Some(_) if refused >= sent => {
                self.extensions = Extensions::Refused;
                self.events.push_back(WorkerEvent::OneByOne);
            }
            Some(first) => return Err(Violation::Subscribe(first).into()),
        }
        Ok(())
    }
}
