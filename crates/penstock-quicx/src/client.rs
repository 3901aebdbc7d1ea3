//! The state machine of producers and monitors.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::answer::{Answer, DeadEntry, Refused};
use crate::error::{Result, Violation};
use crate::pulse::{Beat, Pulse};
use crate::{Accepts, Decoder, ErrorCode, Failed, Frame, Submit, SubmitOnce, TaskId};

/// When an idle connection sends its first HEARTBEAT: a daemon may close a connection whose first
/// byte does not arrive within 10 s.
const FIRST_BYTE: Duration = Duration::from_secs(5);

/// The number of a request, in order from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

/// An event of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientEvent {
    /// A request was answered. Requests are answered in order.
    Answered {
        /// The request.
        ticket: Ticket,
        /// The answer, or the refusal.
        answer: Result<Answer, Refused>,
    },
    /// A task submitted here has failed, or an observed task is done or has failed.
    Outcome {
        /// The task.
        id: TaskId,
        /// The reason of the failure; `None` if it is done.
        failure: Option<Vec<u8>>,
    },
    /// The daemon has not answered three heartbeats: the connection has ended.
    Silent,
}

/// Tasks that are submitted together.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    bytes: Vec<u8>,
    count: usize,
}

impl Batch {
    /// Add a task. Fails as a misuse if the type is invalid.
    pub fn push(&mut self, kind: &[u8], payload: &[u8]) -> Result<()> {
        Frame::Submit(Submit { kind, payload }).encode(&mut self.bytes)?;
        self.count += 1;
        Ok(())
    }

    /// Add a unique task: it exists once, however often its key is submitted. Fails as [`push`](Self::push) does.
    pub fn push_once(&mut self, key: [u8; SubmitOnce::KEY], kind: &[u8], payload: &[u8]) -> Result<()> {
        Frame::SubmitOnce(SubmitOnce { key, submit: Submit { kind, payload } }).encode(&mut self.bytes)?;
        self.count += 1;
        Ok(())
    }

    /// Return the number of tasks.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Return whether there are no tasks.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A request that expects an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Accept,
    Observe,
    Stats,
    DeadList,
    Heartbeat,
    /// A HEARTBEAT sent by the timer to check that the daemon is alive.
    Pulse,
    /// A HEARTBEAT after each OBSERVE. An accepted OBSERVE has no answer of its own, and a refusal does not name
    /// its request: it belongs to the OBSERVE if it arrives before the PONG.
    Fence,
}

/// A producer's or monitor's end of a connection. Requests may be pipelined.
#[derive(Debug)]
pub struct Client {
    decoder: Decoder,
    out: Vec<u8>,
    expected: VecDeque<Request>,
    /// The ticket of the first outstanding request.
    answered: u64,
    next: u64,
    events: VecDeque<ClientEvent>,
    pulse: Pulse,
}

impl Default for Client {
    fn default() -> Self {
        Self::new()
    }
}

impl Client {
    /// Make a client for a connection on which nothing was sent yet.
    pub const fn new() -> Self {
        Self {
            decoder: Decoder::new(Accepts::ToClient),
            out: Vec::new(),
            expected: VecDeque::new(),
            answered: 0,
            next: 0,
            events: VecDeque::new(),
            pulse: Pulse::NONE,
        }
    }

    /// Send heartbeats at this interval while no request is outstanding.
    pub fn beat_every(&mut self, now: Instant, interval: Duration) {
        self.pulse = Pulse::new(now, interval).first_within(now, FIRST_BYTE);
    }

    /// Return when to call [`handle_timeout`](Self::handle_timeout).
    pub const fn poll_timeout(&self) -> Option<Instant> {
        self.pulse.due()
    }

    /// Handle the passage of time.
    pub fn handle_timeout(&mut self, now: Instant) -> Result<()> {
        match self.pulse.beat(now, self.outstanding() == 0) {
            Beat::None => {}
            Beat::Send => {
                Frame::Heartbeat.encode(&mut self.out)?;
                self.expected.push_back(Request::Pulse);
            }
            Beat::Silent => self.events.push_back(ClientEvent::Silent),
        }
        Ok(())
    }

    /// Submit a task. Fails as a misuse, without sending, if the type is invalid.
    pub fn submit(&mut self, kind: &[u8], payload: &[u8]) -> Result<Ticket> {
        self.request(&Frame::Submit(Submit { kind, payload }), Request::Accept)
    }

    /// Submit tasks; return the ticket of the first one.
    pub fn submit_batch(&mut self, batch: &Batch) -> Ticket {
        self.out.extend_from_slice(&batch.bytes);
        self.expected.extend(std::iter::repeat_n(Request::Accept, batch.count));
        self.next += batch.count as u64;
        Ticket(self.next - batch.count as u64)
    }

    /// Observe a task: its outcome will be an event.
    pub fn observe(&mut self, id: TaskId) -> Result<Ticket> {
        let ticket = self.request(&Frame::Observe(id), Request::Observe)?;
        Frame::Heartbeat.encode(&mut self.out)?;
        self.expected.push_back(Request::Fence);
        Ok(ticket)
    }

    /// Request the statistics.
    pub fn stats(&mut self) -> Result<Ticket> {
        self.request(&Frame::Stats, Request::Stats)
    }

    /// Request the dead tasks with higher IDs than this one, as many as fit into an answer.
    pub fn dead_after(&mut self, id: TaskId) -> Result<Ticket> {
        self.request(&Frame::DeadAfter(id), Request::DeadList)
    }

    /// Request the dead list: its oldest tasks, as many as fit into an answer.
    pub fn dead_list(&mut self) -> Result<Ticket> {
        self.request(&Frame::DeadList, Request::DeadList)
    }

    /// Queue a dead task again.
    pub fn dead_requeue(&mut self, id: TaskId) -> Result<Ticket> {
        self.request(&Frame::DeadRequeue(id), Request::Accept)
    }

    /// Drop a dead task.
    pub fn dead_drop(&mut self, id: TaskId) -> Result<Ticket> {
        self.request(&Frame::DeadDrop(id), Request::Accept)
    }

    /// Stop the daemon.
    pub fn stop(&mut self) -> Result<Ticket> {
        self.request(&Frame::Stop, Request::Accept)
    }

    /// Send a heartbeat.
    pub fn heartbeat(&mut self) -> Result<Ticket> {
        self.request(&Frame::Heartbeat, Request::Heartbeat)
    }

    fn request(&mut self, frame: &Frame<'_>, request: Request) -> Result<Ticket> {
        frame.encode(&mut self.out)?;
        self.expected.push_back(request);
        self.next += 1;
        Ok(Ticket(self.next - 1))
    }

    /// Take the bytes to write.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        (!self.out.is_empty()).then(|| std::mem::take(&mut self.out))
    }

    /// Return the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Return the number of outstanding requests.
    pub fn outstanding(&self) -> usize {
        (self.next - self.answered) as usize
    }

    /// Handle received bytes. Fails as a violation, which ends the connection, if the daemon breaks the order of
    /// answers.
    pub fn handle_input(&mut self, bytes: &[u8]) -> Result<()> {
        let mut decoder = std::mem::replace(&mut self.decoder, Decoder::new(Accepts::ToClient));
        let result = decoder.each_frame(bytes, |frame| self.handle_frame(frame));
        self.decoder = decoder;
        result
    }

    fn handle_frame(&mut self, frame: Frame<'_>) -> Result<()> {
        match frame {
            Frame::Ok(id) => self.take(Request::Accept, Answer::Accepted(id)),
            Frame::StatsResponse(stats) => self.take(Request::Stats, Answer::Stats(stats)),
            Frame::DeadTasks(tasks) => {
                let tasks = tasks.map(|task| DeadEntry {
                    id: task.id,
                    kind: task.kind.to_vec(),
                    attempts: task.attempts,
                    reason: task.reason.to_vec(),
                });
                self.take(Request::DeadList, Answer::Dead(tasks.collect()))
            }
            Frame::Pong => self.pong(),
            Frame::Error(failure) => self.refused(failure.code, failure.message),
            Frame::Done(id) => {
                self.events.push_back(ClientEvent::Outcome { id, failure: None });
                Ok(())
            }
            Frame::Failed(Failed { id, reason }) => {
                self.events.push_back(ClientEvent::Outcome { id, failure: Some(reason.to_vec()) });
                Ok(())
            }
            Frame::Heartbeat => Frame::Pong.encode(&mut self.out),
            Frame::Task(_) | Frame::Wait => Err(Violation::WorkersFrame(frame.opcode()).into()),
            Frame::Submit(_)
            | Frame::SubmitOnce(_)
            | Frame::Ready
            | Frame::Stats
            | Frame::Observe(_)
            | Frame::Prefetch(_)
            | Frame::Subscribe(_)
            | Frame::DeadList
            | Frame::DeadRequeue(_)
            | Frame::DeadDrop(_)
            | Frame::DeadAfter(_)
            | Frame::Stop => Err(Violation::Direction(frame.opcode()).into()),
        }
    }

    /// Handle the answer to the first outstanding request.
    fn take(&mut self, request: Request, answer: Answer) -> Result<()> {
        if self.expected.front() != Some(&request) {
            return Err(Violation::Answer(Box::new(answer)).into());
        }
        self.expected.pop_front();
        self.answer(Ok(answer));
        Ok(())
    }

    fn answer(&mut self, answer: Result<Answer, Refused>) {
        self.events.push_back(ClientEvent::Answered { ticket: Ticket(self.answered), answer });
        self.answered += 1;
    }

    fn pong(&mut self) -> Result<()> {
        self.pulse.answered();
        if self.expected.pop_front_if(|request| *request == Request::Observe).is_some() {
            self.answer(Ok(Answer::Observed));
        }
        if self.expected.pop_front_if(|request| matches!(request, Request::Fence | Request::Pulse)).is_some() {
            return Ok(());
        }
        self.take(Request::Heartbeat, Answer::Alive)
    }

    fn refused(&mut self, code: ErrorCode, message: &[u8]) -> Result<()> {
        let message = message.get(..1_024).unwrap_or(message);
        let refused = Refused { code, message: String::from_utf8_lossy(message).into_owned() };
        match self.expected.pop_front_if(|request| *request != Request::Fence) {
            // The daemon is alive, even if it does not support HEARTBEAT.
            Some(Request::Pulse) => {
                self.pulse.answered();
                Ok(())
            }
            Some(_) => {
                self.answer(Err(refused));
                Ok(())
            }
            None => Err(Violation::Refusal(refused).into()),
        }
    }
}
