//! Group commit: one thread writes, and the items that arrive while it is busy are its next group.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The most bytes of a group; an item that does not fit goes to the next group.
pub const GROUP: usize = 16 << 20;

/// The writer, which runs on the thread and is dropped there.
pub trait Writer: Send + 'static {
    /// An item of work. The writer answers its caller; a dropped item tells the caller of a failure.
    type Item: Send;

    /// Return the number of bytes that an item takes in a group.
    fn weight(item: &Self::Item) -> usize;

    /// Write a group in order, and leave it empty.
    fn write(&mut self, group: &mut Vec<Self::Item>);

    /// Return how long a group that is not full waits for more items.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }

    /// Return when to wake the writer if no item arrives.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Do the due work. Afterwards no work is due, whether it succeeded or not.
    fn wake(&mut self) {}

    /// Finish, after the last group was written.
    fn end(&mut self) {}
}

/// The handle of the thread, which ends when the handle is dropped.
///
/// ```text
/// push ─▶ waiting ── the thread takes all of them ─▶ groups of at most GROUP bytes ─▶ Writer::write, one after another
/// ```
pub struct GroupCommit<T> {
    shared: Arc<Shared<T>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: u32,
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    wake: Condvar,
    weigh: fn(&T) -> usize,
}

struct Queue<T> {
    waiting: Vec<T>,
    /// The bytes of the waiting items in a group.
    bytes: usize,
    is_closed: bool,
}

impl<T> Shared<T> {
    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.queue().is_closed = true;
        self.wake.notify_one();
    }

    /// Wait for items, and return them in `into`.
    fn take(&self, into: &mut Vec<T>, due: Option<Instant>, linger: Duration) -> Wakeup {
        let mut queue = self.queue();
        while queue.waiting.is_empty() && !queue.is_closed {
            queue = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                None => self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Wakeup::Due,
                Some(left) => self.wake.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        if !linger.is_zero() {
            let goes_on = |queue: &mut Queue<T>| queue.bytes < GROUP && !queue.is_closed;
            let waited = self.wake.wait_timeout_while(queue, linger, goes_on);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut queue.waiting, into);
        queue.bytes = 0;
        if into.is_empty() { Wakeup::End } else { Wakeup::Items }
    }
}

/// The reason why the thread was woken.
enum Wakeup {
    Items,
    Due,
    End,
}

/// Drops the waiting items at the thread's end, even after a panic of the writer, so that their
/// callers learn of the failure.
struct DropWaiting<T>(Arc<Shared<T>>);

impl<T> Drop for DropWaiting<T> {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
    }
}

impl<T: Send + 'static> GroupCommit<T> {
    /// Start the thread.
    pub fn start<W: Writer<Item = T>>(name: &str, mut writer: W) -> io::Result<Self> {
        let queue = Mutex::new(Queue { waiting: Vec::new(), bytes: 0, is_closed: false });
        let shared = Arc::new(Shared { queue, wake: Condvar::new(), weigh: W::weight });
        let end = DropWaiting(Arc::clone(&shared));
        let run = move || {
            let (mut taken, mut group) = (Vec::new(), Vec::new());
            loop {
                match end.0.take(&mut taken, writer.due(), writer.linger()) {
                    Wakeup::Items => {}
                    Wakeup::Due => writer.wake(),
                    Wakeup::End => break,
                }
                let mut rest = taken.drain(..).peekable();
                while let Some(first) = rest.next() {
                    fill(&mut group, first, &mut rest, W::weight);
                    writer.write(&mut group);
                    group.clear();
                }
            }
            writer.end();
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)), process: std::process::id() })
    }

    /// Hand an item over. Return it if the thread has ended, as it has in a forked child.
    pub fn push(&self, item: T) -> Result<(), T> {
        if self.process != std::process::id() {
            return Err(item);
        }
        let mut queue = self.shared.queue();
        if queue.is_closed {
            return Err(item);
        }
        let before = queue.bytes;
        queue.bytes = before.saturating_add((self.shared.weigh)(&item));
        queue.waiting.push(item);
        // Otherwise the thread is awake already, checks again before it sleeps, or waits until the
        // group is full.
        if queue.waiting.len() == 1 || (before < GROUP && queue.bytes >= GROUP) {
            self.shared.wake.notify_one();
        }
        Ok(())
    }
}

/// Collect items up to the maximum size of a group.
fn fill<T>(
    group: &mut Vec<T>,
    first: T,
    rest: &mut std::iter::Peekable<impl Iterator<Item = T>>,
    weight: impl Fn(&T) -> usize,
) {
    let mut bytes = weight(&first);
    group.push(first);
    while let Some(next) = rest.next_if(|next| bytes.saturating_add(weight(next)) <= GROUP) {
        bytes = bytes.saturating_add(weight(&next));
        group.push(next);
    }
}

impl<T> GroupCommit<T> {
    /// Write the items that were handed over, then end the writer and the thread. Every caller blocks
    /// until that is done.
    pub fn close(&self) {
        // A forked child does not have the thread, so the thread's locks are never released there.
        if self.process != std::process::id() {
            return;
        }
        self.shared.close();
        // The lock is held until the thread has ended, so that every caller waits for that.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // The panic hook has reported the panic.
            let _ = thread.join();
        }
    }
}

impl<T> Drop for GroupCommit<T> {
    fn drop(&mut self) {
        self.close();
    }
}

impl<T> fmt::Debug for GroupCommit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupCommit").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Slow {
        groups: mpsc::Sender<Vec<usize>>,
        gate: mpsc::Receiver<()>,
    }

    impl Writer for Slow {
        type Item = usize;

        fn weight(item: &usize) -> usize {
            *item
        }

        fn write(&mut self, group: &mut Vec<usize>) {
            self.gate.recv().unwrap();
            self.groups.send(std::mem::take(group)).unwrap();
        }
    }

    fn start() -> (GroupCommit<usize>, mpsc::Sender<()>, mpsc::Receiver<Vec<usize>>) {
        let ((groups, written), (open, gate)) = (mpsc::channel(), mpsc::channel());
        (GroupCommit::start("test", Slow { groups, gate }).unwrap(), open, written)
    }

    #[test]
    fn what_comes_while_the_thread_is_busy_is_its_next_group_up_to_a_number_of_bytes() {
        let (commit, open, written) = start();
        commit.push(1).unwrap();
        open.send(()).unwrap();
        assert_eq!(written.recv().unwrap(), [1]);
        commit.push(2).unwrap();
        // Wait until the thread has taken the item.
        while !commit.shared.queue().waiting.is_empty() {
            thread::yield_now();
        }
        for item in [3, 4, GROUP, GROUP + 1, 5, GROUP - 5] {
            commit.push(item).unwrap();
        }
        (0..5).for_each(|_| open.send(()).unwrap());
        let expected: [&[usize]; 5] = [&[2], &[3, 4], &[GROUP], &[GROUP + 1], &[5, GROUP - 5]];
        for group in expected {
            assert_eq!(written.recv().unwrap(), group);
        }
    }

    #[test]
    fn all_that_was_handed_over_is_written_at_the_end_and_nothing_more_is_taken() {
        let (commit, open, written) = start();
        (0..2).for_each(|_| open.send(()).unwrap());
        commit.push(7).unwrap();
        commit.push(8).unwrap();
        commit.close();
        assert_eq!(written.try_iter().flatten().collect::<Vec<_>>(), [7, 8]);
        assert_eq!(commit.push(9), Err(9));
    }

    #[test]
    fn each_caller_that_closes_waits_for_the_end() {
        let (commit, open, written) = start();
        commit.push(7).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| commit.close());
            // Wait until that call has taken the thread.
            while commit.thread.try_lock().is_ok_and(|thread| thread.is_some()) {
                thread::yield_now();
            }
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(50));
                open.send(()).unwrap();
            });
            commit.close();
            assert_eq!(written.try_recv(), Ok(vec![7]));
        });
    }

    #[test]
    fn a_writer_that_panics_drops_what_waits() {
        let (commit, gate, _) = start();
        drop(gate);
        commit.push(1).unwrap();
        commit.close();
        assert_eq!(commit.push(2), Err(2));
    }

    /// The calls of a writer, in order.
    #[derive(Debug, PartialEq, Eq)]
    enum Told {
        Group(Vec<usize>),
        Due,
        End,
    }

    struct Patient {
        told: mpsc::Sender<Told>,
        linger: Duration,
        due: Option<Instant>,
    }

    impl Writer for Patient {
        type Item = usize;

        fn weight(item: &usize) -> usize {
            *item
        }

        fn write(&mut self, group: &mut Vec<usize>) {
            self.due = Some(Instant::now());
            self.told.send(Told::Group(std::mem::take(group))).unwrap();
        }

        fn linger(&self) -> Duration {
            self.linger
        }

        fn due(&self) -> Option<Instant> {
            self.due
        }

        fn wake(&mut self) {
            self.due = None;
            self.told.send(Told::Due).unwrap();
        }

        fn end(&mut self) {
            self.told.send(Told::End).unwrap();
        }
    }

    fn patient(linger: Duration) -> (GroupCommit<usize>, mpsc::Receiver<Told>) {
        let (told, heard) = mpsc::channel();
        (GroupCommit::start("test", Patient { told, linger, due: None }).unwrap(), heard)
    }

    #[test]
    fn a_writer_is_woken_when_it_wants_and_ends_behind_the_last_group() {
        let (commit, heard) = patient(Duration::ZERO);
        for number in [1, 2] {
            commit.push(number).unwrap();
            assert_eq!(heard.recv().unwrap(), Told::Group(vec![number]));
            assert_eq!(heard.recv().unwrap(), Told::Due);
        }
        commit.push(3).unwrap();
        commit.close();
        let told: Vec<Told> = heard.iter().filter(|told| *told != Told::Due).collect();
        assert_eq!(told, [Told::Group(vec![3]), Told::End]);
    }

    #[test]
    fn a_group_waits_for_more_until_it_is_full_or_nothing_more_comes() {
        const LONG: Duration = Duration::from_secs(600);
        let (commit, heard) = patient(LONG);
        [1, 2, GROUP - 3].into_iter().for_each(|item| commit.push(item).unwrap());
        assert_eq!(heard.recv().unwrap(), Told::Group(vec![1, 2, GROUP - 3]));
        [3, 4].into_iter().for_each(|item| commit.push(item).unwrap());
        commit.close();
        let told: Vec<Told> = heard.iter().filter(|told| *told != Told::Due).collect();
        assert_eq!(told, [Told::Group(vec![3, 4]), Told::End]);
        let (commit, heard) = patient(Duration::from_millis(1));
        commit.push(5).unwrap();
        assert_eq!(heard.recv().unwrap(), Told::Group(vec![5]));
    }
}
