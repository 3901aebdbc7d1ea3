//! One background IO thread for each process, with a tokio current-thread runtime. Servers with
//! many connections spread them over a few more threads.
//!
//! The thread starts at the first use, never at import, and belongs to the process that started it. PySpark forks its
//! workers: a child finds the runtime of its parent, whose thread does not exist in the child, so it leaves that
//! runtime alone and starts another. Values made before the fork are leaked in the child, never joined and never
//! dropped, because dropping them could wait for a lock that the missing thread held.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::{DriverError as _, Error, Result};

/// How often a waiting thread asks its caller whether to continue.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The most IO threads of a process, including the first, however many cores there are.
const MAX_IO_THREADS: usize = 4;

/// A value that each process makes for itself: a forked child does not touch its parent's value.
///
/// ```
/// use penstock_io::runtime::ProcessLocal;
///
/// static ID: ProcessLocal<u32> = ProcessLocal::new();
/// assert_eq!(ID.get_or_try_init(|| Ok::<_, ()>(std::process::id())), Ok(&std::process::id()));
/// ```
#[derive(Debug)]
pub struct ProcessLocal<T> {
    first: OnceLock<Box<Owned<T>>>,
}

#[derive(Debug)]
struct Owned<T> {
    process: u32,
    value: T,
    /// The value of a child process that was forked from this one.
    next: OnceLock<Box<Self>>,
}

impl<T> ProcessLocal<T> {
    /// Return an empty value, for a static.
    pub const fn new() -> Self {
        Self { first: OnceLock::new() }
    }

    /// Return this process's value, which is made at the first call.
    ///
    /// # Errors
    ///
    /// What `init` returns; the next call tries again.
    pub fn get_or_try_init<E>(&self, init: impl Fn() -> std::result::Result<T, E>) -> std::result::Result<&T, E> {
        let process = std::process::id();
        let mut slot = &self.first;
        loop {
            match slot.get() {
                Some(owned) if owned.process == process => return Ok(&owned.value),
                Some(owned) => slot = &owned.next,
                None => {
                    // Make the value first, then set it: a fork in between finds the slot empty, not locked.
                    let value = init()?;
                    drop(slot.set(Box::new(Owned { process, value, next: OnceLock::new() })));
                }
            }
        }
    }
}

impl<T> Default for ProcessLocal<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The runtime of one process.
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    /// Further threads for connections, with the sender that ends each; none until they are first needed.
    more: OnceLock<Vec<(Handle, oneshot::Sender<()>)>>,
    /// Ends the thread when this is dropped, which happens only to the loser of a race for the first use.
    _stop: oneshot::Sender<()>,
}

static RUNTIME: ProcessLocal<Runtime> = ProcessLocal::new();

impl Runtime {
    /// Return the runtime of this process.
    ///
    /// # Errors
    ///
    /// IO if its thread cannot be started.
    pub fn current() -> Result<&'static Self> {
        RUNTIME.get_or_try_init(|| Self::start().map_err(|error| Error::io("cannot start the IO thread", error)))
    }

    fn start() -> io::Result<Self> {
        let (handle, stop) = io_thread("penstock-io".into())?;
        Ok(Self { handle, more: OnceLock::new(), _stop: stop })
    }

    /// Return the thread for a server's connection with this number. There are as many threads as
    /// cores, up to four.
    pub fn spread(&self, number: u64) -> &Handle {
        let more = self.more.get_or_init(|| {
            let threads = cores().min(MAX_IO_THREADS);
            // If a thread does not start, the others share its work.
            (1..threads).filter_map(|index| io_thread(format!("penstock-io-{index}")).ok()).collect()
        });
        let index = usize::try_from(number % (more.len() as u64 + 1)).unwrap_or(0);
        index.checked_sub(1).and_then(|index| more.get(index)).map_or(&self.handle, |(handle, _)| handle)
    }

    /// Return the handle on which tasks are spawned.
    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

/// Return how many cores this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(2, usize::from)
}

/// Start a thread with a runtime; dropping the returned sender ends it.
fn io_thread(name: String) -> io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name("penstock-work")
        .max_blocking_threads(cores().saturating_mul(2).max(4))
        .build()?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    thread::Builder::new().name(name).spawn(move || {
        // An error means that the sender was dropped, which is the signal.
        let _ = runtime.block_on(stopped);
    })?;
    Ok((handle, stop))
}

/// Run a future on the IO thread. It must not block.
pub fn spawn<F>(future: F) -> Result<JoinHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Ok(Runtime::current()?.handle.spawn(future))
}

/// Run blocking work on a thread of the runtime's pool.
pub fn spawn_blocking<F, T>(work: F) -> Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Ok(Runtime::current()?.handle.spawn_blocking(work))
}

/// Poll a future once, for a caller that has its own loop. The runtime is entered meanwhile, as in [`wait`].
pub fn poll<F: Future + ?Sized>(future: Pin<&mut F>, context: &mut Context<'_>) -> Result<Poll<F::Output>> {
    let _entered = Runtime::current()?.handle.enter();
    Ok(future.poll(context))
}

/// Returned by the callback of [`wait`] to stop waiting; Python's signal handlers raise this way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interrupted;

/// Why a wait ended without a result. The future was dropped.
#[derive(Debug, Clone)]
pub enum WaitError {
    /// The deadline has passed.
    Deadline,
    /// The callback returned [`Interrupted`].
    Interrupted,
    /// There is no runtime.
    Runtime(Error),
}

/// Poll a future on the calling thread until it is done. The thread must not be one that runs tokio
/// tasks.
///
/// `check` is called about every 100 ms and may stop the wait. The runtime is entered meanwhile, so the future may use
/// its timers and spawn tasks.
pub fn wait<F: Future>(
    future: F,
    deadline: Option<Instant>,
    check: &mut dyn FnMut() -> std::result::Result<(), Interrupted>,
) -> std::result::Result<F::Output, WaitError> {
    let runtime = Runtime::current().map_err(WaitError::Runtime)?;
    let _entered = runtime.handle.enter();
    let mut future = pin!(future);
    let signal = Arc::new(Signal { woken: AtomicBool::new(false), thread: thread::current() });
    let waker = Waker::from(Arc::clone(&signal));
    let mut context = Context::from_waker(&waker);
    let mut next_check = Instant::now() + CHECK_INTERVAL;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Ok(output);
        }
        // Called after every poll, so that a future that is always busy can be stopped as well.
        loop {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(WaitError::Deadline);
            }
            if now >= next_check {
                check().map_err(|Interrupted| WaitError::Interrupted)?;
                next_check = now + CHECK_INTERVAL;
            }
            if signal.woken.swap(false, Ordering::Acquire) {
                break;
            }
            let until = deadline.map_or(next_check, |deadline| deadline.min(next_check));
            thread::park_timeout(until.saturating_duration_since(now));
        }
    }
}

/// Run [`wait`] without deadline or callback.
pub fn block_on<F: Future>(future: F) -> Result<F::Output> {
    wait(future, None, &mut || Ok(())).map_err(|error| match error {
        WaitError::Runtime(error) => error,
        WaitError::Deadline | WaitError::Interrupted => Error::Deadline("the wait was stopped".into()),
    })
}

/// The waker of the thread that waits in [`wait`].
struct Signal {
    woken: AtomicBool,
    thread: Thread,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.thread.unpark();
        }
    }
}

/// A value that works only in the process that made it and is leaked in a forked child.
#[derive(Debug)]
pub struct PerProcess<T> {
    process: u32,
    value: Option<T>,
}

impl<T> PerProcess<T> {
    /// Bind a value to this process.
    pub fn new(value: T) -> Self {
        Self { process: std::process::id(), value: Some(value) }
    }

    /// Bind a value to the process with this ID, for callers that already know the ID: querying it costs a system call.
    pub fn of(process: u32, value: T) -> Self {
        Self { process, value: Some(value) }
    }

    /// Return the value, unless this is a forked child.
    pub fn get(&self) -> Result<&T> {
        if self.is_this_process() { self.value.as_ref().ok_or(Error::Forked) } else { Err(Error::Forked) }
    }

    /// Return the value mutably, unless this is a forked child.
    pub fn get_mut(&mut self) -> Result<&mut T> {
        if self.is_this_process() { self.value.as_mut().ok_or(Error::Forked) } else { Err(Error::Forked) }
    }

    /// Return the value itself, unless this is a forked child.
    pub fn into_inner(mut self) -> Result<T> {
        if self.is_this_process() { self.value.take().ok_or(Error::Forked) } else { Err(Error::Forked) }
    }

    /// Return the value mutably, for callers that have already checked the process: the check costs
    /// a system call.
    pub fn mut_in_this_process(&mut self) -> Option<&mut T> {
        self.value.as_mut()
    }

    /// Return the value itself, for callers that have already checked the process.
    pub fn inner_in_this_process(mut self) -> Option<T> {
        self.value.take()
    }

    fn is_this_process(&self) -> bool {
        self.process == std::process::id()
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        if self.value.is_some() && !self.is_this_process() {
            std::mem::forget(self.value.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_returns_what_the_io_thread_made() {
        let task = spawn(async { 7 }).unwrap();
        assert_eq!(block_on(task).unwrap().unwrap(), 7);
    }

    #[test]
    fn a_wait_ends_at_its_deadline() {
        let deadline = Instant::now() + Duration::from_millis(20);
        let waited = wait(std::future::pending::<()>(), Some(deadline), &mut || Ok(()));
        assert!(matches!(waited, Err(WaitError::Deadline)));
    }

    #[test]
    fn a_wait_asks_its_caller_and_stops_when_told() {
        let mut asked = 0;
        let waited = wait(std::future::pending::<()>(), None, &mut || {
            asked += 1;
            if asked == 2 { Err(Interrupted) } else { Ok(()) }
        });
        assert!(matches!((waited, asked), (Err(WaitError::Interrupted), 2)));
    }

    #[test]
    fn a_busy_future_does_not_keep_its_caller_from_asking() {
        let busy = std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert!(matches!(wait(busy, None, &mut || Err(Interrupted)), Err(WaitError::Interrupted)));
    }
}
