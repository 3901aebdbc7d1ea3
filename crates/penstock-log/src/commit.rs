//! Group commit: one thread writes, and what came while it was busy is its next group.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Bytes of a group: what comes beyond them is in the next one.
pub const GROUP: usize = 16 << 20;

/// What writes, on the thread. It is dropped there.
pub trait Writer: Send + 'static {
    /// What callers hand over. Whoever waits for it is told by the writer, and is to take a dropped one for a failure.
    type Item: Send;

    /// Return how many bytes of a group it takes.
    fn weight(item: &Self::Item) -> usize;

    /// Write a group, in its order; leave none of it.
    fn write(&mut self, group: &mut Vec<Self::Item>);

    /// Return how long a group waits for what may still come, unless it is full.
    fn linger(&self) -> Duration {
        Duration::ZERO
    }

    /// Return when the writer is to be woken though nothing comes.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Do what is due. It is not due any more then, whether that succeeds or not.
    fn wake(&mut self) {}

    /// Do what is left to do when all was written.
    fn end(&mut self) {}
}

/// The way to the thread. The thread ends with it.
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
    /// Bytes that they take of a group.
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

    /// Wait for items, and give them.
    fn take(&self, into: &mut Vec<T>, due: Option<Instant>, linger: Duration) -> Taken {
        let mut queue = self.queue();
        while queue.waiting.is_empty() && !queue.is_closed {
            queue = match due.map(|due| due.saturating_duration_since(Instant::now())) {
                None => self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return Taken::Due,
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
        if into.is_empty() { Taken::End } else { Taken::Items }
    }
}

/// What the thread has waited for.
enum Taken {
    Items,
    Due,
    End,
}

/// Sees to it that items are dropped, and so their waiters told, where the writer panics.
struct OnEnd<T>(Arc<Shared<T>>);

impl<T> Drop for OnEnd<T> {
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
        let end = OnEnd(Arc::clone(&shared));
        let run = move || {
            let (mut taken, mut group) = (Vec::new(), Vec::new());
            loop {
                match end.0.take(&mut taken, writer.due(), writer.linger()) {
                    Taken::Items => {}
                    Taken::Due => writer.wake(),
                    Taken::End => break,
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

    /// Hand an item over. Gives it back where the thread has ended, as in a forked child.
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
        // Else the thread has been woken, or looks again before it sleeps; or it waits until a group is full.
        if queue.waiting.len() == 1 || (before < GROUP && queue.bytes >= GROUP) {
            self.shared.wake.notify_one();
        }
        Ok(())
    }
}

/// Put items together up to the bytes of a group.
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
    /// Write what was handed over, let the writer end, and end the thread. Blocks, and so does a second call until that is done.
    pub fn close(&self) {
        // In a forked child there is no such thread, nor anybody to unlock what it had locked.
        if self.process != std::process::id() {
            return;
        }
        self.shared.close();
        // Held until the thread has ended, so that every caller waits for that.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            // A panic has been told.
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
        // Until the thread has taken it.
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
            // Until that has taken the thread.
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

    /// What a writer was told, in order.
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
