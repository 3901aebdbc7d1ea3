//! Group commit: one thread writes, and what came while it was busy is its next group.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

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
}

struct Queue<T> {
    waiting: Vec<T>,
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

    /// Wait for items; give them, or false at the end.
    fn take(&self, into: &mut Vec<T>) -> bool {
        let mut queue = self.queue();
        while queue.waiting.is_empty() && !queue.is_closed {
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut queue.waiting, into);
        !into.is_empty()
    }
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
    pub fn start(name: &str, mut writer: impl Writer<Item = T>) -> io::Result<Self> {
        let queue = Mutex::new(Queue { waiting: Vec::new(), is_closed: false });
        let shared = Arc::new(Shared { queue, wake: Condvar::new() });
        let end = OnEnd(Arc::clone(&shared));
        let run = move || {
            let (mut taken, mut group) = (Vec::new(), Vec::new());
            while end.0.take(&mut taken) {
                let mut rest = taken.drain(..).peekable();
                while let Some(first) = rest.next() {
                    fill(&mut group, first, &mut rest, |item| weight_of(&writer, item));
                    writer.write(&mut group);
                    group.clear();
                }
            }
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
        queue.waiting.push(item);
        // Else the thread has been woken, or looks again before it sleeps.
        if queue.waiting.len() == 1 {
            self.shared.wake.notify_one();
        }
        Ok(())
    }
}

fn weight_of<W: Writer>(_: &W, item: &W::Item) -> usize {
    W::weight(item)
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
    /// Write what was handed over, and end the thread. Blocks.
    pub fn close(&self) {
        // In a forked child there is no such thread, nor anybody to unlock what it had locked.
        if self.process != std::process::id() {
            return;
        }
        self.shared.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
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
    fn a_writer_that_panics_drops_what_waits() {
        let (commit, gate, _) = start();
        drop(gate);
        commit.push(1).unwrap();
        commit.close();
        assert_eq!(commit.push(2), Err(2));
    }
}
