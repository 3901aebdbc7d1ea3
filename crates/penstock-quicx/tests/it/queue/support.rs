use std::time::Duration;

use penstock_quicx::{
    Accepts, ConnectionId, Decoded, Decoder, Failed, Frame, Journal, Prefetch, Queue, QueueConfig, Submit, SubmitOnce,
    TaskId, Types, Write,
};
use penstock_testkit::clock::FakeClock;

use crate::log::ModelLog;

/// A queue, what it sends to each connection, and its log.
pub(crate) struct Dialogue {
    pub(crate) clock: FakeClock,
    pub(crate) queue: Queue,
    pub(crate) config: QueueConfig,
    pub(crate) log: ModelLog,
}

impl Dialogue {
    pub(crate) fn new() -> Self {
        Self::with(QueueConfig::default())
    }

    pub(crate) fn with(config: QueueConfig) -> Self {
        let clock = FakeClock::new();
        let queue = Queue::new(clock.instant(), config.clone()).expect("valid");
        Self { clock, queue, config, log: ModelLog::new(0) }
    }

    /// With an empty journal, in short segments.
    pub(crate) fn with_journal(config: QueueConfig) -> Self {
        Self::with_log(config, ModelLog::new(400))
    }

    /// With a journal in this log, as a new process finds it.
    pub(crate) fn with_log(config: QueueConfig, log: ModelLog) -> Self {
        let (clock, log) = (FakeClock::new(), log.restarted());
        let recovery = log.recover();
        recovery.check(&config.pool).expect("fits");
        let journal = Journal::new(log.most as u64, log.segments());
        let mut queue = Queue::with_journal(clock.instant(), config.clone(), journal).expect("valid");
        for task in recovery.tasks() {
            queue.restore(clock.instant(), task, log.content(task)).expect("fits");
        }
        Self { clock, queue, config, log }
    }

    pub(crate) fn connect(&mut self) -> ConnectionId {
        self.queue.open(false)
    }

    pub(crate) fn send(&mut self, to: ConnectionId, frames: &[Frame<'_>]) {
        let mut bytes = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut bytes).expect("fits"));
        self.queue.handle_input(self.clock.instant(), to, &bytes);
    }

    /// What a connection has been sent, as words.
    pub(crate) fn hears(&mut self, id: ConnectionId) -> Vec<String> {
        let bytes = self.queue.poll_transmit(id).to_vec();
        self.queue.handle_written(self.clock.instant(), id, bytes.len());
        words(&bytes)
    }

    pub(crate) fn ask(&mut self, id: ConnectionId, frame: Frame<'_>) -> Vec<String> {
        self.send(id, &[frame]);
        self.hears(id)
    }

    pub(crate) fn pass(&mut self, seconds: f64) {
        self.clock.advance(Duration::from_secs_f64(seconds));
        self.queue.handle_timeout(self.clock.instant());
    }

    /// Return a worker that takes up to this many tasks of all types.
    pub(crate) fn worker(&mut self, prefetch: u16) -> ConnectionId {
        let id = self.connect();
        self.send(id, &[Frame::Prefetch(Prefetch(prefetch)), Frame::Ready]);
        id
    }

    /// Everything that waits is written to the disk.
    pub(crate) fn write(&mut self) {
        while let Some(write) = self.queue.poll_write() {
            match write {
                Write::Append(batch) => {
                    let segment = self.log.append(&batch);
                    self.queue.handle_durable(self.clock.instant(), segment);
                }
                Write::Remove { segment } => self.log.remove(segment),
            }
        }
    }

    /// The next write fails, with half of it on the disk.
    pub(crate) fn fail(&mut self) {
        if let Some(Write::Append(batch)) = self.queue.poll_write() {
            self.log.fail(&batch, batch.records().count() / 2);
            self.queue.handle_write_failed(self.clock.instant(), "no space left on device");
        }
    }

    /// The process dies, and another one begins.
    pub(crate) fn restart(self) -> Self {
        Self::with_log(self.config, self.log)
    }
}

pub(crate) fn submit<'a>(kind: &'a str, payload: &'a [u8]) -> Frame<'a> {
    Frame::Submit(Submit { kind: kind.as_bytes(), payload })
}

/// With a key that begins with this byte.
pub(crate) const fn once<'a>(key: u8, kind: &'a str, payload: &'a [u8]) -> Frame<'a> {
    let submit = Submit { kind: kind.as_bytes(), payload };
    Frame::SubmitOnce(SubmitOnce { key: [key; SubmitOnce::KEY], submit })
}

pub(crate) const fn done(id: u32) -> Frame<'static> {
    Frame::Done(TaskId(id))
}

pub(crate) const fn failed(id: u32, reason: &[u8]) -> Frame<'_> {
    Frame::Failed(Failed { id: TaskId(id), reason })
}

pub(crate) const fn observe(id: u32) -> Frame<'static> {
    Frame::Observe(TaskId(id))
}

pub(crate) fn subscribe<'a>(kinds: &[&[u8]], bytes: &'a mut Vec<u8>) -> Frame<'a> {
    Frame::Subscribe(Types::collect(kinds, bytes).expect("types"))
}

pub(crate) fn words(mut bytes: &[u8]) -> Vec<String> {
    let mut decoder = Decoder::new(Accepts::ToClient);
    let mut found = Vec::new();
    while let Some(decoded) = decoder.next_frame(&mut bytes) {
        let Decoded::Frame(frame) = decoded else { panic!("{decoded:?}") };
        found.push(word(frame));
    }
    assert!(!decoder.is_mid_frame());
    found
}

fn word(frame: Frame<'_>) -> String {
    let text = String::from_utf8_lossy;
    match frame {
        Frame::Ok(id) => format!("OK {id}"),
        Frame::Error(failure) => format!("ERROR {} {}", failure.code, text(failure.message)),
        Frame::Task(task) => format!("TASK {} {} {}", task.id, text(task.submit.kind), text(task.submit.payload)),
        Frame::Done(id) => format!("DONE {id}"),
        Frame::Failed(failed) => format!("FAILED {} {}", failed.id, text(failed.reason)),
        Frame::DeadTasks(tasks) => {
            let tasks =
                tasks.map(|task| format!("{} {} {} {}", task.id, task.attempts, text(task.kind), text(task.reason)));
            format!("DEAD_TASKS [{}]", tasks.collect::<Vec<_>>().join(", "))
        }
        Frame::StatsResponse(stats) => {
            format!(
                "STATS {} {} {} {}",
                stats.queue_depth, stats.workers_total, stats.workers_idle, stats.pmad_bytes_used
            )
        }
        Frame::Submit(_)
        | Frame::SubmitOnce(_)
        | Frame::Ready
        | Frame::Wait
        | Frame::Heartbeat
        | Frame::Pong
        | Frame::Stats
        | Frame::Observe(_)
        | Frame::Prefetch(_)
        | Frame::Subscribe(_)
        | Frame::DeadList
        | Frame::DeadRequeue(_)
        | Frame::DeadDrop(_)
        | Frame::DeadAfter(_)
        | Frame::Stop => frame.opcode().name().to_owned(),
    }
}
